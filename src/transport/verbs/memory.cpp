// Memory of a verbs endpoint: its regions, registered once, and what each peer takes of receives and staging.
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>
#include <utility>

#include <sys/mman.h>

#include "transport/verbs/descriptor/descriptor.h"
#include "transport/verbs/endpoint.h"

namespace incast::transport::verbs {

namespace {

constexpr int local_access = IBV_ACCESS_LOCAL_WRITE;
constexpr int all_access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;

}  // namespace

Result<Ok> Endpoint::register_region(Local region) {
    const auto number = static_cast<std::size_t>(region);
    regions_made_ = std::max(regions_made_, number + 1);
    const std::span<std::byte> memory = regions_.memory(region);
    MemoryRegion registration(ibv_reg_mr(device_.domain.get(), memory.data(), memory.size(), all_access));
    if (registration == nullptr) {
        return Error{device_.name() + " does not register it: " + reason(errno)};
    }
    lkeys_[number] = registration->lkey;
    registrations_[number] = std::move(registration);
    return Ok{};
}

std::span<std::byte> Endpoint::buffer(std::uint64_t number) const {
    const std::uint64_t each = settings_.receives + spare_receives;
    return {peers_[number / each].share.memory + number % each * buffer_bytes, buffer_bytes};
}

Result<Ok> Endpoint::take_share(Peer peer) {
    Share& share = peers_[index(peer)].share;
    if (share.out != nullptr) return Ok{};
    const std::uint32_t each = settings_.receives + spare_receives;
    share.bytes = each * buffer_bytes + settings_.staging;
    void* const memory = ::mmap(nullptr, share.bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) return Error{"out of memory: " + std::to_string(share.bytes) + " bytes for it"};
    share.registration.reset(ibv_reg_mr(device_.domain.get(), memory, share.bytes, local_access));
    if (share.registration == nullptr) {
        const Error error{device_.name() + " does not register " + std::to_string(share.bytes) +
                          " bytes for it: " + reason(errno)};
        ::munmap(memory, share.bytes);
        return error;
    }
    share.memory = static_cast<std::byte*>(memory);
    const std::uint32_t lkey = share.registration->lkey;
    for (std::uint32_t place = 0; place < each; ++place) {
        const std::uint32_t number = index(peer) * each + place;
        Receive& receive = receives_[number];
        receive.part = {reinterpret_cast<std::uintptr_t>(buffer(number).data()), buffer_bytes, lkey};
        receive.wr = {.wr_id = number,
                      .next = place + 1 < each ? &receives_[number + 1].wr : nullptr,
                      .sg_list = &receive.part,
                      .num_sge = 1};
    }
    ibv_recv_wr* bad = nullptr;
    if (const int error =
            ibv_post_srq_recv(device_.receives.get(), &receives_[std::size_t{index(peer)} * each].wr, &bad);
        error != 0)
        return Error{device_.name() + " does not take " + std::to_string(each) + " receives: " + reason(error)};
    share.out = std::make_unique<SendQueue>(index(peer), settings_.send_queue, share.memory + each * buffer_bytes,
                                            settings_.staging, lkey, device_.is_iwarp ? device_.initiator_reads : 0U);
    return Ok{};
}

void Endpoint::post_receives() {
    if (spent_.empty() || device_is_gone_) return;
    ibv_recv_wr* next = nullptr;
    for (std::size_t left = spent_.size(); left > 0; --left) {
        Receive& receive = receives_[spent_[left - 1]];
        receive.wr.next = next;
        next = &receive.wr;
        if (receive.counts_for != rma::nobody) count_back(Peer{std::exchange(receive.counts_for, rma::nobody)});
    }
    ibv_recv_wr* bad = nullptr;
    if (ibv_post_srq_recv(device_.receives.get(), next, &bad) != 0)
        log(std::string(transport_name) + ": " + device_.name() + " took a receive back no more");
    spent_.clear();
}

}  // namespace incast::transport::verbs

// Memory of an ofi endpoint: its regions, registered once; and buffers for each peer.
#include <algorithm>
#include <string>
#include <utility>

#include <rdma/fi_errno.h>
#include <sys/mman.h>

#include "transport/ofi/descriptor/descriptor.h"
#include "transport/ofi/endpoint.h"

namespace incast::transport::ofi {

namespace {

constexpr std::uint64_t every_access = FI_SEND | FI_RECV | FI_READ | FI_WRITE | FI_REMOTE_READ | FI_REMOTE_WRITE;
constexpr std::uint64_t local_access = FI_SEND | FI_RECV | FI_READ | FI_WRITE;

Result<Opened<fid_mr>> registered(const Fabric& fabric, std::span<std::byte> memory, std::uint64_t access,
                                  std::uint64_t key) {
    fid_mr* made = nullptr;
    int error = fi_mr_reg(fabric.domain.get(), memory.data(), memory.size(), access, 0, key, 0, &made, nullptr);
    Opened<fid_mr> owner(made);
    if (error == 0 && fabric.has_memory_mode(FI_MR_ENDPOINT)) {
        error = fi_mr_bind(made, &fabric.datagrams->fid, 0);
        if (error == 0) error = fi_mr_enable(made);
    }
    if (error == 0) return owner;
    return Error{std::string(fabric.provider()) + " does not register " + std::to_string(memory.size()) +
                 " bytes: " + meaning(error)};
}

}  // namespace

Result<Buffers> Buffers::make(const Fabric& fabric, std::size_t bytes, std::uint64_t key) {
    void* const memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) return Error{"out of memory: " + std::to_string(bytes) + " bytes"};
    Buffers made;
    made.memory_ = {static_cast<std::byte*>(memory), Unmap{bytes}};
    if (!fabric.has_memory_mode(FI_MR_LOCAL)) return made;
    auto registration = registered(fabric, {made.memory_.get(), bytes}, local_access, key);
    if (!registration) return registration.error();
    made.registration_ = std::move(*registration);
    return made;
}

Result<Ok> Endpoint::register_region(Local region) {
    const auto number = static_cast<std::size_t>(region);
    auto registration = registered(fabric_, regions_.memory(region), every_access, next_key_++);
    if (!registration) return registration.error();
    regions_made_ = std::max(regions_made_, number + 1);
    registrations_[number] = std::move(*registration);
    return Ok{};
}

Result<Blob> Endpoint::complete(Key& key, Local region) {
    if (!fabric_.has_memory_mode(FI_MR_VIRT_ADDR)) key.address = 0;
    key.key = fi_mr_key(registrations_[static_cast<std::size_t>(region)].get());
    return to_blob(key);
}

Result<Ok> Endpoint::take_buffers(Peer peer) {
    PeerState& state = peers_[index(peer)];
    const std::uint32_t each = settings_.receives + spare_receives;
    if (state.receives == nullptr) {
        auto made = Buffers::make(fabric_, each * buffer_bytes, next_key_++);
        if (!made) return made.error();
        state.buffers = std::move(*made);
        state.receives = std::make_unique<Receive[]>(each);
        for (std::uint32_t number = 0; number < each; ++number) {
            Receive& receive = state.receives[number];
            receive.buffer = state.buffers.data() + std::size_t{number} * buffer_bytes;
            receive.descriptor = state.buffers.descriptor();
            receive.of = index(peer);
        }
    }
    for (std::uint32_t number = 0; number < each; ++number)
        if (!state.receives[number].is_posted) post(state.receives[number]);
    return Ok{};
}

Result<Ok> Endpoint::take_sending(Peer peer) {
    PeerState& state = peers_[index(peer)];
    if (state.sending.out != nullptr) return Ok{};
    const std::size_t heads = std::size_t{settings_.send_queue} * max_head_bytes;
    auto made = Buffers::make(fabric_, heads + records * buffer_bytes, next_key_++);
    if (!made) return made.error();
    state.sending.memory = std::move(*made);
    std::byte* const memory = state.sending.memory.data();
    state.sending.out = std::make_unique<Outgoing>(index(peer), settings_.send_queue, records, memory, memory + heads,
                                                   state.sending.memory.descriptor(), !fabric_.is_ordered);
    return Ok{};
}

void Endpoint::post(Receive& receive) {
    fid_ep* const endpoint = fabric_.is_connected() ? peers_[receive.of].endpoint.get() : fabric_.datagrams.get();
    receive.counts_for = rma::nobody;
    receive.is_posted = endpoint != nullptr;
    if (endpoint == nullptr) return;
    const ssize_t error = fi_recv(endpoint, receive.buffer, buffer_bytes, receive.descriptor, FI_ADDR_UNSPEC,
                                  static_cast<Context*>(&receive));
    if (error == 0) return;
    receive.is_posted = false;
    if (error == -FI_EAGAIN) spent_.push_back(&receive);
}

void Endpoint::post_spent() {
    if (spent_.empty()) return;
    std::vector<Receive*> spent;
    spent.swap(spent_);  // those that libfabric does not take now come back to it
    spent_.reserve(spent.capacity());
    for (Receive* const each : spent) {
        if (each->counts_for != rma::nobody) count_back(Peer{each->counts_for});
        if (!each->is_posted) post(*each);
    }
}

}  // namespace incast::transport::ofi

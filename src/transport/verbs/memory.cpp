// Memory of a verbs endpoint: its regions, registered once; what each peer takes of receives and staging; and regions
// that were released, which stay until nobody can write there any more.
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

std::string no_region(Local region) {
    return "there is no region " + std::to_string(static_cast<unsigned>(region));
}

}  // namespace

Result<Local> Endpoint::allocate(std::size_t bytes) {
    Result<Local> made = regions_.allocate(bytes);
    if (!made) return made;
    if (const Result<Ok> registered = register_region(*made); !registered) {
        regions_.release(*made);
        sweep();
        return registered.error();
    }
    return made;
}

Result<Ok> Endpoint::register_region(Local region) {
    const auto number = static_cast<std::size_t>(region);
    regions_made_ = std::max(regions_made_, number + 1);
    const std::span<std::byte> memory = regions_.memory(region);
    MemoryRegion registration(ibv_reg_mr(device_.domain.get(), memory.data(), memory.size(), all_access));
    if (registration == nullptr) {
        return Error{"region of " + std::to_string(memory.size()) + " bytes: " + device_.name() +
                     " does not register it: " + reason(errno)};
    }
    lkeys_[number] = registration->lkey;
    registrations_[number] = std::move(registration);
    return Ok{};
}

Result<Blob> Endpoint::expose(Local region, const Grant& grant) {
    if (!regions_.has(region)) return Error{"expose: " + no_region(region)};
    if (grant.peer != any_peer && index(grant.peer) >= peers_.size())
        return Error{"expose: there is no peer " + std::to_string(index(grant.peer))};
    regions_.expose(region, {});
    const std::span<std::byte> memory = regions_.memory(region);
    Key key;
    key.owner = grant.peer == any_peer ? index(options_.self) : there(grant.peer);
    key.generation = options_.incarnation;
    key.region = static_cast<std::uint32_t>(region);
    key.use = regions_.use(region);
    key.peer = index(grant.peer);
    key.bytes = memory.size();
    key.run = options_.run;
    key.write = grant.write ? 1 : 0;
    key.address = reinterpret_cast<std::uintptr_t>(memory.data());
    key.rkeys[rail_] = rkey(region);
    return to_blob(key);
}

Result<Remote> Endpoint::import_key(Peer peer, const Blob& blob) {
    if (index(peer) >= peers_.size()) return Error{"import_key: there is no peer " + std::to_string(index(peer))};
    const PeerState& state = peers_[index(peer)];
    const Result<Key> key = read_key<Key>(blob, peer, Peer{state.there}, options_.run, max_regions, transport_name);
    if (!key) return key.error();
    const bool is_known = key->generation == state.incarnation && key->region < state.uses.size();
    return imports_.add({.peer = peer,
                         .address = key->address,
                         .bytes = key->bytes,
                         .rkey = key->rkeys[rail_],
                         .generation = key->generation,
                         .region = static_cast<std::uint16_t>(key->region),
                         .use = static_cast<std::uint16_t>(key->use),
                         .may_write = key->write != 0,
                         .is_gone = is_known && key->use < state.uses[key->region]});
}

Result<Ok> Endpoint::release(Local region) {
    if (!regions_.has(region)) return Error{"release: " + no_region(region)};
    retire(region);
    regions_.release(region);
    sweep();
    return Ok{};
}

void Endpoint::retire(Local region) {
    if (!regions_.has(region)) return;
    const auto number = static_cast<std::size_t>(region);
    Retired retired{.name = {static_cast<std::uint16_t>(region), regions_.use(region)},
                    .registration = std::move(registrations_[number]),
                    .memory = regions_.memory(region),
                    .waits_for = base::Bitmap(peers_.size())};
    if (regions_.exposed(number).empty()) return;
    for (std::size_t peer = connected_.next(0); peer != base::Bitmap::none; peer = connected_.next(peer + 1)) {
        if (!peers_[peer].was_welcomed) continue;  // its welcome will say it
        peers_[peer].to_tell.push_back(retired.name);
        peers_[peer].has_changes = true;
        retired.waits_for.set(peer);
        busy_.set(peer);
    }
    if (retired.waits_for.any()) retired_.push_back(std::move(retired));
}

void Endpoint::sweep() {
    regions_.sweep([&](std::span<std::byte> memory) {
        return std::ranges::any_of(pool_->rails, [&](const Endpoint* rail) {
            return std::ranges::any_of(rail->retired_,
                                       [&](const Retired& each) { return each.memory.data() == memory.data(); });
        });
    });
}

void Endpoint::hear_answered(Peer peer, std::span<const Change> changes) {
    for (Retired& each : retired_) {
        if (std::ranges::find(changes, each.name) != changes.end()) each.waits_for.reset(index(peer));
    }
    if (std::erase_if(retired_, [](const Retired& each) { return !each.waits_for.any(); }) > 0) sweep();
}

void Endpoint::forget_waiting(Peer peer) {
    for (Retired& each : retired_)
        each.waits_for.reset(index(peer));
    if (std::erase_if(retired_, [](const Retired& each) { return !each.waits_for.any(); }) > 0) sweep();
}

void Endpoint::mark_gone(Peer peer, const Change& change) {
    const PeerState& state = peers_[index(peer)];
    for (Import& each : imports_) {
        if (each.peer == peer && each.generation == state.incarnation && each.region == change.region &&
            each.use <= change.use) {
            each.is_gone = true;
        }
    }
}

void Endpoint::hear_released(Peer peer, std::span<const Change> changes) {
    PeerState& state = peers_[index(peer)];
    for (const Change& change : changes) {
        if (change.region >= max_regions) continue;
        if (state.uses.size() <= change.region) state.uses.resize(change.region + std::size_t{1});
        state.uses[change.region] =
            std::max<std::uint16_t>(state.uses[change.region], static_cast<std::uint16_t>(change.use + 1));
        mark_gone(peer, change);
        state.to_answer.push_back(change);
        state.has_changes = true;
    }
    busy_.set(index(peer));
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
        if (receive.counts_for == PairTable::none) continue;
        const std::uint32_t peer = std::exchange(receive.counts_for, PairTable::none);
        PeerState& state = peers_[peer];
        ++state.returned;
        if (static_cast<std::uint16_t>(state.returned - state.announced) >= untold_limit_) busy_.set(peer);
    }
    ibv_recv_wr* bad = nullptr;
    if (ibv_post_srq_recv(device_.receives.get(), next, &bad) != 0)
        log(std::string(transport_name) + ": " + device_.name() + " took a receive back no more");
    spent_.clear();
}

}  // namespace incast::transport::verbs

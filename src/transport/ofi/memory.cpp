// Memory of an ofi endpoint: its regions, registered once; buffers for each peer; and regions that were released, which
// stay until nobody can write there any more.
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

std::string no_region(Local region) {
    return "there is no region " + std::to_string(static_cast<unsigned>(region));
}

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

Result<Local> Endpoint::allocate(std::size_t bytes) {
    Result<Local> made = regions_.allocate(bytes);
    if (!made) return made;
    const auto number = static_cast<std::size_t>(*made);
    auto registration = registered(fabric_, regions_.memory(*made), every_access, next_key_++);
    if (!registration) {
        regions_.release(*made);
        sweep();
        return Error{"region of " + std::to_string(bytes) + " bytes: " + registration.error().message};
    }
    regions_made_ = std::max(regions_made_, number + 1);
    registrations_[number] = std::move(*registration);
    return made;
}

Result<Blob> Endpoint::expose(Local region, const Grant& grant) {
    if (!regions_.has(region)) return Error{"expose: " + no_region(region)};
    if (grant.peer != any_peer && index(grant.peer) >= peers_.size())
        return Error{"expose: there is no peer " + std::to_string(index(grant.peer))};
    regions_.expose(region, {});
    const std::span<std::byte> memory = regions_.memory(region);
    Key key;
    key.owner = index(options_.self);
    key.generation = options_.incarnation;
    key.region = static_cast<std::uint32_t>(region);
    key.use = regions_.use(region);
    key.peer = index(grant.peer);
    key.bytes = memory.size();
    key.run = options_.run;
    key.write = grant.write ? 1 : 0;
    key.address = fabric_.has_memory_mode(FI_MR_VIRT_ADDR) ? reinterpret_cast<std::uintptr_t>(memory.data()) : 0;
    key.key = fi_mr_key(registrations_[static_cast<std::size_t>(region)].get());
    return to_blob(key);
}

Result<Remote> Endpoint::import_key(Peer peer, const Blob& blob) {
    if (index(peer) >= peers_.size()) return Error{"import_key: there is no peer " + std::to_string(index(peer))};
    const Result<Key> key = read_key<Key>(blob, peer, options_.self, options_.run, max_regions, transport_name);
    if (!key) return key.error();
    const PeerState& state = peers_[index(peer)];
    const bool is_known = key->generation == state.incarnation && key->region < state.uses.size();
    return imports_.add({.peer = peer,
                         .address = key->address,
                         .bytes = key->bytes,
                         .key = key->key,
                         .generation = key->generation,
                         .region = static_cast<std::uint16_t>(key->region),
                         .use = static_cast<std::uint16_t>(key->use),
                         .may_write = key->write != 0,
                         .is_gone = is_known && key->use < state.uses[key->region]});
}

Result<Ok> Endpoint::release(Local region) {
    if (!regions_.has(region)) return Error{"release: " + no_region(region)};
    const auto number = static_cast<std::size_t>(region);
    Retired retired{.name = {static_cast<std::uint16_t>(region), regions_.use(region)},
                    .registration = std::move(registrations_[number]),
                    .memory = regions_.memory(region),
                    .waits_for = base::Bitmap(peers_.size())};
    for (std::size_t peer = 0; peer < peers_.size() && !regions_.exposed(number).empty(); ++peer) {
        PeerState& state = peers_[peer];
        // Of any other its welcome will say it. One that is being given up may write until it is down.
        if (state.was_welcomed && state.has_connection()) {
            state.to_tell.push_back(retired.name);
            state.has_changes = true;
            busy_.set(peer);
        } else if (state.state != PeerState::State::ending || fabric_.is_connected()) {
            continue;
        }
        retired.waits_for.set(peer);
    }
    if (retired.waits_for.any()) retired_.push_back(std::move(retired));
    regions_.release(region);
    sweep();
    return Ok{};
}

void Endpoint::sweep() {
    regions_.sweep([&](std::span<std::byte> memory) {
        return std::ranges::any_of(retired_, [&](const Retired& each) { return each.memory.data() == memory.data(); });
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
    receive.counts_for = Receive::nobody;
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
        if (each->counts_for != Receive::nobody) count_back(Peer{each->counts_for});
        if (!each->is_posted) post(*each);
    }
}

}  // namespace incast::transport::ofi

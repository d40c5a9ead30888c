// Remote DMA: one copy between local memory and the memory of a peer, which was mapped when it was first used.
#include <atomic>
#include <cerrno>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "base/stream_copy.h"
#include "softrio/shm/link.h"
#include "softrio/shm/port.h"

namespace incast::softrio::shm {

namespace {

constexpr std::size_t stream_from_bytes = 4096;  // less is not worth the fence

}  // namespace

/// What is guarded is known only once it was handed over.
std::optional<Reached> Port::reach(Peer& target, Direction direction, std::uint64_t address, std::uint64_t bytes) {
    if (auto open = target.reach(address, bytes)) return open;
    if (auto handed = target.reach_handed(direction, address, bytes)) return handed;
    take_files();
    return target.reach_handed(direction, address, bytes);
}

int Port::transfer(const Transfer& transfer) {
    const auto& [direction, has_response, channel, destid, address, bytes, is_streaming, answers_each] = transfer;
    DmaChannel& way = dma_channels_[channel];
    const std::lock_guard lock(way.mutex);
    if (way.peer == nullptr || way.peer->destid() != destid || !way.peer->is_there()) {
        way.reached.reset();
        way.peer = peer(destid);
        if (way.peer == nullptr) return -ENODEV;
    }
    Peer* const target = way.peer.get();
    Writer* const writer = target->writer(self_);
    if (writer == nullptr) return -EBUSY;
    auto& busy = writer->busy[channel];
    while (true) {
        if (!way.reached || !way.reached->holds(address, bytes.size()) || !allows(way.reached->access, direction))
            way.reached = reach(*target, direction, address, bytes.size());
        if (!way.reached) break;
        const Reached& reached = *way.reached;
        // Announced, then looked at again; the owner closes the window, then looks who is in it (Dekker).
        busy.store(reached.window + 1, std::memory_order_seq_cst);
        const bool still =
            target->block().windows[reached.window].open.load(std::memory_order_seq_cst) == reached.generation;
        // What the caller calls a stream does not fit into the caches: it leaves them as they are.
        if (still && direction == Direction::write && is_streaming && bytes.size() >= stream_from_bytes) {
            base::copy_streaming(reached.at(address), bytes.data(), bytes.size());
            base::fence_streams();
        } else if (still && direction == Direction::write) {
            std::memcpy(reached.at(address), bytes.data(), bytes.size());
        } else if (still) {
            std::memcpy(bytes.data(), reached.at(address), bytes.size());
        }
        busy.store(0, std::memory_order_release);
        if (still) return 0;
        way.reached.reset();
    }
    target->block().dropped.fetch_add(1, std::memory_order_relaxed);
    debug("endpoint " + std::to_string(this->destid()) + ": a transfer of " + std::to_string(bytes.size()) +
          " bytes at address " + std::to_string(address) + " of endpoint " + std::to_string(destid) +
          " is not inside one of its windows that this one may reach: nothing was moved");
    return -EIO;
}

std::int64_t Port::arrival_ns(Direction direction, std::uint32_t destid, std::uint64_t bytes) {
    if (options_.link == Options::Link::none) return 0;
    const LinkModel model = slowed({}, options_.link_slowdown);
    if (const auto members = group(destid); members != nullptr && direction == Direction::write) {
        std::vector<std::shared_ptr<Peer>> targets;  // they stay while their links are reserved
        std::vector<std::atomic<std::int64_t>*> links;
        for (const std::uint32_t member : members->members) {
            auto target = peer(member);
            if (target == nullptr) continue;
            links.push_back(&target->block().receives_until_ns);
            targets.push_back(std::move(target));
        }
        return reserve_path(model, block_->sends_until_ns, links, now_ns(), bytes);
    }
    const auto target = peer(destid);
    if (target == nullptr) return 0;
    const bool writes = direction == Direction::write;
    Block& from = writes ? *block_ : target->block();
    std::atomic<std::int64_t>* const to = writes ? &target->block().receives_until_ns : &block_->receives_until_ns;
    return reserve_path(model, from.sends_until_ns, {&to, 1}, now_ns(), bytes) + (writes ? 0 : model.round_trip_ns);
}

}  // namespace incast::softrio::shm

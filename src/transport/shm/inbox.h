// What an endpoint shares with all its peers: who has something for it, whether it sleeps, and a lane from each of
// them.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <new>
#include <span>

#include "transport/shm/lane.h"

namespace incast::transport::shm {

inline constexpr std::uint32_t max_peers_limit = 4096;
inline constexpr std::size_t page_bytes = 4096;

/// Bits by peer. Peers set them, the owner takes them.
class SharedBits {
public:
    void set(std::uint32_t peer) {
        words_[peer / 64].fetch_or(std::uint64_t{1} << (peer % 64), std::memory_order_seq_cst);
    }
    /// What was set since the last call; what the setter stored before is visible.
    std::uint64_t take(std::size_t word) {
        if (words_[word].load(std::memory_order_relaxed) == 0) return 0;
        return words_[word].exchange(0, std::memory_order_seq_cst);
    }
    [[nodiscard]] bool any(std::size_t word) const { return words_[word].load(std::memory_order_seq_cst) != 0; }

private:
    std::array<std::atomic<std::uint64_t>, max_peers_limit / 64> words_{};
};

struct InboxHeader {
    /// 1: the owner is about to sleep, or does. Whoever has set a bit and turns it into 0 rings the bell.
    alignas(64) std::atomic<std::uint32_t> asleep = 0;
    alignas(64) SharedBits dirty;  // the peer's lane has news
    alignas(64) SharedBits room;   // the peer has made room in the lane towards it
};
static_assert(sizeof(InboxHeader) <= page_bytes);

struct InboxShape {
    std::uint32_t peers = 0;
    std::uint32_t ring_bytes = 0;  // a power of two

    [[nodiscard]] std::size_t lane_bytes() const {
        return (sizeof(LaneHeader) + ring_bytes + page_bytes - 1) / page_bytes * page_bytes;
    }
    [[nodiscard]] std::size_t bytes() const { return page_bytes + peers * lane_bytes(); }
    [[nodiscard]] std::size_t lane_offset(std::uint32_t peer) const { return page_bytes + peer * lane_bytes(); }
};

/// A mapped inbox, of this endpoint or of a peer. Pages that nobody wrote to cost nothing.
class Inbox {
public:
    Inbox() = default;
    Inbox(std::span<std::byte> memory, InboxShape shape) : memory_(memory), shape_(shape) {}

    [[nodiscard]] InboxHeader& header() const { return *reinterpret_cast<InboxHeader*>(memory_.data()); }
    [[nodiscard]] std::size_t words() const { return (shape_.peers + 63) / 64; }
    /// Before either side of the pair uses it: see Endpoint::match.
    void reset_lane(std::uint32_t peer) const { new (lane(peer)) LaneHeader; }
    [[nodiscard]] LaneReader reader(std::uint32_t peer) const { return {lane(peer), ring(peer), shape_.ring_bytes}; }
    [[nodiscard]] LaneWriter writer(std::uint32_t peer) const { return {lane(peer), ring(peer), shape_.ring_bytes}; }

private:
    [[nodiscard]] LaneHeader* lane(std::uint32_t peer) const {
        return reinterpret_cast<LaneHeader*>(memory_.data() + shape_.lane_offset(peer));
    }
    [[nodiscard]] std::byte* ring(std::uint32_t peer) const {
        return memory_.data() + shape_.lane_offset(peer) + sizeof(LaneHeader);
    }

    std::span<std::byte> memory_;
    InboxShape shape_;
};

}  // namespace incast::transport::shm

// What one stream still has to send: headers, messages and small bodies copied into a ring, large bodies by reference.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include <incast/transport.h>

#include "transport/framed/event_writer.h"
#include "transport/framed/frame.h"

namespace incast::transport::framed {

class Sender {
public:
    /// All memory is taken here. A reserve is kept free of posts, so that answers to the peer always find room.
    struct Limits {
        std::size_t copied_bytes = 0;
        std::size_t bodies = 0;
        std::size_t reserved_bytes = 0;   // of copied_bytes
        std::size_t reserved_bodies = 0;  // of bodies
    };
    explicit Sender(const Limits& limits);

    [[nodiscard]] bool fits(std::size_t copied_bytes, std::size_t bodies) const {
        return fits_in_reserve(copied_bytes + reserved_bytes_, bodies + reserved_bodies_);
    }
    [[nodiscard]] bool fits_in_reserve(std::size_t copied_bytes, std::size_t bodies) const {
        // Every body may start one segment and end another of copied bytes.
        return copied_bytes <= ring_bytes_ - used_bytes_ && 2 * bodies + 1 <= segments_.size() - used_segments_;
    }

    /// Precondition for both: it fits.
    void copy(Bytes bytes);
    /// The bytes stay untouched until they are sent; then `token` completes, unless it is 0.
    void refer(Bytes body, Token token);

    [[nodiscard]] bool empty() const { return used_segments_ == 0; }
    /// Bytes that were posted, and that are sent, since the beginning.
    [[nodiscard]] std::uint64_t posted_bytes() const { return posted_bytes_; }
    [[nodiscard]] std::uint64_t sent_bytes() const { return sent_bytes_; }
    /// A body that is still to be sent lies in there.
    [[nodiscard]] bool refers_to(Bytes memory) const {
        for (std::size_t i = 0; i < used_segments_; ++i)
            if (lies_in(segment(first_segment_ + i).body, memory)) return true;
        return false;
    }
    /// A piece that gather() gave was copied here; else the caller's memory holds it.
    [[nodiscard]] bool has_copied(Bytes piece) const { return lies_in(piece.data(), {ring_.get(), ring_bytes_}); }
    /// At most half full: time to tell a caller who got `again`.
    [[nodiscard]] bool has_room() const {
        return used_bytes_ <= (ring_bytes_ - reserved_bytes_) / 2 &&
               used_segments_ <= (segments_.size() - 2 * reserved_bodies_) / 2;
    }

    /// What to send next, in order: fills `pieces`, with no more than `completions` tokens among them. Returns how
    /// many.
    [[nodiscard]] std::size_t gather(std::span<Bytes> pieces, std::size_t completions) const;
    /// The link took the first `bytes` of what gather gave.
    void sent(std::size_t bytes, Peer peer, EventWriter& events);
    /// Gives up: completes what is left with `status`, as far as `events` has room. True when nothing is left.
    bool abandon(Status status, Peer peer, EventWriter& events);

private:
    struct Segment {
        const std::byte* body;  // nullptr: the next bytes of the ring
        std::size_t bytes;
        Token token;
    };
    Segment& segment(std::size_t position) { return segments_[position & (segments_.size() - 1)]; }
    [[nodiscard]] const Segment& segment(std::size_t position) const {
        return segments_[position & (segments_.size() - 1)];
    }
    void pop();

    std::size_t ring_bytes_;  // a power of two
    std::size_t reserved_bytes_;
    std::size_t reserved_bodies_;
    std::unique_ptr<std::byte[]> ring_;
    std::size_t ring_head_ = 0;  // positions in the ring, modulo ring_bytes_
    std::size_t used_bytes_ = 0;
    std::vector<Segment> segments_;  // a ring; its size is a power of two
    std::size_t first_segment_ = 0;
    std::size_t used_segments_ = 0;
    std::size_t sent_of_first_ = 0;  // bytes of the first segment already sent
    std::uint64_t posted_bytes_ = 0;
    std::uint64_t sent_bytes_ = 0;
};

}  // namespace incast::transport::framed

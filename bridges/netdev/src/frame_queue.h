// Frames that wait for room at a peer: a bounded queue, which CoDel watches.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "codel.h"
#include "frame.h"

namespace incast::netdev {

/// Messages (a frame behind its offload header) in the order in which they came. It reads no clock.
class FrameQueue {
public:
    /// Takes `limit_bytes` of address space; pages are touched once frames wait there.
    explicit FrameQueue(std::size_t limit_bytes);

    /// Copies it. False: there is no room.
    bool push(Bytes message, std::int64_t now_ns);

    struct Head {
        std::span<std::byte> message;  // stays until pop(); empty: none is left
        std::uint32_t marked = 0;      // frames, of this one: 0 or 1
        std::uint32_t dropped = 0;     // frames before it
    };
    /// The next one to send. CoDel has been asked once for each frame that this has passed.
    Head front(std::int64_t now_ns);
    void pop();
    void clear();

    [[nodiscard]] bool is_empty() const { return count_ == 0; }
    [[nodiscard]] std::size_t frames() const { return count_; }
    [[nodiscard]] std::size_t bytes() const { return bytes_; }

private:
    struct Record {
        std::int64_t since_ns = 0;
        std::uint64_t bytes = 0;  // of the message; end_of_memory: what follows is at the start
    };
    static constexpr std::uint64_t end_of_memory = ~std::uint64_t{0};

    static std::size_t space_for(std::size_t message_bytes);
    [[nodiscard]] Record record_at(std::size_t at) const;
    void put(std::size_t at, Record record);
    void skip_to_record();

    std::size_t size_;
    std::unique_ptr<std::byte[]> memory_;
    std::size_t head_ = 0;  // where the oldest record is
    std::size_t tail_ = 0;  // where the next one goes
    std::size_t count_ = 0;
    std::size_t bytes_ = 0;   // of messages
    bool was_asked_ = false;  // CoDel, about the oldest
    Codel codel_;
};

}  // namespace incast::netdev

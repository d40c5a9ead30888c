// Bodies that travel beside the stream, each in pieces that say where they belong and that may get lost. The frame of
// their write follows in the stream, and says how many bytes should have come by then.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include <incast/transport.h>

#include "base/fifo.h"
#include "transport/framed/frame.h"

namespace incast::transport::framed {

/// What is left of a body to be sent.
struct Body {
    FrameHeader next;  // of the next piece, without its length
    const std::byte* bytes = nullptr;
    std::size_t left = 0;
    Token token = 0;
    std::uint64_t position = 0;  // what was posted to the stream before it
};

/// Bodies are numbered in posting order, each peer's apart.
class Bodies {
public:
    /// `posted`: that may wait to be sent. `ahead`: that may come before the frame of the first of them.
    Bodies(std::size_t posted, std::size_t ahead) : out_(posted), arrived_(ahead) {}

    [[nodiscard]] bool empty() const { return out_.empty(); }
    [[nodiscard]] bool full() const { return out_.full(); }
    [[nodiscard]] bool has_room() const { return out_.size() <= out_.capacity() / 2; }
    [[nodiscard]] bool refers_to(Bytes memory) const {
        for (std::size_t index = 0; index < out_.size(); ++index)
            if (lies_in(out_[index].bytes, memory)) return true;
        return false;
    }
    /// Precondition: not full.
    void post(Body body) {
        body.next.sequence = posted_++;
        out_.must_push(body);
    }
    [[nodiscard]] Body& front() { return out_.front(); }
    [[nodiscard]] const Body& front() const { return out_[0]; }
    void pop() { out_.pop(); }

    /// A piece of that number may land: its frame is still to come.
    [[nodiscard]] bool takes(std::uint32_t number) const { return number - framed_ < arrived_.size(); }
    /// Precondition: takes().
    void landed(std::uint32_t number, std::uint32_t bytes) { arrived_[number % arrived_.size()] += bytes; }
    /// The next one's frame is here: what comes from now on is too late. True: so many bytes have come.
    bool end(std::uint32_t bytes) { return std::exchange(arrived_[framed_++ % arrived_.size()], 0) == bytes; }

private:
    base::Fifo<Body> out_;
    std::uint32_t posted_ = 0;
    std::uint32_t framed_ = 0;            // frames that are here
    std::vector<std::uint32_t> arrived_;  // bytes, by number; its size is a power of two
};

}  // namespace incast::transport::framed

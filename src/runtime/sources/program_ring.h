// The memory of one program as its readout unit sees it: packets come out of it, in order (source/layout.h).
//
// It is written by somebody who may be broken, dead, or at it right now. The counts here are the readout unit's own;
// what is read of the ring is copied and checked before it is used. A packet that is handed out may still change: it is
// for ingest::Window::take_shared().
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include <incast/transport.h>

#include "source/layout.h"

namespace incast::sources {

class ProgramRing {
public:
    /// Writes the header into `file`, which is zeroed, of layout's size for that ring, and outlives this.
    ProgramRing(std::span<std::byte> file, std::uint64_t ring_bytes);

    /// The oldest packet that was not popped; nothing: there is none, or what is there makes no sense.
    [[nodiscard]] std::optional<Bytes> peek();
    /// What is there makes no sense: nothing of it is read any more.
    [[nodiscard]] bool is_broken() const { return broken_; }
    /// The packet that peek() returned is done with.
    void pop();
    /// Says how far this side is, and wakes a program that sleeps, once per call.
    void tell(std::uint64_t next_event);
    /// The program left in order.
    [[nodiscard]] bool is_closed() const;
    /// Nothing is taken any more, and why.
    void end(source::State state);

private:
    void wake();

    source::RingHeader* header_;
    std::span<std::byte> ring_;
    std::uint64_t taken_ = 0;
    std::uint64_t told_ = 0;
    std::uint64_t record_ = 0;  // bytes of what peek() returned
    bool broken_ = false;
};

}  // namespace incast::sources

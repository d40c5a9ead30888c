// One attached process as its builder unit sees it: what it was handed, and what it gave back (consumer/layout.h).
//
// The control page is written by somebody who may be broken or dead. Nothing in it is used as a place, a length or an
// index: a word counts only if it is the serial number that was handed out with that very cell.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "consumer/layout.h"

namespace incast::sinks {

class ConsumerQueue {
public:
    /// Writes the header into `queue`. Both areas are zeroed, of layout's sizes for that window, borrowed.
    ConsumerQueue(std::span<std::byte> queue, std::span<std::byte> control, std::uint32_t window);

    [[nodiscard]] bool has_room() const { return !free_cells_.empty(); }
    [[nodiscard]] std::uint32_t outstanding() const { return window_ - static_cast<std::uint32_t>(free_cells_.size()); }

    /// Hands over what lies in `slot`; it has room. `serial` is not 0, and not one of another event.
    void deliver(std::uint64_t serial, std::uint32_t slot, bool repeated);
    /// An event that it did not get.
    void miss() { ++missed_; }
    [[nodiscard]] std::uint64_t missed() const { return missed_; }

    enum class Said : std::uint8_t { nothing, something, nonsense };
    /// Appends the slots that were given back since the last time to `slots`, and what was said of each to `verdicts`
    /// (layout.h). Cheap if there are none.
    Said collect(std::vector<std::uint32_t>& slots, std::vector<std::uint64_t>& verdicts);
    /// collect() would not say `nothing`.
    [[nodiscard]] bool has_news() const { return control_->releases.load(std::memory_order_acquire) != released_; }
    /// Appends the slots it still has. It has none from then on.
    void take_all(std::vector<std::uint32_t>& slots);

    /// After a delivery, or an end: wakes a process that sleeps on its queue, once per sleep. True: it sleeps on its
    /// socket and was not rung for yet, which is the caller's.
    bool wake();
    /// Nothing is delivered any more, and why.
    void end(consumer::State state);

private:
    void tell();

    struct Held {
        std::uint64_t serial = 0;  // 0: the cell is free
        std::uint64_t before = 0;  // what the cell's word was when the event was handed out
        std::uint32_t slot = 0;
    };

    consumer::QueueHeader* header_;
    consumer::QueueEntry* entries_;
    consumer::Control* control_;
    const consumer::Cell* cells_;
    const consumer::Verdict* verdicts_;
    std::uint32_t window_;
    std::uint64_t delivered_ = 0;
    std::uint64_t released_ = 0;  // as the process counts
    std::uint64_t missed_ = 0;
    std::uint64_t woken_ = 0;  // the process's sleep that it was last woken from
    std::uint32_t news_ = 0;
    std::vector<Held> held_;  // by cell
    std::vector<std::uint32_t> free_cells_;
};

}  // namespace incast::sinks

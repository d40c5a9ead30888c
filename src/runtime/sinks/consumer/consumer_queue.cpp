#include "runtime/sinks/consumer/consumer_queue.h"

#include <new>

namespace incast::sinks {

using consumer::Cell;
using consumer::Control;
using consumer::QueueEntry;
using consumer::QueueHeader;

ConsumerQueue::ConsumerQueue(std::span<std::byte> queue, std::span<std::byte> control, std::uint32_t window)
    : header_(new(queue.data()) QueueHeader),
      entries_(reinterpret_cast<QueueEntry*>(queue.data() + sizeof(QueueHeader))),
      control_(reinterpret_cast<Control*>(control.data())),
      cells_(reinterpret_cast<const Cell*>(control.data() + sizeof(Control))),
      verdicts_(reinterpret_cast<const consumer::Verdict*>(cells_ + window)),
      window_(window),
      held_(window) {
    header_->window = window;
    free_cells_.reserve(window);
    for (std::uint32_t cell = window; cell > 0; --cell) {
        free_cells_.push_back(cell - 1);
    }
}

void ConsumerQueue::deliver(std::uint64_t serial, std::uint32_t slot, bool repeated) {
    const std::uint32_t cell = free_cells_.back();
    free_cells_.pop_back();
    held_[cell] = {serial, held_[cell].before, slot};
    // Entries are read in order, so this place was read before any later event was given back; with as many events out
    // as there are places, there is no room.
    QueueEntry& entry = entries_[delivered_ % window_];
    entry = {serial, missed_, slot, cell, repeated ? 1U : 0U, 0};
    header_->delivered.store(++delivered_, std::memory_order_release);
    tell();
}

ConsumerQueue::Said ConsumerQueue::collect(std::vector<std::uint32_t>& slots, std::vector<std::uint64_t>& verdicts) {
    // The words were written before the count of them.
    const std::uint64_t releases = control_->releases.load(std::memory_order_acquire);
    if (releases == released_) {
        return Said::nothing;
    }
    if (releases < released_ || releases > delivered_) {
        return Said::nonsense;
    }
    released_ = releases;
    for (std::uint32_t cell = 0; cell < window_; ++cell) {
        Held& held = held_[cell];
        if (held.serial == 0) {
            continue;
        }
        const std::uint64_t word = cells_[cell].load(std::memory_order_acquire);
        if (word == held.serial) {
            slots.push_back(held.slot);
            verdicts.push_back(verdicts_[cell].load(std::memory_order_relaxed));
            held = {0, word, 0};
            free_cells_.push_back(cell);
        } else if (word != held.before) {
            return Said::nonsense;
        }
    }
    return Said::something;
}

void ConsumerQueue::take_all(std::vector<std::uint32_t>& slots) {
    for (std::uint32_t cell = 0; cell < window_; ++cell) {
        Held& held = held_[cell];
        if (held.serial != 0) {
            slots.push_back(held.slot);
            held = {0, held.before, 0};
            free_cells_.push_back(cell);
        }
    }
}

void ConsumerQueue::end(consumer::State state) {
    header_->state.store(state, std::memory_order_release);
    tell();
}

/// What changed was written before.
void ConsumerQueue::tell() {
    control_->news.store(++news_, std::memory_order_release);
}

bool ConsumerQueue::wake() {
    // The process says that it sleeps, then looks for events once more: one of the two sees the other.
    std::atomic_thread_fence(std::memory_order_seq_cst);
    const std::uint64_t waiting = control_->waiting.load(std::memory_order_relaxed);
    if (waiting == 0 || waiting == woken_) {
        return false;
    }
    woken_ = waiting;
    if (consumer::is_on_word(waiting)) {
        consumer::wake(control_->news);
        return false;
    }
    return true;
}

}  // namespace incast::sinks

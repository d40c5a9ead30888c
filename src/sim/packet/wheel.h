// The order of a packet network: a timing wheel with a bitmap of its filled slots, and a heap for what is further away.
//
// An event has a fixed identity, which is pending at most once: (port, what happens there), a timer of a flow, and so
// on. Events happen in the order (time, identity), which is total; how wide the slots are does not change it. An event
// scheduled for the present instant comes after the one that is happening, whatever its identity.
//
// Calendar queues: R. Brown, CACM 31(10), 1988; timing wheels: G. Varghese and A. Lauck, SOSP 1987.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <incast/transport.h>

#include "sim/packet/types.h"

namespace incast::sim::packet {

using EventId = std::uint32_t;

class Wheel {
public:
    /// Slots of 2^slot_shift picoseconds, 2^slot_bits of them. slot_shift <= 31; 12 <= slot_bits <= 22.
    Wheel(unsigned slot_shift, unsigned slot_bits)
        : shift_(slot_shift),
          slots_(std::int64_t{1} << slot_bits),
          mask_(static_cast<std::uint32_t>(slots_ - 1)),
          heads_(static_cast<std::size_t>(slots_), nil),
          filled_(static_cast<std::size_t>(slots_ / 64)),
          summary_(static_cast<std::size_t>(slots_ / 4096)) {}

    /// Makes the identities [0, events) usable. Allocates; schedule() and pop() do not, but for a new peak of the heap
    /// or of one slot.
    void grow_to(std::size_t events) {
        if (events > nodes_.size()) nodes_.resize(events);
    }

    [[nodiscard]] Time now() const { return now_; }
    [[nodiscard]] bool pending(EventId id) const { return nodes_[id].previous != nowhere; }
    [[nodiscard]] Time time_of(EventId id) const { return nodes_[id].time; }

    /// `time` >= now(). An event that is pending is moved.
    void schedule(EventId id, Time time) {
        Node& node = nodes_[id];
        if (node.previous != nowhere) cancel(id);
        node.time = time;
        const std::int64_t slot = time >> shift_;
        const std::int64_t ahead = slot - cursor_;
        if (ahead > 0 && ahead < slots_) {
            put_into_slot(id, node, static_cast<std::uint32_t>(slot) & mask_);
        } else if (ahead <= 0) {
            put_into_current(id, node);
        } else {
            node.previous = in_heap;
            heap_.push_back({time, id});
            std::push_heap(heap_.begin(), heap_.end(), later);
        }
    }
    /// As schedule, unless it is pending for an earlier or the same time.
    void schedule_by(EventId id, Time time) {
        if (nodes_[id].previous == nowhere || time < nodes_[id].time) schedule(id, time);
    }

    void cancel(EventId id) {
        Node& node = nodes_[id];
        if (node.previous == in_current) {
            current_.erase(std::find(current_.begin(), current_.end(), key(node.time, id)));
        } else if (node.previous < in_current) {
            take_out_of_slot(id, node);
        }  // an entry of the heap is recognised as stale when it surfaces
        node.previous = nowhere;
    }

    /// Takes the next event if it is due by `limit`, and moves now() to its time; false otherwise, and now() stays.
    bool pop(Time limit, EventId& id) {
        while (current_.empty())
            if (!load_next(limit)) return false;
        const std::uint64_t first = current_.back();
        const Time time = current_base() + static_cast<Time>(first >> 32);
        if (time > limit) return false;
        current_.pop_back();
        id = static_cast<EventId>(first);
        nodes_[id].previous = nowhere;
        now_ = time;
        return true;
    }
    /// What pop() will most likely give next; nil if that is not known cheaply.
    [[nodiscard]] EventId hint() const { return current_.empty() ? nil : static_cast<EventId>(current_.back()); }

    /// The time of the earliest event; time_never without any.
    [[nodiscard]] Time next_time() {
        if (!current_.empty()) return current_base() + static_cast<Time>(current_.back() >> 32);
        drop_stale();
        const std::int64_t slot = next_filled();
        if (slot < 0) return heap_.empty() ? time_never : heap_.front().time;
        const std::uint32_t head = heads_[static_cast<std::uint32_t>(slot) & mask_];
        Time earliest = nodes_[head].time;
        for (std::uint32_t id = nodes_[head].next; id != head; id = nodes_[id].next)
            earliest = std::min(earliest, nodes_[id].time);
        return earliest;
    }
    /// Nothing may be due before: see next_time().
    void move_to(Time now) { now_ = std::max(now, now_); }

private:
    // Where an event is, in place of its predecessor in the ring of a slot.
    static constexpr std::uint32_t nowhere = nil;
    static constexpr std::uint32_t in_heap = nil - 1;
    static constexpr std::uint32_t in_current = nil - 2;
    struct Node {
        Time time = 0;
        std::uint32_t next = nil;  // in the ring of its slot
        std::uint32_t previous = nowhere;
    };
    struct Far {
        Time time;
        EventId id;
    };
    static bool later(const Far& one, const Far& two) {
        return one.time != two.time ? one.time > two.time : one.id > two.id;
    }

    [[nodiscard]] Time current_base() const { return cursor_ << shift_; }
    /// The order of events within one slot, as one number.
    [[nodiscard]] std::uint64_t key(Time time, EventId id) const {
        return (static_cast<std::uint64_t>(time - current_base()) << 32) | id;
    }

    void put_into_slot(EventId id, Node& node, std::uint32_t slot) {
        std::uint32_t& head = heads_[slot];
        if (head == nil) {
            head = node.next = node.previous = id;
            filled_[slot >> 6] |= std::uint64_t{1} << (slot & 63);
            summary_[slot >> 12] |= std::uint64_t{1} << ((slot >> 6) & 63);
            return;
        }
        Node& first = nodes_[head];
        node.next = head;
        node.previous = first.previous;
        nodes_[first.previous].next = id;
        first.previous = id;
    }
    void take_out_of_slot(EventId id, Node& node) {
        const auto slot = static_cast<std::uint32_t>(node.time >> shift_) & mask_;
        if (node.next == id) {
            empty_slot(slot);
            return;
        }
        nodes_[node.previous].next = node.next;
        nodes_[node.next].previous = node.previous;
        if (heads_[slot] == id) heads_[slot] = node.next;
    }
    void empty_slot(std::uint32_t slot) {
        heads_[slot] = nil;
        filled_[slot >> 6] &= ~(std::uint64_t{1} << (slot & 63));
        if (filled_[slot >> 6] == 0) summary_[slot >> 12] &= ~(std::uint64_t{1} << ((slot >> 6) & 63));
    }
    /// current_ is sorted downwards: the next event is at its end.
    void put_into_current(EventId id, Node& node) {
        node.previous = in_current;
        const std::uint64_t mine = key(node.time, id);
        std::size_t hole = current_.size();
        current_.push_back(mine);
        while (hole > 0 && current_[hole - 1] < mine) {
            current_[hole] = current_[hole - 1];
            --hole;
        }
        current_[hole] = mine;
    }

    /// The next filled slot after the cursor; -1 if the wheel is empty.
    [[nodiscard]] std::int64_t next_filled() const {
        const auto start = static_cast<std::uint32_t>(cursor_ + 1) & mask_;
        std::uint32_t word = start >> 6;
        std::uint64_t bits = filled_[word] & (~std::uint64_t{0} << (start & 63));
        if (bits == 0) {
            const auto words = static_cast<std::uint32_t>(filled_.size());
            std::uint32_t block = word >> 6;
            std::uint64_t blocks =
                (word & 63) == 63 ? 0 : summary_[block] & (~std::uint64_t{0} << ((word & 63) + 1));
            for (std::uint32_t tried = 0; blocks == 0; ++tried) {
                if (tried == summary_.size()) return -1;
                block = block + 1 == summary_.size() ? 0 : block + 1;
                blocks = summary_[block];
            }
            word = (block * 64 + static_cast<std::uint32_t>(std::countr_zero(blocks))) % words;
            bits = filled_[word];
        }
        const std::uint32_t slot = word * 64 + static_cast<std::uint32_t>(std::countr_zero(bits));
        return cursor_ + 1 + static_cast<std::int64_t>((slot - start) & mask_);
    }

    bool load_next(Time limit) {
        if (!heap_.empty()) drop_stale();
        std::int64_t slot = next_filled();
        if (slot < 0) {
            if (heap_.empty()) return false;
            slot = heap_.front().time >> shift_;
        }
        // Whoever scheduled up to `limit` may still schedule before this slot: then the cursor must not have passed.
        if ((slot << shift_) > limit) return false;
        cursor_ = slot;
        while (!heap_.empty() && (heap_.front().time >> shift_) - cursor_ < slots_)
            take_near();
        const auto index = static_cast<std::uint32_t>(slot) & mask_;
        const std::uint32_t head = heads_[index];
        if (head == nil) return true;  // what was far away is in current_ now
        empty_slot(index);
        const std::size_t already = current_.size();
        std::uint32_t id = head;
        do {
            Node& node = nodes_[id];
            node.previous = in_current;
            current_.push_back(key(node.time, id));
            id = node.next;
        } while (id != head);
        if (current_.size() > 1) sort_current(already);
        return true;
    }
    void sort_current(std::size_t already) {
        constexpr std::size_t few = 24;
        if (current_.size() > few) {
            std::sort(current_.begin(), current_.end(), std::greater<>());
            return;
        }
        for (std::size_t index = std::max<std::size_t>(already, 1); index < current_.size(); ++index) {
            const std::uint64_t mine = current_[index];
            std::size_t hole = index;
            while (hole > 0 && current_[hole - 1] < mine) {
                current_[hole] = current_[hole - 1];
                --hole;
            }
            current_[hole] = mine;
        }
    }
    void take_near() {
        const Far far = heap_.front();
        std::pop_heap(heap_.begin(), heap_.end(), later);
        heap_.pop_back();
        Node& node = nodes_[far.id];
        if (node.previous != in_heap || node.time != far.time) return;
        const std::int64_t slot = far.time >> shift_;
        if (slot == cursor_) {
            put_into_current(far.id, node);
        } else {
            put_into_slot(far.id, node, static_cast<std::uint32_t>(slot) & mask_);
        }
    }
    void drop_stale() {
        while (!heap_.empty()) {
            const Far& far = heap_.front();
            const Node& node = nodes_[far.id];
            if (node.previous == in_heap && node.time == far.time) return;
            std::pop_heap(heap_.begin(), heap_.end(), later);
            heap_.pop_back();
        }
    }

    unsigned shift_;
    std::int64_t slots_;
    std::uint32_t mask_;
    Time now_ = 0;
    std::int64_t cursor_ = -1;  // the slot that current_ holds
    std::vector<std::uint64_t> current_;
    std::vector<Node> nodes_;
    std::vector<std::uint32_t> heads_;    // per slot, a ring of events
    std::vector<std::uint64_t> filled_;   // one bit per slot
    std::vector<std::uint64_t> summary_;  // one bit per word of filled_
    std::vector<Far> heap_;
};

}  // namespace incast::sim::packet

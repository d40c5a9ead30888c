// The order of a packet network: a timing wheel with a bitmap of its filled slots; for what is further away lists, one
// for each revolution of the wheel to come; and a heap for what is further away than these. Timers of flows are in the
// lists: there may be a million.
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
#include <functional>
#include <vector>

#include <incast/transport.h>

#include "base/large_pages.h"
#include "sim/packet/types.h"

namespace incast::sim::packet {

using EventId = std::uint32_t;

class Wheel {
public:
    /// Slots of 2^slot_shift picoseconds, 2^slot_bits of them. slot_shift <= 31; 12 <= slot_bits <= 22.
    Wheel(unsigned slot_shift, unsigned slot_bits)
        : shift_(slot_shift),
          bits_(slot_bits),
          slots_(std::int64_t{1} << slot_bits),
          mask_(static_cast<std::uint32_t>(slots_ - 1)),
          heads_(static_cast<std::size_t>(slots_), nil),
          filled_(static_cast<std::size_t>(slots_ / 64)),
          summary_(static_cast<std::size_t>(slots_ / 4096)),
          turns_(most_turns, nil),
          turns_filled_(most_turns / 64) {}

    /// Makes the identities [0, events) usable. Allocates; schedule() and pop() do not, but for a new peak of what is
    /// far away or of one slot.
    void grow_to(std::size_t events) {
        if (events > nodes_.size()) nodes_.resize(events);
    }

    [[nodiscard]] Time now() const { return now_; }
    [[nodiscard]] bool pending(EventId id) const { return nodes_[id].place != Place::nowhere; }
    [[nodiscard]] Time time_of(EventId id) const { return nodes_[id].time; }

    void prefetch(EventId id) const { __builtin_prefetch(&nodes_[id]); }

    /// `time` >= now(). An event that is pending is moved.
    [[gnu::always_inline]] void schedule(EventId id, Time time) {
        Node& node = nodes_[id];
        const std::int64_t slot = time >> shift_;
        const auto ahead = static_cast<std::uint64_t>(slot - cursor_ - 1);
        if (node.place != Place::nowhere || ahead >= static_cast<std::uint64_t>(slots_ - 1)) [[unlikely]] {
            schedule_elsewhere(id, time);
            return;
        }
        node.time = time;
        put_into_slot(id, node, static_cast<std::uint32_t>(slot) & mask_);
    }
    /// The same for one that is not pending.
    [[gnu::always_inline]] void schedule_new(EventId id, Time time) {
        const std::int64_t slot = time >> shift_;
        const auto ahead = static_cast<std::uint64_t>(slot - cursor_ - 1);
        if (ahead >= static_cast<std::uint64_t>(slots_ - 1)) [[unlikely]] {
            schedule_elsewhere(id, time);
            return;
        }
        Node& node = nodes_[id];
        node.time = time;
        put_into_slot(id, node, static_cast<std::uint32_t>(slot) & mask_);
    }
    /// As schedule, unless it is pending for an earlier or the same time.
    void schedule_by(EventId id, Time time) {
        if (nodes_[id].place == Place::nowhere || time < nodes_[id].time) schedule(id, time);
    }

    [[gnu::noinline]] void cancel(EventId id) {
        Node& node = nodes_[id];
        if (node.place == Place::current) {
            const auto last = current_.begin() + count_;
            std::copy(std::find(current_.begin(), last, key(node.time, id)) + 1, last,
                      std::find(current_.begin(), last, key(node.time, id)));
            --count_;
        } else if (node.place == Place::slot) {
            take_out_of_slot(id, node);
        }  // an entry of a list or of the heap is recognised as stale when it surfaces
        node.place = Place::nowhere;
    }

    /// Takes the next event if it is due by `limit`, and moves now() to its time; false otherwise, and now() stays.
    bool pop(Time limit, EventId& id) {
        while (count_ == 0)
            if (!load_next(limit)) return false;
        const std::uint64_t first = current_[static_cast<std::size_t>(count_ - 1)];
        const Time time = base_ + static_cast<Time>(first >> 32);
        if (time > limit) return false;
        --count_;
        id = static_cast<EventId>(first);
        nodes_[id].place = Place::nowhere;
        now_ = time;
        return true;
    }
    /// The time of the earliest event; time_never without any.
    [[nodiscard]] Time next_time() {
        if (count_ > 0) return base_ + static_cast<Time>(current_[static_cast<std::size_t>(count_ - 1)] >> 32);
        drop_stale();
        Time earliest = heap_.empty() ? time_never : heap_.front().time;
        if (const std::int64_t slot = next_filled(); slot >= 0)
            for (EventId id = heads_[static_cast<std::uint32_t>(slot) & mask_]; id != nil; id = nodes_[id].next)
                earliest = std::min(earliest, nodes_[id].time);
        // The lists come last: they are long, and hold nothing before the turn they are of.
        if (next_turn_ == never_slot || (next_turn_ << bits_ << shift_) >= earliest) return earliest;
        for (std::int64_t turn = next_turn(); turn >= 0 && (turn << bits_ << shift_) < earliest; turn = next_turn(turn))
            for (std::uint32_t index = turns_[turn & (most_turns - 1)]; index != nil; index = far_[index].next)
                if (is_valid(far_[index])) earliest = std::min(earliest, far_[index].time);
        return earliest;
    }
    /// The event `distance` after the one that pop() gave, where that is known already: for looking ahead. Else nil.
    [[nodiscard]] EventId upcoming(std::ptrdiff_t distance) const {
        return count_ >= distance ? static_cast<EventId>(current_[static_cast<std::size_t>(count_ - distance)]) : nil;
    }
    /// Nothing may be due before: see next_time().
    void move_to(Time now) { now_ = std::max(now, now_); }

private:
    enum class Place : std::uint32_t { nowhere, slot, current, far };
    struct Node {
        Time time = 0;
        EventId next = nil;  // in its slot
        Place place = Place::nowhere;
    };
    struct Far {
        Time time;
        EventId id;
        std::uint32_t next = nil;  // in its list; or of the free ones
    };
    static bool later(const Far& one, const Far& two) {
        return one.time != two.time ? one.time > two.time : one.id > two.id;
    }

    /// The order of events within one slot, as one number.
    [[nodiscard]] std::uint64_t key(Time time, EventId id) const {
        return (static_cast<std::uint64_t>(time - base_) << 32) | id;
    }

    /// The latest first: where events were scheduled in order, reading them gives that of current_.
    void put_into_slot(EventId id, Node& node, std::uint32_t slot) {
        node.place = Place::slot;
        EventId& head = heads_[slot];
        node.next = head;
        if (head == nil) {
            filled_[slot >> 6] |= std::uint64_t{1} << (slot & 63);
            summary_[slot >> 12] |= std::uint64_t{1} << ((slot >> 6) & 63);
        }
        head = id;
    }
    void take_out_of_slot(EventId id, const Node& node) {
        const auto slot = static_cast<std::uint32_t>(node.time >> shift_) & mask_;
        EventId* link = &heads_[slot];
        while (*link != id)
            link = &nodes_[*link].next;
        *link = node.next;
        if (heads_[slot] == nil) empty_slot(slot);
    }
    [[gnu::noinline]] void schedule_elsewhere(EventId id, Time time) {
        if (pending(id)) cancel(id);
        Node& node = nodes_[id];
        node.time = time;
        const std::int64_t slot = time >> shift_;
        if (slot <= cursor_) {
            put_into_current(id, node);
        } else if (slot - cursor_ < slots_) {
            put_into_slot(id, node, static_cast<std::uint32_t>(slot) & mask_);
        } else {
            put_far_away(id, node, slot >> bits_);
        }
    }
    /// Turn n of the wheel is that of the slots [n, n + 1) x slots_.
    void put_far_away(EventId id, Node& node, std::int64_t turn) {
        node.place = Place::far;
        if (turn - (cursor_ >> bits_) >= most_turns) {
            heap_.push_back({.time = node.time, .id = id});
            std::push_heap(heap_.begin(), heap_.end(), later);
            near_slot_ = heap_.front().time >> shift_;
            return;
        }
        if (free_far_ == nil) {
            free_far_ = static_cast<std::uint32_t>(far_.size());
            far_.push_back({});
        }
        const std::uint32_t index = free_far_;
        free_far_ = far_[index].next;
        const auto place = static_cast<std::uint32_t>(turn & (most_turns - 1));
        far_[index] = {node.time, id, turns_[place]};
        turns_[place] = index;
        turns_filled_[place >> 6] |= std::uint64_t{1} << (place & 63);
        next_turn_ = std::min(next_turn_, turn);
    }
    [[nodiscard]] bool is_valid(const Far& far) const {
        return nodes_[far.id].place == Place::far && nodes_[far.id].time == far.time;
    }
    /// The next turn after `after` that has a list; the turn of the cursor has none. -1: none.
    [[nodiscard]] std::int64_t next_turn(std::int64_t after = -1) const {
        const std::int64_t now = cursor_ >> bits_;
        const std::int64_t from = std::max(after, now) + 1;
        const std::int64_t end = now + most_turns;
        for (std::int64_t turn = from; turn < end;) {
            const auto place = static_cast<std::uint32_t>(turn & (most_turns - 1));
            const std::uint64_t bits = turns_filled_[place >> 6] >> (place & 63);
            if (bits != 0) {
                const std::int64_t found = turn + std::countr_zero(bits);
                return found < end ? found : -1;
            }
            turn += 64 - (place & 63);
        }
        return -1;
    }
    /// The wheel has come to that turn: its events are near. The cursor is at the end of the turn before.
    [[gnu::noinline]] void spread(std::int64_t turn) {
        const auto place = static_cast<std::uint32_t>(turn & (most_turns - 1));
        std::uint32_t index = turns_[place];
        turns_[place] = nil;
        turns_filled_[place >> 6] &= ~(std::uint64_t{1} << (place & 63));
        while (index != nil) {
            const Far far = far_[index];
            far_[index].next = free_far_;
            free_far_ = index;
            index = far.next;
            if (is_valid(far))
                put_into_slot(far.id, nodes_[far.id], static_cast<std::uint32_t>(far.time >> shift_) & mask_);
        }
    }
    void empty_slot(std::uint32_t slot) {
        heads_[slot] = nil;
        filled_[slot >> 6] &= ~(std::uint64_t{1} << (slot & 63));
        if (filled_[slot >> 6] == 0) summary_[slot >> 12] &= ~(std::uint64_t{1} << ((slot >> 6) & 63));
    }
    /// current_ is sorted downwards: the next event is at its end.
    void insert(std::uint64_t mine) {
        if (static_cast<std::size_t>(count_) == current_.size()) current_.resize(2 * current_.size());
        std::ptrdiff_t hole = count_++;
        std::uint64_t* const keys = current_.data();
        for (; hole > 0 && keys[hole - 1] < mine; --hole)
            keys[hole] = keys[hole - 1];
        keys[hole] = mine;
    }
    void put_into_current(EventId id, Node& node) {
        node.place = Place::current;
        insert(key(node.time, id));
    }

    /// The next filled slot after the cursor; -1 if the wheel is empty.
    [[nodiscard]] std::int64_t next_filled() const {
        const auto start = static_cast<std::uint32_t>(cursor_ + 1) & mask_;
        std::uint32_t word = start >> 6;
        std::uint64_t bits = filled_[word] & (~std::uint64_t{0} << (start & 63));
        if (bits == 0) {
            const auto words = static_cast<std::uint32_t>(filled_.size());
            std::uint32_t block = word >> 6;
            std::uint64_t blocks = (word & 63) == 63 ? 0 : summary_[block] & (~std::uint64_t{0} << ((word & 63) + 1));
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
        std::int64_t slot = next_filled();
        if (slot < 0) {
            drop_stale();
            slot = near_slot_;
        }
        if (next_turn_ <= slot >> bits_ && next_turn_ != never_slot) return begin_turn(limit);
        if (slot == never_slot) return false;
        // Whoever scheduled up to `limit` may still schedule before this slot: then the cursor must not have passed.
        if ((slot << shift_) > limit) return false;
        cursor_ = slot;
        base_ = slot << shift_;
        while (near_slot_ - cursor_ < slots_)
            take_near();
        const auto index = static_cast<std::uint32_t>(slot) & mask_;
        EventId id = heads_[index];
        if (id == nil) return true;  // what was far away is in current_ now
        empty_slot(index);
        if (count_ == 0 && nodes_[id].next == nil) {
            current_[0] = key(nodes_[id].time, id);
            count_ = 1;
            nodes_[id].place = Place::current;
            return true;
        }
        constexpr std::ptrdiff_t few = 32;
        for (; id != nil && count_ < few; id = nodes_[id].next)
            put_into_current(id, nodes_[id]);
        if (id != nil) load_many(id);
        return true;
    }
    /// The cursor comes to the end of the turn before the next one that has a list, and its events into the wheel.
    /// False: see load_next().
    [[gnu::noinline]] bool begin_turn(Time limit) {
        const std::int64_t turn = next_turn_;
        if ((turn << bits_ << shift_) > limit) return false;
        cursor_ = (turn << bits_) - 1;
        base_ = cursor_ << shift_;
        while (near_slot_ - cursor_ < slots_)
            take_near();
        spread(turn);
        const std::int64_t next = next_turn();
        next_turn_ = next < 0 ? never_slot : next;
        return true;
    }
    [[gnu::noinline]] void load_many(EventId id) {
        for (; id != nil; id = nodes_[id].next) {
            nodes_[id].place = Place::current;
            if (static_cast<std::size_t>(count_) == current_.size()) current_.resize(2 * current_.size());
            current_[static_cast<std::size_t>(count_++)] = key(nodes_[id].time, id);
        }
        const auto last = current_.begin() + count_;
        if (!std::is_sorted(current_.begin(), last, std::greater<>()))
            std::sort(current_.begin(), last, std::greater<>());
    }
    void drop_first() {
        std::pop_heap(heap_.begin(), heap_.end(), later);
        heap_.pop_back();
        near_slot_ = heap_.empty() ? never_slot : heap_.front().time >> shift_;
    }
    [[gnu::noinline]] void take_near() {
        const Far far = heap_.front();
        drop_first();
        Node& node = nodes_[far.id];
        if (!is_valid(far)) return;
        const std::int64_t slot = far.time >> shift_;
        if (slot == cursor_) {
            put_into_current(far.id, node);
        } else {
            put_into_slot(far.id, node, static_cast<std::uint32_t>(slot) & mask_);
        }
    }
    void drop_stale() {
        while (!heap_.empty()) {
            if (is_valid(heap_.front())) return;
            drop_first();
        }
    }

    static constexpr std::int64_t never_slot = time_never;  // also of turns
    static constexpr std::int64_t most_turns = 4096;        // that have lists
    unsigned shift_;
    unsigned bits_;
    std::int64_t slots_;
    std::uint32_t mask_;
    Time now_ = 0;
    std::int64_t cursor_ = -1;             // the slot that current_ holds
    Time base_ = 0;                        // its beginning
    std::ptrdiff_t count_ = 0;             // of current_ in use
    std::int64_t near_slot_ = never_slot;  // of the earliest in the heap, stale or not
    std::int64_t next_turn_ = never_slot;  // the first that has a list
    std::vector<std::uint64_t> current_ = std::vector<std::uint64_t>(64);
    std::vector<Node, base::LargePages<Node>> nodes_;
    std::vector<EventId> heads_;               // per slot, a list of events
    std::vector<std::uint64_t> filled_;        // one bit per slot
    std::vector<std::uint64_t> summary_;       // one bit per word of filled_
    std::vector<std::uint32_t> turns_;         // per turn, by its number modulo most_turns: a list in far_
    std::vector<std::uint64_t> turns_filled_;  // one bit per list
    std::vector<Far, base::LargePages<Far>> far_;
    std::uint32_t free_far_ = nil;
    std::vector<Far> heap_;
};

}  // namespace incast::sim::packet

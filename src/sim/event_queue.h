// The order of a simulated world: a heap of events by (time, port, sequence).
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include <incast/transport.h>

namespace incast::sim {

/// Something that will happen. `kind`, `subject` and `detail` belong to whoever schedules.
struct Scheduled {
    Time time = 0;
    std::uint64_t sequence = 0;  // given by the queue: unique, in order of scheduling
    std::uint32_t port = 0;      // where it happens; orders events of one instant
    std::uint32_t subject = 0;
    std::uint16_t kind = 0;
    std::uint16_t detail = 0;

    /// A total order, so that the same seed gives the same bits whatever the heap does with equal keys.
    [[nodiscard]] bool before(const Scheduled& other) const {
        if (time != other.time) return time < other.time;
        if (port != other.port) return port < other.port;
        return sequence < other.sequence;
    }
};

/// A 4-ary heap: half the depth of a binary one, and the four children share two cache lines. Grows, never shrinks.
class EventQueue {
public:
    [[nodiscard]] bool empty() const { return heap_.empty(); }
    [[nodiscard]] std::size_t size() const { return heap_.size(); }
    [[nodiscard]] Time next_time() const { return heap_.empty() ? time_never : heap_.front().time; }

    void push(Scheduled event) {
        event.sequence = ++sequence_;
        std::size_t hole = heap_.size();
        heap_.push_back(event);
        while (hole > 0) {
            const std::size_t parent = (hole - 1) / arity;
            if (!event.before(heap_[parent])) break;
            heap_[hole] = heap_[parent];
            hole = parent;
        }
        heap_[hole] = event;
    }

    /// The earliest event; the queue must not be empty.
    Scheduled pop() {
        const Scheduled first = heap_.front();
        const Scheduled last = heap_.back();
        heap_.pop_back();
        if (!heap_.empty()) sift_down(last);
        return first;
    }

private:
    static constexpr std::size_t arity = 4;

    void sift_down(const Scheduled& event) {
        const std::size_t size = heap_.size();
        std::size_t hole = 0;
        while (true) {
            const std::size_t first = hole * arity + 1;
            if (first >= size) break;
            std::size_t best = first;
            for (std::size_t child = first + 1; child < size && child < first + arity; ++child) {
                if (heap_[child].before(heap_[best])) best = child;
            }
            if (!heap_[best].before(event)) break;
            heap_[hole] = heap_[best];
            hole = best;
        }
        heap_[hole] = event;
    }

    std::vector<Scheduled> heap_;
    std::uint64_t sequence_ = 0;
};

}  // namespace incast::sim

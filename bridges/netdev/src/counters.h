// What a queue counts, for whoever asks about the device.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>

namespace incast::netdev {

/// One thread adds, any may read.
class Counter {
public:
    void add(std::uint64_t more) { value_.store(get() + more, std::memory_order_relaxed); }
    [[nodiscard]] std::uint64_t get() const { return value_.load(std::memory_order_relaxed); }

private:
    std::atomic<std::uint64_t> value_ = 0;
};

/// Of one peer, in one queue.
struct Counters {
    Counter sent_frames, sent_bytes;          // with their offload headers
    Counter received_frames, received_bytes;  // that the kernel took
    Counter dropped_full;                     // to the peer: the queue had no room
    Counter dropped_codel, marked_codel;      // to the peer: the queue stood for too long
    Counter dropped_lost;                     // to the peer: it was not there, or went
    Counter received_faulty;                  // no frames
    Counter received_refused;  // frames that the kernel did not take: the device is down, or memory is short
};

struct CounterName {
    const char* name;
    Counter Counters::* counter;
};
inline constexpr std::array counter_names{
    CounterName{"sent_frames", &Counters::sent_frames},
    CounterName{"sent_bytes", &Counters::sent_bytes},
    CounterName{"received_frames", &Counters::received_frames},
    CounterName{"received_bytes", &Counters::received_bytes},
    CounterName{"dropped_full", &Counters::dropped_full},
    CounterName{"dropped_codel", &Counters::dropped_codel},
    CounterName{"marked_codel", &Counters::marked_codel},
    CounterName{"dropped_lost", &Counters::dropped_lost},
    CounterName{"received_faulty", &Counters::received_faulty},
    CounterName{"received_refused", &Counters::received_refused},
};

}  // namespace incast::netdev

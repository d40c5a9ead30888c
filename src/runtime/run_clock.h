// The time of a run: picoseconds since it began, so that it stays far from the end of 64 bits (106 days) however long
// the host has been up.
#pragma once

#include <cstdint>

#include <incast/transport.h>

namespace incast::runtime {

/// CLOCK_MONOTONIC, shared by all processes of a host; 64 bits of nanoseconds last for 292 years.
[[nodiscard]] std::int64_t monotonic_ns();

class RunClock {
public:
    /// Time 0 is now.
    RunClock() : RunClock(monotonic_ns()) {}
    /// Time 0 is when CLOCK_MONOTONIC showed that: a process that shares a run with others of its host.
    explicit RunClock(std::int64_t origin_ns) : origin_ns_(origin_ns) {}

    [[nodiscard]] Time now() const { return (monotonic_ns() - origin_ns_) * ps_per_ns; }
    [[nodiscard]] std::int64_t origin_ns() const { return origin_ns_; }

private:
    std::int64_t origin_ns_;
};

/// Notices that this process itself was stopped, by a signal or with its whole machine. What a process waits for from
/// others cannot come meanwhile, so its deadlines are later by that time.
class PauseWatch {
public:
    /// Longer than `shortest` without a look was a pause.
    PauseWatch(Time now, Time shortest) : looked_(now), shortest_(shortest) {}

    /// For how long it was stopped since the last look, after which it meant to sleep for `sleep`; 0: it was not.
    Time look(Time now, Time sleep = 0) {
        const Time gap = now - looked_ - sleep;
        looked_ = now;
        return gap > shortest_ ? gap : 0;
    }

private:
    Time looked_;
    Time shortest_;
};

}  // namespace incast::runtime

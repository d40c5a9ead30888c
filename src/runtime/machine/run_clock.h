// The time of a run: picoseconds since it began, so that it stays far from the end of 64 bits (106 days) however long
// the host has been up.
#pragma once

#include <algorithm>
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
    explicit RunClock(std::int64_t origin_ns)
        : origin_ns_(origin_ns), base_ns_(origin_ns), steered_until_ns_(origin_ns) {}

    [[nodiscard]] Time now() const { return at(monotonic_ns()); }
    /// When CLOCK_MONOTONIC showed that, since the last steer().
    [[nodiscard]] Time at(std::int64_t local_ns) const {
        if (!follows_) [[likely]] {
            return (local_ns - origin_ns_) * ps_per_ns;
        }
        const std::int64_t steered_ns = std::min(local_ns, steered_until_ns_) - base_ns_;
        return base_ + (local_ns - base_ns_) * ps_per_ns +
               static_cast<Time>(steer_ * static_cast<double>(steered_ns) +
                                 drift_ * static_cast<double>(local_ns - base_ns_));
    }
    [[nodiscard]] std::int64_t origin_ns() const { return origin_ns_; }

    /// Another host's clock shows `theirs` when CLOCK_MONOTONIC shows `local_ns`, and gains `drift` ps per ns. This one
    /// follows within a second: faster or slower, ahead at once if it is far behind, never back.
    void steer(std::int64_t local_ns, Time theirs, double drift);

private:
    std::int64_t origin_ns_;
    bool follows_ = false;  // another host's
    Time base_ = 0;
    std::int64_t base_ns_;           // when it was base_
    std::int64_t steered_until_ns_;  // from there on steer_ has done its work
    double steer_ = 0;               // ps per ns
    double drift_ = 0;
};

}  // namespace incast::runtime

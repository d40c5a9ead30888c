#include "runtime/machine/run_clock.h"

#include <ctime>

namespace incast::runtime {

std::int64_t monotonic_ns() {
    timespec time{};
    clock_gettime(CLOCK_MONOTONIC, &time);
    return static_cast<std::int64_t>(time.tv_sec) * 1'000'000'000 + time.tv_nsec;
}

void RunClock::steer(std::int64_t local_ns, Time theirs, double drift) {
    constexpr std::int64_t usual_ns = 1'000'000'000;
    constexpr Time jump = 100 * ps_per_ms;
    constexpr double slowest = -500;  // ps per ns: half the speed
    const Time now = at(local_ns);
    const Time behind = theirs - now;
    follows_ = true;
    base_ = behind > jump ? theirs : now;
    base_ns_ = steered_until_ns_ = local_ns;
    steer_ = 0;
    drift_ = drift;
    if (behind <= jump) {
        const auto least_ns = static_cast<std::int64_t>(static_cast<double>(behind) / slowest);
        const std::int64_t takes_ns = std::max(usual_ns, least_ns);
        steered_until_ns_ += takes_ns;
        steer_ = static_cast<double>(behind) / static_cast<double>(takes_ns);
    }
}

}  // namespace incast::runtime

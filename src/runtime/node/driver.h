// Steps a node whose transport works in real time, and decides how to wait when there is nothing to do.
// Waiting: sched_yield costs 0.4 us and lets another node of the same core work, a sleep and its wake-up some 4 to 40
// us; so it yields a number of times before it sleeps. The CPU time of looking for work in vain is estimated from one
// round in `measured_every`.
#pragma once

#include <cstdint>

#include <incast/transport.h>

#include "runtime/machine/run_clock.h"
#include "runtime/node/host.h"

namespace incast::runtime {

class Driver {
public:
    /// `yields`: run.yields
    Driver(Host& host, const RunClock& clock, std::uint64_t yields)
        : host_(host), clock_(clock), yields_before_sleep_(yields) {}

    /// Steps until `look_at`, until there are news of the node, or after a sleep; while busy it returns every
    /// millisecond, so that the control connection can be looked at. Returns the time.
    Time run(Time look_at, int control_fd, bool control_wants_write);

private:
    /// One step, and what follows if it found nothing to do. True if the caller should look at what the driver does
    /// not.
    bool round(Time now, Time look_at, int control_fd, bool control_wants_write);
    void sleep(Time now, Time until, int control_fd, bool control_wants_write);

    static constexpr std::uint64_t measured_every = 64;

    Host& host_;
    const RunClock& clock_;
    std::uint64_t yields_before_sleep_;
    std::uint64_t rounds_ = 0;
    std::uint64_t idle_rounds_ = 0;  // since the last useful one
};

}  // namespace incast::runtime

// Steps a node whose transport works in real time, and decides how to wait when there is nothing to do.
// Waiting: sched_yield costs 0.4 us and lets another node of the same core work, a sleep and its wake-up some 4 to 40
// us; so it yields a number of times before it sleeps. A node with a core of its own spins for some microseconds
// between two yields, as long as they show that nobody else wants the core. So nobody else waits longer than a spin.
// The CPU time of looking for work in vain is estimated from one round in `measured_every`.
#pragma once

#include <cstdint>

#include <incast/transport.h>

#include "runtime/machine/run_clock.h"
#include "runtime/node/host.h"

namespace incast::runtime {

class Driver {
public:
    /// `yields`: run.yields; `has_own_core`: no more nodes than cores are here
    Driver(Host& host, const RunClock& clock, std::uint64_t yields, bool has_own_core)
        : host_(host), clock_(clock), yields_before_sleep_(yields), has_own_core_(has_own_core) {}

    /// Steps until `look_at`, until there are news of the node, or after a sleep; while busy it returns every
    /// millisecond, so that the control connection can be looked at. Returns the time.
    Time run(Time look_at, int control_fd, bool control_wants_write);

private:
    /// One step, and what follows if it found nothing to do. True if the caller should look at what the driver does
    /// not.
    bool round(Time now, Time look_at, int control_fd, bool control_wants_write);
    /// Lets others run, and sees whether there were any.
    void yield();
    void sleep(Time now, Time until, int control_fd, bool control_wants_write);

    static constexpr std::uint64_t measured_every = 64;
    static constexpr Time shortest_sleep = 20 * ps_per_us;

    Host& host_;
    const RunClock& clock_;
    std::uint64_t yields_before_sleep_;
    bool has_own_core_;
    std::uint64_t rounds_ = 0;
    bool is_idle_ = false;           // the last round found nothing to do
    std::uint64_t idle_yields_ = 0;  // since the last useful round; a spin counts as several
    Time spins_until_ = 0;
    Time next_sleep_ = shortest_sleep;  // where nothing can wake it up
};

}  // namespace incast::runtime

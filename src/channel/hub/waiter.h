// Waits for a hub: looks for a while, then sleeps. How long it looks follows from what that brought.
#pragma once

#include <incast/transport.h>

#include "channel/hub/hub.h"
#include "channel/hub/spin.h"

namespace incast::channel {

struct WaiterSettings {
    Time longest_spin = 50 * ps_per_us;  // 0: sleeps at once
    Time look_every = 100 * ps_per_us;   // asleep, where memory is polled
};

class Waiter {
public:
    explicit Waiter(Hub& hub, const WaiterSettings& settings = {})
        : hub_(hub), settings_(settings), spin_(settings.longest_spin) {}

    /// Drives the hub until something happened, `wake_fd` (if there is one) is readable, or `longest` is over. True if
    /// something happened in the hub.
    bool wait(Time longest, int wake_fd = -1);
    /// How long it looks before it sleeps, as it has learned.
    [[nodiscard]] Time spin() const { return spin_.now(); }

private:
    bool sleep(Time now, Time until, int wake_fd);

    Hub& hub_;
    WaiterSettings settings_;
    Spin spin_;
};

}  // namespace incast::channel

#include "channel/hub/waiter.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <ctime>

#include <poll.h>

#include "base/later.h"

namespace incast::channel {

namespace {

constexpr Time without_descriptor = ps_per_ms;

Time clock_now() {
    const auto since = std::chrono::steady_clock::now().time_since_epoch();
    return std::chrono::duration_cast<std::chrono::nanoseconds>(since).count() * ps_per_ns;
}

}  // namespace

bool Waiter::wait(Time longest, int wake_fd) {
    const Time begin = clock_now();
    const Time until = base::later(begin, longest);
    bool has_slept = false;
    for (Time now = begin;; now = clock_now()) {
        if (hub_.poll(now)) {
            spin_.learn(now - begin, has_slept);
            return true;
        }
        if (now >= until) return false;
        if (now - begin < spin_.now() || !hub_.prepare_wait()) continue;
        has_slept = true;
        if (sleep(now, until, wake_fd)) return hub_.poll(clock_now());
    }
}

/// True if `wake_fd` is readable.
bool Waiter::sleep(Time now, Time until, int wake_fd) {
    until = std::min(until, hub_.next_deadline());
    if (hub_.must_look()) until = std::min(until, base::later(now, settings_.look_every));
    if (hub_.wait_fd() < 0) until = std::min(until, base::later(now, without_descriptor));
    std::array<pollfd, 2> watched{pollfd{.fd = hub_.wait_fd(), .events = POLLIN, .revents = 0},
                                  pollfd{.fd = wake_fd, .events = POLLIN, .revents = 0}};
    const Time rest = std::max<Time>(until - now, 0);
    const timespec limit{.tv_sec = rest / ps_per_s, .tv_nsec = rest % ps_per_s / ps_per_ns};
    (void)::ppoll(watched.data(), watched.size(), until == time_never ? nullptr : &limit, nullptr);
    return (watched[1].revents & POLLIN) != 0;
}

}  // namespace incast::channel

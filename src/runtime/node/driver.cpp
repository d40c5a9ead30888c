#include "runtime/node/driver.h"

#include <algorithm>
#include <ctime>
#include <iterator>

#include <poll.h>
#include <sched.h>

#include "runtime/machine/machine.h"

namespace incast::runtime {
namespace {

constexpr Time without_descriptor = ps_per_ms;  // contract, "waiting"
constexpr Time empty_yield = 2 * ps_per_us;     // less: nobody else wanted the core
constexpr Time longest_spin = 4 * ps_per_us;
constexpr std::uint64_t yields_of_a_spin = 10;  // that take as long
constexpr Time busy_without_control = ps_per_ms;

}  // namespace

Time Driver::run(Time look_at, int control_fd, bool control_wants_write) {
    const Time entered = clock_.now();
    while (true) {
        const Time now = clock_.now();
        if (now >= look_at || now - entered >= busy_without_control) {
            return now;
        }
        const bool measured = ++rounds_ % measured_every == 0;
        const std::uint64_t before = measured ? thread_cpu_ns() : 0;
        const bool look = round(now, look_at, control_fd, control_wants_write);
        if (measured && is_idle_) {
            host_.driven().polling_cpu_ns += (thread_cpu_ns() - before) * measured_every;
        }
        if (look) {
            return clock_.now();
        }
    }
}

bool Driver::round(Time now, Time look_at, int control_fd, bool control_wants_write) {
    is_idle_ = !host_.step(now);
    if (!is_idle_) {
        idle_yields_ = 0;
        next_sleep_ = shortest_sleep;
        return false;
    }
    if (host_.news_pending()) {
        return true;
    }
    if (idle_yields_ < yields_before_sleep_) {
        if (now >= spins_until_) yield();
        return false;
    }
    const Time until = std::min(look_at, host_.next_deadline());
    if (until <= now || !host_.transport().prepare_wait() || !host_.sink_prepare_wait()) {
        return false;
    }
    ++host_.driven().sleeps;
    sleep(now, until, control_fd, control_wants_write);
    return true;
}

void Driver::yield() {
    if (!has_own_core_) {
        sched_yield();
        ++idle_yields_;
        return;
    }
    const Time before = clock_.now();
    sched_yield();
    const Time after = clock_.now();
    const bool is_alone = after - before < empty_yield;
    spins_until_ = is_alone ? after + longest_spin : after;
    idle_yields_ += is_alone ? 1 + yields_of_a_spin : 1;
}

void Driver::sleep(Time now, Time until, int control_fd, bool control_wants_write) {
    const int transport_fd = host_.transport().wait_fd();
    Time time = until - now;
    if (transport_fd < 0) {
        // What others do is seen late: it sleeps short at first, as for an answer that is on its way.
        time = std::min(time, next_sleep_);
        next_sleep_ = std::min(2 * next_sleep_, without_descriptor);
    }
    pollfd waiting[]{{control_fd, static_cast<short>(POLLIN | (control_wants_write ? POLLOUT : 0)), 0},
                     {transport_fd, POLLIN, 0},
                     {host_.sink_fd(), POLLIN, 0}};
    const timespec span{static_cast<std::time_t>(time / ps_per_s), static_cast<long>(time % ps_per_s / ps_per_ns)};
    ppoll(waiting, std::size(waiting), &span, nullptr);
}

}  // namespace incast::runtime

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
        if (measured && idle_rounds_ != 0) {
            host_.driven().polling_cpu_ns += (thread_cpu_ns() - before) * measured_every;
        }
        if (look) {
            return clock_.now();
        }
    }
}

bool Driver::round(Time now, Time look_at, int control_fd, bool control_wants_write) {
    if (host_.step(now)) {
        idle_rounds_ = 0;
        return false;
    }
    if (host_.news_pending()) {
        return true;
    }
    if (++idle_rounds_ <= yields_before_sleep_) {
        sched_yield();
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

void Driver::sleep(Time now, Time until, int control_fd, bool control_wants_write) {
    const int transport_fd = host_.transport().wait_fd();
    Time time = until - now;
    if (transport_fd < 0) {
        time = std::min(time, without_descriptor);
    }
    pollfd waiting[]{{control_fd, static_cast<short>(POLLIN | (control_wants_write ? POLLOUT : 0)), 0},
                     {transport_fd, POLLIN, 0},
                     {host_.sink_fd(), POLLIN, 0}};
    const timespec span{static_cast<std::time_t>(time / ps_per_s), static_cast<long>(time % ps_per_s / ps_per_ns)};
    ppoll(waiting, std::size(waiting), &span, nullptr);
}

}  // namespace incast::runtime

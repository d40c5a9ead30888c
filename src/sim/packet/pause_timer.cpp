// Pauses that end by themselves: a pause frame says for how many quanta of 512 bit times it holds (IEEE 802.1Qbb,
// 802.3 annex 31B), and who still wants quiet says so again in time. Each direction of a cable has one timer, at the
// port that is quiet, and one at the port that asks.
#include <algorithm>

#include "sim/packet/core.h"

namespace incast::sim::packet {

/// `index` sends to a switch whose pauses expire.
void Core::add_pause_timer(PortIndex index, const PfcSettings& settings) {
    PauseTimer& timer = pause_timers_.emplace_back();
    const auto number = static_cast<std::uint32_t>(pause_timers_.size() - 1);
    timer.quiet = index;
    timer.holds = ports_[index].pace.of(std::uint64_t{settings.quanta} * 64);
    timer.refreshes = settings.refresh;
    timer.expiry = add_special(Special::pause_expiry, number);
    timer.refresh = add_special(Special::pause_refresh, number);
    details_[index].pause_timer = number;
}

/// A pause frame has come: the classes in it are quiet from now on.
void Core::restart_pause(std::uint32_t number, std::uint8_t classes) {
    PauseTimer& timer = pause_timers_[number];
    for (unsigned rest = classes; rest != 0; rest &= rest - 1)
        timer.until[static_cast<unsigned>(std::countr_zero(rest))] = now_ + timer.holds;
    if (classes != 0) wheel_.schedule_by(timer.expiry, now_ + timer.holds);
}

void Core::expire_pauses(std::uint32_t number) {
    const PauseTimer& timer = pause_timers_[number];
    const std::uint8_t paused = ports_[timer.quiet].paused;
    std::uint8_t still = 0;
    Time next = time_never;
    for (unsigned rest = paused; rest != 0; rest &= rest - 1) {
        const auto traffic_class = static_cast<unsigned>(std::countr_zero(rest));
        if (timer.until[traffic_class] <= now_) continue;
        still |= bit_of(traffic_class);
        next = std::min(next, timer.until[traffic_class]);
    }
    if (next != time_never) wheel_.schedule(timer.expiry, next);
    if (still != paused) set_paused(timer.quiet, still);
}

/// A frame with these classes leaves for the quiet port: it is repeated when half of its time is over.
void Core::plan_refresh(std::uint32_t number, std::uint8_t classes) {
    const PauseTimer& timer = pause_timers_[number];
    if (timer.refreshes && classes != 0) wheel_.schedule(timer.refresh, now_ + timer.holds / 2);
}

void Core::refresh_pause(std::uint32_t number) {
    const PortIndex asking = reverse_of(pause_timers_[number].quiet);
    Port& port = ports_[asking];
    if (port.pause_told == 0 || port.pause_told != port.pause_wanted) return;  // nothing to repeat, or on its way
    port.pause_told = 0;
    if (!port.armed) serve(asking);
}

}  // namespace incast::sim::packet

#include "runtime/sources/triggers.h"

#include <algorithm>

#include "runtime/sources/portable_math.h"

namespace incast::sources {

TriggerSequence::TriggerSequence(const TriggerOptions& options, std::uint64_t first_event)
    : gaps_ps_(Distribution::exponential, static_cast<double>(ps_per_s) / options.rate_hz, 0),
      period_ps_(static_cast<double>(ps_per_s) / options.rate_hz),
      arrivals_(options.arrivals),
      key_(base::mix64(options.seed ^ 0x7412664765727321ULL)),  // another stream than the sizes of the same seed
      origin_(options.origin),
      begin_(advance({0, origin_}, first_event)) {}

TriggerSequence::Cursor TriggerSequence::advance(Cursor from, std::uint64_t count) const {
    if (arrivals_ == Arrivals::fixed) {
        from.event += count;
        if (count > 0) {
            from.last = origin_ + static_cast<Time>(static_cast<double>(from.event - 1) * period_ps_);
        }
        return from;
    }
    for (; count > 0; --count) {
        from.last += static_cast<Time>(nearest(gaps_ps_(draw_at(key_, from.event++))));
    }
    return from;
}

Time TriggerGate::due(std::uint32_t n_events) {
    if (due_.event != accepted_.event + n_events) {
        due_ = sequence_.advance(accepted_, n_events);
    }
    return due_.last;
}

void TriggerGate::accept(std::uint32_t n_events) {
    due(n_events);
    accepted_ = due_;
}

void TriggerGate::set_room(Time now, std::uint64_t event) {
    const Time open = open_dead_time(now);
    if (open > 0) {
        dead_ += open;
        dead_until_ = now;
    }
    endless_room_ = event == no_end;
    if (!endless_room_ && event >= full_.event) {
        full_ = sequence_.advance(full_, event + 1 - full_.event);
    }
}

Time TriggerGate::open_dead_time(Time now) const {
    const bool set = full_.event > sequence_.begin().event;
    return set && !endless_room_ ? std::max<Time>(now - std::max(full_.last, dead_until_), 0) : 0;
}

std::uint64_t TriggerGate::offered_events(Time now) {
    if (offered_.event < accepted_.event) {
        offered_ = accepted_;
    }
    for (auto ahead = sequence_.advance(offered_, 1); ahead.last <= now; ahead = sequence_.advance(offered_, 1)) {
        offered_ = ahead;
    }
    return offered_.event - sequence_.begin().event;
}

}  // namespace incast::sources

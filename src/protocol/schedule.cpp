#include "protocol/schedule.h"

#include <algorithm>

namespace incast::protocol {

SendSchedule::SendSchedule(const Config& config, std::uint32_t ru, std::size_t rus, std::size_t bus, bool on_em)
    : kind_(config.schedule),
      plant_(config.plant),
      paced_(has_barriers(kind_) || kind_ == Schedule::barrel_time_slot || config.inter_send_gap > 0),
      ru_(ru),
      bus_(bus),
      next_(one_queue() ? 0 : (ru + 1) % bus),
      period_(std::max(rus, bus)),
      prng_(base::mix64(config.seed) ^ ru),
      gap_(config.inter_send_gap),
      begun_(queues()),
      awaited_(bus),
      due_(queues()),
      stale_(queues()),
      clock_(on_em),
      slot_time_(config.slot_time),
      overrun_(config.overrun) {}

/// Uniform over the queues that can be served: draws until one of them is hit, then falls back to the next one.
std::size_t SendSchedule::draw(const base::Bitmap& runnable) {
    for (int tries = 0; tries < 16; ++tries) {
        const std::size_t drawn = prng_.below(runnable.size());
        if (runnable.test(drawn)) {
            return drawn;
        }
    }
    return runnable.next_cyclic(prng_.below(runnable.size()));
}

std::size_t SendSchedule::next_paced(Time now, const base::Bitmap& runnable) {
    for (std::size_t queue = begun_.next(0); queue != none; queue = begun_.next(queue + 1)) {
        if (runnable.test(queue)) {
            return queue;
        }
    }
    const bool hasty = plant_ == Plant::hasty_send && sends_ % 8 == 5;
    if (now < gap_until_ && !hasty) {
        return none;
    }
    if (kind_ == Schedule::barrel_time_slot) {
        return in_slot(now, runnable);
    }
    if (!has_barriers(kind_)) {
        return in_free_order(runnable);
    }
    // Strictly in order: behind this RU first, and who has no room is waited for.
    const std::size_t first = due_.next_cyclic(next_);
    return first != none && runnable.test(first) ? first : none;
}

void SendSchedule::begin(Time now) {
    ++sends_;
    gap_until_ = now + gap_;
    if (kind_ == Schedule::barrel_time_slot) {
        used_ = candidate_;
        begun_at_ = now;
        latest_ = clock_.at(now) + clock_.error(now);
        unguarded_ += 2 * clock_.error(now) > guard(now) ? 1 : 0;
    }
}

void SendSchedule::note_begun(Time now, std::size_t queue) {
    if (!begun_.test(queue)) {
        begun_.set(queue);
        begin(now);
    }
}

void SendSchedule::note_sent(Time now, std::size_t queue, bool placed) {
    if (!begun_.take(queue)) {
        begin(now);
    } else if (overrun_ == Overrun::overlap && kind_ == Schedule::barrel_time_slot) {
        overruns_ += slot_of(now) > used_ ? 1 : 0;  // there was no room for it; no word of its placement is waited for
    }
    if (stale_.take(queue)) {
        return;  // of an earlier phase, which did not wait for it
    }
    due_.reset(queue);
    if (!placed && (has_barriers(kind_) || kind_ == Schedule::barrel_time_slot)) {
        awaited_.set(queue);
    }
}

void SendSchedule::placed(Time now, std::size_t queue) {
    if (one_queue() || !awaited_.take(queue) || kind_ != Schedule::barrel_time_slot || overrun_ == Overrun::overlap) {
        return;
    }
    const std::int64_t slot = slot_of(now);
    if (slot > used_) {
        ++overruns_;
        if (overrun_ == Overrun::skip) {
            used_ = slot;  // it began too early for this RU
        } else {
            lag_ += slot - used_ - 1;
        }
    }
}

void SendSchedule::dropped(std::size_t queue, bool empty) {
    begun_.reset(queue);
    stale_.reset(queue);
    if (empty) {
        due_.reset(queue);
    }
}

/// The BU that this RU serves in that phase; beyond the BUs: a phantom.
std::size_t SendSchedule::turn(std::int64_t phase) const {
    const std::uint64_t early = plant_ == Plant::wrong_phase_order && phase % 8 == 5 ? 1 : 0;
    return (ru_ + static_cast<std::uint64_t>(phase) + early) % period_;
}

// --- barriers
// ------------------------------------------------------------------------------------------------------------------

void SendSchedule::begin_phase(std::uint64_t phase, const base::Bitmap& runnable) {
    phase_ = phase;
    awaited_.clear();
    stale_ = begun_;
    due_.clear();
    if (kind_ == Schedule::barrel_barrier) {
        const std::size_t bu = turn(static_cast<std::int64_t>(phase & 0x7fff'ffff'ffff'ffffU));
        if (bu < bus_ && runnable.test(bu) && !begun_.test(bu)) {
            due_.set(bu);
        }
        return;
    }
    due_ = runnable;
    for (std::size_t bu = begun_.next(0); bu != none; bu = begun_.next(bu + 1)) {
        due_.reset(bu);
    }
    next_ = (ru_ + (plant_ == Plant::wrong_phase_order && phase % 8 == 5 ? 2U : 1U)) % bus_;
}

/// The phase.
bool SendSchedule::is_over() const {
    return !due_.any() && (!awaited_.any() || (plant_ == Plant::early_phase && phase_ % 8 == 5));
}

// --- time slots
// ------------------------------------------------------------------------------------------------------------------

std::int64_t SendSchedule::slot_of(Time now) const {
    return std::max<Time>(0, clock_.at(now)) / slot_time_;
}

/// Unused at either end of a slot: twice what the clock may be off, so that RUs off to either side still do not meet.
/// At most half of the slot in all, or there would be nothing left of it.
Time SendSchedule::guard(Time now) const {
    return std::min(2 * clock_.error(now), slot_time_ / 4);
}

/// What was begun must be written first, and, unless slots may overlap, what was written be placed.
bool SendSchedule::waits() const {
    return !clock_.known() || begun_.any() || (awaited_.any() && overrun_ != Overrun::overlap);
}

std::size_t SendSchedule::in_slot(Time now, const base::Bitmap& runnable) {
    if (waits()) {
        return none;
    }
    const std::int64_t slot = slot_of(now);
    const Time into = std::max<Time>(0, clock_.at(now)) % slot_time_;
    const Time edge = guard(now);
    if (slot <= used_ || into < edge || into >= slot_time_ - edge) {
        return none;
    }
    std::size_t bu = turn(slot - lag_);
    if (lag_ > 0 && (bu >= bus_ || !runnable.test(bu))) {
        lag_ = 0;  // nothing to send in its turn: back to the clock's order
        bu = turn(slot);
    }
    if (bu >= bus_ || !runnable.test(bu)) {
        return none;
    }
    candidate_ = slot;
    return bu;
}

/// What was sent before the clock was known that well may have gone out in a later slot than it seemed. That one is
/// used.
void SendSchedule::learn_time(Time asked, Time theirs, Time answered) {
    if (clock_.add(asked, theirs, answered) && used_ >= 0) {
        latest_ = std::min(latest_, clock_.at(begun_at_) + clock_.error(answered));
        used_ = std::max(used_, std::max<Time>(0, latest_) / slot_time_);
    }
}

/// Something can be sent, but not yet.
Time SendSchedule::next_opening(Time now, const base::Bitmap& runnable) const {
    if (kind_ != Schedule::barrel_time_slot) {
        return gap_until_ > now ? gap_until_ : time_never;
    }
    if (waits()) {
        return time_never;  // what ends that is an event
    }
    const Time edge = guard(now);
    const std::int64_t first = std::max(slot_of(now), used_ + 1);
    for (std::int64_t slot = first; slot <= first + static_cast<std::int64_t>(period_); ++slot) {
        const std::size_t bu = turn(slot - lag_);
        const Time opens = std::max(clock_.from(slot * slot_time_ + edge), gap_until_);
        if (bu < bus_ && runnable.test(bu) && opens > now) {
            return opens;
        }
    }
    return time_never;  // no turn of theirs within a whole period: they became runnable, and are looked at, by an event
}

}  // namespace incast::protocol

#include "runtime/sources/triggers.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include <fmt/format.h>

#include "base/later.h"
#include "base/units.h"
#include "runtime/sources/portable_math.h"

namespace incast::sources {
namespace {

using base::later;

constexpr auto ps_s = static_cast<double>(ps_per_s);
constexpr double highest_hz = 1e10;
// Each of them is drawn, and counted: some ns each.
constexpr double highest_drawn_hz = 1e8;

// What a slow rate becomes: finite, so that what is calculated with it is a number.
constexpr double endless = 1e40;

double period_ps(double rate_hz) {
    return std::min(ps_s / rate_hz, endless);
}

/// -ln(1 - p); every crossing triggers from p = 1 on.
double hazard_of(double probability) {
    return probability < 1 ? -portable_log(1 - probability) : std::numeric_limits<double>::infinity();
}

}  // namespace

Time BunchTrains::time_of(std::uint64_t crossing) const {
    const std::uint64_t within = crossing % filled_per_orbit();
    const std::uint64_t slot = within / filled * (std::uint64_t{filled} + gap) + within % filled;
    __extension__ using Wide = unsigned __int128;
    const Wide slots = static_cast<Wide>(crossing / filled_per_orbit()) * orbit + slot;
    const auto most = static_cast<std::uint64_t>(time_never / spacing);
    return slots > most ? time_never : static_cast<Time>(slots) * spacing;
}

std::uint64_t BunchTrains::first_crossing_from(Time time) const {
    const Time from = std::max<Time>(time, 0);
    const auto slots = static_cast<std::uint64_t>(from / spacing + (from % spacing > 0 ? 1 : 0));
    const std::uint64_t within = slots % orbit;
    const std::uint64_t train = std::uint64_t{filled} + gap;
    const std::uint64_t before = within / train * filled + std::min<std::uint64_t>(within % train, filled);
    return slots / orbit * filled_per_orbit() + std::min(before, filled_per_orbit());
}

Result<Ok> check(const TriggerOptions& options) {
    if (!(options.rate_hz >= 0 && options.rate_hz <= highest_hz)) {
        return Error{fmt::format("triggers at {:g} Hz, expected 0 .. {:g} Hz", options.rate_hz, highest_hz)};
    }
    if (options.rate_hz == 0) {
        return Ok{};
    }
    double highest = options.rate_hz;
    double lowest = options.rate_hz;
    Time before = 0;
    for (const RateStep& step : options.steps) {
        if (!(step.rate_hz > 0 && step.rate_hz <= highest_hz) || step.at <= before) {
            return Error{
                fmt::format("{:g} Hz from {} on, expected more than 0 and up to {:g} Hz, and times that ascend",
                            step.rate_hz, base::format_duration(step.at), highest_hz)};
        }
        before = step.at;
        highest = std::max(highest, step.rate_hz);
        lowest = std::min(lowest, step.rate_hz);
    }
    if (options.arrivals == Arrivals::trace && (options.trace == nullptr || options.trace->empty())) {
        return Error{"arrivals from a trace, and there is no trace"};
    }
    if (options.arrivals == Arrivals::bunch_train) {
        const BunchTrains& bunches = options.bunches;
        const std::uint64_t used = std::uint64_t{bunches.trains} * (std::uint64_t{bunches.filled} + bunches.gap);
        // The last train needs no gap behind it.
        if (bunches.spacing <= 0 || bunches.trains == 0 || bunches.filled == 0 || used - bunches.gap > bunches.orbit) {
            return Error{fmt::format("{} trains of {} full and {} empty slots do not fit into an orbit of {}",
                                     bunches.trains, bunches.filled, bunches.gap, bunches.orbit)};
        }
        // A little more than the crossing rate would be the rounding of a person who wants every crossing.
        constexpr double rounding = 1.001;
        constexpr double least_hz = 0.01;  // the gaps between triggers are counted in crossings
        if (highest > bunches.crossing_rate_hz() * rounding || lowest < least_hz) {
            return Error{
                fmt::format("triggers at {:g} .. {:g} Hz, expected {} .. {:g} Hz, at which filled bunches cross",
                            lowest, highest, least_hz, bunches.crossing_rate_hz())};
        }
    }
    const bool each_crossing =
        options.arrivals == Arrivals::bunch_train && lowest >= options.bunches.crossing_rate_hz();
    if (options.arrivals != Arrivals::fixed && !each_crossing && highest > highest_drawn_hz) {
        return Error{fmt::format("triggers at up to {:g} Hz, expected 0 .. {:g} Hz where each of them is drawn",
                                 highest, highest_drawn_hz)};
    }
    return Ok{};
}

Result<std::vector<RateStep>> parse_rate_steps(std::string_view text) {
    std::vector<RateStep> steps;
    while (!text.empty()) {
        const std::size_t comma = text.find(',');
        const std::string_view one = text.substr(0, comma);
        const std::size_t at = one.find('@');
        const Result<double> rate = base::parse_frequency_hz(one.substr(0, at));
        const Result<Time> time =
            at == std::string_view::npos ? Result<Time>(Error{"no time"}) : base::parse_duration(one.substr(at + 1));
        if (!rate || !time) {
            return Error{fmt::format("'{}' is no rate and time", one)};
        }
        steps.push_back({*time, *rate});
        text = comma == std::string_view::npos ? std::string_view{} : text.substr(comma + 1);
    }
    return steps;
}

TriggerSequence::TriggerSequence(const TriggerOptions& options, std::uint64_t first_event)
    : gaps_ps_(Distribution::exponential, period_ps(options.rate_hz), 0),
      arrivals_(options.arrivals),
      key_(base::mix64(options.seed ^ 0x7412664765727321ULL)),  // another stream than the sizes of the same seed
      origin_(options.origin),
      bunches_(options.bunches),
      trace_(options.trace) {
    const double crossings_hz = bunches_.crossing_rate_hz();
    segments_.push_back({origin_, 0, period_ps(options.rate_hz), 1, hazard_of(options.rate_hz / crossings_hz)});
    for (const RateStep& step : options.steps) {
        const Segment& before = segments_.back();
        const Time start = later(origin_, step.at);
        segments_.push_back({start, before.first_event + static_cast<double>(start - before.start) / before.period_ps,
                             period_ps(step.rate_hz), std::min(options.rate_hz / step.rate_hz, endless),
                             hazard_of(step.rate_hz / crossings_hz)});
    }
    begin_ = advance({0, origin_, 0, 0}, first_event);
}

const TriggerSequence::Segment& TriggerSequence::segment_of(double event) const {
    std::size_t index = segments_.size() - 1;
    while (index > 0 && event < segments_[index].first_event) {
        --index;
    }
    return segments_[index];
}

Time TriggerSequence::fixed_time(std::uint64_t event) const {
    const auto number = static_cast<double>(event);
    const Segment& in = segment_of(number);
    return later(in.start, (number - in.first_event) * in.period_ps);
}

TriggerSequence::Cursor TriggerSequence::skip(Cursor from, Time time, std::uint64_t most) const {
    if (arrivals_ == Arrivals::fixed) {
        std::size_t index = segments_.size() - 1;
        while (index > 0 && time < segments_[index].start) {
            --index;
        }
        const Segment& in = segments_[index];
        const double number = in.first_event + static_cast<double>(time - in.start) / in.period_ps;
        std::uint64_t next = number > static_cast<double>(from.event) ? static_cast<std::uint64_t>(number) : from.event;
        for (; next > from.event && fixed_time(next - 1) >= time; --next) {
        }
        for (; fixed_time(next) < time; ++next) {
        }
        return advance(from, next - from.event);
    }
    if (arrivals_ == Arrivals::bunch_train && from.segment + 1 == segments_.size() &&
        std::isinf(segments_.back().hazard)) {
        const std::uint64_t crossing = bunches_.first_crossing_from(time - origin_);
        if (crossing > from.crossing) {
            from.event += crossing - from.crossing;
            from.crossing = crossing;
            from.last = later(origin_, bunches_.time_of(crossing - 1));
        }
        return from;
    }
    for (Cursor next = advance(from, 1); next.last < time && most > 0; next = advance(next, 1), --most) {
        from = next;
    }
    return from;
}

std::uint64_t TriggerSequence::expected(Cursor from, Time until) const {
    double events = 0;
    for (std::size_t index = from.segment; index < segments_.size() && segments_[index].start < until; ++index) {
        const Time begin = std::max(from.last, segments_[index].start);
        const Time end = index + 1 < segments_.size() ? std::min(until, segments_[index + 1].start) : until;
        events += static_cast<double>(std::max<Time>(end - begin, 0)) / segments_[index].period_ps;
    }
    return static_cast<std::uint64_t>(events);
}

double TriggerSequence::gap_before(std::uint64_t event) const {
    return arrivals_ == Arrivals::trace ? (*trace_)[event % trace_->size()] * segments_.front().period_ps
                                        : gaps_ps_(draw_at(key_, event));
}

TriggerSequence::Cursor TriggerSequence::advance(Cursor from, std::uint64_t count) const {
    if (arrivals_ == Arrivals::fixed) {
        from.event += count;
        if (count > 0) {
            from.last = fixed_time(from.event - 1);
        }
        return from;
    }
    for (; count > 0; --count) {
        if (arrivals_ == Arrivals::bunch_train) {
            step_crossings(from);
        } else {
            step(from);
        }
    }
    return from;
}

void TriggerSequence::step(Cursor& cursor) const {
    constexpr double rounding = 0.5;
    double gap = gap_before(cursor.event++);
    const auto end = [&] { return later(cursor.last, gap * segments_[cursor.segment].stretch + rounding); };
    Time next = end();
    while (cursor.segment + 1 < segments_.size() && next > segments_[cursor.segment + 1].start) {
        const Time start = segments_[cursor.segment + 1].start;
        gap -= static_cast<double>(start - cursor.last) / segments_[cursor.segment].stretch;
        gap = std::max(gap, 0.0);
        cursor.last = start;
        ++cursor.segment;
        next = end();
    }
    cursor.last = next;
}

/// With a hazard h per crossing, the number of crossings that pass is the whole part of an exponential number of mean 1
/// over h. It has no memory, so at a step of the rate only what is left of it counts.
void TriggerSequence::step_crossings(Cursor& cursor) const {
    double left = gap_before(cursor.event++) / segments_.front().period_ps;
    for (;; ++cursor.segment) {
        const double hazard = segments_[cursor.segment].hazard;
        const auto passed = static_cast<std::uint64_t>(left / hazard);
        if (cursor.segment + 1 < segments_.size()) {
            const Time next_start = segments_[cursor.segment + 1].start - origin_;
            const std::uint64_t until = std::max(bunches_.first_crossing_from(next_start), cursor.crossing);
            if (cursor.crossing + passed >= until) {
                left = until == cursor.crossing
                           ? left
                           : std::max(left - static_cast<double>(until - cursor.crossing) * hazard, 0.0);
                cursor.crossing = until;
                continue;
            }
        }
        cursor.crossing += passed;
        break;
    }
    cursor.last = later(origin_, bunches_.time_of(cursor.crossing++));
}

TriggerGate::TriggerGate(const TriggerOptions& options, Time now, std::uint64_t first_event)
    : sequence_(options, 0), policy_(options.policy), first_event_(first_event), dead_until_(now) {
    if (policy_ == Policy::throttle && first_event > 0) {
        // One that comes back cannot know which triggers were inhibited meanwhile: it takes part from now on.
        from_ = now;
    }
    first_ = sequence_.begin();
    (void)catch_up();
}

bool TriggerGate::catch_up() {
    if (behind_) {
        if (first_.event < first_event_) {
            first_ = sequence_.advance(first_, sequence_.counts() ? first_event_ - first_.event
                                                                  : std::min(first_event_ - first_.event, at_once));
        }
        bool there = first_.event >= first_event_;
        if (there) {
            const std::uint64_t before = first_.event;
            first_ = sequence_.skip(first_, from_, at_once);
            there = sequence_.counts() || first_.event - before < at_once;
        }
        passed_ = offered_ = due_ = first_;
        behind_ = !there;
    }
    return !behind_;
}

Time TriggerGate::due(std::uint32_t n_events, Time room) {
    if (asked_events_ == n_events && asked_room_ == room) {
        return due_.last;
    }
    asked_events_ = n_events;
    asked_room_ = room;
    due_ = sequence_.advance(passed_, n_events);
    due_without_inhibit_ = due_.last;
    inhibited_before_due_ = 0;
    if (policy_ == Policy::throttle && due_.last < room) {
        const std::uint64_t inhibited_first = due_.event;
        due_ = sequence_.advance(sequence_.skip(due_, room), 1);
        inhibited_before_due_ = due_.event - inhibited_first;
    }
    return due_.last;
}

std::uint32_t TriggerGate::waiting_events(Time now, std::uint32_t most) const {
    const std::uint64_t happened = sequence_.skip(passed_, now + 1, most).event - passed_.event;
    return static_cast<std::uint32_t>(std::min<std::uint64_t>(happened, most));
}

void TriggerGate::count_dead(Time from, Time until) {
    dead_ += std::max<Time>(until - std::max(from, dead_until_), 0);
    dead_until_ = std::max(dead_until_, until);
}

void TriggerGate::pass(std::uint32_t n_events, Time room) {
    due(n_events, room);
    if (room > due_without_inhibit_) {
        count_dead(due_without_inhibit_, room);
    }
    inhibited_ += std::exchange(inhibited_before_due_, 0);
    passed_ = due_;
    asked_room_ = -1;
}

void TriggerGate::drop(std::uint32_t n_events, Time room) {
    const Time time = due(n_events, room);
    pass(n_events, room);
    dropped_ += n_events;
    no_place_since_ = std::min(no_place_since_, time);
}

void TriggerGate::has_place(Time now) {
    if (no_place_since_ != time_never) {
        count_dead(no_place_since_, now);
        no_place_since_ = time_never;
    }
}

Time TriggerGate::dead_time(Time now, std::uint32_t waiting) {
    Time since = no_place_since_;
    if (waiting > 0) {
        since = std::min(since, due(waiting, 0));
    }
    return dead_ + std::max<Time>(now - std::max(since, dead_until_), 0);
}

std::uint64_t TriggerGate::inhibited_events(Time now, std::uint32_t waiting) {
    if (policy_ != Policy::throttle) {
        return inhibited_;
    }
    if (waiting == 0) {
        return inhibited_ + inhibited_before_due_;  // that came before there was room, and will be passed over
    }
    const std::uint64_t due = offered_events(now - 1) - passed_events();  // one at `now` itself may still be the last
    return inhibited_ + (due >= waiting ? due - (waiting - 1) : 0);
}

std::uint64_t TriggerGate::offered_events(Time now) {
    if (offered_.event < passed_.event) {
        offered_ = passed_;
    }
    const std::uint64_t before = offered_.event;
    offered_ = sequence_.skip(offered_, now + 1, at_once);
    std::uint64_t events = offered_.event;
    if (!sequence_.counts() && events - before == at_once) {
        events += sequence_.expected(offered_, now);  // the others are counted next time
    }
    told_ = std::max(told_, events);
    return told_ - first_.event;
}

}  // namespace incast::sources

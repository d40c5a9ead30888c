// Open loop (EB-M1): when events are meant to happen, whether or not the readout can take them.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include <incast/result.h>
#include <incast/transport.h>

#include "runtime/sources/sizes.h"

namespace incast::sources {

enum class Arrivals : std::uint8_t { fixed, poisson, bunch_train, trace };

/// What becomes of an event that is due when the RU's memory is full.
enum class Policy : std::uint8_t {
    block,     // it waits: nothing is lost, and its latency counts from when it was meant to happen
    throttle,  // its trigger is inhibited: it never happens, is counted, and gets no event number
    drop,      // it happens without this RU's fragments: an empty MFP flagged `dropped` takes their place
};

/// From `at` after the origin on, triggers come at this rate.
struct RateStep {
    Time at = 0;
    double rate_hz = 0;
};

/// The bunches of an orbit: `trains` times `filled` full slots followed by `gap` empty ones, then empty ones up to
/// `orbit`.
struct BunchTrains {
    Time spacing = 25'000;  // ps between slots
    std::uint32_t orbit = 3564;
    std::uint32_t trains = 39;
    std::uint32_t filled = 72;
    std::uint32_t gap = 8;

    [[nodiscard]] std::uint64_t filled_per_orbit() const { return std::uint64_t{trains} * filled; }
    /// Filled slots per second: the highest trigger rate there can be.
    [[nodiscard]] double crossing_rate_hz() const {
        return static_cast<double>(filled_per_orbit()) / orbit * static_cast<double>(ps_per_s) /
               static_cast<double>(spacing);
    }
    /// Of filled slot `crossing`, counted from the origin through all orbits.
    [[nodiscard]] Time time_of(std::uint64_t crossing) const;
    [[nodiscard]] std::uint64_t first_crossing_from(Time time) const;
};

struct TriggerOptions {
    double rate_hz = 0;  // events per second; 0 = closed loop
    Arrivals arrivals = Arrivals::fixed;
    std::uint64_t seed = 1;
    Time origin = 0;  // of event 0, on the clock of `now`: common to all RUs. 0 = not told yet (start_triggers)
    std::vector<RateStep> steps{};                       // ascending in time
    BunchTrains bunches{};                               // bunch_train; rates up to its crossing rate
    std::shared_ptr<const std::vector<double>> trace{};  // trace: gaps over their mean, at least one
    Policy policy = Policy::block;
    std::uint32_t memory_meps = 0;  // drop: MEPs with data that an RU has room for; 0 = as many as it retains
};

/// The error names what is out of range.
Result<Ok> check(const TriggerOptions& options);

/// "120kHz@5s,80kHz@10s": the rate from each time on, in seconds and other units; empty: no steps.
Result<std::vector<RateStep>> parse_rate_steps(std::string_view text);

/// The intended times of events 0, 1, ...: the same for everybody with the same options and origin.
/// fixed: origin + event / rate. poisson: an exponential gap of mean 1 / rate, rounded to picoseconds, before each
/// event. bunch_train: each crossing of filled bunches triggers with the probability that gives the rate. trace: the
/// recorded gaps over and over, stretched to the rate. Where the rate steps in the middle of a gap, what is left of the
/// gap passes at the new rate.
class TriggerSequence {
public:
    struct Cursor {
        std::uint64_t event = 0;     // the next one
        Time last = 0;               // when the one before it happened
        std::uint64_t crossing = 0;  // bunch_train: the first filled slot behind it
        std::uint32_t segment = 0;   // of the rate, in force at `last`
    };

    /// Begins with `first_event`. All but fixed cost a few ns per earlier event.
    TriggerSequence(const TriggerOptions& options, std::uint64_t first_event);

    [[nodiscard]] const Cursor& begin() const { return begin_; }
    /// The cursor `count` events on; its `last` is the time of the last of them.
    [[nodiscard]] Cursor advance(Cursor from, std::uint64_t count) const;
    /// The cursor behind the last event before `time`; `from` if there is none from there on. Fixed arrivals, and bunch
    /// trains without a choice, cost the same however many they are; the others some ns each, and no more than `most`
    /// are skipped.
    [[nodiscard]] Cursor skip(Cursor from, Time time, std::uint64_t most = ~std::uint64_t{0}) const;
    /// Fixed arrivals: an event's time follows from its number, so that however many are skipped at once.
    [[nodiscard]] bool counts() const { return arrivals_ == Arrivals::fixed; }
    /// So many events there are between the cursor and `until` on average.
    [[nodiscard]] std::uint64_t expected(Cursor from, Time until) const;

private:
    struct Segment {
        Time start = 0;
        double first_event = 0;  // events meant to happen before it
        double period_ps = 0;
        double stretch = 1;  // its period over the first one's
        double hazard = 0;   // bunch_train: -ln(1 - p), p the probability of a crossing to trigger
    };
    [[nodiscard]] const Segment& segment_of(double event) const;
    [[nodiscard]] Time fixed_time(std::uint64_t event) const;
    /// Gap before `event` in ps, were the rate always the first one.
    [[nodiscard]] double gap_before(std::uint64_t event) const;
    void step(Cursor& cursor) const;
    void step_crossings(Cursor& cursor) const;

    QuantileTable gaps_ps_;
    Arrivals arrivals_;
    std::uint64_t key_;
    Time origin_;
    BunchTrains bunches_;
    std::shared_ptr<const std::vector<double>> trace_;
    std::vector<Segment> segments_;
    Cursor begin_;
};

/// Triggers against readout: which events were offered, accepted, inhibited and dropped, and for how long due events
/// found no room.
///
/// Data arrive at their intended time, whenever the readout gets round to them; so the readout is dead from the time at
/// which the first event beyond its memory is due until there is room for it. That counts a full ring and a readout too
/// slow to fill it alike, and does not count the short wait until a thread looks.
class TriggerGate {
public:
    /// Begins with `first_event`; throttle: if that is not 0, with the first event at or after `now`.
    TriggerGate(const TriggerOptions& options, Time now, std::uint64_t first_event);

    /// Goes over events before the first one, a few ms at a time; true once none is left. While it is behind nothing
    /// else may be asked.
    [[nodiscard]] bool catch_up();
    [[nodiscard]] bool behind() const { return behind_; }

    /// When the last of the next `n_events` events is meant to happen, if there has been room for them since `room`.
    /// throttle: triggers before `room` that would have made them complete are inhibited, and the first one after it is
    /// their last.
    Time due(std::uint32_t n_events, Time room);
    /// When the next event is meant to happen.
    [[nodiscard]] Time next_event() const { return sequence_.advance(passed_, 1).last; }
    /// Of the next `most` events, how many have happened.
    [[nodiscard]] std::uint32_t waiting_events(Time now, std::uint32_t most) const;
    /// They were read out.
    void accept(std::uint32_t n_events, Time room) { pass(n_events, room); }
    /// They were due, and this RU had no place for their data.
    void drop(std::uint32_t n_events, Time room);
    /// There is a place for data from now on (drop).
    void has_place(Time now);

    /// Events that are past: accepted, inhibited or dropped.
    [[nodiscard]] std::uint64_t passed_events() const { return passed_.event - first_.event; }
    /// `waiting` as below: those that came since the first of them made these events complete are inhibited already.
    [[nodiscard]] std::uint64_t inhibited_events(Time now, std::uint32_t waiting);
    [[nodiscard]] std::uint64_t dropped_events() const { return dropped_; }
    /// Events meant to happen until now. So many at once that nobody could wait for their count are estimated.
    std::uint64_t offered_events(Time now);
    /// `waiting`: there is no room for the next events, and this is how many there will be in their MEP; 0: there is.
    [[nodiscard]] Time dead_time(Time now, std::uint32_t waiting);

private:
    void pass(std::uint32_t n_events, Time room);
    void count_dead(Time from, Time until);

    static constexpr std::uint64_t at_once = std::uint64_t{1} << 22U;  // events gone over in one call

    TriggerSequence sequence_;
    Policy policy_;
    std::uint64_t first_event_;
    Time from_ = 0;  // the first one is at this time or later
    bool behind_ = true;
    TriggerSequence::Cursor first_;
    TriggerSequence::Cursor passed_;
    TriggerSequence::Cursor due_;  // behind the events asked about last
    Time due_without_inhibit_ = 0;
    std::uint64_t inhibited_before_due_ = 0;
    std::uint32_t asked_events_ = 0;
    Time asked_room_ = -1;
    TriggerSequence::Cursor offered_;
    std::uint64_t told_ = 0;  // events, of the whole sequence
    std::uint64_t inhibited_ = 0;
    std::uint64_t dropped_ = 0;
    Time no_place_since_ = time_never;
    Time dead_ = 0;
    Time dead_until_;
};

}  // namespace incast::sources

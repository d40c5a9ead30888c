// Open loop (PROTOCOL M1): when events are meant to happen, whether or not the readout can take them.
#pragma once

#include <cstdint>

#include <incast/transport.h>

#include "runtime/sources/sizes.h"

namespace incast::sources {

enum class Arrivals : std::uint8_t { fixed, poisson };

struct TriggerOptions {
    double rate_hz = 0;  // events per second; 0 = closed loop
    Arrivals arrivals = Arrivals::fixed;
    std::uint64_t seed = 1;
    Time origin = 0;  // of event 0, on the clock of `now`: common to all RUs. 0 = not told yet (start_triggers)
};

/// The intended times of events 0, 1, ...: the same for everybody with the same options and origin.
/// fixed: origin + event / rate. poisson: an exponential gap of mean 1 / rate, rounded to picoseconds, before each
/// event.
class TriggerSequence {
public:
    struct Cursor {
        std::uint64_t event = 0;  // the next one
        Time last = 0;            // when the one before it happened
    };

    /// Begins with `first_event`. Poisson costs a few ns per earlier event.
    TriggerSequence(const TriggerOptions& options, std::uint64_t first_event);

    [[nodiscard]] const Cursor& begin() const { return begin_; }
    /// The cursor `count` events on; its `last` is the time of the last of them.
    [[nodiscard]] Cursor advance(Cursor from, std::uint64_t count) const;

private:
    QuantileTable gaps_ps_;
    double period_ps_;
    Arrivals arrivals_;
    std::uint64_t key_;
    Time origin_;
    Cursor begin_;
};

/// Triggers against readout: which events were offered and accepted, and for how long due events found no room. Policy
/// block: they wait.
///
/// Data arrive at their intended time, whenever the readout gets round to them; so the readout is dead from the time at
/// which the first event beyond its memory is due until there is room for it. That counts a full ring and a readout too
/// slow to fill it alike, and does not count the short wait until a thread looks.
class TriggerGate {
public:
    TriggerGate(const TriggerOptions& options, Time now, std::uint64_t first_event)
        : sequence_(options, first_event),
          accepted_(sequence_.begin()),
          offered_(accepted_),
          full_(accepted_),
          dead_until_(now) {}

    /// When the last of the next `n_events` events is meant to happen.
    Time due(std::uint32_t n_events);
    /// They were read out.
    void accept(std::uint32_t n_events);
    /// From now on there is room for all events before `event`, which does not decrease; no_end: for all there will
    /// ever be.
    void set_room(Time now, std::uint64_t event);
    static constexpr std::uint64_t no_end = ~std::uint64_t{0};

    [[nodiscard]] std::uint64_t accepted_events() const { return accepted_.event - sequence_.begin().event; }
    /// Events meant to happen until now. Costs a few ns per event that was not accepted yet.
    std::uint64_t offered_events(Time now);
    [[nodiscard]] Time dead_time(Time now) const { return dead_ + open_dead_time(now); }

private:
    /// Since dead_until_.
    [[nodiscard]] Time open_dead_time(Time now) const;

    TriggerSequence sequence_;
    TriggerSequence::Cursor accepted_;
    TriggerSequence::Cursor due_;  // behind the events asked about last
    TriggerSequence::Cursor offered_;
    TriggerSequence::Cursor full_;  // behind the first event without room
    bool endless_room_ = false;
    Time dead_ = 0;
    Time dead_until_;
};

}  // namespace incast::sources

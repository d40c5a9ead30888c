#include "runtime/sources/triggers.h"

#include <cmath>
#include <vector>

#include <gtest/gtest.h>

namespace incast::sources {
namespace {

TriggerOptions options_of(double rate_hz, Arrivals arrivals, Time origin = 1) {
    return {rate_hz, arrivals, 5, origin};
}

std::vector<Time> times_of(const TriggerSequence& sequence, std::size_t count) {
    std::vector<Time> times;
    TriggerSequence::Cursor cursor = sequence.begin();
    for (std::size_t index = 0; index < count; ++index) {
        cursor = sequence.advance(cursor, 1);
        times.push_back(cursor.last);
    }
    return times;
}

TEST(Triggers, FixedArrivalsAreEquallySpacedAndDoNotDrift) {
    const TriggerSequence sequence(options_of(3e6, Arrivals::fixed, 1000), 0);
    const auto times = times_of(sequence, 10);
    EXPECT_EQ(times.front(), 1000);
    for (std::size_t index = 0; index < times.size(); ++index) {
        EXPECT_NEAR(static_cast<double>(times[index] - 1000), static_cast<double>(index) * 1e12 / 3e6, 1.0);
    }
    // An hour later it is still on time.
    EXPECT_NEAR(static_cast<double>(sequence.advance(sequence.begin(), 10'800'000'001).last - 1000), 3600e12, 1e3);
}

TEST(Triggers, PoissonGapsHaveTheirMeanAndSpread) {
    constexpr std::size_t n = 200'000;
    const TriggerSequence sequence(options_of(1e6, Arrivals::poisson), 0);
    const auto times = times_of(sequence, n);
    const double mean = static_cast<double>(times.back()) / n;
    EXPECT_NEAR(mean, 1e6, 4 * 1e6 / std::sqrt(n));
    double squares = 0;
    std::size_t long_gaps = 0;
    for (std::size_t index = 1; index < n; ++index) {
        const auto gap = static_cast<double>(times[index] - times[index - 1]);
        squares += (gap - mean) * (gap - mean);
        long_gaps += gap > 3e6 ? 1 : 0;
    }
    // An exponential's standard deviation is its mean; the spread of that estimate is about sqrt(2 / n).
    EXPECT_NEAR(std::sqrt(squares / n), 1e6, 1e6 * 4 * std::sqrt(2.0 / n));
    EXPECT_NEAR(static_cast<double>(long_gaps) / n, std::exp(-3.0), 4 * std::sqrt(std::exp(-3.0) / n));
}

TEST(Triggers, AreTheSameForEverybodyWhoSharesTheOrigin) {
    for (const Arrivals arrivals : {Arrivals::fixed, Arrivals::poisson}) {
        const TriggerSequence one(options_of(1e5, arrivals, 777), 0);
        const TriggerSequence late(options_of(1e5, arrivals, 777), 40);
        const auto times = times_of(one, 60);
        const auto late_times = times_of(late, 20);
        for (std::size_t index = 0; index < 20; ++index) {
            EXPECT_EQ(late_times[index], times[40 + index]);
        }
    }
}

TEST(Triggers, PoissonTimesAreTheSameInEveryBuild) {
    const TriggerSequence sequence(options_of(1e6, Arrivals::poisson), 0);
    EXPECT_EQ(times_of(sequence, 4), (std::vector<Time>{1403192, 4940081, 5055481, 7678650}));
}

TEST(TriggerGate, IsDeadFromTheTimeTheFirstEventWithoutRoomIsDue) {
    TriggerGate gate(options_of(1e9, Arrivals::fixed, 1000), 1000, 0);  // event k at 1000 + 1000 k ps
    gate.set_room(1000, 4);                                             // event 4 is due at 5000
    EXPECT_EQ(gate.due(2), 2000);
    gate.accept(2);
    EXPECT_EQ(gate.dead_time(5000), 0);
    EXPECT_EQ(gate.dead_time(5700), 700);
    gate.set_room(6000, 6);  // event 6 is due at 7000
    EXPECT_EQ(gate.dead_time(6900), 1000);
    EXPECT_EQ(gate.dead_time(9000), 3000);
    gate.set_room(9000, 7);  // event 7 was due at 8000: still dead, but no time counts twice
    EXPECT_EQ(gate.dead_time(9500), 3500);
    gate.set_room(9500, 100);
    EXPECT_EQ(gate.dead_time(20'000), 3500);
    gate.set_room(20'000, TriggerGate::no_end);
    EXPECT_EQ(gate.dead_time(time_never), 3500);
    EXPECT_EQ(gate.accepted_events(), 2U);
}

TEST(TriggerGate, CountsOfferedEventsWhetherAcceptedOrNot) {
    TriggerGate gate(options_of(1e9, Arrivals::fixed, 1000), 1000, 0);
    EXPECT_EQ(gate.offered_events(999), 0U);
    EXPECT_EQ(gate.offered_events(1000), 1U);
    EXPECT_EQ(gate.offered_events(5999), 5U);
    gate.due(8);
    gate.accept(8);
    EXPECT_EQ(gate.offered_events(20'000), 20U);
    EXPECT_EQ(gate.accepted_events(), 8U);
}

}  // namespace
}  // namespace incast::sources

#include "runtime/sources/triggers.h"

#include <cmath>
#include <vector>

#include <gtest/gtest.h>

namespace incast::sources {
namespace {

TriggerOptions options_of(double rate_hz, Arrivals arrivals, Time origin = 1) {
    return {.rate_hz = rate_hz, .arrivals = arrivals, .seed = 5, .origin = origin};
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

TEST(Triggers, AStepOfTheRateChangesItFromThenOn) {
    for (const Arrivals arrivals : {Arrivals::fixed, Arrivals::poisson, Arrivals::trace, Arrivals::bunch_train}) {
        TriggerOptions options = options_of(1e6, arrivals);
        options.steps = {{100 * ps_per_ms, 3e6}, {200 * ps_per_ms, 5e5}};
        options.trace = std::make_shared<const std::vector<double>>(std::vector<double>{0.5, 1.5, 0, 2});
        const auto times = times_of(TriggerSequence(options, 0), 450'000);
        std::size_t counts[4] = {};
        for (std::size_t index = 0; index < times.size(); ++index) {
            ASSERT_TRUE(index == 0 || times[index] >= times[index - 1]);
            ++counts[std::min<Time>(times[index] / (100 * ps_per_ms), 3)];
        }
        const int which = static_cast<int>(arrivals);
        // Four standard deviations of a Poisson count, and the ends of an orbit.
        EXPECT_NEAR(static_cast<double>(counts[0]), 100'000, 4 * std::sqrt(100'000)) << which;
        EXPECT_NEAR(static_cast<double>(counts[1]), 300'000, 4 * std::sqrt(300'000)) << which;
        EXPECT_NEAR(static_cast<double>(counts[2]), 50'000, 4 * std::sqrt(50'000)) << which;
    }
}

TEST(Triggers, FixedArrivalsAreExactAcrossAStep) {
    TriggerOptions options = options_of(1e9, Arrivals::fixed, 1000);  // every 1000 ps
    options.steps = {{4500, 2e9}};                                    // every 500 ps from 5500 on
    // Half of the gap passes at the old rate, and the other half, which then takes half as long, at the new one.
    EXPECT_EQ(times_of(TriggerSequence(options, 0), 7), (std::vector<Time>{1000, 2000, 3000, 4000, 5000, 5750, 6250}));
}

TEST(Triggers, BunchTrainsTriggerInFilledBunchesAlone) {
    BunchTrains bunches{.spacing = 25'000, .orbit = 100, .trains = 3, .filled = 20, .gap = 10};
    TriggerOptions options = options_of(bunches.crossing_rate_hz() / 4, Arrivals::bunch_train, 7'000'000);
    options.bunches = bunches;
    constexpr std::size_t n = 100'000;
    const auto times = times_of(TriggerSequence(options, 0), n);
    std::vector<std::size_t> by_slot(100);
    for (std::size_t index = 0; index < n; ++index) {
        const Time since = times[index] - 7'000'000;
        ASSERT_EQ(since % 25'000, 0);
        ASSERT_TRUE(index == 0 || times[index] > times[index - 1]) << "two triggers in one crossing";
        ++by_slot[static_cast<std::size_t>(since / 25'000 % 100)];
    }
    for (std::size_t slot = 0; slot < 100; ++slot) {
        const bool filled = slot < 90 && slot % 30 < 20;
        const double expected = filled ? n / 60.0 : 0;
        EXPECT_NEAR(static_cast<double>(by_slot[slot]), expected, 5 * std::sqrt(expected)) << slot;
    }
    const double rate = n / (static_cast<double>(times.back() - 7'000'000) * 1e-12);
    EXPECT_NEAR(rate / options.rate_hz, 1, 4 / std::sqrt(n));
}

TEST(Triggers, AtTheCrossingRateEveryFilledBunchTriggers) {
    TriggerOptions options;
    options.arrivals = Arrivals::bunch_train;
    options.rate_hz = options.bunches.crossing_rate_hz();
    options.origin = 1;
    const TriggerSequence sequence(options, 0);
    const auto times = times_of(sequence, std::size_t{2} * 2808);
    for (std::uint64_t crossing = 0; crossing < times.size(); ++crossing) {
        ASSERT_EQ(times[crossing], 1 + options.bunches.time_of(crossing));
    }
    EXPECT_EQ(times[71] - 1, 71 * 25'000);
    EXPECT_EQ(times[72] - 1, 80 * 25'000) << "behind the gap";
    EXPECT_EQ(times[2808] - 1, 3564 * 25'000) << "the next orbit";
    for (const Time time : {Time{0}, Time{1}, Time{71} * 25'000 + 1, Time{3500} * 25'000, Time{3564} * 25'000}) {
        const std::uint64_t first = options.bunches.first_crossing_from(time);
        EXPECT_GE(options.bunches.time_of(first), time);
        EXPECT_TRUE(first == 0 || options.bunches.time_of(first - 1) < time);
    }
}

TEST(Triggers, ATraceIsPlayedOverAndOverAtTheRate) {
    TriggerOptions options = options_of(1e9, Arrivals::trace, 10);
    options.trace = std::make_shared<const std::vector<double>>(std::vector<double>{0.5, 2, 0.5});
    EXPECT_EQ(times_of(TriggerSequence(options, 0), 6), (std::vector<Time>{510, 2510, 3010, 3510, 5510, 6010}));
    const TriggerSequence late(options, 4);
    EXPECT_EQ(times_of(late, 1), (std::vector<Time>{5510}));
}

TEST(Triggers, BunchTrainTimesAreTheSameInEveryBuild) {
    TriggerOptions options;
    options.rate_hz = 1e6;
    options.arrivals = Arrivals::bunch_train;
    options.seed = 5;
    options.origin = 0;
    EXPECT_EQ(times_of(TriggerSequence(options, 0), 4), (std::vector<Time>{1075000, 4225000, 4325000, 6575000}));
}

TEST(Triggers, SkippingIsAdvancingOneByOne) {
    for (const Arrivals arrivals : {Arrivals::fixed, Arrivals::poisson, Arrivals::trace, Arrivals::bunch_train}) {
        for (const bool every_crossing : {false, true}) {
            TriggerOptions options = options_of(3e6, arrivals, 1'000'000);
            options.trace = std::make_shared<const std::vector<double>>(std::vector<double>{0.5, 1.5, 0, 2});
            if (every_crossing) {
                options.rate_hz = options.bunches.crossing_rate_hz();
            } else {
                options.steps = {{20 * ps_per_us, 5e6}, {40 * ps_per_us, 1e5}};
            }
            const TriggerSequence sequence(options, 0);
            for (Time time = 0; time < 100 * ps_per_us; time += 777'777) {
                for (const std::uint64_t begin : {0U, 5U, 100U}) {
                    TriggerSequence::Cursor from = sequence.advance(sequence.begin(), begin);
                    const TriggerSequence::Cursor found = sequence.skip(from, time);
                    for (auto next = sequence.advance(from, 1); next.last < time; next = sequence.advance(next, 1)) {
                        from = next;
                    }
                    ASSERT_EQ(found.event, from.event) << time;
                    ASSERT_EQ(found.last, from.last);
                    ASSERT_EQ(sequence.advance(found, 3).last, sequence.advance(from, 3).last);
                }
            }
        }
    }
}

std::vector<TriggerOptions> slow_ones() {
    std::vector<TriggerOptions> all;
    for (const double rate_hz : {5e-6, 1e-7, 1e-12, 1e-300}) {
        for (const Arrivals arrivals : {Arrivals::fixed, Arrivals::poisson, Arrivals::trace}) {
            TriggerOptions options = options_of(rate_hz, arrivals, 700'000 * ps_per_s);
            options.trace = std::make_shared<const std::vector<double>>(std::vector<double>{0.5, 1.5, 0, 2});
            all.push_back(options);
            options.steps = {{3600 * ps_per_s, 1e9}, {3601 * ps_per_s, 1e-9}, {9'000'000 * ps_per_s, 1e3}};
            all.push_back(options);
            options.rate_hz = 1e3;
            options.steps = {{ps_per_s, rate_hz}};
            all.push_back(options);
        }
    }
    TriggerOptions bunches = options_of(0.01, Arrivals::bunch_train);
    bunches.bunches = {.spacing = ps_per_s, .orbit = 1'000'000'000, .trains = 1, .filled = 1'000'000, .gap = 0};
    bunches.rate_hz = bunches.bunches.crossing_rate_hz();
    all.push_back(bunches);
    bunches.bunches.spacing = ps_per_ms;
    bunches.rate_hz = 0.1;
    all.push_back(bunches);
    return all;
}

TEST(Triggers, WhatIsPastTheEndOfTimeNeverHappens) {
    for (const TriggerOptions& options : slow_ones()) {
        const TriggerSequence sequence(options, 0);
        TriggerSequence::Cursor cursor = sequence.begin();
        Time before = 0;
        for (const std::uint64_t count : {1U, 1U, 61U, 65'535U, 65'535U, 65'535U}) {
            cursor = sequence.advance(cursor, count);
            ASSERT_GE(cursor.last, before) << options.rate_hz;
            before = cursor.last;
        }
        for (const Time time : {options.origin + ps_per_s, options.origin + 3600 * ps_per_s, time_never - 1}) {
            const TriggerSequence::Cursor skipped = sequence.skip(sequence.begin(), time, 100'000);
            ASSERT_LT(skipped.last, time) << options.rate_hz;
            if (skipped.event < 100'000) {
                ASSERT_GE(sequence.advance(skipped, 1).last, time) << options.rate_hz;
            }
        }
        TriggerGate gate(options, options.origin, 0);
        EXPECT_GE(gate.due(65'535, 0), options.origin) << options.rate_hz;
        EXPECT_EQ(gate.dead_time(options.origin, 65'535), 0);
    }
}

TEST(Triggers, RefuseWhatCannotBe) {
    EXPECT_TRUE(check(options_of(0, Arrivals::trace)));
    EXPECT_FALSE(check(options_of(-1, Arrivals::fixed)));
    EXPECT_FALSE(check(options_of(1e3, Arrivals::trace))) << "no trace";
    EXPECT_FALSE(check(options_of(1e15, Arrivals::fixed)));
    EXPECT_TRUE(check(options_of(1e10, Arrivals::fixed)));
    EXPECT_FALSE(check(options_of(1e9, Arrivals::poisson))) << "nobody could draw them all";
    EXPECT_TRUE(check(options_of(31e6, Arrivals::bunch_train)));
    EXPECT_FALSE(check(options_of(40e6, Arrivals::bunch_train))) << "faster than filled bunches cross";
    TriggerOptions options = options_of(1e3, Arrivals::fixed);
    options.steps = {{ps_per_s, 1e3}, {ps_per_s, 2e3}};
    EXPECT_FALSE(check(options)) << "two steps at once";
    options.steps = {{ps_per_s, 0}};
    EXPECT_FALSE(check(options));
    options = options_of(1e3, Arrivals::bunch_train);
    options.bunches.trains = 45;
    EXPECT_FALSE(check(options)) << "more trains than the orbit has room for";
}

TEST(Triggers, StepsAreReadAsWritten) {
    const auto steps = parse_rate_steps("120kHz@5s,80kHz@10s");
    ASSERT_TRUE(steps);
    ASSERT_EQ(steps->size(), 2U);
    EXPECT_EQ((*steps)[0].at, 5 * ps_per_s);
    EXPECT_EQ((*steps)[0].rate_hz, 120e3);
    EXPECT_EQ((*steps)[1].rate_hz, 80e3);
    EXPECT_TRUE(parse_rate_steps("")->empty());
    for (const char* bad : {"120kHz", "@5s", "120kHz@", "fast@5s", "120kHz@5s;80kHz@10s"}) {
        EXPECT_FALSE(parse_rate_steps(bad)) << bad;
    }
}

TriggerOptions every_ns(Policy policy) {
    TriggerOptions options = options_of(1e9, Arrivals::fixed, 1000);  // event k at 1000 + 1000 k ps
    options.policy = policy;
    return options;
}

TEST(TriggerGate, IsDeadFromTheTimeTheFirstEventWithoutRoomIsDue) {
    TriggerGate gate(every_ns(Policy::block), 1000, 0);
    EXPECT_EQ(gate.due(2, 0), 2000);
    gate.accept(2, 0);
    EXPECT_EQ(gate.dead_time(3900, 2), 0);
    EXPECT_EQ(gate.dead_time(4700, 2), 700) << "events 2 and 3 wait";
    EXPECT_EQ(gate.due(2, 6000), 4000) << "they were there in time, whenever there is room";
    gate.accept(2, 6000);
    EXPECT_EQ(gate.dead_time(9000, 0), 2000);
    gate.accept(2, 9000);  // due at 6000, and no time counts twice
    EXPECT_EQ(gate.dead_time(9500, 0), 5000);
    gate.accept(2, 9000);  // due at 8000
    EXPECT_EQ(gate.dead_time(9500, 0), 5000);
    gate.accept(2, 9000);  // due at 10000
    EXPECT_EQ(gate.dead_time(20'000, 0), 5000);
    EXPECT_EQ(gate.passed_events(), 10U);
    EXPECT_EQ(gate.inhibited_events(20'000, 0) + gate.dropped_events(), 0U);
}

TEST(TriggerGate, EB_M1_ThrottleInhibitsWhatComesWhileThereIsNoRoom) {
    TriggerGate gate(every_ns(Policy::throttle), 1000, 0);
    gate.accept(2, 0);
    // The next two triggers come at 3000 and 4000, and room only at 6500: those at 4000, 5000 and 6000 never happen.
    EXPECT_EQ(gate.inhibited_events(4000, 2), 0U);
    EXPECT_EQ(gate.inhibited_events(5500, 2), 2U) << "while it lasts";
    EXPECT_EQ(gate.due(2, 6500), 7000);
    gate.accept(2, 6500);
    EXPECT_EQ(gate.inhibited_events(6500, 0), 3U);
    EXPECT_EQ(gate.dead_time(7000, 0), 2500);
    EXPECT_EQ(gate.due(2, 6500), 9000) << "afterwards nothing is left of it";
    gate.accept(2, 6500);
    EXPECT_EQ(gate.passed_events(), 9U);
    EXPECT_EQ(gate.offered_events(9999), 9U);
    EXPECT_EQ(gate.offered_events(10'000), 10U);
}

TEST(TriggerGate, EB_M1_DropCountsAndIsDeadUntilThereIsAPlace) {
    TriggerGate gate(every_ns(Policy::drop), 1000, 0);
    gate.accept(2, 0);
    gate.drop(2, 0);  // due at 4000
    gate.drop(2, 0);
    EXPECT_EQ(gate.dead_time(6500, 0), 2500);
    gate.has_place(7000);
    gate.has_place(7500);
    EXPECT_EQ(gate.due(2, 0), 8000) << "nothing is shifted";
    gate.accept(2, 0);
    EXPECT_EQ(gate.dead_time(8000, 0), 3000);
    EXPECT_EQ(gate.dropped_events(), 4U);
    EXPECT_EQ(gate.passed_events(), 8U);
}

TEST(TriggerGate, EB_M1_CountsOfferedEventsWhetherAcceptedOrNot) {
    TriggerGate gate(every_ns(Policy::block), 1000, 0);
    EXPECT_EQ(gate.offered_events(999), 0U);
    EXPECT_EQ(gate.offered_events(1000), 1U);
    EXPECT_EQ(gate.offered_events(5999), 5U);
    gate.accept(8, 0);
    EXPECT_EQ(gate.offered_events(20'000), 20U);
    EXPECT_EQ(gate.passed_events(), 8U);
}

TEST(TriggerGate, GoesOverManyEventsInPieces) {
    constexpr std::uint64_t many = 5'000'000;  // behind it, after a long run
    TriggerOptions options = options_of(1e8, Arrivals::poisson, 1000);
    options.policy = Policy::throttle;
    const Time now = ps_per_s / 10;
    TriggerGate gate(options, now, many);
    int calls = 1;
    for (; gate.behind(); ++calls) {
        ASSERT_LT(calls, 100);
        if (gate.catch_up()) {
            EXPECT_FALSE(gate.behind());
        }
    }
    EXPECT_GT(calls, 2);
    const TriggerSequence sequence(options, 0);
    const TriggerSequence::Cursor last = sequence.skip(sequence.begin(), now);
    EXPECT_EQ(gate.due(1, 0), sequence.advance(last, 1).last);
    EXPECT_EQ(gate.passed_events(), 0U);
}

TEST(TriggerGate, EstimatesWhatItCannotCountAtOnce) {
    TriggerGate gate(options_of(1e8, Arrivals::poisson, 1000), 1000, 0);
    // A million's root is a thousand, so this is many standard deviations.
    EXPECT_NEAR(static_cast<double>(gate.offered_events(ps_per_s / 10)), 1e7, 1e5);
    const std::uint64_t told = gate.offered_events(ps_per_s / 10);
    EXPECT_NEAR(static_cast<double>(told), 1e7, 1e5);
    EXPECT_GE(gate.offered_events(ps_per_s / 10), told) << "what was said is not taken back";
}

TEST(TriggerGate, ThrottledItBeginsWithTheTriggersThatAreStillToCome) {
    TriggerGate gate(every_ns(Policy::throttle), 50'500, 10);
    EXPECT_EQ(gate.due(1, 0), 51'000);
    EXPECT_EQ(gate.offered_events(51'000), 1U);
    EXPECT_EQ(gate.inhibited_events(51'000, 0), 0U);
}

}  // namespace
}  // namespace incast::sources

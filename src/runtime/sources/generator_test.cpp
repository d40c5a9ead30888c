#include "runtime/sources/generator.h"

#include <numeric>
#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "base/prng.h"
#include "support/fake_transport.h"
#include "wire/body_checksum.h"

namespace incast::sources {
namespace {

using protocol::MepId;
using protocol::Piece;

// Two RUs, with one and with three sources; the RU under test is the second.
protocol::Config config_of(std::uint32_t cap_bytes, std::uint32_t retention = 4) {
    protocol::Config config;
    config.run = 42;
    config.nodes = {{protocol::role_em | protocol::role_ru | protocol::role_bu},
                    {protocol::role_ru | protocol::role_bu}};
    config.sources = {
        {10, Peer{0}, cap_bytes}, {20, Peer{1}, cap_bytes}, {21, Peer{1}, cap_bytes}, {30, Peer{1}, cap_bytes}};
    config.retention_meps = retention;
    config.credits = 3;
    config.quarantine_slots = 2;
    config.checksum = protocol::Checksum::full;
    return config;
}
constexpr std::uint32_t first_source = 1;
constexpr std::uint32_t n_sources = 3;

struct Readout {
    Readout(const protocol::Config& config_in, const GeneratorOptions& options, MepId first = 0, Time now = 0)
        : config(config_in), plan(MfpPlan::make(config, options).value()), generator(options) {
        const auto attached = generator.attach(transport, config, first_source, n_sources);
        EXPECT_TRUE(attached) << (attached ? "" : attached.error().message);
        generator.start(now, first, first * plan.packing());
    }

    wire::MfpView view(MepId mep, std::uint32_t index) {
        auto parsed = wire::MfpView::parse(transport.local(generator.piece(mep, index).body));
        EXPECT_TRUE(parsed) << (parsed ? "" : parsed.error().message);
        return *parsed;
    }

    // Everything about the MFP, fragment by fragment, against the plan.
    void expect_as_planned(MepId mep, std::uint32_t index) {
        std::vector<std::uint32_t> sizes(plan.packing());
        const PlannedMfp planned = plan.mfp(first_source + index, mep, sizes);
        const Piece piece = generator.piece(mep, index);
        EXPECT_EQ(piece.first_event, planned.first_event);
        EXPECT_EQ(piece.n_events, planned.n_events);
        EXPECT_EQ(piece.goodput_bytes, planned.size.payload_bytes);
        EXPECT_EQ(piece.flag, planned.flag);
        const wire::MfpView mfp = view(mep, index);
        EXPECT_EQ(mfp.bytes().size(), piece.body.length);
        EXPECT_EQ(piece.checksum, wire::body_checksum(transport.local(piece.body)));
        EXPECT_EQ(mfp.header().first_event, planned.first_event);
        EXPECT_EQ(mfp.header().source, config.sources[first_source + index].id);
        ASSERT_EQ(mfp.size(), planned.n_events);
        std::uint32_t number = 0;
        for (const wire::Fragment fragment : mfp) {
            EXPECT_EQ(fragment.data.size(), sizes[number]);
            EXPECT_FALSE(find_difference(plan.content(first_source + index, planned, number), fragment.data)) << number;
            ++number;
        }
    }

    protocol::Config config;
    MfpPlan plan;
    FakeTransport transport;
    Generator generator;
};

GeneratorOptions options_of(Distribution distribution, Fill fill = Fill::generated) {
    GeneratorOptions options;
    options.seed = 9;
    options.sizes = {.distribution = distribution, .mean_bytes = 200, .sigma_bytes = 60};
    options.packing = 16;
    options.fill = fill;
    options.prefill_bytes = 50'000;
    return options;
}

TEST(Generator, MakesWhatIsPlannedInEveryFillAndDistribution) {
    for (const Fill fill : {Fill::generated, Fill::prefilled}) {
        for (const Distribution distribution :
             {Distribution::fixed, Distribution::normal, Distribution::log_normal, Distribution::exponential}) {
            Readout readout(config_of(16'000), options_of(distribution, fill));
            for (MepId mep = 0; mep < 50; ++mep) {
                ASSERT_TRUE(readout.generator.produce(0, mep));
                for (std::uint32_t index = 0; index < n_sources; ++index) {
                    readout.expect_as_planned(mep, index);
                }
                readout.generator.release(mep);
            }
        }
    }
}

TEST(Generator, EB_F1_KeepsWhatIsNotReleased) {
    for (const Fill fill : {Fill::generated, Fill::prefilled}) {
        Readout readout(config_of(16'000), options_of(Distribution::normal, fill));
        for (MepId mep = 0; mep < 4; ++mep) {
            ASSERT_TRUE(readout.generator.produce(0, mep));
        }
        EXPECT_FALSE(readout.generator.produce(0, 4)) << "beyond retention";
        readout.generator.release(2);
        EXPECT_TRUE(readout.generator.produce(0, 4));
        EXPECT_TRUE(readout.generator.produce(0, 5));
        EXPECT_FALSE(readout.generator.produce(0, 6));
        for (MepId mep = 2; mep < 6; ++mep) {
            for (std::uint32_t index = 0; index < n_sources; ++index) {
                readout.expect_as_planned(mep, index);
            }
        }
    }
}

TEST(Generator, PrefilledContentReturnsWithTheRingAloneAndEventIdsNever) {
    Readout readout(config_of(16'000), options_of(Distribution::normal, Fill::prefilled));
    const std::uint64_t period = readout.plan.ring_meps();
    std::vector<std::string> contents;
    for (MepId mep = 0; mep < 2 * period; ++mep) {
        ASSERT_TRUE(readout.generator.produce(0, mep));
        const wire::MfpView mfp = readout.view(mep, 0);
        EXPECT_EQ(mfp.header().first_event, mep * 16);
        const Bytes content = mfp.bytes().subspan(20);
        contents.emplace_back(reinterpret_cast<const char*>(content.data()), content.size());
        readout.generator.release(mep);
    }
    EXPECT_EQ(std::set(contents.begin(), contents.end()).size(), period);
    for (MepId mep = 0; mep < period; ++mep) {
        EXPECT_EQ(contents[mep], contents[mep + period]);
    }
}

// EB-M4: a slot is used again after credits x BUs MEPs, or some sum of such steps; a stale one must never hold the
// bytes that are due.
TEST(MfpPlan, EB_M4_RingPeriodSharesNoFactorWithSlotReuse) {
    for (std::uint32_t credits = 1; credits < 40; ++credits) {
        for (const std::uint64_t bytes : {std::uint64_t{0}, std::uint64_t{100'000}, std::uint64_t{5'000'000}}) {
            protocol::Config config = config_of(16'000, 32);
            config.credits = credits;
            GeneratorOptions options = options_of(Distribution::fixed, Fill::prefilled);
            options.prefill_bytes = bytes;
            const MfpPlan plan = MfpPlan::make(config, options).value();
            const std::uint64_t period = plan.ring_meps();
            EXPECT_GE(period, 32U);
            EXPECT_GE(period * 3 * 16'000, bytes);
            for (const std::uint64_t reuse : {2 * credits, credits, 2 * (credits + 2), credits + 2}) {
                EXPECT_EQ(std::gcd(period, reuse), 1U) << period << " and " << reuse;
            }
        }
    }
}

TEST(Generator, EB_S5_EndsWithAShortMfp) {
    for (const Fill fill : {Fill::generated, Fill::prefilled}) {
        for (const std::uint64_t total : {std::uint64_t{39}, std::uint64_t{48}, std::uint64_t{1605}}) {
            GeneratorOptions options = options_of(Distribution::exponential, fill);
            options.total_events = total;
            Readout readout(config_of(16'000), options);
            EXPECT_EQ(readout.generator.total_meps(), (total + 15) / 16);
            MepId mep = 0;
            std::uint64_t events = 0;
            for (; readout.generator.produce(0, mep); ++mep) {
                events += readout.generator.piece(mep, 0).n_events;
                for (std::uint32_t index = 0; index < n_sources; ++index) {
                    readout.expect_as_planned(mep, index);
                }
                readout.generator.release(mep);
            }
            EXPECT_EQ(events, total);
            EXPECT_EQ(mep, readout.generator.total_meps());
            EXPECT_EQ(readout.generator.next_ready(), time_never);
        }
    }
}

TEST(Generator, WithoutMemoryItStillKnowsSizes) {
    const GeneratorOptions options = options_of(Distribution::log_normal);
    Readout real(config_of(16'000), options);
    FakeTransport phantom(true);
    Generator generator(options);
    ASSERT_TRUE(generator.attach(phantom, real.config, first_source, n_sources));
    generator.start(0, 0, 0);
    for (MepId mep = 0; mep < 4; ++mep) {
        ASSERT_TRUE(generator.produce(0, mep));
        ASSERT_TRUE(real.generator.produce(0, mep));
        for (std::uint32_t index = 0; index < n_sources; ++index) {
            EXPECT_EQ(generator.piece(mep, index).body.length, real.generator.piece(mep, index).body.length);
            EXPECT_EQ(generator.piece(mep, index).goodput_bytes, real.generator.piece(mep, index).goodput_bytes);
        }
    }
}

// EB-S4: what does not fit its place is delivered truncated to whole fragments, flagged and counted, and nothing is
// written behind it.
TEST(Generator, EB_S4_TruncatesWhatDoesNotFit) {
    for (const Fill fill : {Fill::generated, Fill::prefilled}) {
        Readout readout(config_of(3'000), options_of(Distribution::exponential, fill));
        std::uint64_t truncated = 0;
        for (MepId mep = 0; mep < 200; ++mep) {
            ASSERT_TRUE(readout.generator.produce(0, mep));
            for (std::uint32_t index = 0; index < n_sources; ++index) {
                readout.expect_as_planned(mep, index);
                const Piece piece = readout.generator.piece(mep, index);
                EXPECT_LE(piece.body.length, 3'000U);
                const wire::SourceFlag expected = piece.flag;
                EXPECT_EQ(readout.view(mep, index).flag(), expected);
                truncated += piece.flag == wire::SourceFlag::truncated ? 1 : 0;
            }
            readout.generator.release(mep);
        }
        EXPECT_GT(truncated, 10U);
        EXPECT_LT(truncated, 590U);
        EXPECT_EQ(readout.generator.stats(0).truncated_mfps, truncated);
    }
}

TEST(Generator, FlagsMfpsWithoutPayload) {
    GeneratorOptions options = options_of(Distribution::fixed);
    options.sizes = {.mean_bytes = 0};
    Readout readout(config_of(1'000), options);
    ASSERT_TRUE(readout.generator.produce(0, 0));
    EXPECT_EQ(readout.generator.piece(0, 0).flag, wire::SourceFlag::empty);
    EXPECT_EQ(readout.view(0, 0).flag(), wire::SourceFlag::empty);
}

TEST(Generator, EB_S1_LargeFragmentsTravelInTheWideVariant) {
    GeneratorOptions options = options_of(Distribution::fixed);
    options.sizes = {.mean_bytes = 70'000, .max_bytes = 1U << 20};
    options.packing = 2;
    Readout readout(config_of(150'000), options);
    ASSERT_TRUE(readout.generator.produce(0, 0));
    EXPECT_TRUE(readout.view(0, 1).header().wide);
    readout.expect_as_planned(0, 1);
}

TEST(Generator, OpenLoopIsReadyAtTheLastEventsTime) {
    GeneratorOptions options = options_of(Distribution::fixed);
    options.triggers = {.rate_hz = 1e9, .arrivals = Arrivals::fixed, .origin = 5'000};
    Readout readout(config_of(16'000), options, 0, 5'000);
    const Time ready = 5'000 + 15 * 1'000;
    EXPECT_EQ(readout.generator.next_ready(), ready);
    EXPECT_FALSE(readout.generator.produce(ready - 1, 0));
    ASSERT_TRUE(readout.generator.produce(ready + 400, 0));
    EXPECT_EQ(readout.generator.piece(0, 0).trigger, ready) << "the intended time, not the time of readout";
    EXPECT_EQ(readout.generator.next_ready(), ready + 16'000);
    EXPECT_EQ(readout.generator.stats(ready + 400).dead_time, 0);
}

TEST(Generator, OpenLoopWaitsForTheCommonStartOfTheTriggers) {
    GeneratorOptions options = options_of(Distribution::fixed);
    options.triggers = {.rate_hz = 1e9, .arrivals = Arrivals::fixed};
    Readout readout(config_of(16'000), options, 0, 5'000);
    const Time joined = 10 * ps_per_s;
    EXPECT_FALSE(readout.generator.produce(joined, 0));
    EXPECT_GT(readout.generator.next_ready(), joined) << "it looks again";
    EXPECT_EQ(readout.generator.stats(joined).offered_events, 0U);
    readout.generator.start_triggers(joined + 2'000);
    EXPECT_FALSE(readout.generator.produce(joined + 1'000, 0));
    const Time ready = joined + 2'000 + Time{15} * 1'000;
    EXPECT_EQ(readout.generator.next_ready(), ready);
    ASSERT_TRUE(readout.generator.produce(ready, 0));
    EXPECT_EQ(readout.generator.piece(0, 0).trigger, ready);
    EXPECT_EQ(readout.generator.stats(ready).dead_time, 0);
    EXPECT_EQ(readout.generator.stats(ready).offered_events, 16U);
}

TEST(Generator, OpenLoopCountsDeadTimeWhileThereIsNoRoom) {
    GeneratorOptions options = options_of(Distribution::fixed);
    options.triggers = {.rate_hz = 1e9, .arrivals = Arrivals::fixed, .origin = 1};
    Readout readout(config_of(16'000), options, 0, 1);
    for (MepId mep = 0; mep < 4; ++mep) {
        ASSERT_TRUE(readout.generator.produce(readout.generator.next_ready() + 10, mep));
    }
    const Time due = readout.generator.next_ready();
    EXPECT_FALSE(readout.generator.produce(due + 100, 4));
    EXPECT_EQ(readout.generator.stats(due + 100).dead_time, 100);
    readout.generator.release(1);
    ASSERT_TRUE(readout.generator.produce(due + 300, 4));
    EXPECT_FALSE(readout.generator.produce(due + 15'999, 5));
    const SourceStats stats = readout.generator.stats(due + 15'999);
    EXPECT_EQ(stats.dead_time, 300);
    EXPECT_EQ(stats.accepted_events, 80U);
    EXPECT_EQ(stats.offered_events, 95U);
}

// A readout too slow to fill its ring is as dead as one whose ring is full: data come when they come.
TEST(Generator, OpenLoopCountsDeadTimeOfASlowReadout) {
    GeneratorOptions options = options_of(Distribution::fixed);
    options.triggers = {.rate_hz = 1e9, .arrivals = Arrivals::fixed, .origin = 1};
    Readout readout(config_of(16'000), options, 0, 1);
    const Time mep_time = 16'000;
    Time now = 1;
    for (MepId mep = 0; mep < 100; ++mep) {
        now += 2 * mep_time;
        ASSERT_TRUE(readout.generator.produce(now, mep));
        readout.generator.release(mep + 1);  // the ring never holds more than one MEP
    }
    // After 200 MEPs' time 100 are read out. Room for four more was exceeded once five were behind: from then on it was
    // dead.
    const SourceStats stats = readout.generator.stats(now);
    EXPECT_GE(stats.offered_events, 200U * 16);
    EXPECT_NEAR(static_cast<double>(stats.dead_time), 190.0 * static_cast<double>(mep_time),
                5.0 * static_cast<double>(mep_time));
}

// offered = accepted + inhibited + dropped + waiting, where the last are those of the packet that is not full, and,
// where due events are held back, those that find no room.
TEST(Generator, EB_M1_WhatWasOfferedBalancesAtAnyTime) {
    constexpr std::uint64_t packing = 16;
    constexpr std::uint64_t retention = 12;
    for (std::uint64_t seed = 1; seed <= 60; ++seed) {
        base::Prng random(seed);
        GeneratorOptions options = options_of(Distribution::fixed);
        options.triggers = {.rate_hz = 1e8,
                            .arrivals = random.chance(500'000) ? Arrivals::poisson : Arrivals::fixed,
                            .seed = seed,
                            .origin = 1,
                            .policy = static_cast<Policy>(seed % 3),
                            .memory_meps = 3};
        Readout readout(config_of(16'000, retention), options, 0, 1);
        const TriggerSequence sequence(options.triggers, 0);
        TriggerSequence::Cursor happened = sequence.begin();
        Time now = 1;
        MepId mep = 0;
        MepId released = 0;
        std::uint64_t past_before = 0;
        for (int step = 0; step < 200; ++step) {
            now += static_cast<Time>(random.below(step % 50 == 0 ? 4'000'000 : 200'000));
            while (readout.generator.produce(now, mep))
                ++mep;
            for (; released < mep && random.chance(400'000); ++released) {
                readout.generator.release(released + 1);
            }
            while (sequence.advance(happened, 1).last <= now) {
                happened = sequence.advance(happened, 1);
            }
            while (readout.generator.produce(now, mep))
                ++mep;
            const SourceStats stats = readout.generator.stats(now);
            ASSERT_EQ(stats.offered_events, happened.event) << seed;
            const std::uint64_t past = stats.accepted_events + stats.inhibited_events + stats.dropped_events;
            ASSERT_LE(past, stats.offered_events) << seed;
            ASSERT_GE(past, past_before) << seed << ": what is past stays so";
            past_before = past;
            if (mep < released + retention || options.triggers.policy == Policy::throttle) {
                ASSERT_LT(stats.offered_events - past, packing) << seed << " at step " << step;
            }
        }
        EXPECT_GT(mep, retention) << seed;
    }
}

// Offered far faster than it is released: what is not accepted is accounted for, event by event, and what is retained
// stays as it was made.
TEST(Generator, EB_M1_EveryPolicyAccountsForEveryEvent) {
    for (const Fill fill : {Fill::generated, Fill::prefilled}) {
        for (const Policy policy : {Policy::block, Policy::throttle, Policy::drop}) {
            GeneratorOptions options = options_of(Distribution::normal, fill);
            options.total_events = 16 * 500 - 3;
            options.triggers = {.rate_hz = 1e9, .origin = 1, .policy = policy, .memory_meps = 3};
            Readout readout(config_of(16'000, 12), options, 0, 1);
            Generator& generator = readout.generator;
            Time now = 1;
            std::uint64_t released = 0;
            std::uint64_t dropped_meps = 0;
            Time last_trigger = 0;
            std::vector<bool> dropped(500);
            for (MepId mep = 0; mep < 500; now += 1'000) {
                if (generator.produce(now, mep)) {
                    const Piece piece = generator.piece(mep, 0);
                    EXPECT_GT(piece.trigger, last_trigger);
                    EXPECT_LE(piece.trigger, now);
                    last_trigger = piece.trigger;
                    dropped[mep] = piece.flag == wire::SourceFlag::dropped;
                    dropped_meps += dropped[mep] ? 1 : 0;
                    ++mep;
                }
                if (now / 40'000 > static_cast<Time>(released) && released < mep) {  // a MEP takes 16'000 to come
                    for (MepId kept = released; kept < mep; ++kept) {
                        for (std::uint32_t index = 0; index < n_sources; ++index) {
                            if (!dropped[kept]) {
                                readout.expect_as_planned(kept, index);
                                continue;
                            }
                            const wire::MfpView mfp = readout.view(kept, index);
                            EXPECT_TRUE(mfp.phantom());
                            EXPECT_EQ(mfp.flag(), wire::SourceFlag::dropped);
                            EXPECT_EQ(mfp.header().first_event, kept * 16);
                            EXPECT_EQ(generator.piece(kept, index).goodput_bytes, 0U);
                        }
                    }
                    generator.release(++released);
                }
            }
            const SourceStats stats = generator.stats(now);
            const int which = static_cast<int>(policy);
            EXPECT_EQ(stats.offered_events, stats.accepted_events + stats.inhibited_events + stats.dropped_events);
            EXPECT_EQ(stats.accepted_events + stats.dropped_events, options.total_events) << which;
            EXPECT_EQ(stats.dropped_mfps, dropped_meps * n_sources);
            EXPECT_EQ(stats.inhibited_events > 0, policy == Policy::throttle);
            EXPECT_EQ(stats.dropped_events > 0, policy == Policy::drop);
            EXPECT_GT(stats.dead_time, now / 4) << which;
            EXPECT_LE(stats.dead_time, now);
            EXPECT_EQ(stats.peak_held_meps, policy == Policy::drop ? 3U : 12U);
            if (policy == Policy::block) {
                EXPECT_GT(now - last_trigger, 100 * 16'000) << "the last event waited for long";
            } else if (policy == Policy::throttle) {
                EXPECT_LT(now - last_trigger, 40'000) << "no trigger is ever older than the room it found";
            }
        }
    }
}

TEST(Generator, OccupancyIsTheMemoryInUseOverTime) {
    GeneratorOptions options = options_of(Distribution::fixed);
    options.triggers = {.rate_hz = 16e6, .origin = ps_per_us};  // a MEP every microsecond
    Readout readout(config_of(16'000), options, 0, ps_per_us);
    Time now = ps_per_us;
    for (MepId mep = 0; mep < 3; ++mep) {
        now = readout.generator.next_ready();
        ASSERT_TRUE(readout.generator.produce(now, mep));
    }
    now += 10 * ps_per_us;  // one for a microsecond, two for another, three for ten
    EXPECT_NEAR(static_cast<double>(readout.generator.stats(now).held_mep_ns), 33'000, 10);
    readout.generator.release(3);
    EXPECT_EQ(readout.generator.stats(now + ps_per_us).peak_held_meps, 3U);
    readout.generator.clear_peak();
    EXPECT_EQ(readout.generator.stats(now + ps_per_us).peak_held_meps, 0U);
}

// EB-M7: what the sources of an event have in common they have in a prefilled ring too, however uneven they are.
TEST(Generator, EB_C8_AMepClosedEarlyHasTheEventsThatThereAre) {
    for (const Fill fill : {Fill::generated, Fill::prefilled}) {
        protocol::Config config = config_of(16'000);
        config.max_wait = ps_per_s;
        GeneratorOptions options = options_of(Distribution::fixed, fill);
        options.packing = 10;
        options.triggers = {.rate_hz = 2, .origin = 77};
        Readout readout(config, options);
        Generator& generator = readout.generator;
        EXPECT_FALSE(generator.produce(77, 0));
        EXPECT_EQ(generator.next_ready(), 77 + 9 * ps_per_s / 2) << "full";
        EXPECT_EQ(generator.impatient_at(), 77 + ps_per_s);
        EXPECT_EQ(generator.open_events(76), 0U);
        EXPECT_EQ(generator.open_events(77 + ps_per_s - 1), 2U);
        EXPECT_EQ(generator.open_events(77 + ps_per_s), 3U);
        generator.close(77 + ps_per_s, 0, 3);
        ASSERT_TRUE(generator.produce(77 + ps_per_s, 0));
        for (std::uint32_t index = 0; index < 2; ++index) {
            EXPECT_EQ(generator.piece(0, index).n_events, 3U);
            EXPECT_EQ(generator.piece(0, index).first_event, 0U);
            EXPECT_EQ(generator.piece(0, index).trigger, 77 + ps_per_s) << "that of its last event";
        }
        EXPECT_FALSE(generator.produce(77 + ps_per_s, 1));
        EXPECT_EQ(generator.impatient_at(), 77 + 5 * ps_per_s / 2) << "the next one begins with the event behind it";
        EXPECT_EQ(generator.next_ready(), 77 + 6 * ps_per_s);
        ASSERT_TRUE(generator.produce(77 + 6 * ps_per_s, 1));
        EXPECT_EQ(generator.piece(1, 1).n_events, 10U);
        EXPECT_EQ(generator.piece(1, 1).first_event, 3U);
        EXPECT_EQ(generator.stats(77 + 6 * ps_per_s).accepted_events, 13U);
    }
}

TEST(Generator, NothingIsImpatientThatFillsInTime) {
    protocol::Config config = config_of(16'000);
    config.max_wait = ps_per_s;
    GeneratorOptions options = options_of(Distribution::fixed);
    options.packing = 10;
    options.triggers = {.rate_hz = 20, .origin = 77};
    Readout readout(config, options);
    EXPECT_FALSE(readout.generator.produce(77, 0));
    EXPECT_EQ(readout.generator.impatient_at(), time_never);
}

TEST(MfpPlan, EB_M7_SourcesOfOneMepAreThoseOfTheSameEvents) {
    protocol::Config config = config_of(16'000);
    config.sources[0].cap_bytes = 1'000;
    GeneratorOptions options = options_of(Distribution::normal, Fill::prefilled);
    options.sizes = {.distribution = Distribution::normal, .mean_bytes = 200, .sigma_bytes = 60, .correlation = 1};
    const MfpPlan plan = MfpPlan::make(config, options).value();
    std::vector<std::uint32_t> one(16);
    std::vector<std::uint32_t> other(16);
    for (MepId mep = 0; mep < 3 * plan.ring_meps(); mep += 7) {
        EXPECT_EQ(plan.mfp(1, mep, one).content_event, plan.mfp(0, mep, other).content_event);
        plan.mfp(3, mep, other);
        EXPECT_EQ(one, other);
    }
}

TEST(Generator, ALateJoinerMakesTheSameAsOneThatWasThereFromTheStart) {
    GeneratorOptions options = options_of(Distribution::normal);
    options.triggers = {.rate_hz = 1e6, .arrivals = Arrivals::poisson, .origin = 77};
    Readout early(config_of(16'000), options, 0, 77);
    for (MepId mep = 0; mep < 100; ++mep) {
        ASSERT_TRUE(early.generator.produce(time_never - 1, mep));
        early.generator.release(mep);
    }
    Readout late(config_of(16'000), options, 99, 1'000'000);
    ASSERT_TRUE(late.generator.produce(time_never - 1, 99));
    late.expect_as_planned(99, 2);
    EXPECT_EQ(late.generator.piece(99, 2).trigger, early.generator.piece(99, 2).trigger);
}

TEST(Generator, RefusesWhatCannotWork) {
    FakeTransport transport;
    GeneratorOptions options = options_of(Distribution::fixed);
    options.packing = 0;
    EXPECT_FALSE(Generator(options).attach(transport, config_of(16'000), first_source, n_sources));
    options.packing = 100'000;
    EXPECT_FALSE(Generator(options).attach(transport, config_of(16'000), first_source, n_sources));
    options.packing = 16;
    const auto no_tables = Generator(options).attach(transport, config_of(60), first_source, n_sources);
    ASSERT_FALSE(no_tables);
    EXPECT_NE(no_tables.error().message.find("60 bytes"), std::string::npos) << no_tables.error().message;
    transport.most_bytes = 1000;
    const auto no_memory = Generator(options).attach(transport, config_of(16'000), first_source, n_sources);
    ASSERT_FALSE(no_memory);
    EXPECT_NE(no_memory.error().message.find("out of memory"), std::string::npos);
}

}  // namespace
}  // namespace incast::sources

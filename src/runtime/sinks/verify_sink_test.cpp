#include "runtime/sinks/verify_sink.h"

#include <algorithm>
#include <functional>
#include <string>

#include <gtest/gtest.h>

#include "runtime/sinks/touch_sink.h"
#include "runtime/sources/recorded_files.h"
#include "support/built_run.h"
#include "wire/mfp.h"

namespace incast::sinks {
namespace {

using sources::Distribution;
using sources::Fill;

constexpr std::uint32_t n_sources = 4;

protocol::Config config_of(std::uint32_t cap_bytes = 8'000) {
    protocol::Config config;
    config.run = 42;
    config.nodes = {{protocol::role_em | protocol::role_ru | protocol::role_bu},
                    {protocol::role_ru | protocol::role_bu}};
    config.sources = {
        {10, Peer{0}, cap_bytes}, {20, Peer{1}, cap_bytes}, {21, Peer{1}, cap_bytes}, {30, Peer{1}, cap_bytes}};
    config.retention_meps = 8;
    config.credits = 3;
    return config;
}

SinkOptions options_of(Fill fill = Fill::generated) {
    SinkOptions options;
    options.kind = Kind::verify;
    options.source.generator.seed = 5;
    options.source.generator.sizes = {
        .distribution = Distribution::normal, .mean_bytes = 300, .sigma_bytes = 90, .max_bytes = 600};
    options.source.generator.packing = 10;
    options.source.generator.fill = fill;
    return options;
}

struct Bench {
    explicit Bench(const SinkOptions& options_in = options_of(), const protocol::Config& config_in = config_of())
        : config(config_in),
          options(options_in),
          run(config, options.source, options.phantom_bodies),
          sink(make_sink(options, config).value()) {
        EXPECT_EQ(run.error(), "");
    }
    // Errors that this MEP adds.
    std::uint64_t errors_of(LooseMep& loose) {
        const std::uint64_t before = sink->stats().verify_errors;
        EXPECT_EQ(sink->take(0, loose.build()), protocol::Sink::Taken::done);
        return sink->stats().verify_errors - before;
    }
    std::string first_error() { return sink->stats().first_errors.empty() ? "" : sink->stats().first_errors.front(); }

    protocol::Config config;
    SinkOptions options;
    BuiltRun run;
    std::unique_ptr<RuntimeSink> sink;
};

TEST(VerifySink, AcceptsWhatTheGeneratorMade) {
    for (const Fill fill : {Fill::generated, Fill::prefilled}) {
        for (const std::uint32_t cap : {8'000U, 3'200U}) {  // with the second, many MFPs are truncated
            SinkOptions options = options_of(fill);
            options.source.generator.total_events = 1'234;
            Bench bench(options, config_of(cap));
            while (auto loose = bench.run.next()) {
                ASSERT_EQ(bench.errors_of(*loose), 0U) << bench.first_error();
            }
            const SinkStats& stats = bench.sink->stats();
            EXPECT_EQ(stats.meps, 124U);
            EXPECT_EQ(stats.events, 1'234U);
            EXPECT_EQ(stats.lines_checked_meps, 124U);
            EXPECT_EQ(stats.structure_checked_mfps, 124U * n_sources);
        }
    }
}

// Every single byte of a MEP matters: headers, tables, padding and fragments.
TEST(VerifySink, FindsAFlippedBitAtEveryByteOfAPacket) {
    Bench bench;
    LooseMep loose = *bench.run.next();
    std::uint64_t flipped = 0;
    for (std::uint32_t source = 0; source < n_sources; source += 3) {
        std::vector<std::byte>& body = loose.parts[source].body;
        for (std::size_t offset = 0; offset < body.size(); ++offset, ++flipped) {
            body[offset] ^= std::byte{0x04};
            loose.mep.redelivered = true;
            ASSERT_EQ(bench.errors_of(loose), 1U) << "source " << source << " byte " << offset << " of " << body.size();
            body[offset] ^= std::byte{0x04};
        }
    }
    EXPECT_GT(flipped, 5'000U);
    EXPECT_EQ(bench.errors_of(loose), 0U);
    EXPECT_EQ(bench.sink->stats().first_errors.size(), 8U);
}

// Of headers, where MFPs differ in their ids alone, most are compared with the one before: it must find the same.
TEST(VerifySink, FindsTheSameInTheFirstAndInLaterHeaders) {
    SinkOptions options = options_of();
    options.verify = Verify::header;
    options.source.generator.sizes = {.distribution = Distribution::fixed, .mean_bytes = 300, .max_bytes = 600};
    Bench later(options);
    std::uint64_t found = 0;
    for (int meps = 0; meps < 3; ++meps) {
        LooseMep good = *later.run.next();
        EXPECT_EQ(later.errors_of(good), 0U) << later.first_error();
    }
    LooseMep loose = *later.run.next();
    loose.mep.redelivered = true;
    std::vector<std::byte>& body = loose.parts[1].body;
    for (std::size_t offset = 0; offset < wire::mfp_prefix_bytes(10, false); ++offset) {
        body[offset] ^= std::byte{0x04};
        Bench fresh(options);
        const std::uint64_t errors = fresh.errors_of(loose);
        EXPECT_EQ(later.errors_of(loose), errors) << "byte " << offset;
        found += errors;
        body[offset] ^= std::byte{0x04};
    }
    EXPECT_GT(found, 40U);  // all but padding and what is no part of the check
    EXPECT_EQ(later.errors_of(loose), 0U);
    EXPECT_EQ(later.sink->stats().structure_checked_mfps, (3 + wire::mfp_prefix_bytes(10, false) + 1) * n_sources);
}

TEST(VerifySink, NamesThePlaceOfAnError) {
    Bench bench;
    LooseMep loose = *bench.run.next();
    std::vector<std::byte>& body = loose.parts[2].body;
    body[wire::mfp_prefix_bytes(10, false) + 77] ^= std::byte{0xff};
    EXPECT_EQ(bench.errors_of(loose), 1U);
    EXPECT_NE(bench.first_error().find("MEP 0 source 21 (node 1): event 0 byte 77 of "), std::string::npos)
        << bench.first_error();
}

struct Damage {
    const char* name;
    std::function<void(LooseMep&, const LooseMep& previous)> apply;
    std::uint64_t errors;
};

class VerifySinkDamage : public testing::TestWithParam<Damage> {};

TEST_P(VerifySinkDamage, IsFoundInEveryModeThatLooksThere) {
    Bench bench;
    LooseMep previous = *bench.run.next();
    LooseMep loose = *bench.run.next();
    GetParam().apply(loose, previous);
    EXPECT_EQ(bench.errors_of(loose), GetParam().errors) << bench.first_error();
}

INSTANTIATE_TEST_SUITE_P(
    All, VerifySinkDamage,
    testing::Values(
        Damage{"none", [](LooseMep&, const LooseMep&) {}, 0},
        Damage{"stale_slot", [](LooseMep& mep, const LooseMep& before) { mep.parts[1].body = before.parts[1].body; },
               1},
        Damage{"stale_slot_with_its_head",
               [](LooseMep& mep, const LooseMep& before) { mep.parts[1] = before.parts[1]; }, 1},
        Damage{"stale_line",
               [](LooseMep& mep, const LooseMep& before) {
                   std::copy_n(before.parts[3].body.begin() + 1024, 64, mep.parts[3].body.begin() + 1024);
               },
               1},
        Damage{"shifted_line",
               [](LooseMep& mep, const LooseMep&) {
                   std::copy_n(mep.parts[3].body.begin() + 1024, 64, mep.parts[3].body.begin() + 1024 + 64);
               },
               1},
        Damage{"swapped_bodies",
               [](LooseMep& mep, const LooseMep&) { std::swap(mep.parts[1].body, mep.parts[2].body); }, 2},
        Damage{"swapped_sources", [](LooseMep& mep, const LooseMep&) { std::swap(mep.parts[1], mep.parts[2]); }, 2},
        Damage{"wrong_event_id_in_the_head",
               [](LooseMep& mep, const LooseMep&) { mep.parts[0].head.first_event += 10; }, 1},
        Damage{"wrong_event_id_in_the_packet",
               [](LooseMep& mep, const LooseMep&) { mep.parts[0].body[8] ^= std::byte{1}; }, 1},
        Damage{"wrong_event_ids_everywhere",
               [](LooseMep& mep, const LooseMep&) {
                   for (auto& part : mep.parts) {
                       part.head.first_event += 10;
                       wire::store<std::uint64_t>(part.body, 8, part.head.first_event);
                   }
               },
               n_sources},
        Damage{"cut_body",
               [](LooseMep& mep, const LooseMep&) { mep.parts[2].body.resize(mep.parts[2].body.size() - 64); }, 1},
        Damage{"cut_body_with_its_head",
               [](LooseMep& mep, const LooseMep&) {
                   mep.parts[2].body.resize(mep.parts[2].body.size() - 64);
                   mep.parts[2].head.body_bytes -= 64;
               },
               1},
        Damage{"truncated_in_form",
               [](LooseMep& mep, const LooseMep&) {
                   auto& part = mep.parts[2];
                   part.body.resize(part.body.size() - 400);
                   part.head.body_bytes = static_cast<std::uint32_t>(*wire::truncate_mfp(part.body));
                   part.body.resize(part.head.body_bytes);
                   part.head.goodput_bytes =
                       static_cast<std::uint32_t>(wire::MfpView::parse(part.body)->payload_bytes());
                   part.flag = wire::SourceFlag::truncated;
               },
               1},
        Damage{"no_body", [](LooseMep& mep, const LooseMep&) { mep.parts[2].body.clear(); }, 1},
        Damage{"zeroed_body",
               [](LooseMep& mep, const LooseMep&) { std::ranges::fill(mep.parts[2].body, std::byte{0}); }, 1},
        Damage{"flag_made_up", [](LooseMep& mep, const LooseMep&) { mep.parts[2].flag = wire::SourceFlag::empty; }, 1},
        Damage{"missing_but_there",
               [](LooseMep& mep, const LooseMep&) { mep.parts[2].flag = wire::SourceFlag::missing_dead; }, 2}),
    [](const auto& damage) { return std::string(damage.param.name); });

TEST(VerifySink, CountsMissingSourcesWithoutCallingThemErrors) {
    Bench bench;
    LooseMep loose = *bench.run.next();
    loose.lose(0);
    loose.lose(3, wire::SourceFlag::missing_unreachable);
    EXPECT_EQ(bench.errors_of(loose), 0U) << bench.first_error();
    EXPECT_EQ(bench.sink->stats().incomplete_meps, 1U);
}

TEST(VerifySink, ADefectMakesAMepIncomplete) {
    Bench bench;
    LooseMep loose = *bench.run.next();
    const std::uint64_t before = bench.sink->stats().incomplete_meps;
    loose.build();
    loose.mep.flagged_sources = 1;  // none of its parts says so
    (void)bench.sink->take(0, loose.mep);
    EXPECT_EQ(bench.sink->stats().incomplete_meps, before + 1);
    EXPECT_EQ(bench.sink->stats().verify_errors, 1U);
}

TEST(VerifySink, ASourceThatIsNeitherThereNorMissingIsAnError) {
    Bench bench;
    LooseMep loose = *bench.run.next();
    loose.lose(1, wire::SourceFlag::ok);
    loose.build();
    loose.mep.missing_sources = 0;
    EXPECT_EQ(bench.sink->take(0, loose.mep), protocol::Sink::Taken::done);
    EXPECT_EQ(bench.sink->stats().verify_errors, 1U);
}

TEST(VerifySink, EB_F2_ARepeatIsAnErrorUnlessMarked) {
    Bench bench;
    LooseMep first = *bench.run.next();
    LooseMep second = *bench.run.next();
    EXPECT_EQ(bench.errors_of(second), 0U);
    EXPECT_EQ(bench.errors_of(first), 0U) << "any order will do";
    EXPECT_EQ(bench.errors_of(first), 1U);
    EXPECT_NE(bench.first_error().find("MEP 0: delivered again"), std::string::npos) << bench.first_error();
    first.mep.redelivered = true;
    EXPECT_EQ(bench.errors_of(first), 0U);
    EXPECT_EQ(bench.sink->stats().redelivered_meps, 1U);
}

TEST(VerifySink, ChecksAReplayAgainstTheRecording) {
    const sources::TemporaryFolder folder;
    for (const std::uint16_t source : {std::uint16_t{10}, std::uint16_t{20}, std::uint16_t{21}, std::uint16_t{30}}) {
        sources::record(folder.path(), source, 100, source == 21 ? 150 : 195, 10);
    }
    SinkOptions options = options_of();
    options.source.kind = sources::SourceOptions::Kind::replay;
    options.source.replay = {folder.path().string(), 2, {}, {}};
    Bench bench(options, config_of(2'000));  // some MFPs are truncated, and source 21 ends early
    std::uint64_t meps = 0;
    std::optional<LooseMep> last;
    while (auto loose = bench.run.next()) {
        ASSERT_EQ(bench.errors_of(*loose), 0U) << bench.first_error();
        ++meps;
        last = std::move(loose);
    }
    EXPECT_EQ(meps, 40U);
    EXPECT_EQ(bench.sink->stats().events, 390U);
    last->mep.redelivered = true;
    std::vector<std::byte>& body = last->parts[1].body;
    for (std::size_t offset = 0; offset < body.size(); ++offset) {
        body[offset] ^= std::byte{0x80};
        ASSERT_EQ(bench.errors_of(*last), 1U) << offset;
        body[offset] ^= std::byte{0x80};
    }
}

TEST(SeenMeps, RemembersItsWindowAndTakesTheRestAsSeen) {
    SeenMeps seen(64);
    EXPECT_TRUE(seen.insert(3));
    EXPECT_TRUE(seen.insert(0));
    EXPECT_FALSE(seen.insert(3));
    EXPECT_TRUE(seen.insert(66));
    EXPECT_FALSE(seen.insert(3));
    EXPECT_FALSE(seen.insert(2)) << "older than the window";
    EXPECT_TRUE(seen.insert(4));
    EXPECT_TRUE(seen.insert(1'000'000'000'000));
    EXPECT_FALSE(seen.insert(66));
    EXPECT_TRUE(seen.insert(1'000'000'000'000 - 63));
    EXPECT_FALSE(seen.insert(1'000'000'000'000 - 63));
    EXPECT_FALSE(seen.insert(1'000'000'000'000 - 64));
}

// EB-T9: in simulation heads alone move; they are checked all the same.
TEST(VerifySink, EB_T9_ChecksHeadsWhereBodiesArePhantom) {
    SinkOptions options = options_of();
    options.phantom_bodies = true;
    options.verify = Verify::header;
    Bench bench(options);
    LooseMep loose = *bench.run.next();
    EXPECT_TRUE(loose.parts[0].body.empty());
    EXPECT_EQ(bench.errors_of(loose), 0U) << bench.first_error();
    loose = *bench.run.next();
    loose.parts[1].head.body_bytes += 8;
    EXPECT_EQ(bench.errors_of(loose), 1U);
    EXPECT_EQ(bench.sink->stats().lines_checked_meps, 0U);
}

TEST(VerifySink, SamplesLinesOfSomeMepsAndStructureOfAll) {
    SinkOptions options = options_of();
    options.verify = Verify::sampled;
    options.sample_every = 4;
    Bench bench(options);
    std::uint64_t content_errors = 0;
    std::uint64_t structure_errors = 0;
    for (int mep = 0; mep < 40; ++mep) {
        LooseMep loose = *bench.run.next();
        if (mep < 20) {
            loose.parts[1].body[500] ^= std::byte{1};
            content_errors += bench.errors_of(loose);
        } else {
            loose.parts[1].body[16] ^= std::byte{1};
            structure_errors += bench.errors_of(loose);
        }
    }
    EXPECT_EQ(content_errors, 5U);
    EXPECT_EQ(structure_errors, 20U);
    EXPECT_EQ(bench.sink->stats().lines_checked_meps, 10U);
}

TEST(Sinks, EB_M2_CountLatencyFromAssignmentAndFromTheIntendedTime) {
    SinkOptions options = options_of();
    options.kind = Kind::null;
    options.open_loop = true;
    Bench bench(options);
    LooseMep loose = *bench.run.next();
    for (auto& part : loose.parts) {
        part.head.trigger = 1'000 * ps_per_ns;
    }
    loose.mep.assigned = 3'000 * ps_per_ns;
    bench.sink->take(3'020 * ps_per_ns, loose.build());
    EXPECT_EQ(bench.sink->stats().service_ns.max(), 20U);
    EXPECT_EQ(bench.sink->stats().trigger_ns.max(), 2'020U);
    bench.sink->clear_latencies();
    EXPECT_EQ(bench.sink->stats().service_ns.count(), 0U);
    EXPECT_EQ(bench.sink->stats().meps, 1U);
}

TEST(Sinks, EB_M5_TellTheirCpuTimeApart) {
    SinkOptions options = options_of();
    options.cpu_clock = [] {
        static Time now = 0;
        return now += 5;
    };
    options.kind = Kind::touch;
    TouchSink touch(options);
    Bench bench(options);
    LooseMep loose = *bench.run.next();
    constexpr Time meps = 20'000;
    for (Time i = 0; i < meps; ++i)
        touch.take(0, loose.build());
    EXPECT_NEAR(static_cast<double>(touch.stats().cpu), 5.0 * meps, 0.1 * 5 * meps) << "some stand for the others";
}

TEST(TouchSink, EB_M5_ReadsOneWordOfEachLine) {
    SinkOptions options = options_of();
    options.kind = Kind::touch;
    Bench bench(options);
    LooseMep loose = *bench.run.next();
    for (auto& part : loose.parts) {
        part.body.assign(64 * 3 + 1, std::byte{0});
        for (std::size_t line = 0; line < 4; ++line) {
            part.body[64 * line] = std::byte{1};
        }
    }
    // Found again through the sum: four lines of four sources, one each.
    TouchSink touch(options);
    touch.take(0, loose.build());
    EXPECT_EQ(touch.sum(), 16U);
}

}  // namespace
}  // namespace incast::sinks

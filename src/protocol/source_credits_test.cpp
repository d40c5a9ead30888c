// Credits that readout units keep (assignment = source-credits; EB-C1, EB-C5), on inproc with a scripted clock.
#include <tuple>

#include <gtest/gtest.h>

#include "protocol/credit_book.h"
#include "support/protocol.h"

namespace incast::protocol {
namespace {

using testing::Cluster;
using testing::make_config;

TEST(CreditBook, KnowsTheSlotOfACreditThatWasGranted) {
    CreditBook book(2, 3, 8, 0, Plant::none);
    EXPECT_EQ(book.slot_of(1, 1), wire::unknown_slot);
    EXPECT_TRUE(book.add(1, {1, 2, 0}));
    EXPECT_TRUE(book.add(1, {2, 0, 0}));
    EXPECT_EQ(book.slot_of(1, 1), 2U);
    EXPECT_EQ(book.slot_of(1, 2), 0U);
    EXPECT_EQ(book.slot_of(1, 3), wire::unknown_slot);
    EXPECT_EQ(book.slot_of(0, 1), wire::unknown_slot) << "of another BU";
}

/// EB-C1: whether a grant comes once, twice or, because a later one says so, not at all.
TEST(CreditBook, EB_C1_RepeatedAndLostGrantsAreHarmless) {
    CreditBook book(1, 3, 8, 0, Plant::none);
    EXPECT_TRUE(book.add(0, {1, 0, 0}));
    EXPECT_TRUE(book.add(0, {1, 0, 0}));
    EXPECT_TRUE(book.add(0, {7, 2, 0})) << "credits 2 to 6 were over before they could be told";
    EXPECT_EQ(book.slot_of(0, 1), 0U);
    EXPECT_EQ(book.slot_of(0, 4), wire::unknown_slot);
    EXPECT_EQ(book.slot_of(0, 7), 2U);
    EXPECT_TRUE(book.add(0, {8, 0, 0})) << "the slot serves another credit";
    EXPECT_EQ(book.slot_of(0, 1), wire::unknown_slot);
    EXPECT_FALSE(book.add(0, {1, 0, 0})) << "older than what is known";
    EXPECT_EQ(book.slot_of(0, 8), 0U);
    EXPECT_FALSE(book.add(0, {9, 3, 0})) << "no such slot";
    book.clear(0, true);
    EXPECT_EQ(book.slot_of(0, 8), wire::unknown_slot);
    EXPECT_TRUE(book.add(0, {1, 0, 0})) << "of the BU's next incarnation";
}

/// A grant far ahead, taken for true, would hide the true one of its slot.
TEST(CreditBook, EB_T8_GrantsFarAheadAreRefused) {
    CreditBook book(1, 3, 8, 0, Plant::none);
    EXPECT_TRUE(book.add(0, {1, 0, 0}));
    EXPECT_TRUE(book.add(0, {2'000'000'000, 0, 0})) << "kept apart: it is not known yet how far the BU is";
    book.announced(0, 0);
    EXPECT_EQ(book.slot_of(0, 1), 0U);
    EXPECT_FALSE(book.add(0, {2'000'000'000, 1, 0}));
    EXPECT_EQ(book.slot_of(0, 2'000'000'000), wire::unknown_slot);
    EXPECT_TRUE(book.add(0, {2, 1, 0}));
    EXPECT_EQ(book.slot_of(0, 2), 1U);
}

TEST(CreditBook, AReadoutUnitThatComesLaterLearnsHowFarABuilderIs) {
    CreditBook book(1, 3, 8, 0, Plant::none);
    EXPECT_TRUE(book.add(0, {5000, 0, 0}));
    EXPECT_TRUE(book.add(0, {4'000'000'000, 1, 0}));
    EXPECT_TRUE(book.add(0, {5001, 1, 0}));
    EXPECT_TRUE(book.add(0, {4'000'000'000, 2, 0}));
    book.announced(0, 4999);
    EXPECT_EQ(book.slot_of(0, 5000), 0U);
    EXPECT_EQ(book.slot_of(0, 5001), 1U);
    EXPECT_EQ(book.slot_of(0, 4'000'000'000), wire::unknown_slot);
    book.clear(0, true);
    EXPECT_FALSE(book.add(0, {5002, 0, 0})) << "the next incarnation counts from 1";
}

/// EB-C1: messages carry 32 bits of what goes on behind them.
TEST(CreditBook, CreditsGoOnBehindTheirLastNumber) {
    CreditBook book(1, 3, 8, ~std::uint32_t{0} - 1, Plant::none);
    book.start(0);
    EXPECT_TRUE(book.add(0, {~std::uint32_t{0}, 0, 0}));
    EXPECT_TRUE(book.add(0, {0, 1, 0}));
    EXPECT_TRUE(book.add(0, {1, 2, 0}));
    EXPECT_EQ(book.slot_of(0, ~std::uint32_t{0}), 0U);
    EXPECT_EQ(book.slot_of(0, 0), 1U);
    EXPECT_EQ(book.slot_of(0, 1), 2U);
    book.announced(0, 1);
    EXPECT_TRUE(book.add(0, {2, 0, 0}));
    EXPECT_EQ(book.slot_of(0, ~std::uint32_t{0}), wire::unknown_slot);
    EXPECT_FALSE(book.add(0, {~std::uint32_t{0}, 0, 0})) << "older than what is known";
    EXPECT_FALSE(book.add(0, {1000, 1, 0})) << "far ahead";
}

void expect_delivered(Cluster& cluster, const Config& config) {
    std::size_t taken = 0;
    for (std::size_t node = 0; node < config.nodes.size(); ++node) {
        const testing::RecordingSink& sink = *cluster[node].recording;
        const Counters& counters = cluster.node(node).counters();
        EXPECT_EQ(sink.repeated + sink.incomplete + sink.wrong, 0U);
        EXPECT_EQ(counters.bad_messages + counters.stale_contributions + counters.barrier_expired, 0U);
        EXPECT_EQ(counters.late_reports, 0U);
        EXPECT_EQ(cluster[node].source->misuse, 0U);
        taken += sink.taken.size();
    }
    EXPECT_EQ(taken + cluster.ledger.rejected, config.total_meps);
    EXPECT_EQ(cluster.ledger.commits, config.total_meps);
}

class Schemes : public ::testing::TestWithParam<std::tuple<Scheme, bool, Layout>> {};

TEST_P(Schemes, EB_C5_DeliverEveryMepOnceAtItsBuilder) {
    const auto [scheme, folded, layout] = GetParam();
    Config config = make_config(3, 4, folded, 2, 256);
    if (folded) {
        config = make_config(4, 4, true, 2, 256);
    }
    config.assignment = Assignment::source_credits;
    config.scheme = scheme;
    config.layout = layout;
    config.first_stage_rus = two_stages(scheme) ? 2 : 0;
    config.parallel_requests = 3;
    config.credits = 2;
    config.total_meps = 400;
    ASSERT_TRUE(validate(config).ok()) << validate(config).error().message;
    Cluster cluster(config, 100);
    ASSERT_TRUE(cluster.run_until([&] { return cluster.all_finished(); }));
    expect_delivered(cluster, config);
    for (std::size_t bu = 0; bu < 4; ++bu) {
        for (const MepId mep : cluster[folded ? bu : 3 + bu].recording->taken) {
            EXPECT_EQ(mep % 4, bu);
        }
    }
}

INSTANTIATE_TEST_SUITE_P(All, Schemes,
                         ::testing::Combine(::testing::Values(Scheme::push, Scheme::pull_write, Scheme::push_pull,
                                                              Scheme::pull_pull, Scheme::pull_read),
                                            ::testing::Bool(),
                                            ::testing::Values(Layout::contiguous, Layout::segmented,
                                                              Layout::per_source)));

class Schedules : public ::testing::TestWithParam<std::tuple<Schedule, bool, bool>> {};

TEST_P(Schedules, DeliverEveryMepOnceAndComplete) {
    const auto [schedule, folded, acknowledged] = GetParam();
    Config config = make_config(4, folded ? 4 : 3, folded, 2, 256);
    config.assignment = Assignment::source_credits;
    config.schedule = schedule;
    config.ack_per_write = acknowledged;
    config.slot_time = 20 * ps_per_us;
    config.barrier_deadline = ps_per_s;
    config.total_meps = 300;
    ASSERT_TRUE(validate(config).ok()) << validate(config).error().message;
    Cluster cluster(config, 100);
    ASSERT_TRUE(cluster.run_until([&] { return cluster.all_finished(); }));
    expect_delivered(cluster, config);
}

INSTANTIATE_TEST_SUITE_P(All, Schedules,
                         ::testing::Combine(::testing::Values(Schedule::none, Schedule::random, Schedule::linear_shift,
                                                              Schedule::barrel_barrier, Schedule::barrel_time_slot),
                                            ::testing::Bool(), ::testing::Bool()));

/// Takes nothing until it is told to.
class ShutSink final : public Sink {
public:
    Taken take(Time, const BuiltMep&) override {
        taken += open ? 1 : 0;
        return open ? Taken::done : Taken::busy;
    }
    std::size_t durable(Time, std::span<MepId>) override { return 0; }
    [[nodiscard]] Time next_deadline() const override { return time_never; }
    bool open = false;
    std::uint64_t taken = 0;
};

/// The InfiniBand paper: "if a farm destination has no credits, it is not eligible for more events"; the others are.
TEST(SourceCredits, EB_C5_ABuilderWithoutCreditIsPassedOver) {
    Config config = make_config(3, 3, false, 1, 256);
    config.assignment = Assignment::source_credits;
    config.credits = 2;
    config.retention_meps = 30;
    config.total_meps = 300;
    config.late_after = 1000 * ps_per_s;
    ShutSink sink;
    Cluster cluster(config, 64, false, {{Peer{4}, &sink}});
    ASSERT_TRUE(cluster.run_until([&] { return cluster.ledger.commits >= 20; }));
    for (int round = 0; round < 1000; ++round) {
        cluster.round();
    }
    // What RUs keep is the limit: MEP 0 is released, 1 to 30 are kept, and those of the shut BU wait.
    EXPECT_EQ(cluster.ledger.commits, 31U - 10U);
    EXPECT_EQ(sink.taken, 0U);
    sink.open = true;
    ASSERT_TRUE(cluster.run_until([&] { return cluster.all_finished(); }));
    EXPECT_EQ(cluster.ledger.commits, 300U);
    EXPECT_EQ(sink.taken, 100U);
}

class Losing : public ::testing::TestWithParam<Scheme> {};

TEST_P(Losing, ADeadBuilderCostsNoMepAndItsCreditsAreVoid) {
    Config config = make_config(3, 3, false, 2, 256);
    config.assignment = Assignment::source_credits;
    config.scheme = GetParam();
    config.first_stage_rus = two_stages(config.scheme) ? 2 : 0;
    config.total_meps = 900;
    Cluster cluster(config, 64);
    ASSERT_TRUE(cluster.run_until([&] { return cluster.ledger.commits > 100; }));
    cluster.kill(Peer{4});
    ASSERT_TRUE(cluster.run_until([&] { return cluster.ledger.commits > 300; }));
    cluster.restart(Peer{4}, 2, 64);
    ASSERT_TRUE(cluster.run_until([&] { return cluster.all_finished(); }));
    EXPECT_EQ(cluster.ledger.commits, 900U);
    EXPECT_EQ(cluster.ledger.flagged, 0U);
    EXPECT_GT(cluster[4].recording->taken.size(), 50U);
    std::uint64_t bad = 0;
    for (std::size_t node = 0; node < config.nodes.size(); ++node) {
        bad += cluster.node(node).counters().bad_messages;
    }
    EXPECT_EQ(bad, 0U);
}

TEST_P(Losing, ADeadReadoutUnitComesBackAndLearnsOfTheCredits) {
    Config config = make_config(3, 2, false, 2, 256);
    config.assignment = Assignment::source_credits;
    config.scheme = GetParam();
    config.first_stage_rus = two_stages(config.scheme) ? 2 : 0;
    config.total_meps = 900;
    Cluster cluster(config, 64);
    ASSERT_TRUE(cluster.run_until([&] { return cluster.ledger.commits > 100; }));
    cluster.kill(Peer{1});
    ASSERT_TRUE(cluster.run_until([&] { return cluster.ledger.flagged > 20; }));
    cluster.restart(Peer{1}, 2, 64);
    ASSERT_TRUE(cluster.run_until([&] { return cluster.node(1).state() == NodeState::running; }));
    const std::uint64_t flagged = cluster.ledger.flagged;
    ASSERT_TRUE(cluster.run_until([&] { return cluster.all_finished(); }));
    EXPECT_EQ(cluster.ledger.commits, 900U);
    EXPECT_LT(cluster.ledger.flagged, flagged + 100);  // what was admitted when it came back: the window
}

INSTANTIATE_TEST_SUITE_P(All, Losing,
                         ::testing::Values(Scheme::push, Scheme::pull_write, Scheme::push_pull, Scheme::pull_pull,
                                           Scheme::pull_read));

TEST(SourceCredits, SchedulesThatWaitForOneDestinationAreRefused) {
    Config config = make_config(2, 2, true, 1, 256);
    config.assignment = Assignment::source_credits;
    for (const Schedule schedule : {Schedule::sequential, Schedule::lockstep}) {
        config.schedule = schedule;
        config.scheme = Scheme::push;
        ASSERT_FALSE(validate(config).ok());
        EXPECT_NE(validate(config).error().message.find("assignment = source-credits"), std::string::npos);
    }
    config.schedule = Schedule::sequential;
    config.scheme = Scheme::pull_write;
    EXPECT_TRUE(validate(config).ok()) << "there it is the order of requests";
}

}  // namespace
}  // namespace incast::protocol

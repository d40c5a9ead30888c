// The units together, on inproc with a scripted clock. Faults beyond a dying node are for the adversarial simulation.
#include "support/protocol.h"

#include <tuple>

#include <gtest/gtest.h>

#include "transport/decorator/forward.h"
#include "transport/decorator/pad.h"

namespace incast::protocol {
namespace {

using testing::Cluster;
using testing::make_config;

struct Case {
    Scheme scheme;
    bool folded;
    Schedule schedule;
    std::uint32_t sources_per_ru;
    std::uint32_t parallel;
};

class Building : public ::testing::TestWithParam<std::tuple<Scheme, bool, Schedule, std::uint32_t, std::uint32_t>> {};

TEST_P(Building, DeliversEveryMepOnceAndComplete) {
    const auto [scheme, folded, schedule, sources_per_ru, parallel] = GetParam();
    Config config = make_config(4, 4, folded, sources_per_ru, 256);
    config.scheme = scheme;
    config.schedule = schedule;
    config.parallel_requests = parallel;
    config.parallel_sends = scheme == Scheme::pull_read ? 0 : parallel;
    config.views = scheme == Scheme::pull_read && sources_per_ru == 3;
    config.total_meps = 500;
    ASSERT_TRUE(validate(config).ok());
    Cluster cluster(config, 100);
    ASSERT_TRUE(cluster.run_until([&] { return cluster.all_finished(); }));
    std::set<MepId> all;
    std::uint64_t taken = 0;
    for (std::size_t node = 0; node < config.nodes.size(); ++node) {
        const testing::RecordingSink& sink = *cluster[node].recording;
        EXPECT_EQ(sink.repeated + sink.incomplete + sink.wrong, 0U);
        EXPECT_EQ(cluster[node].source->misuse, 0U);
        EXPECT_EQ(cluster.node(node).counters().bad_messages, 0U);
        EXPECT_EQ(cluster.node(node).counters().stale_contributions, 0U);
        taken += sink.taken.size();
        all.insert(sink.taken.begin(), sink.taken.end());
    }
    EXPECT_EQ(taken, 500U);
    EXPECT_EQ(all.size(), 500U);
    EXPECT_EQ(*all.rbegin(), 499U);
    EXPECT_EQ(cluster.ledger.commits, 500U);
}

INSTANTIATE_TEST_SUITE_P(
    All, Building,
    ::testing::Combine(::testing::Values(Scheme::push, Scheme::pull_write, Scheme::pull_read), ::testing::Bool(),
                       ::testing::Values(Schedule::sequential, Schedule::random, Schedule::linear_shift),
                       ::testing::Values(1U, 3U), ::testing::Values(0U, 1U, 5U)));

/// Credits are numbered by 32 bits, which builder units of small events use up within hours.
class Wrapping : public ::testing::TestWithParam<std::tuple<Scheme, Assignment, Schedule>> {};

TEST_P(Wrapping, EB_C1_CreditsGoOnBehindTheirLastNumber) {
    const auto [scheme, assignment, schedule] = GetParam();
    Config config = make_config(3, 3, true, 1, 256);
    config.scheme = scheme;
    config.assignment = assignment;
    config.schedule = schedule;
    config.total_meps = 300;
    config.credits_before = ~std::uint32_t{0} - 40;
    ASSERT_TRUE(validate(config).ok());
    Cluster cluster(config, 100);
    ASSERT_TRUE(cluster.run_until([&] { return cluster.all_finished(); }));
    EXPECT_EQ(cluster.ledger.commits, 300U);
    for (std::size_t node = 0; node < config.nodes.size(); ++node) {
        const testing::RecordingSink& sink = *cluster[node].recording;
        EXPECT_GT(sink.taken.size(), 41U) << "the end was not crossed";
        EXPECT_EQ(sink.repeated + sink.incomplete + sink.wrong, 0U);
        EXPECT_EQ(cluster.node(node).counters().bad_messages, 0U);
        EXPECT_EQ(cluster.node(node).counters().stale_contributions, 0U);
    }
}

INSTANTIATE_TEST_SUITE_P(All, Wrapping,
                         ::testing::Combine(::testing::Values(Scheme::push, Scheme::pull_write),
                                            ::testing::Values(Assignment::em, Assignment::fixed,
                                                              Assignment::source_credits),
                                            ::testing::Values(Schedule::random, Schedule::linear_shift)));

/// All MEPs once, whole and right.
void expect_delivered(Cluster& cluster, const Config& config) {
    std::size_t taken = 0;
    for (std::size_t node = 0; node < config.nodes.size(); ++node) {
        const testing::RecordingSink& sink = *cluster[node].recording;
        const Counters& counters = cluster.node(node).counters();
        EXPECT_EQ(sink.repeated + sink.incomplete + sink.wrong, 0U);
        EXPECT_EQ(counters.bad_messages + counters.stale_contributions, 0U);
        EXPECT_TRUE(cluster[node].source == nullptr || cluster[node].source->misuse == 0U);
        taken += sink.taken.size();
    }
    EXPECT_EQ(taken, config.total_meps);
}

struct Splitting {
    std::uint32_t message_size;
    bool ack_per_write;
    std::uint32_t outstanding;
    std::uint32_t parallel_sends;
};
class InWrites : public ::testing::TestWithParam<std::tuple<Scheme, Splitting>> {};

TEST_P(InWrites, EB_S1_AnMfpTravelsAsManyWrites) {
    const auto [scheme, split] = GetParam();
    Config config = make_config(3, 3, true, 2, 1000);
    config.scheme = scheme;
    config.message_size = split.message_size;
    config.ack_per_write = split.ack_per_write;
    config.outstanding_writes = split.outstanding;
    config.parallel_sends = split.parallel_sends;
    config.total_meps = 60;
    ASSERT_TRUE(validate(config).ok());
    // With keys as long as they may be.
    Cluster cluster(config, 1000, false, {}, transport::decorator::make_pad);
    ASSERT_TRUE(cluster.run_until([&] { return cluster.all_finished(); }));
    expect_delivered(cluster, config);
}

INSTANTIATE_TEST_SUITE_P(All, InWrites,
                         ::testing::Combine(::testing::Values(Scheme::push, Scheme::pull_write),
                                            ::testing::Values(Splitting{300, false, 0, 0}, Splitting{1000, false, 0, 2},
                                                              Splitting{64, true, 0, 0}, Splitting{300, true, 1, 0},
                                                              Splitting{0, true, 1, 0}, Splitting{300, true, 3, 2},
                                                              Splitting{7, true, 100, 50})));

class Checked : public ::testing::TestWithParam<std::tuple<Scheme, Checksum, SelfTraffic>> {};

/// Every damaged MFP of a MEP that has checksums is flagged, no other; and nothing is lost for it.
TEST_P(Checked, WhatArrivesDamagedIsFlagged) {
    const auto [scheme, checksum, self_traffic] = GetParam();
    Config config = make_config(3, 3, true, 2, 256);
    config.scheme = scheme;
    config.checksum = checksum;
    config.self_traffic = self_traffic;
    config.first_stage_rus = two_stages(scheme) ? 2 : 0;
    config.total_meps = 320;
    ASSERT_TRUE(validate(config).ok());
    Cluster cluster(config, 100);
    cluster[1].source->damage_every = 32;
    ASSERT_TRUE(cluster.run_until([&] { return cluster.all_finished(); }));
    std::uint64_t damaged = 0;
    std::uint64_t counted = 0;
    std::uint64_t incomplete = 0;
    for (std::size_t node = 0; node < config.nodes.size(); ++node) {
        const testing::RecordingSink& sink = *cluster[node].recording;
        EXPECT_EQ(sink.repeated + sink.wrong, 0U);
        damaged += sink.damaged;
        counted += cluster.node(node).counters().damaged_mfps;
        incomplete += cluster.node(node).counters().incomplete_meps;
    }
    EXPECT_EQ(cluster.ledger.commits, 320U);
    const std::uint64_t meps = checksum == Checksum::off ? 0 : 10 - (two_stages(scheme) ? 2 : 0);  // some are rejected
    EXPECT_EQ(damaged, 2 * meps) << "both sources of the RU";
    EXPECT_EQ(incomplete, meps);
    EXPECT_GE(counted, damaged);
}

INSTANTIATE_TEST_SUITE_P(All, Checked,
                         ::testing::Combine(::testing::Values(Scheme::push, Scheme::pull_write, Scheme::push_pull,
                                                              Scheme::pull_read),
                                            ::testing::Values(Checksum::off, Checksum::sampled, Checksum::full),
                                            ::testing::Values(SelfTraffic::copy, SelfTraffic::pointer)));

/// Says of every tenth notice that it is damaged.
class Tears final : public transport::decorator::Forward {
public:
    explicit Tears(std::unique_ptr<Transport> inner)
        : Forward(std::move(inner)), capabilities_(this->inner().capabilities()) {
        capabilities_.lossy_bodies = true;
    }
    [[nodiscard]] const Capabilities& capabilities() const override { return capabilities_; }
    std::size_t poll(Time now, std::span<Event> events) override {
        const std::size_t count = Forward::poll(now, events);
        for (Event& event : events.first(count)) {
            if (event.kind == Event::Kind::notice && ++notices_ % 10 == 0) event.status = Status::damaged;
        }
        return count;
    }

private:
    Capabilities capabilities_;
    std::uint64_t notices_ = 0;
};

class Torn : public ::testing::TestWithParam<std::tuple<Scheme, Assignment, bool>> {};

/// Where bytes of a body are missing the event is delivered, flagged and counted; nothing waits and nothing comes
/// again.
TEST_P(Torn, WhatANoticeCallsDamagedIsFlagged) {
    const auto [scheme, assignment, acks] = GetParam();
    Config config = make_config(3, 3, false, 2, 256);
    config.scheme = scheme;
    config.assignment = assignment;
    config.ack_per_write = acks;  // a notice of any part counts for its contribution
    config.first_stage_rus = two_stages(scheme) ? 2 : 0;
    config.checksum = Checksum::full;
    config.total_meps = 300;
    ASSERT_TRUE(validate(config).ok());
    Cluster cluster(config, 100, false, {}, [](std::unique_ptr<Transport> inner) -> std::unique_ptr<Transport> {
        return std::make_unique<Tears>(std::move(inner));
    });
    ASSERT_TRUE(cluster.run_until([&] { return cluster.all_finished(); }));
    EXPECT_EQ(cluster.ledger.commits, 300U);
    std::uint64_t torn = 0;
    std::uint64_t flagged = 0;
    for (std::size_t node = 0; node < config.nodes.size(); ++node) {
        const testing::RecordingSink& sink = *cluster[node].recording;
        const Counters& counters = cluster.node(node).counters();
        EXPECT_EQ(sink.repeated + sink.wrong, 0U);
        EXPECT_EQ(counters.damaged_mfps, 0U) << "its bytes are there";
        EXPECT_EQ(counters.stale_contributions + counters.reassignments, 0U);
        EXPECT_EQ(counters.incomplete_meps, sink.incomplete);
        EXPECT_EQ(counters.flagged_bad_checksum_mfps, sink.damaged);
        EXPECT_EQ(counters.built_goodput_bytes, 100 * (6 * counters.meps_built - sink.damaged));
        torn += counters.torn_mfps;
        flagged += sink.damaged;
    }
    EXPECT_GT(flagged, 100U);
    // A MEP that a filter rejects after its first stage is not delivered.
    EXPECT_TRUE(two_stages(scheme) ? torn >= flagged : torn == flagged) << torn << " and " << flagged;
}

INSTANTIATE_TEST_SUITE_P(All, Torn,
                         ::testing::Values(std::tuple{Scheme::push, Assignment::em, false},
                                           std::tuple{Scheme::push, Assignment::source_credits, false},
                                           std::tuple{Scheme::push, Assignment::em, true},
                                           std::tuple{Scheme::pull_write, Assignment::em, false},
                                           std::tuple{Scheme::pull_pull, Assignment::em, false},
                                           std::tuple{Scheme::push_pull, Assignment::em, false}));

class LaidOut : public ::testing::TestWithParam<std::tuple<Scheme, Layout, bool>> {};

TEST_P(LaidOut, EB_S3_DeliversEveryMepOnceAndComplete) {
    const auto [scheme, layout, folded] = GetParam();
    Config config = make_config(3, folded ? 3 : 2, folded, 2, 1000);
    config.scheme = scheme;
    config.layout = layout;
    config.message_size = scheme == Scheme::pull_read ? 0 : 300;
    config.total_meps = 60;
    ASSERT_TRUE(validate(config).ok());
    // With keys as long as they may be.
    Cluster cluster(config, 1000, false, {}, transport::decorator::make_pad);
    ASSERT_TRUE(cluster.run_until([&] { return cluster.all_finished(); }));
    expect_delivered(cluster, config);
}

INSTANTIATE_TEST_SUITE_P(All, LaidOut,
                         ::testing::Combine(::testing::Values(Scheme::push, Scheme::pull_write, Scheme::pull_read),
                                            ::testing::Values(Layout::contiguous, Layout::per_mep, Layout::segmented,
                                                              Layout::per_source),
                                            ::testing::Bool()));

TEST(SlotLayout, EB_S3_RegionsHoldEverySourceOfEverySlotOnce) {
    Config config = make_config(2, 2, true, 3, 100);
    for (const Layout kind : {Layout::contiguous, Layout::per_mep, Layout::segmented, Layout::per_source}) {
        config.layout = kind;
        const SlotLayout layout = slot_layout(config);
        constexpr std::uint32_t slots = 5;
        std::vector<std::uint64_t> used(layout.region_bytes(slots).size());
        std::uint64_t all = 0;
        for (std::uint32_t slot = 0; slot < slots; ++slot) {
            for (std::uint32_t source = 0; source < config.sources.size(); ++source) {
                const SlotLayout::Place place = layout.at(slot, source);
                ASSERT_LT(place.region, used.size());
                EXPECT_EQ(place.offset, used[place.region]) << "one behind the other";
                used[place.region] += sizeof(wire::Head) + 128;
                all += sizeof(wire::Head) + 128;
            }
        }
        EXPECT_EQ(used, layout.region_bytes(slots));
        EXPECT_EQ(all, layout.slot_bytes * slots);
    }
}

struct Stages {
    Scheme scheme;
    std::uint32_t first_rus;
    bool all;
    bool folded;
};
class TwoStages : public ::testing::TestWithParam<Stages> {};

/// Every seventh MEP is rejected, and with its first stage alone; the others are complete.
TEST_P(TwoStages, EB_C7_ReadsTheRestOfWhatTheFilterAccepts) {
    const Stages stages = GetParam();
    Config config = make_config(4, 3, stages.folded, 2, 256);
    config.scheme = stages.scheme;
    config.first_stage_rus = stages.first_rus;
    config.second_stage_all = stages.all;
    config.parallel_requests = 3;
    config.total_meps = 700;
    ASSERT_TRUE(validate(config).ok());
    Cluster cluster(config, 100);
    ASSERT_TRUE(cluster.run_until([&] { return cluster.all_finished(); }));
    EXPECT_EQ(cluster.ledger.commits, 700U);
    EXPECT_EQ(cluster.ledger.rejected, 100U);
    EXPECT_EQ(cluster.ledger.flagged, 0U);
    std::set<MepId> all;
    Counters sum;
    for (std::size_t node = 0; node < config.nodes.size(); ++node) {
        const testing::RecordingSink& sink = *cluster[node].recording;
        const Counters& counters = cluster.node(node).counters();
        EXPECT_EQ(sink.repeated + sink.incomplete + sink.wrong, 0U);
        EXPECT_EQ(cluster[node].source->misuse + counters.bad_messages + counters.stale_contributions, 0U);
        all.insert(sink.taken.begin(), sink.taken.end());
        sum.meps_filtered += counters.meps_filtered;
        sum.contributions_sent += counters.contributions_sent;
        sum.built_goodput_bytes += counters.built_goodput_bytes;
    }
    EXPECT_EQ(all.size(), 600U);
    EXPECT_TRUE(std::ranges::none_of(all, [](MepId mep) { return mep % 7 == 0; }));
    EXPECT_EQ(sum.meps_filtered, 100U);
    EXPECT_EQ(sum.built_goodput_bytes, 600U * 8 * 100);
    const std::uint64_t repeats = stages.all ? 600U * stages.first_rus : 0;
    EXPECT_EQ(sum.contributions_sent, 600U * 4 + 100U * stages.first_rus + repeats);
}

INSTANTIATE_TEST_SUITE_P(
    All, TwoStages,
    ::testing::Values(Stages{Scheme::push_pull, 1, false, false}, Stages{Scheme::push_pull, 3, false, true},
                      Stages{Scheme::push_pull, 4, false, false}, Stages{Scheme::pull_pull, 2, false, true},
                      Stages{Scheme::pull_pull, 2, true, false}, Stages{Scheme::pull_pull, 4, true, true}));

/// Phases, slots and gaps of the length of a few steps of the cluster.
void shorten(Config& config) {
    config.slot_time = 20 * ps_per_us;
    config.barrier_deadline = ps_per_s;
}

class Scheduled : public ::testing::TestWithParam<std::tuple<Schedule, bool, Assignment, Time>> {};

TEST_P(Scheduled, EB_C6_DeliversEveryMepOnceAndComplete) {
    const auto [schedule, folded, assignment, gap] = GetParam();
    Config config = make_config(4, folded ? 4 : 3, folded, 2, 256);
    shorten(config);
    config.schedule = schedule;
    config.assignment = assignment;
    config.inter_send_gap = gap;
    config.total_meps = 300;
    ASSERT_TRUE(validate(config).ok()) << validate(config).error().message;
    Cluster cluster(config, 100);
    ASSERT_TRUE(cluster.run_until([&] { return cluster.all_finished(); }));
    std::uint64_t taken = 0;
    std::uint64_t contributions = 0;
    for (std::size_t node = 0; node < config.nodes.size(); ++node) {
        const testing::RecordingSink& sink = *cluster[node].recording;
        const Counters& counters = cluster.node(node).counters();
        EXPECT_EQ(sink.repeated + sink.incomplete + sink.wrong, 0U);
        EXPECT_EQ(cluster[node].source->misuse, 0U);
        EXPECT_EQ(counters.bad_messages + counters.stale_contributions + counters.barrier_expired, 0U);
        taken += sink.taken.size();
        contributions += counters.contributions_sent;
    }
    EXPECT_EQ(taken, 300U);
    EXPECT_EQ(contributions, 4 * 300U);
    const Counters& em = cluster.em().counters();
    if (schedule == Schedule::barrel_barrier) {
        EXPECT_GE(em.phases, 300U);  // each RU sends once in each at most
    } else if (schedule == Schedule::lockstep) {
        EXPECT_GE(em.phases, 300U / (folded ? 4 : 3));
    } else {
        EXPECT_EQ(em.phases, 0U);
    }
}

INSTANTIATE_TEST_SUITE_P(All, Scheduled,
                         ::testing::Combine(::testing::Values(Schedule::none, Schedule::sequential,
                                                              Schedule::linear_shift, Schedule::barrel_barrier,
                                                              Schedule::barrel_time_slot, Schedule::lockstep),
                                            ::testing::Bool(), ::testing::Values(Assignment::em, Assignment::fixed),
                                            ::testing::Values(Time{0}, 5 * ps_per_us)));

TEST(Phases, StopWhenThereIsNothingToSend) {
    Config config = make_config(3, 3, false, 1, 256);
    config.schedule = Schedule::barrel_barrier;
    config.total_meps = 50;
    Cluster cluster(config, 64);
    ASSERT_TRUE(cluster.run_until([&] { return cluster.all_finished(); }));
    const std::uint64_t phases = cluster.em().counters().phases;
    for (int step = 0; step < 1000; ++step) {
        cluster.round();
    }
    EXPECT_EQ(cluster.em().counters().phases, phases);
}

TEST(Phases, EB_C6_GoOnWithoutAReadoutUnitThatDied) {
    Config config = make_config(3, 2, false, 2, 256);
    config.schedule = Schedule::barrel_barrier;
    config.total_meps = 300;
    Cluster cluster(config, 64);
    ASSERT_TRUE(cluster.run_until([&] { return cluster.ledger.commits > 50; }));
    cluster.kill(Peer{1});
    ASSERT_TRUE(cluster.run_until([&] { return cluster.all_finished(); }));
    EXPECT_EQ(cluster.ledger.commits, 300U);
}

TEST(StaticAssignment, EB_C5_GivesEachMepToItsBuilder) {
    Config config = make_config(2, 3, false, 1, 256);
    config.assignment = Assignment::fixed;
    config.total_meps = 100;
    Cluster cluster(config, 64);
    ASSERT_TRUE(cluster.run_until([&] { return cluster.all_finished(); }));
    for (std::size_t bu = 0; bu < 3; ++bu) {
        const auto& taken = cluster[2 + bu].recording->taken;
        EXPECT_EQ(taken.size(), bu == 0 ? 34U : 33U);
        for (const MepId mep : taken) {
            EXPECT_EQ(mep % 3, bu);
        }
    }
}

class Losing : public ::testing::TestWithParam<Scheme> {};

TEST_P(Losing, EB_F4_ADeadBuilderCostsNoMep) {
    Config config = make_config(3, 3, false, 2, 256);
    config.scheme = GetParam();
    config.first_stage_rus = two_stages(config.scheme) ? 1 : 0;
    config.total_meps = 400;
    Cluster cluster(config, 64);
    ASSERT_TRUE(cluster.run_until([&] { return cluster.ledger.commits > 100; }));
    cluster.kill(Peer{4});
    ASSERT_TRUE(cluster.run_until([&] { return cluster.all_finished(); }));
    EXPECT_EQ(cluster.ledger.commits, 400U);
    EXPECT_EQ(cluster.ledger.flagged, 0U);
    std::set<MepId> all;
    for (std::size_t node = 3; node < 6; ++node) {
        all.insert(cluster[node].recording->taken.begin(), cluster[node].recording->taken.end());
    }
    EXPECT_EQ(all.size() + cluster.ledger.rejected, 400U);
}

TEST_P(Losing, EB_F5_ADeadReadoutUnitIsFlaggedAndMayComeBack) {
    Config config = make_config(3, 2, false, 2, 256);
    config.scheme = GetParam();
    config.first_stage_rus = two_stages(config.scheme) ? 2 : 0;
    config.views = config.scheme == Scheme::pull_read;
    config.total_meps = 600;
    Cluster cluster(config, 64);
    ASSERT_TRUE(cluster.run_until([&] { return cluster.ledger.commits > 100; }));
    cluster.kill(Peer{1});
    ASSERT_TRUE(cluster.run_until([&] { return cluster.ledger.flagged > 20; }));
    cluster.restart(Peer{1}, 2, 64);
    ASSERT_TRUE(cluster.run_until([&] { return cluster.node(1).state() == NodeState::running; }));
    const std::uint64_t flagged = cluster.ledger.flagged;
    ASSERT_TRUE(cluster.run_until([&] { return cluster.all_finished(); }));
    EXPECT_EQ(cluster.ledger.commits, 600U);
    EXPECT_LT(cluster.ledger.flagged, flagged + 50);  // only what was in flight when it came back
    EXPECT_EQ(cluster[1].source->misuse, 0U);
}

TEST_P(Losing, ARestartedBuilderBuildsAgain) {
    Config config = make_config(2, 2, false, 1, 256);
    config.scheme = GetParam();
    config.first_stage_rus = two_stages(config.scheme) ? 1 : 0;
    config.total_meps = 800;
    Cluster cluster(config, 64);
    ASSERT_TRUE(cluster.run_until([&] { return cluster.ledger.commits > 100; }));
    cluster.restart(Peer{3}, 2, 64);
    ASSERT_TRUE(cluster.run_until([&] { return cluster.all_finished(); }));
    EXPECT_EQ(cluster.ledger.commits, 800U);
    EXPECT_GT(cluster[3].recording->taken.size(), 50U);
}

INSTANTIATE_TEST_SUITE_P(Both, Losing,
                         ::testing::Values(Scheme::push, Scheme::pull_write, Scheme::push_pull, Scheme::pull_pull,
                                           Scheme::pull_read));

class ToItself : public ::testing::TestWithParam<SelfTraffic> {};

TEST_P(ToItself, EB_M3_NothingIsSentAndItIsCountedApart) {
    Config config = make_config(2, 2, true, 2, 256);
    config.self_traffic = GetParam();
    config.total_meps = 100;
    Cluster cluster(config, 200);
    ASSERT_TRUE(cluster.run_until([&] { return cluster.all_finished(); }));
    expect_delivered(cluster, config);
    Counters sum;
    for (std::size_t node = 0; node < 2; ++node) {
        const Counters& counters = cluster.node(node).counters();
        sum.built_goodput_bytes += counters.built_goodput_bytes;
        sum.built_self_bytes += counters.built_self_bytes;
        sum.sent_goodput_bytes += counters.sent_goodput_bytes;
        sum.sent_self_bytes += counters.sent_self_bytes;
        sum.copied_bytes += counters.copied_bytes;
    }
    const std::uint64_t half =
        std::uint64_t{100} * 2 * 200;  // each MEP is built by one of the two units that read it out
    EXPECT_EQ(sum.built_goodput_bytes, 2 * half);
    EXPECT_EQ(sum.built_self_bytes, half);
    EXPECT_EQ(sum.sent_goodput_bytes, 2 * half);
    EXPECT_EQ(sum.sent_self_bytes, half);
    EXPECT_EQ(sum.copied_bytes, GetParam() == SelfTraffic::copy ? half : 0);
}

INSTANTIATE_TEST_SUITE_P(All, ToItself, ::testing::Values(SelfTraffic::copy, SelfTraffic::pointer));

TEST(Ending, StopAdmissionDrainsWhatWasAdmitted) {
    Config config = make_config(4, 4, true, 1, 256);
    Cluster cluster(config, 16);
    ASSERT_TRUE(cluster.run_until([&] { return cluster.ledger.commits > 1000; }));
    cluster.em().stop_admission();
    ASSERT_TRUE(cluster.run_until([&] { return cluster.all_finished(); }));
    EXPECT_EQ(cluster.ledger.commits, cluster.em().counters().meps_admitted);
}

TEST(Configuration, IsRefusedWithTheKeyAndTheRange) {
    Config config = make_config(2, 2, true, 1, 256);
    ASSERT_TRUE(validate(config).ok());
    config.credits = 0;
    const Result<Ok> refused = validate(config);
    ASSERT_FALSE(refused.ok());
    EXPECT_NE(refused.error().message.find("credits = 0: must be 1..16384"), std::string::npos);
    config = make_config(2, 2, true, 1, 256);
    config.schedule = Schedule::barrel_barrier;
    config.scheme = Scheme::pull_write;
    EXPECT_NE(validate(config).error().message.find("protocol.schedule = barrel-barrier: builder units pull"),
              std::string::npos);
    config = make_config(2, 2, true, 1, 256);
    config.schedule = Schedule::barrel_time_slot;
    config.slot_time = config.late_after / 15;  // 2 x 4 credits x 2 nodes
    EXPECT_EQ(validate(config).error().message,
              "protocol.late_after = " + base::duration_text(config.late_after) +
                  ": a MEP may wait longer for its turn, 2 x protocol.credits x max(RUs, BUs) x protocol.slot_time; "
                  "allowed: at least " +
                  base::duration_text(16 * config.slot_time));
    config.slot_time = config.late_after / 16;
    EXPECT_TRUE(validate(config).ok());
    config = make_config(2, 2, true, 1, 0);
    EXPECT_FALSE(validate(config).ok());
    config = make_config(2, 2, true, 1, 16);
    config.nodes[1].roles = 0;
    EXPECT_FALSE(validate(config).ok());
}

}  // namespace
}  // namespace incast::protocol

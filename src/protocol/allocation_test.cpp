// After start and the first rounds, the protocol and the transport under it allocate nothing.

#include <gtest/gtest.h>

#include "base/count_allocations.h"
#include "support/protocol.h"

namespace incast::protocol {
namespace {

class AfterStart : public ::testing::TestWithParam<std::tuple<Scheme, bool>> {};

TEST_P(AfterStart, NothingIsAllocated) {
    const auto [scheme, folded] = GetParam();
    Config config = testing::make_config(4, 4, folded, 2, 1024);
    config.scheme = scheme;
    config.parallel_requests = 6;
    config.parallel_sends = 6;
    testing::Cluster cluster(config, 500, true);
    ASSERT_TRUE(cluster.run_until([&] { return cluster.ledger.commits > 200; }));
    const std::uint64_t before = base::allocations.load();
    ASSERT_GT(before, 0U);  // the counter counts
    ASSERT_TRUE(cluster.run_until([&] { return cluster.ledger.commits > 5000; }));
    EXPECT_EQ(base::allocations.load() - before, 0U);
}

class AfterStartInOrder : public ::testing::TestWithParam<std::tuple<Schedule, Assignment>> {};

TEST_P(AfterStartInOrder, NothingIsAllocated) {
    Config config = testing::make_config(4, 4, true, 2, 1024);
    config.schedule = std::get<0>(GetParam());
    config.assignment = std::get<1>(GetParam());
    config.slot_time = 20 * ps_per_us;
    config.inter_send_gap = 2 * ps_per_us;
    testing::Cluster cluster(config, 500, true);
    ASSERT_TRUE(cluster.run_until([&] { return cluster.ledger.commits > 200; }));
    const std::uint64_t before = base::allocations.load();
    ASSERT_TRUE(cluster.run_until([&] { return cluster.ledger.commits > 2000; }));
    EXPECT_EQ(base::allocations.load() - before, 0U);
}

INSTANTIATE_TEST_SUITE_P(All, AfterStartInOrder,
                         ::testing::Combine(::testing::Values(Schedule::none, Schedule::barrel_barrier,
                                                              Schedule::barrel_time_slot, Schedule::lockstep),
                                            ::testing::Values(Assignment::em, Assignment::fixed)));
INSTANTIATE_TEST_SUITE_P(Credited, AfterStartInOrder,
                         ::testing::Combine(::testing::Values(Schedule::none, Schedule::random, Schedule::linear_shift,
                                                              Schedule::barrel_barrier, Schedule::barrel_time_slot),
                                            ::testing::Values(Assignment::source_credits)));

INSTANTIATE_TEST_SUITE_P(All, AfterStart,
                         ::testing::Combine(::testing::Values(Scheme::push, Scheme::pull_write), ::testing::Bool()));

}  // namespace
}  // namespace incast::protocol

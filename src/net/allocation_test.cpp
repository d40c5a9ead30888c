// After start and the first rounds, raw traffic and the transport under it allocate nothing.

#include <utility>

#include <gtest/gtest.h>

#include "base/count_allocations.h"
#include "support/net.h"

namespace incast::net {
namespace {

class AfterStart : public ::testing::TestWithParam<std::pair<Measure, Operation>> {};

TEST_P(AfterStart, NothingIsAllocated) {
    Config config;
    config.n_nodes = 4;
    config.pairs = make_pairs({Pattern::all_to_all, 4, 0, 0, false});
    config.measure = GetParam().first;
    config.operation = GetParam().second;
    config.queues = 2;
    config.outstanding = config.measure == Measure::latency ? 1 : 8;
    config.sends = config.measure == Measure::loaded ? 3 : 0;
    config.message_bytes = 500;
    config.ping_bytes = 20;
    config.verify = true;
    testing::Cluster cluster(config);
    ASSERT_TRUE(cluster.run_until([&] { return cluster.all(State::ready); }));
    cluster.go();
    const Counters& counters = cluster.nodes[0]->counters();
    ASSERT_TRUE(cluster.run_until([&] { return counters.messages_received > 200; }));
    const std::uint64_t before = base::allocations.load();
    ASSERT_GT(before, 0U);  // the counter counts
    ASSERT_TRUE(cluster.run_until([&] { return counters.messages_received > 20'000; }));
    EXPECT_EQ(base::allocations.load() - before, 0U);
}

INSTANTIATE_TEST_SUITE_P(All, AfterStart,
                         ::testing::Values(std::pair{Measure::bandwidth, Operation::write},
                                           std::pair{Measure::latency, Operation::write},
                                           std::pair{Measure::loaded, Operation::write},
                                           std::pair{Measure::bandwidth, Operation::read}));

}  // namespace
}  // namespace incast::net

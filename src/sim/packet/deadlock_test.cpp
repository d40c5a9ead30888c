// Queues that wait for each other in a circle: found on every kind of switch that can lose nothing, and never where
// waiting does not come round.
#include "support/sim_packet.h"

namespace incast::sim::packet {
namespace {

using testing::payload;
using testing::RingOfSwitches;
using testing::saturate;

class Deadlocks : public ::testing::TestWithParam<SwitchKind> {
protected:
    static NetworkSettings settings() {
        NetworkSettings found;
        found.switches[0].kind = GetParam();
        if (GetParam() == SwitchKind::shared_buffer || GetParam() == SwitchKind::deep_buffer)
            found.switches[0].pfc = {.classes = 0xff, .xoff_bytes = 100'000, .headroom_bytes = 64 * 1024};
        found.switches[0].spill_bytes = 1 << 30;  // what is written off the chip cannot deadlock
        return found;
    }
};

TEST_P(Deadlocks, ARingThatWaitsForItselfIsFoundAndReported) {
    const RingOfSwitches stuck(settings(), 2);
    saturate(*stuck.network, stuck.flows, 64 * payload, 0, 2 * ps_per_ms, 8);
    const std::vector<Deadlock> deadlocks = stuck.network->find_deadlocks();
    ASSERT_EQ(deadlocks.size(), 1U);
    EXPECT_EQ(deadlocks[0].ports.size(), RingOfSwitches::switches);
    for (const PortIndex port : deadlocks[0].ports)
        EXPECT_GE(port / 2, RingOfSwitches::hosts) << stuck.network->name(port) << " is no cable between switches";
    EXPECT_EQ(stuck.network->totals().dropped, 0U);
    // It is one: nothing moves any more.
    const std::uint64_t hops = stuck.network->hops();
    stuck.network->advance(10 * ps_per_ms);
    EXPECT_EQ(stuck.network->hops(), hops);
    EXPECT_EQ(stuck.network->find_deadlocks().size(), 1U);
    EXPECT_EQ(stuck.network->name(port_from_one(10)), "switch0 to switch1 (cable 10)");
}

TEST_P(Deadlocks, ARingWithoutCyclicWaitingNeverIs) {
    const RingOfSwitches free(settings(), 1);
    for (const FlowIndex flow : free.flows)
        free.network->post(flow, 500 * payload, 0);
    unsigned delivered = 0;
    Outcome outcome;
    for (Time now = ps_per_us; free.network->next_time() != time_never; now += 5 * ps_per_us) {
        free.network->advance(now);
        ASSERT_TRUE(free.network->find_deadlocks().empty()) << now;
        while (free.network->take_outcome(outcome))
            ++delivered;
    }
    EXPECT_EQ(delivered, free.flows.size());
    EXPECT_EQ(free.network->totals().dropped, 0U);
}

INSTANTIATE_TEST_SUITE_P(EverySwitch, Deadlocks,
                         ::testing::Values(SwitchKind::shared_buffer, SwitchKind::credit, SwitchKind::input_fifo,
                                           SwitchKind::deep_buffer));

// What makes a deep buffer deep also takes it out of the circle: memory outside the chip takes what waits.
TEST(DeepDeadlock, WhatIsSpilledDoesNotWaitInACircle) {
    NetworkSettings settings;
    settings.switches[0].kind = SwitchKind::deep_buffer;
    settings.switches[0].pfc = {.classes = 0xff, .xoff_bytes = 100'000};
    settings.switches[0].spill_bytes = 0;
    settings.switches[0].buffer_bytes = 1ULL << 30;
    const RingOfSwitches ring(settings, 2);
    saturate(*ring.network, ring.flows, 64 * payload, 0, 2 * ps_per_ms, 8);
    EXPECT_TRUE(ring.network->find_deadlocks().empty());
    const std::uint64_t hops = ring.network->hops();
    ring.network->advance(3 * ps_per_ms);
    EXPECT_GT(ring.network->hops(), hops);
}

}  // namespace
}  // namespace incast::sim::packet

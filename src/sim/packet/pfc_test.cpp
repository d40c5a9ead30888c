// Priority flow control: how much headroom is enough and how much is not, pauses that spread, victims.
#include <gtest/gtest.h>

#include "support/sim_packet.h"

namespace incast::sim::packet {
namespace {

using testing::datagrams;
using testing::gbit100;
using testing::gbit_per_second;
using testing::make;
using testing::packet_time;
using testing::payload;
using testing::saturate;
using testing::stored_bytes;
using testing::wire;

constexpr std::uint32_t pause_bytes = 84;
constexpr std::uint64_t xoff = 20 * stored_bytes;

/// Drops of a sender at 100 Gb/s into a port that hardly drains, over a cable of this length, while the pause frames
/// have to wait for packets going the other way, the first of which starts at `offset`.
std::uint64_t drops(std::uint64_t headroom, Time propagation, Time offset) {
    NetworkSettings settings;
    settings.switches[0].pfc = {.classes = 0xff, .xoff_bytes = xoff, .headroom_bytes = headroom};
    Topology topology = single_switch(3, gbit100, 0);
    topology.cables[0].rate = mbit_per_s(100);
    topology.cables[1].propagation = propagation;
    const auto network = make(topology, settings);
    const FlowIndex forward = datagrams(*network, 1, 0);
    const FlowIndex backward = datagrams(*network, 2, 1);
    network->post(forward, 200 * payload, 0);
    network->advance(offset);
    network->post(backward, 200 * payload, 0);
    network->advance(80 * packet_time);
    EXPECT_EQ(network->counters(port_from_one(1)).pauses_heard, 1U);
    return network->totals().dropped;
}

TEST(Pfc, NothingIsLostExactlyIfTheHeadroomHoldsTheRoundTripAndTwoPackets) {
    constexpr unsigned steps = 16;
    for (const Time base : {Time{0}, 500 * ps_per_ns, 2 * ps_per_us}) {
        std::uint64_t lost_with_less = 0;
        for (unsigned step = 0; step < steps * steps; ++step) {
            // All phases of the two streams against each other.
            const Time propagation = base + (step / steps) * packet_time / steps;
            const Time offset = (step % steps) * packet_time / steps;
            const std::uint64_t enough = pfc_headroom(gbit100, propagation, propagation, wire, pause_bytes);
            ASSERT_EQ(drops(enough, propagation, offset), 0U) << propagation << " ps, offset " << offset;
            lost_with_less += drops(enough - wire, propagation, offset);
        }
        EXPECT_GT(lost_with_less, 0U) << "from " << base << " ps";
    }
}

/// Two switches in a row; hosts 0 and 1 on the first, 2 (slow) and 3 on the second.
Topology dumbbell() {
    Topology topology;
    for (unsigned host = 0; host < 4; ++host)
        topology.add_host("host" + std::to_string(host));
    const NodeIndex left = topology.add_switch("left");
    const NodeIndex right = topology.add_switch("right");
    topology.add_cable(0, left, gbit100, 0);
    topology.add_cable(1, left, gbit100, 0);
    topology.add_cable(2, right, gbit_per_s(10), 0);
    topology.add_cable(3, right, gbit100, 0);
    topology.add_cable(left, right, gbit_per_s(200), 100 * ps_per_ns);
    return topology;
}

NetworkSettings lossless(std::uint8_t classes = 0xff) {
    NetworkSettings settings;
    settings.switches[0].pfc = {.classes = classes, .xoff_bytes = xoff, .headroom_bytes = 64 * 1024};
    return settings;
}

TEST(Pfc, PausesSpreadToTheSource) {
    const auto network = make(dumbbell(), lossless());
    const FlowIndex flow = datagrams(*network, 0, 2);
    saturate(*network, {flow}, 16 * payload, 0, ps_per_ms, 8);
    EXPECT_GT(network->counters(port_from_one(4)).pauses_heard, 0U);  // left hears right
    EXPECT_GT(network->counters(port_from_one(0)).pauses_heard, 0U);  // host 0 hears left
    EXPECT_EQ(network->counters(port_from_one(1)).pauses_heard, 0U);  // host 1 sends nothing
    EXPECT_GT(network->counters(port_from_one(0)).paused_time, ps_per_ms / 2);
    EXPECT_EQ(network->totals().dropped, 0U);
    EXPECT_TRUE(network->find_deadlocks().empty());
}

TEST(Pfc, ADeepBufferGoesOnWhenAPauseEnds) {
    // What waits in virtual output queues is not at the port that was paused, and is to be asked for again.
    Topology topology = dumbbell();
    topology.nodes[4].settings = 1;
    NetworkSettings settings = lossless();
    settings.switches.resize(2);
    settings.switches[1].kind = SwitchKind::deep_buffer;
    const auto network = make(topology, settings);
    const FlowIndex flow = datagrams(*network, 0, 2);
    network->post(flow, 1000 * payload, 0);
    testing::run_out(*network);
    Outcome outcome;
    ASSERT_TRUE(network->take_outcome(outcome));
    EXPECT_EQ(outcome.what, Outcome::What::delivered);
    EXPECT_GT(network->counters(port_from_one(4)).pauses_heard, 1U);
    EXPECT_EQ(network->totals().dropped, 0U);
}

TEST(Pfc, AVictimSuffersInTheSameClassOnly) {
    const Time warm = ps_per_ms;
    const Time end = 3 * ps_per_ms;
    const auto victim_rate = [&](std::uint8_t victim_class, bool with_congestion) {
        const auto network = make(dumbbell(), lossless());
        std::vector<FlowIndex> flows = {datagrams(*network, 1, 3, victim_class)};
        if (with_congestion) flows.push_back(datagrams(*network, 0, 2));
        return gbit_per_second(saturate(*network, flows, 16 * payload, warm, end, 16)[flows[0]], end - warm);
    };
    const double line = 100.0 * payload / wire;
    EXPECT_NEAR(victim_rate(0, false), line, 0.01 * line);
    // Its own path is free all the way, but between the switches it stands still whenever the congested flow does.
    EXPECT_LT(victim_rate(0, true), 0.5 * line);
    EXPECT_NEAR(victim_rate(1, true), line, 0.01 * line);
}

TEST(Pfc, APortThatIgnoresPausesLosesItsPackets) {
    Topology topology = dumbbell();
    topology.cables[4].one_ignores_pause = true;  // left goes on sending
    const auto network = make(topology, lossless());
    const FlowIndex flow = datagrams(*network, 0, 2);
    saturate(*network, {flow}, 16 * payload, 0, ps_per_ms, 64);
    EXPECT_GT(network->counters(port_from_one(4)).pauses_heard, 0U);
    EXPECT_GT(network->totals().dropped, 0U);
}

TEST(Pfc, AClassWithoutItDropsBesideOneThatDoesNot) {
    const auto network = make(dumbbell(), lossless(1));
    const FlowIndex safe = datagrams(*network, 0, 2, 0);
    const FlowIndex unsafe = datagrams(*network, 1, 2, 1);
    network->post(safe, 3000 * payload, 0);
    network->post(unsafe, 30000 * payload, 0);
    testing::run_out(*network);
    unsigned complete = 0;
    Outcome outcome;
    while (network->take_outcome(outcome)) {
        EXPECT_EQ(outcome.flow, safe);
        complete += outcome.what == Outcome::What::delivered ? 1 : 0;
    }
    EXPECT_EQ(complete, 1U);
    EXPECT_GT(network->totals().dropped, 0U);
}

}  // namespace
}  // namespace incast::sim::packet

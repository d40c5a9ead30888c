// Links that repeat by themselves, pauses that expire.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/sim_packet.h"

namespace incast::sim::packet {
namespace {

using testing::datagrams;
using testing::gbit100;
using testing::gbit_per_second;
using ::testing::HasSubstr;
using testing::make;
using testing::open;
using testing::packet_time;
using testing::payload;
using testing::saturate;
using testing::stored_bytes;
using testing::wire;

/// Two hosts on one switch with credits, whose links repeat.
Topology repeating(std::uint32_t hosts, Time propagation) {
    Topology topology = single_switch(hosts, gbit100, propagation);
    for (Topology::Cable& cable : topology.cables)
        cable.repeats = true;
    return topology;
}

TEST(LinkRetry, ACorruptedPacketCostsItsTimeAndTheWayBack) {
    constexpr unsigned packets = 2000;
    const Time propagation = 100 * ps_per_ns;
    NetworkSettings settings;
    settings.switches[0].kind = SwitchKind::credit;
    settings.switches[0].input_buffer_bytes = 256ULL * 1024;
    const Topology topology = repeating(2, propagation);
    const Time whole = (packets + 1) * packet_time + 2 * propagation;
    for (const std::uint32_t per_million : {0U, 2'000U, 20'000U}) {
        settings.faults = {{.at = 0, .cable = 0, .what = Fault::What::corrupt, .per_million = per_million}};
        const auto network = make(topology, settings);
        // One acknowledgement per message is not refused: nothing can be lost.
        const FlowIndex flow = open(*network, {.source = 0, .destination = 1});
        network->post(flow, packets * payload, 7);
        ASSERT_TRUE(network->advance_to_outcome(ps_per_s));
        Outcome outcome;
        ASSERT_TRUE(network->take_outcome(outcome));
        EXPECT_EQ(outcome.what, Outcome::What::delivered);
        const PortCounters cable = network->counters(port_from_one(0));
        // Every error is noticed when its packet has come, and three ways later that packet begins again: behind it a
        // link that had not failed would be a packet and four ways further.
        const std::uint64_t errors =
            per_million == 0 ? 0 : static_cast<std::uint64_t>((outcome.time - whole) / (packet_time + 4 * propagation));
        EXPECT_EQ(outcome.time, whole + static_cast<Time>(errors) * (packet_time + 4 * propagation));
        EXPECT_NEAR(static_cast<double>(errors), packets * 1e-6 * per_million,
                    4 * std::sqrt(packets * 1e-6 * per_million));
        EXPECT_EQ(cable.lost, 0U);
        EXPECT_EQ(network->repeated(flow), 0U);
        EXPECT_EQ(cable.packets, packets + cable.repeated);
        EXPECT_EQ(cable.repeated > 0, per_million > 0);
        testing::run_out(*network);
        EXPECT_EQ(network->packets_in_flight(), 0U);
    }
}

TEST(LinkRetry, AReceiverControlledSwitchRefusesWhatCreditsWouldHoldBack) {
    const Time warm = ps_per_ms / 2;
    const Time end = 3 * ps_per_ms;
    const double line = 100.0 * payload / wire;
    for (const bool receiver_controlled : {false, true}) {
        NetworkSettings settings;
        settings.switches[0].kind = SwitchKind::credit;
        settings.switches[0].input_buffer_bytes = 16ULL * 1024;
        settings.switches[0].receiver_controlled = receiver_controlled;
        const auto network = make(repeating(3, 50 * ps_per_ns), settings);
        std::vector<FlowIndex> flows;
        for (const HostIndex from : {1U, 2U})
            flows.push_back(open(*network, {.source = from, .destination = 0, .window_packets = 64}));
        const std::vector<std::uint64_t> bytes = saturate(*network, flows, 16 * payload, warm, end, 8);
        std::uint64_t together = 0;
        for (const FlowIndex flow : flows) {
            together += bytes[flow];
            EXPECT_EQ(network->repeated(flow), 0U);
        }
        EXPECT_NEAR(gbit_per_second(together, end - warm), line, 0.01 * line);
        EXPECT_EQ(network->totals().dropped + network->totals().lost, 0U);
        // Each sender gets half of the way out; what it sends beyond that is sent in vain.
        const double busy = static_cast<double>(network->counters(port_from_one(1)).bytes) * 80 / end;
        if (receiver_controlled) {
            EXPECT_GT(busy, 0.7);
            EXPECT_GT(network->counters(port_from_one(1)).repeated, 1000U);
        } else {
            EXPECT_NEAR(busy, 0.5, 0.02);
            EXPECT_EQ(network->totals().repeated, 0U);
        }
    }
}

TEST(LinkRetry, IsRefusedWhereItMakesNoSense) {
    const auto refusal = [](const Topology& topology, const NetworkSettings& settings) {
        const auto network = Network::make(topology, settings);
        return network ? std::string("accepted") : network.error().message;
    };
    NetworkSettings settings;
    EXPECT_THAT(refusal(repeating(2, 0), settings), HasSubstr("a link that repeats, at 'switch'"));
    settings.switches[0].receiver_controlled = true;
    EXPECT_THAT(refusal(single_switch(2, gbit100, 0), settings), HasSubstr("receiver_controlled on a switch without"));
    settings.switches[0].kind = SwitchKind::credit;
    EXPECT_THAT(refusal(single_switch(2, gbit100, 0), settings), HasSubstr("so the link has to repeat"));
    EXPECT_EQ(refusal(repeating(2, 0), settings), "accepted");
}

/// A host at 100 Gb/s sends through a switch with this PFC to one at 10 Gb/s.
struct Paused {
    explicit Paused(std::uint32_t quanta, bool refresh) {
        NetworkSettings settings;
        settings.switches[0].pfc = {.classes = 1,
                                    .xoff_bytes = 20 * stored_bytes,
                                    .headroom_bytes = 64ULL * 1024,
                                    .quanta = quanta,
                                    .refresh = refresh};
        Topology topology = single_switch(2, gbit100, 0);
        topology.cables[1].rate = mbit_per_s(100);
        network = make(topology, settings);
        flow = datagrams(*network, 0, 1);
        network->post(flow, 400 * payload, 0);
    }
    std::unique_ptr<Network> network;
    FlowIndex flow = 0;
};

TEST(PauseExpiry, APauseThatIsRefreshedHoldsLikeOneWithoutEnd) {
    const Paused endless(0, true);
    const Paused refreshed(1000, true);
    for (const Paused* const one : {&endless, &refreshed})
        one->network->advance(20 * ps_per_ms);
    EXPECT_EQ(endless.network->totals().dropped, 0U);
    EXPECT_EQ(refreshed.network->totals().dropped, 0U);
    EXPECT_EQ(refreshed.network->counters(port_from_one(0)).paused_time,
              endless.network->counters(port_from_one(0)).paused_time);
    EXPECT_EQ(
        refreshed.network->counters(port_from_two(0)).packets > endless.network->counters(port_from_two(0)).packets,
        true)
        << "frames that repeat the pause";
    EXPECT_EQ(refreshed.network->counters(port_from_one(0)).packets,
              endless.network->counters(port_from_one(0)).packets);
}

TEST(PauseExpiry, APauseThatIsNotRefreshedEndsAfterItsQuanta) {
    constexpr std::uint32_t quanta = 1000;
    const Paused run(quanta, false);
    const PortIndex sender = port_from_one(0);
    while (run.network->counters(sender).pauses_heard == 0)
        run.network->advance(run.network->next_time());
    const Time heard = run.network->now();
    const std::uint64_t before = run.network->counters(sender).packets;
    const Time holds = Time{quanta} * 512 * 10;  // 10 ps a bit
    run.network->advance(heard + holds - 1);
    // The packet that had begun has gone; after that it is quiet.
    EXPECT_LE(run.network->counters(sender).packets, before + 1);
    const std::uint64_t quiet = run.network->counters(sender).packets;
    run.network->advance(heard + holds);
    EXPECT_EQ(run.network->counters(sender).packets, quiet + 1);
    run.network->advance(heard + 4 * holds);
    EXPECT_GT(run.network->totals().dropped, 0U) << "the headroom does not hold what comes now";
}

}  // namespace
}  // namespace incast::sim::packet

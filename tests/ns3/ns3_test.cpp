// Cases 5 and 9 of docs/packet-model.md against Debian's ns-3: drop-tail incast, and a fast link into a slow one.
#include <array>
#include <cstdio>
#include <string>

#include <gtest/gtest.h>

#include "sim/packet/network.h"

namespace incast::sim::packet {
namespace {

constexpr std::uint32_t payload = 4096;
constexpr std::uint32_t point_to_point_header = 2;

struct Scenario {
    unsigned senders;
    unsigned packets;
    unsigned room;
    unsigned in_mbit;
    unsigned out_mbit;
    long stagger_ps;
};

struct Story {
    unsigned long delivered = 0;
    unsigned long dropped = 0;
    long first_drop = 0;
    long last_delivery = 0;
};

Story ours(const Scenario& scenario) {
    NetworkSettings settings;
    settings.unstored_bytes = 0;
    settings.hosts[0].header_bytes = point_to_point_header;
    settings.switches[0].buffer_bytes = 1ULL << 30;
    settings.switches[0].egress_limit_bytes = std::uint64_t{scenario.room} * (payload + point_to_point_header);
    Topology topology = single_switch(scenario.senders + 1, mbit_per_s(scenario.in_mbit), 0);
    topology.cables[0].rate = mbit_per_s(scenario.out_mbit);
    const auto made = Network::make(topology, settings);
    EXPECT_TRUE(made.ok());
    Network& network = **made;
    Story story;
    const PortIndex out = port_from_two(0);
    const auto go_to = [&](Time until) {
        while (network.next_time() <= until && network.next_time() != time_never) {
            network.advance(network.next_time());
            if (story.first_drop == 0 && network.counters(out).dropped > 0) story.first_drop = network.now();
            Outcome outcome;
            while (network.take_outcome(outcome)) {
                ++story.delivered;
                story.last_delivery = outcome.time;
            }
        }
    };
    for (HostIndex host = 1; host <= scenario.senders; ++host) {
        const Time start = (host - 1) * scenario.stagger_ps;
        go_to(start);
        network.advance(start);
        const auto flow = network.open({.source = host, .destination = 0, .transport = Transport::datagram});
        EXPECT_TRUE(flow.ok());
        for (unsigned packet = 0; packet < scenario.packets; ++packet)
            network.post(*flow, payload, packet);
    }
    go_to(time_never);
    // A datagram that is lost is told of only when many later ones have come.
    story.delivered = network.counters(out).packets;
    story.dropped = network.counters(out).dropped;
    return story;
}

#ifdef NS3_REFERENCE
/// Nothing delivered: it could not be run.
Story reference(const Scenario& scenario) {
    std::string command = NS3_REFERENCE;
    for (const long word : std::array<long, 7>{scenario.senders, scenario.packets, scenario.room, scenario.in_mbit,
                                               scenario.out_mbit, payload, scenario.stagger_ps})
        command += " " + std::to_string(word);
    Story story;
    FILE* const pipe = popen(command.c_str(), "r");
    if (pipe == nullptr) return story;
    if (std::fscanf(pipe, "%lu %lu %ld %ld", &story.delivered, &story.dropped, &story.first_drop,
                    &story.last_delivery) != 4)
        story = {};
    pclose(pipe);
    return story;
}
#endif

class Ns3 : public ::testing::Test {
protected:
    void SetUp() override {
#ifndef NS3_REFERENCE
        GTEST_SKIP() << "ns-3 was not found when this was built (Debian: libns3-dev)";
#endif
    }
#ifndef NS3_REFERENCE
    static Story reference(const Scenario&) { return {}; }
#endif
    /// Times that are no multiples of each other, so that nothing happens at the same moment: then it must be the same
    /// story, packet by packet. Rounded times add up, by less than a picosecond a packet.
    static void expect_same(const Scenario& scenario) {
        const Story theirs = reference(scenario);
        const Story own = ours(scenario);
        EXPECT_GT(theirs.delivered, 0U);
        EXPECT_EQ(own.delivered, theirs.delivered);
        EXPECT_EQ(own.dropped, theirs.dropped);
        const double rounding = scenario.senders * scenario.packets;
        EXPECT_NEAR(static_cast<double>(own.first_drop), static_cast<double>(theirs.first_drop), rounding);
        EXPECT_NEAR(static_cast<double>(own.last_delivery), static_cast<double>(theirs.last_delivery), rounding);
    }
};

TEST_F(Ns3, Case5DropTailIncastDropsTheSamePackets) {
    expect_same({.senders = 8, .packets = 200, .room = 50, .in_mbit = 100'000, .out_mbit = 31'700, .stagger_ps = 7013});
    expect_same({.senders = 3, .packets = 500, .room = 20, .in_mbit = 10'000, .out_mbit = 9'970, .stagger_ps = 1511});
}

TEST_F(Ns3, Case9AFastLinkIntoASlowOneDropsFirstAtTheSameMoment) {
    expect_same({.senders = 1, .packets = 8000, .room = 1000, .in_mbit = 100'000, .out_mbit = 24'970, .stagger_ps = 0});
    // At exactly a quarter of the rate every fourth packet comes as another one leaves, and who is first is a matter of
    // taste: it moves the first drop by a packet.
    const Scenario quarter{
        .senders = 1, .packets = 8000, .room = 1000, .in_mbit = 100'000, .out_mbit = 25'000, .stagger_ps = 0};
    const auto expected = static_cast<double>(reference(quarter).first_drop);
    EXPECT_NEAR(static_cast<double>(ours(quarter).first_drop), expected, 0.01 * expected);
}

}  // namespace
}  // namespace incast::sim::packet

// DMA engines of a host: how many messages' costs overlap, and what a long message holds up.
#include "support/sim_packet.h"

namespace incast::sim::packet {
namespace {

using testing::datagrams;
using testing::gbit100;
using testing::make;
using testing::packet_time;
using testing::payload;

/// Two hosts on a switch, of which the first has so many engines.
std::unique_ptr<Network> pair_with(std::uint32_t engines, Time cost) {
    NetworkSettings settings;
    settings.hosts[0].dma_engines = engines;
    settings.hosts[0].message_cost = cost;
    return make(single_switch(2, gbit100, 0), settings);
}

/// The times at which so many messages of a packet each, of a flow each, are delivered, when all are posted at once.
std::vector<Time> deliveries(std::uint32_t engines, Time cost, unsigned messages) {
    const auto network = pair_with(engines, cost);
    for (unsigned message = 0; message < messages; ++message)
        network->post(datagrams(*network, 0, 1), payload, message);
    testing::run_out(*network);
    std::vector<Time> times;
    Outcome outcome;
    while (network->take_outcome(outcome))
        times.push_back(outcome.time);
    return times;
}

TEST(DmaEngines, CostsOfAsManyMessagesOverlap) {
    constexpr Time cost = 3 * packet_time;
    constexpr Time way = 2 * packet_time;  // over two cables
    for (const std::uint32_t engines : {1U, 2U, 4U, 6U}) {
        const std::vector<Time> times = deliveries(engines, cost, 24);
        ASSERT_EQ(times.size(), 24U);
        // Engines follow each other at a packet's distance; each begins again when its packet has left.
        const Time period = std::max<Time>(cost + packet_time, engines * packet_time);
        for (unsigned message = 0; message < 24; ++message)
            EXPECT_EQ(times[message], cost + message % engines * packet_time + message / engines * period + way)
                << engines << " engines, message " << message;
    }
}

TEST(DmaEngines, ALongMessageHoldsUpTheOthersOfItsEngineOnly) {
    constexpr unsigned packets = 100;
    constexpr Time cost = 5 * packet_time;
    const auto finish = [](std::uint32_t engines) {
        const auto network = pair_with(engines, cost);
        const FlowIndex lengthy = datagrams(*network, 0, 1);
        const FlowIndex brief = datagrams(*network, 0, 1);
        network->post(lengthy, packets * payload, 0);
        network->advance(cost + 10 * packet_time);
        network->post(brief, payload, 1);
        testing::run_out(*network);
        std::vector<Time> times(2);
        Outcome outcome;
        while (network->take_outcome(outcome))
            times[outcome.token] = outcome.time;
        return times;
    };
    const Time alone = cost + (packets + 1) * packet_time;
    // One engine: one after the other. Two: the cost overlaps, and one packet comes in between.
    EXPECT_EQ(finish(1), (std::vector<Time>{alone, alone + cost + packet_time}));
    EXPECT_EQ(finish(2)[0], alone + packet_time);
    EXPECT_LE(finish(2)[1], 2 * cost + 14 * packet_time);
    // None modelled: what a message costs holds up everything.
    EXPECT_EQ(finish(0)[0], alone + cost + packet_time);
}

TEST(DmaEngines, MessagesOfAFlowAreCompleteInOrderThroughLossAndRepeats) {
    Topology topology = single_switch(4, gbit100, 0);
    NetworkSettings settings;
    settings.hosts[0].dma_engines = 2;
    settings.hosts[0].message_cost = packet_time;
    settings.switches[0].egress_limit_bytes = 4 * testing::stored_bytes;
    const auto network = make(topology, settings);
    std::vector<FlowIndex> flows;
    for (const HostIndex from : {0U, 1U, 2U, 0U, 1U, 2U})
        flows.push_back(testing::open(
            *network, {.source = from, .destination = 3, .ack_packets = 2, .retransmit_timeout = 50 * ps_per_us}));
    for (std::uint64_t message = 0; message < 10; ++message)
        for (const FlowIndex flow : flows)
            network->post(flow, (1 + message % 3) * 3 * payload, message);
    testing::run_out(*network);
    EXPECT_GT(network->totals().dropped, 0U);
    std::vector<std::uint64_t> next(flows.back() + 1);
    Outcome outcome;
    while (network->take_outcome(outcome))
        if (outcome.what == Outcome::What::delivered) {
            EXPECT_EQ(outcome.token, next[outcome.flow]++);
        }
    for (const FlowIndex flow : flows)
        EXPECT_EQ(next[flow], 10U);
}

TEST(Trains, AreLimitedByPayloadAsPacketsAre) {
    const auto finish = [](std::uint32_t train) {
        NetworkSettings settings;
        settings.hosts[0].train_packets = train;
        settings.hosts[0].transmit_limit = gbit_per_s(20);
        const auto network = make(single_switch(2, gbit100, 0), settings);
        network->post(datagrams(*network, 0, 1), 160 * payload, 0);
        return testing::run_out(*network);
    };
    // But for the last train, which travels as one.
    EXPECT_LT(std::abs(finish(16) - finish(1)), 2 * 16 * packet_time + 16 * packet_time * 5);
}

TEST(DmaEngines, ExcludeTheOrderOfPosting) {
    NetworkSettings settings;
    settings.hosts[0].dma_engines = 2;
    settings.hosts[0].order = HostSettings::Order::message_order;
    const auto made = Network::make(single_switch(2, gbit100, 0), settings);
    ASSERT_FALSE(made);
    EXPECT_NE(made.error().message.find("dma_engines 2"), std::string::npos) << made.error().message;
}

}  // namespace
}  // namespace incast::sim::packet

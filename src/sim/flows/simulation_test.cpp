#include "sim/flows/simulation.h"

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/prng.h"
#include "sim/flows/test_fabric.h"

namespace incast::sim::flows {
namespace {

using testing::four_hosts;
using ::testing::HasSubstr;

constexpr Time byte = 80;         // at 100 Gb/s
constexpr Time wire = 4096 + 82;  // bytes
constexpr Time cables = 200'000;  // both of them
constexpr const char* lossy = "";

const std::function<bool()> never = [] { return false; };

std::unique_ptr<Simulation> simulation_of(const fabric::Fabric& fabric, const std::vector<Flow>& flows,
                                          std::uint64_t seed = 1) {
    auto simulation = Simulation::make(fabric, flows, seed);
    if (!simulation) {
        ADD_FAILURE() << simulation.error().message;
        std::abort();
    }
    return std::move(*simulation);
}

State run(Simulation& simulation, Time until = ps_per_s) {
    State state = State::running;
    while (state == State::running)
        state = simulation.advance(10 * ps_per_us, until);
    return state;
}

/// A packet after the other over both cables; the last one waits in the switch for the one before.
constexpr Time alone(std::uint64_t bytes) {
    const auto whole = static_cast<Time>((bytes - 1) / 4096);
    const auto last = static_cast<Time>(bytes - static_cast<std::uint64_t>(whole) * 4096) + 82;
    return (whole * wire + (whole > 0 ? wire : last) + last) * byte + cables;
}

TEST(Simulation, AFlowThatIsAloneTakesItsTimeOnTheCables) {
    const fabric::Fabric fabric = four_hosts();
    const std::vector<Flow> flows{{.start = 7 * ps_per_us, .source = 2, .destination = 0, .bytes = 4096 * 10}};
    const auto simulation = simulation_of(fabric, flows);
    EXPECT_EQ(run(*simulation), State::ended);
    EXPECT_EQ(simulation->records()[0].delivered, 7 * ps_per_us + alone(4096 * 10));
    EXPECT_GT(simulation->records()[0].acknowledged, simulation->records()[0].delivered);
    EXPECT_EQ(simulation->delivered_bytes(), 40'960U);
    EXPECT_EQ(times_alone(fabric, flows, 1, 1, never), std::vector<Time>{alone(4096 * 10)});
}

TEST(Simulation, FlowsToOneHostShareItsCable) {
    const fabric::Fabric fabric = four_hosts();
    const std::vector<Flow> flows{{.source = 1, .destination = 0, .bytes = 4096 * 100},
                                  {.source = 2, .destination = 0, .bytes = 4096 * 100},
                                  {.source = 3, .destination = 0, .bytes = 4096 * 100}};
    const auto simulation = simulation_of(fabric, flows);
    EXPECT_EQ(run(*simulation), State::ended);
    const auto last = std::ranges::max(simulation->records(), {}, &FlowRecord::delivered).delivered;
    EXPECT_EQ(last, 300 * wire * byte + cables + wire * byte);
}

TEST(Simulation, StreamsOfFlowsThatEndedAreUsedAgain) {
    const fabric::Fabric fabric = four_hosts();
    std::vector<Flow> flows;
    for (Time number = 0; number < 100; ++number)
        flows.push_back({.start = number * 2 * ps_per_ms, .source = 1, .destination = 3, .bytes = 50'000});
    const auto simulation = simulation_of(fabric, flows);
    EXPECT_EQ(run(*simulation), State::ended);
    EXPECT_EQ(simulation->streams(), 1U);
    for (std::size_t flow = 0; flow < flows.size(); ++flow)
        EXPECT_EQ(simulation->records()[flow].delivered - flows[flow].start, alone(50'000)) << flow;
}

TEST(Simulation, AStreamThatIsUsedAgainHasLearnedNothing) {
    fabric::Fabric fabric = four_hosts("transport = \"tcp\"\nack_packets = 1\nretransmit_timeout = \"10ms\"\n", lossy);
    for (auto& cable : fabric.topology.cables)
        cable.propagation = 25 * ps_per_us;
    const std::vector<Flow> flows{{.source = 1, .destination = 0, .bytes = 1'000'000},
                                  {.start = 50 * ps_per_ms, .source = 1, .destination = 0, .bytes = 1'000'000}};
    const auto simulation = simulation_of(fabric, flows);
    EXPECT_EQ(run(*simulation), State::ended);
    EXPECT_EQ(simulation->streams(), 1U);
    const Time first = simulation->records()[0].delivered;
    const Time second = simulation->records()[1].delivered - flows[1].start;
    // Round trips of slow start, from ten packets; with the window of the first, all but one of them would be spared.
    EXPECT_GT(first, 4 * 100 * ps_per_us);
    EXPECT_NEAR(static_cast<double>(second), static_cast<double>(first), 4e6);
}

/// Over each transport: what was posted is delivered, once, and a stream that is used again is as good as a new one.
TEST(Simulation, EveryFlowIsDeliveredOverEachTransport) {
    const struct {
        const char* flow;
        const char* pfc;
    } cases[]{{"ack_packets = 1", "pfc = { classes = [0], headroom = \"100KiB\" }"},
              {"transport = \"tcp\"\nack_packets = 2\nretransmit_timeout = \"1ms\"\n", lossy},
              {"ack_packets = 4\nretransmit_timeout = \"500us\"\nwindow_packets = 64\n", lossy},
              {"ack_packets = 1\ndcqcn = true\n",
               "pfc = { classes = [0], headroom = \"100KiB\" }\n"
               "ecn = { classes = [0], kmin = \"20KiB\", kmax = \"80KiB\", pmax = 0.5 }"}};
    for (const auto& one : cases) {
        const fabric::Fabric fabric = four_hosts(one.flow, one.pfc);
        base::Prng prng(5);
        std::vector<Flow> flows;
        std::uint64_t bytes = 0;
        for (unsigned number = 0; number < 400; ++number) {
            Flow flow{.start = static_cast<Time>(prng.below(40 * ps_per_ms)),
                      .source = static_cast<packet::HostIndex>(1 + prng.below(3)),
                      .destination = 0,
                      .bytes = 1 + prng.below(prng.below(10) == 0 ? 3'000'000 : 30'000)};
            bytes += flow.bytes;
            flows.push_back(flow);
        }
        const auto simulation = simulation_of(fabric, flows);
        EXPECT_EQ(run(*simulation, 10 * ps_per_s), State::ended) << one.flow;
        EXPECT_EQ(simulation->delivered_bytes(), bytes) << one.flow;
        EXPECT_LT(simulation->streams(), 200U) << one.flow;
        const std::vector<Time> best = times_alone(fabric, flows, 1, 2, never);
        for (std::size_t flow = 0; flow < flows.size(); ++flow) {
            const Time time = simulation->records()[flow].delivered - flows[flow].start;
            // A TCP host takes a random time of up to a packet's own for all that it lets go at once.
            const Time random = fabric.flow.transport == packet::Transport::tcp ? best[flow] / 2 : 0;
            EXPECT_GE(time, best[flow] - random) << one.flow << flow;
        }
    }
}

TEST(Simulation, TheSameSeedGivesTheSame) {
    const fabric::Fabric fabric =
        four_hosts("transport = \"tcp\"\nack_packets = 2\nretransmit_timeout = \"1ms\"\n", lossy);
    std::vector<Flow> flows;
    for (unsigned number = 0; number < 30; ++number)
        flows.push_back({.source = 1 + number % 3, .destination = 0, .bytes = 1'000'000});
    const auto hash = [&](std::uint64_t seed, bool recorded) {
        const auto simulation = simulation_of(fabric, flows, seed);
        if (recorded) simulation->record({.interval = 10 * ps_per_us});
        EXPECT_EQ(run(*simulation, 10 * ps_per_s), State::ended);
        return simulation->network().trace_hash();
    };
    EXPECT_EQ(hash(1, false), hash(1, true));
    EXPECT_NE(hash(1, false), hash(2, false));
    EXPECT_EQ(times_alone(fabric, flows, 1, 1, never), times_alone(fabric, flows, 1, 4, never));
}

TEST(Simulation, WhatCannotEndIsSaid) {
    fabric::Fabric fabric = four_hosts("transport = \"datagram\"", lossy);
    fabric.settings.faults = {{.at = 0, .cable = 0, .what = packet::Fault::What::down}};
    const std::vector<Flow> flows{{.source = 1, .destination = 0, .bytes = 100},
                                  {.source = 2, .destination = 3, .bytes = 100}};
    const auto lost = simulation_of(fabric, flows);
    EXPECT_EQ(run(*lost), State::stuck);
    EXPECT_EQ(lost->ended(), 1U);
    EXPECT_EQ(lost->records()[0].delivered, time_never);
    EXPECT_EQ(lost->records()[1].delivered, alone(100));
    // The network is whole where each is alone.
    EXPECT_EQ(times_alone(fabric, flows, 1, 1, never)[0], alone(100));

    const fabric::Fabric good = four_hosts();
    const auto early = simulation_of(good, flows);
    EXPECT_EQ(run(*early, alone(100) - 1), State::out_of_time);
    EXPECT_EQ(early->ended(), 0U);
}

TEST(Simulation, AClassThatCannotCarryFlowsIsAnError) {
    const fabric::Fabric fabric = four_hosts("ack_packets = 1");
    const std::vector<Flow> flows{{.source = 1, .destination = 0, .bytes = 100},
                                  {.source = 1, .destination = 0, .bytes = 100, .traffic_class = 2}};
    const auto simulation = Simulation::make(fabric, flows, 1);
    ASSERT_FALSE(simulation.ok());
    EXPECT_THAT(simulation.error().message, HasSubstr("flow 1 of class 2: flow: packets of class 2 can be lost"));
}

}  // namespace
}  // namespace incast::sim::flows

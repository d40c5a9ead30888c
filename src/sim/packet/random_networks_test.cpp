// What has to hold on any network, on networks drawn at random: sprayed packets of every sender use every path, a cut
// cable starves nobody, another seed is another draw, a memory holds a packet or is refused, TCP flows share a queue,
// and a ring that waits for itself is found. Order and conservation: conservation_test.cpp.
#include <cmath>
#include <set>
#include <string>

#include <gtest/gtest.h>

#include "base/prng.h"
#include "support/sim_packet.h"

namespace incast::sim::packet {
namespace {

using testing::gbit100;
using testing::payload;

class RandomNetwork : public ::testing::TestWithParam<unsigned> {
protected:
    RandomNetwork() : prng_(GetParam()) {}

    std::uint64_t below(std::uint64_t bound) { return prng_.below(bound); }
    std::uint32_t between(std::uint32_t low, std::uint32_t high) {
        return low + static_cast<std::uint32_t>(below(high - low + 1));
    }

    /// A leaf of senders, and one for each of them to send to.
    Topology leaves_and_spines() {
        senders_ = between(2, 5);
        spines_ = between(2, 6);
        return leaf_spine({.leaves = senders_ + 1,
                           .hosts_per_leaf = senders_,
                           .spines = spines_,
                           .host_rate = gbit_per_s(10),
                           .uplink_rate = gbit100,
                           .host_propagation = static_cast<Time>(below(100)) * ps_per_ns,
                           .uplink_propagation = static_cast<Time>(below(300)) * ps_per_ns});
    }

    /// Of a kind of switch that loses nothing.
    NetworkSettings lossless() {
        constexpr SwitchKind kinds[]{SwitchKind::shared_buffer, SwitchKind::credit, SwitchKind::deep_buffer};
        NetworkSettings found;
        found.seed = 1 + below(1000);
        SwitchSettings& middle = found.switches[0];
        middle.kind = kinds[below(3)];
        middle.latency = static_cast<Time>(below(500)) * ps_per_ns;
        middle.pfc = {.classes = 1, .xoff_bytes = 256ULL * 1024, .headroom_bytes = 128ULL * 1024};
        middle.input_buffer_bytes = 128ULL * 1024;
        return found;
    }

    std::vector<FlowIndex> flows_of_senders(Network& network, bool any_order) const {
        std::vector<FlowIndex> flows;
        flows.reserve(senders_);
        for (HostIndex sender = 0; sender < senders_; ++sender)
            flows.push_back(testing::open(network, {.source = sender,
                                                    .destination = (sender + 1) * senders_,
                                                    .window_packets = 64,
                                                    .ack_packets = 4,
                                                    .retransmit_timeout = 200 * ps_per_us,
                                                    .any_order = any_order}));
        return flows;
    }

    [[nodiscard]] std::uint32_t cable(std::uint32_t leaf, std::uint32_t spine) const {
        return (senders_ + 1) * senders_ + leaf * spines_ + spine;
    }

    base::Prng prng_;
    std::uint32_t senders_ = 0;
    std::uint32_t spines_ = 0;
};

/// All begin at once and stay in step.
TEST_P(RandomNetwork, SprayedPacketsOfEverySenderUseEveryPathAlike) {
    const Topology shape = leaves_and_spines();
    NetworkSettings settings = lossless();
    settings.routing = Routing::spray;
    const auto network = testing::make(shape, settings);
    constexpr unsigned packets = 2000;
    for (const FlowIndex flow : flows_of_senders(*network, true))
        network->post(flow, packets * payload, 0);
    testing::run_out(*network);
    const double share = 1.0 / spines_;
    const double deviation = std::sqrt(packets * share * (1 - share));
    for (std::uint32_t sender = 0; sender < senders_; ++sender) {
        for (std::uint32_t spine = 0; spine < spines_; ++spine) {
            const PortIndex down = port_from_two(cable(sender + 1, spine));
            EXPECT_NEAR(static_cast<double>(network->counters(down).data_packets), packets * share, 5 * deviation)
                << network->name(down);
        }
    }
}

TEST_P(RandomNetwork, ACutCableStarvesNobodyOnceRoutesAreMadeAnew) {
    const Topology shape = leaves_and_spines();
    NetworkSettings settings = lossless();
    settings.reroute_after = static_cast<Time>(between(100, 1000)) * ps_per_us;
    settings.faults = {
        {.at = ps_per_ms, .cable = cable(between(0, senders_), between(0, spines_ - 1)), .what = Fault::What::down}};
    const auto network = testing::make(shape, settings);
    const std::vector<FlowIndex> flows = flows_of_senders(*network, false);
    const auto bytes = testing::saturate(*network, flows, 4 * payload, 3 * ps_per_ms, 4 * ps_per_ms, 16);
    for (const FlowIndex flow : flows)
        EXPECT_GT(testing::gbit_per_second(bytes[flow], ps_per_ms), 9.0 * payload / testing::wire);
}

TEST_P(RandomNetwork, AnotherSeedIsAnotherDrawAndTheSameOneTheSame) {
    const Topology shape = leaves_and_spines();
    NetworkSettings settings = lossless();
    const auto trace = [&](std::uint64_t seed) {
        settings.seed = seed;
        const auto network = testing::make(shape, settings);
        for (const FlowIndex flow : flows_of_senders(*network, false))
            network->post(flow, 20 * payload, 0);
        testing::run_out(*network);
        return network->trace_hash();
    };
    std::set<std::uint64_t> seen;
    for (std::uint64_t seed = 1; seed <= 8; ++seed)
        seen.insert(trace(seed));
    EXPECT_GT(seen.size(), 1U) << "ECMP takes the same paths with every seed";
    EXPECT_TRUE(seen.contains(trace(3)));
}

TEST_P(RandomNetwork, TheMemoryThatARefusalNamesIsTheSmallestThatIsAccepted) {
    const Topology shape = leaves_and_spines();
    NetworkSettings settings;
    settings.hosts[0].mtu_bytes = between(64, 9000);
    settings.hosts[0].header_bytes = between(20, 100);
    settings.unstored_bytes = between(0, 20);
    for (const SwitchKind kind :
         {SwitchKind::shared_buffer, SwitchKind::credit, SwitchKind::input_fifo, SwitchKind::deep_buffer}) {
        SwitchSettings& middle = settings.switches[0];
        middle = {};
        middle.kind = kind;
        std::uint64_t& memory = kind == SwitchKind::shared_buffer ? middle.buffer_bytes
                                : kind == SwitchKind::deep_buffer ? middle.on_chip_bytes
                                                                  : middle.input_buffer_bytes;
        if (kind == SwitchKind::shared_buffer) middle.egress_limit_bytes = 1 << 20;
        memory = 64;
        const auto refused = Network::make(shape, settings);
        ASSERT_FALSE(refused.ok());
        const std::string& said = refused.error().message;
        const auto number = said.find("at least ");
        ASSERT_NE(number, std::string::npos) << said;
        memory = std::stoull(said.substr(number + 9));
        EXPECT_TRUE(Network::make(shape, settings).ok()) << said;
        --memory;
        EXPECT_FALSE(Network::make(shape, settings).ok()) << said;
    }
}

TEST_P(RandomNetwork, TcpFlowsOfEqualRoundTripsShareADropTailQueue) {
    const HostIndex senders = between(2, 16);
    NetworkSettings settings;
    settings.seed = 1 + below(1000);
    settings.switches[0].buffer_bytes = 1ULL << 30;
    settings.switches[0].egress_limit_bytes = between(50, 400) * testing::stored_bytes;
    const auto network =
        testing::make(single_switch(senders + 1, gbit_per_s(10), between(5, 25) * ps_per_us), settings);
    std::vector<FlowIndex> flows;
    flows.reserve(senders);
    for (HostIndex host = 1; host <= senders; ++host)
        flows.push_back(testing::open(*network, {.source = host,
                                                 .destination = 0,
                                                 .transport = Transport::tcp,
                                                 .window_packets = 256,
                                                 .ack_packets = 1,
                                                 .retransmit_timeout = 10 * ps_per_ms}));
    const auto bytes = testing::saturate(*network, flows, 8 * payload, 50 * ps_per_ms, 300 * ps_per_ms, 64);
    double sum = 0;
    double squares = 0;
    for (const FlowIndex flow : flows) {
        const auto share = static_cast<double>(bytes[flow]);
        sum += share;
        squares += share * share;
    }
    EXPECT_GE(sum * sum / senders / squares, 0.9) << senders << " flows";
    EXPECT_GT(sum * 8 / 0.25, 0.98 * 10e9 * payload / testing::wire);
}

TEST_P(RandomNetwork, ARingThatWaitsForItselfIsFoundAndATreeNeverDoes) {
    NetworkSettings settings = lossless();
    settings.switches[0].pfc.xoff_bytes = between(50, 200) * 1000ULL;
    settings.switches[0].spill_bytes = 1 << 30;  // what is written off the chip cannot deadlock
    const testing::RingOfSwitches ring(settings, 2, between(5, 9));
    testing::saturate(*ring.network, ring.flows, 64 * payload, 0, 2 * ps_per_ms, 8);
    const std::vector<Deadlock> deadlocks = ring.network->find_deadlocks();
    ASSERT_EQ(deadlocks.size(), 1U);
    EXPECT_EQ(deadlocks[0].ports.size(), ring.flows.size() / testing::RingOfSwitches::hosts_per_switch);
    const auto tree = testing::make(leaves_and_spines(), settings);
    const std::vector<FlowIndex> flows = flows_of_senders(*tree, false);
    testing::saturate(*tree, flows, 64 * payload, 0, ps_per_ms, 8);
    EXPECT_TRUE(tree->find_deadlocks().empty());
}

INSTANTIATE_TEST_SUITE_P(Seeds, RandomNetwork, ::testing::Range(1U, 9U));

}  // namespace
}  // namespace incast::sim::packet

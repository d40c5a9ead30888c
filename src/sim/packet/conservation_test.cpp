// Nothing comes from nowhere, and nothing vanishes: for random traffic over random networks of every kind of switch,
// what hosts made is what they took out, what was dropped and lost, and what is somewhere in between, to the byte and
// at any time. Every reliable message arrives, exactly once and whole.
#include <gtest/gtest.h>

#include "base/prng.h"
#include "support/sim_packet.h"

namespace incast::sim::packet {
namespace {

struct Kind {
    const char* name;
    SwitchKind kind;
    bool drops;  // may lose packets for want of memory
    bool link_repeats = false;
    bool receiver_controlled = false;
};
constexpr Kind kinds[]{{"Tail", SwitchKind::shared_buffer, true},
                       {"Pfc", SwitchKind::shared_buffer, false},
                       {"Credit", SwitchKind::credit, false},
                       {"RapidIo", SwitchKind::credit, false, true},
                       {"ReceiverControlled", SwitchKind::credit, false, true, true},
                       {"InputFifo", SwitchKind::input_fifo, false},
                       {"Deep", SwitchKind::deep_buffer, true},
                       {"DeepPfc", SwitchKind::deep_buffer, false}};

class Conservation : public ::testing::TestWithParam<std::tuple<Kind, unsigned>> {
protected:
    Conservation() : kind_(std::get<0>(GetParam())), prng_(std::get<1>(GetParam())) {}

    std::uint64_t below(std::uint64_t bound) { return prng_.below(bound); }

    NetworkSettings settings(const Topology& topology) {
        NetworkSettings found;
        found.seed = 1 + below(1000);
        found.unstored_bytes = below(2) == 0 ? 0 : 20;
        HostSettings& host = found.hosts[0];
        host.mtu_bytes = static_cast<std::uint32_t>(256U << below(5));
        host.dma_engines = static_cast<std::uint32_t>(below(4));
        host.message_cost = static_cast<Time>(below(3)) * 200 * ps_per_ns;
        if (below(2) == 0) host.receive_limit = gbit_per_s(60);
        host.receive_xoff_bytes = kind_.drops || below(2) == 0 ? 0 : host.receive_buffer_bytes / 4;
        SwitchSettings& middle = found.switches[0];
        middle.kind = kind_.kind;
        middle.latency = static_cast<Time>(below(3)) * 100 * ps_per_ns;
        middle.cut_through = below(2) == 0;
        middle.receiver_controlled = kind_.receiver_controlled;
        middle.input_buffer_bytes = 16'384 + below(3) * 8192;
        middle.ports_per_asic = static_cast<std::uint32_t>(1 + below(4));
        middle.on_chip_bytes = kind_.drops ? 60'000 : 16 << 20;
        middle.buffer_bytes = kind_.drops ? 150'000 : 64 << 20;
        middle.spill_bytes = 10'000 + below(3) * 20'000;
        middle.memory_bandwidth = gbit_per_s(100 + below(200));
        middle.ecn = {.classes = 0xff,
                      .kmin_bytes = 10'000,
                      .kmax_bytes = 50'000,
                      .pmax_per_million = 500'000,
                      .at_departure = kind_.kind == SwitchKind::shared_buffer && below(2) == 0};
        found.dcqcn.cut_period = static_cast<Time>(below(2)) * 4 * ps_per_us;
        if (!kind_.drops) middle.pfc = {.classes = 0xff, .xoff_bytes = 40'000, .headroom_bytes = 200'000};
        if (kind_.drops || kind_.link_repeats) {
            found.faults.push_back({.at = 20 * ps_per_us,
                                    .cable = static_cast<std::uint32_t>(below(topology.cables.size())),
                                    .what = Fault::What::corrupt,
                                    .per_million = 20'000});
        }
        if (kind_.drops) {
            const auto cable = static_cast<std::uint32_t>(below(topology.cables.size()));
            found.faults.push_back({.at = 60 * ps_per_us, .cable = cable, .what = Fault::What::down});
            found.faults.push_back({.at = 90 * ps_per_us, .cable = cable, .what = Fault::What::up});
        }
        return found;
    }

    Topology topology() {
        Topology found = leaf_spine({.leaves = 2,
                                     .hosts_per_leaf = 3,
                                     .spines = 2,
                                     .host_rate = testing::gbit100,
                                     .uplink_rate = gbit_per_s(below(2) == 0 ? 50 : 100),
                                     .host_propagation = 50 * ps_per_ns,
                                     .uplink_propagation = 200 * ps_per_ns});
        for (Topology::Cable& cable : found.cables)
            cable.repeats = kind_.link_repeats;
        return found;
    }

    FlowSettings flow() {
        constexpr std::uint64_t hosts = 6;
        const auto from = static_cast<HostIndex>(below(hosts));
        FlowSettings found;
        found.source = from;
        found.destination = static_cast<HostIndex>((from + 1 + below(hosts - 1)) % hosts);
        constexpr Transport transports[]{Transport::datagram, Transport::reliable, Transport::tcp};
        found.transport = transports[below(3)];
        found.traffic_class = static_cast<std::uint8_t>(below(3));
        found.ack_packets = static_cast<std::uint32_t>(1 + below(4));
        if (found.transport != Transport::datagram) {
            found.window_packets = static_cast<std::uint32_t>(4 + below(60));
            found.retransmit_timeout = 100 * ps_per_us;
        }
        found.dcqcn = below(2) == 0;
        return found;
    }

    Kind kind_;
    base::Prng prng_;
};

void expect_balanced(const Network& network) {
    const Balance all = network.balance();
    const Tally sum{all.ended.packets + all.dropped.packets + all.lost.packets + all.in_flight.packets,
                    all.ended.bytes + all.dropped.bytes + all.lost.bytes + all.in_flight.bytes};
    ASSERT_EQ(all.made.packets, sum.packets) << "at " << network.now() << " ps";
    ASSERT_EQ(all.made.bytes, sum.bytes) << "at " << network.now() << " ps";
}

TEST_P(Conservation, MadeIsEndedDroppedLostAndInFlight) {
    const Topology shape = topology();
    const auto network = testing::make(shape, settings(shape));
    struct Stream {
        FlowIndex flow;
        bool reliable;
        std::uint64_t posted = 0;
        std::uint64_t delivered = 0;
    };
    std::vector<Stream> streams;
    for (unsigned number = 0; number < 12; ++number) {
        const FlowSettings settings = flow();
        streams.push_back({testing::open(*network, settings), settings.transport != Transport::datagram});
    }
    for (Time now = 0; now < 150 * ps_per_us;) {
        Stream& stream = streams[below(streams.size())];
        const std::uint64_t bytes = below(40'000);
        network->post(stream.flow, bytes, bytes);
        stream.posted += bytes;
        now += static_cast<Time>(below(static_cast<std::uint64_t>(4 * ps_per_us)));
        network->advance(now);
        expect_balanced(*network);
        if (HasFatalFailure()) return;
    }
    testing::run_out(*network);
    expect_balanced(*network);
    const Balance end = network->balance();
    EXPECT_EQ(end.in_flight, Tally{});
    EXPECT_EQ(network->packets_in_flight(), 0U);
    EXPECT_EQ(network->totals().dropped, end.dropped.packets);
    if (!kind_.drops) {
        EXPECT_EQ(end.dropped, Tally{});
    }
    Outcome outcome;
    while (network->take_outcome(outcome)) {
        if (outcome.what == Outcome::What::acknowledged) continue;
        for (Stream& stream : streams)
            if (stream.flow == outcome.flow) stream.delivered += outcome.bytes;
    }
    for (const Stream& stream : streams) {
        if (stream.reliable || (end.dropped == Tally{} && end.lost == Tally{})) {
            EXPECT_EQ(stream.delivered, stream.posted) << "flow " << stream.flow;
        } else {
            EXPECT_LE(stream.delivered, stream.posted) << "flow " << stream.flow;
        }
    }
}

/// Where nothing is dropped or lost, nothing has to be sent again: packets of a flow do not overtake each other.
TEST_P(Conservation, APathKeepsTheOrder) {
    const Topology shape = topology();
    NetworkSettings chosen = settings(shape);
    chosen.faults.clear();
    SwitchSettings& middle = chosen.switches[0];
    middle.on_chip_bytes = middle.buffer_bytes = 64 << 20;
    chosen.hosts[0].receive_limit = {};
    const auto network = testing::make(shape, chosen);
    std::vector<FlowIndex> flows;
    for (unsigned number = 0; number < 12; ++number) {
        FlowSettings settings = flow();
        settings.transport = Transport::reliable;
        settings.window_packets = 500;
        settings.retransmit_timeout = 100 * ps_per_ms;
        flows.push_back(testing::open(*network, settings));
    }
    for (Time now = 0; now < 150 * ps_per_us; now += static_cast<Time>(below(2 * ps_per_us))) {
        network->advance(now);
        network->post(flows[below(flows.size())], below(40'000), 0);
    }
    testing::run_out(*network);
    ASSERT_EQ(network->balance().dropped, Tally{});
    for (const FlowIndex flow : flows)
        EXPECT_EQ(network->repeated(flow), 0U) << "flow " << flow;
}

INSTANTIATE_TEST_SUITE_P(EverySwitch, Conservation,
                         ::testing::Combine(::testing::ValuesIn(kinds), ::testing::Range(1U, 21U)),
                         [](const auto& one) {
                             return std::string(std::get<0>(one.param).name) + std::to_string(std::get<1>(one.param));
                         });

}  // namespace
}  // namespace incast::sim::packet

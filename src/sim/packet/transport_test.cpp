// Senders and receivers: recovery from loss, DCQCN, TCP, reads, limits of hosts, faults.
#include <gtest/gtest.h>

#include "base/prng.h"
#include "support/sim_packet.h"

namespace incast::sim::packet {
namespace {

using testing::datagrams;
using testing::gbit100;
using testing::gbit_per_second;
using testing::make;
using testing::open;
using testing::packet_time;
using testing::payload;
using testing::saturate;
using testing::wire;

double jain(const std::vector<std::uint64_t>& rates) {
    double sum = 0;
    double squares = 0;
    for (const std::uint64_t rate : rates) {
        sum += static_cast<double>(rate);
        squares += static_cast<double>(rate) * static_cast<double>(rate);
    }
    return sum * sum / (static_cast<double>(rates.size()) * squares);
}

/// N flows to one host with the parameters of the DCQCN paper (Zhu et al., SIGCOMM 2015) for 40 Gb/s, measured from 100
/// to 200 ms.
void converge(unsigned senders) {
    const Rate rate = gbit_per_s(40);
    NetworkSettings settings;
    settings.hosts[0].mtu_bytes = 1024;
    SwitchSettings& middle = settings.switches[0];
    middle.buffer_bytes = 12 << 20;
    middle.ecn = {.classes = 1, .kmin_bytes = 5'000, .kmax_bytes = 200'000, .pmax_per_million = 10'000};
    middle.pfc = {.classes = 0xff,
                  .headroom_bytes = pfc_headroom(rate, ps_per_us, ps_per_us, 1106, settings.pause_bytes)};
    const auto network = make(single_switch(senders + 1, rate, ps_per_us), settings);
    std::vector<FlowIndex> flows;
    for (HostIndex host = 1; host <= senders; ++host)
        flows.push_back(open(*network, {.source = host, .destination = 0, .dcqcn = true}));
    const Time warm = 100 * ps_per_ms;
    const Time end = 2 * warm;
    saturate(*network, flows, 64 * payload, 0, warm);
    network->reset_counters();
    Outcome outcome;
    while (network->advance_to_outcome(end)) {
        while (network->take_outcome(outcome))
            if (outcome.what == Outcome::What::delivered) network->post(outcome.flow, 64 * payload, 0);
    }
    std::vector<std::uint64_t> sent;
    for (HostIndex host = 1; host <= senders; ++host)
        sent.push_back(network->counters(port_from_one(host)).bytes);
    const QueueCounters queue = network->queue(port_from_two(0), 0);
    const PortCounters bottleneck = network->counters(port_from_two(0));
    ::testing::Test::RecordProperty("jain_permille", static_cast<int>(1000 * jain(sent)));
    ::testing::Test::RecordProperty("queue_kilobytes", static_cast<int>(queue.mean_bytes / 1000));
    EXPECT_GE(jain(sent), 0.95);
    EXPECT_GT(queue.mean_bytes, 5'000);
    EXPECT_LT(queue.mean_bytes, 200'000);
    EXPECT_GT(static_cast<double>(bottleneck.bytes), 0.98 * 40e9 / 8 * 0.1);
    EXPECT_EQ(network->totals().dropped, 0U);
    EXPECT_EQ(network->totals().pauses_sent, 0U) << "ECN acts before PFC has to";
}

TEST(Dcqcn, TwoFlowsShareFairlyAndTheQueueSettlesBetweenItsThresholds) {
    converge(2);
}

TEST(Dcqcn, EightFlowsShareFairlyAndTheQueueSettlesBetweenItsThresholds) {
    converge(8);
}

TEST(Reliable, EveryMessageArrivesOverACableThatCorrupts) {
    NetworkSettings settings;
    settings.faults = {{.at = 0, .cable = 0, .what = Fault::What::corrupt, .per_million = 20'000}};
    const auto network = make(single_switch(2, gbit100, 100 * ps_per_ns), settings);
    const FlowIndex flow = open(
        *network,
        {.source = 0, .destination = 1, .window_packets = 64, .ack_packets = 8, .retransmit_timeout = 100 * ps_per_us});
    constexpr unsigned messages = 400;
    base::Prng prng(3);
    for (unsigned message = 0; message < messages; ++message)
        network->post(flow, prng.below(20 * payload), message);
    std::uint64_t next_delivered = 0;
    std::uint64_t next_acknowledged = 0;
    Outcome outcome;
    while (network->advance_to_outcome(ps_per_s)) {
        while (network->take_outcome(outcome)) {
            std::uint64_t& next = outcome.what == Outcome::What::delivered ? next_delivered : next_acknowledged;
            ASSERT_EQ(outcome.token, next++);
        }
    }
    EXPECT_EQ(next_delivered, messages);
    EXPECT_EQ(next_acknowledged, messages);
    EXPECT_GT(network->totals().lost, 0U);
    EXPECT_GT(network->repeated(flow), network->totals().lost / 4);
    EXPECT_EQ(network->packets_in_flight(), 0U);
}

TEST(Reliable, ALinkThatFlapsDelaysAndLosesNothing) {
    NetworkSettings settings;
    settings.faults = {{.at = 50 * ps_per_us, .cable = 1, .what = Fault::What::down},
                       {.at = 300 * ps_per_us, .cable = 1, .what = Fault::What::up},
                       {.at = 400 * ps_per_us, .cable = 1, .what = Fault::What::down},
                       {.at = 600 * ps_per_us, .cable = 1, .what = Fault::What::up}};
    const auto network = make(single_switch(2, gbit100, 100 * ps_per_ns), settings);
    const FlowIndex flow = open(
        *network,
        {.source = 0, .destination = 1, .window_packets = 32, .ack_packets = 4, .retransmit_timeout = 100 * ps_per_us});
    network->post(flow, 2000 * payload, 0);
    Outcome outcome;
    ASSERT_TRUE(network->advance_to_outcome(ps_per_s));
    ASSERT_TRUE(network->take_outcome(outcome));
    EXPECT_EQ(outcome.what, Outcome::What::delivered);
    // 450 us of silence, and what it takes to notice.
    EXPECT_GT(outcome.time, 2000 * packet_time + 450 * ps_per_us);
    EXPECT_LT(outcome.time, 2000 * packet_time + 1000 * ps_per_us);
}

TEST(Tcp, FillsALinkAndRecoversFromDrops) {
    NetworkSettings settings;
    settings.switches[0].egress_limit_bytes = 60 * testing::stored_bytes;
    const auto network = make(single_switch(4, gbit100, ps_per_us), settings);
    std::vector<FlowIndex> flows;
    for (HostIndex host = 1; host < 4; ++host)
        flows.push_back(open(*network, {.source = host,
                                        .destination = 0,
                                        .transport = Transport::tcp,
                                        .ack_packets = 2,
                                        .retransmit_timeout = ps_per_ms}));
    const Time warm = 5 * ps_per_ms;
    const Time end = 25 * ps_per_ms;
    // A short packet in each message: senders in step would meet the full queue in the same order for ever.
    const std::vector<std::uint64_t> bytes = saturate(*network, flows, 64 * payload + 77, warm, end, 8);
    std::uint64_t sum = 0;
    for (const FlowIndex flow : flows)
        sum += bytes[flow];
    EXPECT_GT(network->totals().dropped, 0U);
    EXPECT_GT(gbit_per_second(sum, end - warm), 0.97 * 100 * payload / wire);
    EXPECT_GT(jain(bytes), 0.8);
}

TEST(Tcp, SendsAgainWhatWasDroppedAndHardlyMore) {
    NetworkSettings settings;
    settings.switches[0].egress_limit_bytes = 40 * testing::stored_bytes;
    const auto network = make(single_switch(5, gbit100, ps_per_us), settings);
    std::vector<FlowIndex> flows;
    base::Prng prng(6);
    std::uint64_t packets = 0;
    for (HostIndex host = 1; host < 5; ++host) {
        flows.push_back(open(*network, {.source = host,
                                        .destination = 0,
                                        .transport = Transport::tcp,
                                        .ack_packets = 2,
                                        .retransmit_timeout = 10 * ps_per_ms}));
        for (unsigned message = 0; message < 100; ++message) {
            const std::uint64_t length = 1 + prng.below(40);
            network->post(flows.back(), length * payload, message);
            packets += length;
        }
    }
    std::vector<std::uint64_t> next(flows.back() + 1);
    Outcome outcome;
    Time last = 0;
    while (network->advance_to_outcome(ps_per_s)) {
        while (network->take_outcome(outcome)) {
            if (outcome.what != Outcome::What::delivered) continue;
            last = outcome.time;
            ASSERT_EQ(outcome.token, next[outcome.flow]++);
        }
    }
    std::uint64_t repeated = 0;
    for (const FlowIndex flow : flows) {
        EXPECT_EQ(next[flow], 100U);
        repeated += network->repeated(flow);
    }
    const std::uint64_t dropped = network->totals().dropped;
    EXPECT_GT(dropped, packets / 200);
    EXPECT_GE(repeated, dropped);
    EXPECT_LE(repeated, dropped + dropped / 5 + 10) << "selective: probes and time-outs may repeat what had arrived";
    EXPECT_EQ(network->packets_in_flight(), 0U);
    // Before the longest silence that a time-out costs: nearly the wire's time for all of it.
    EXPECT_LT(last, static_cast<Time>(packets) * packet_time + 60 * ps_per_ms);
}

struct AfterOutage {
    Time last = 0;  // outcome of two messages, of 200 and of 4 packets
    std::uint64_t lost = 0;
};

/// A time-out is of 200 ms. The cable to the receiver, half a round trip of 20 us away, is down for a while from
/// `down` on; the second message is posted at `posted`.
AfterOutage two_messages_over_tcp(Time posted, Time down, Time outage) {
    NetworkSettings settings;
    settings.faults = {{.at = down, .cable = 1, .what = Fault::What::down},
                       {.at = down + outage, .cable = 1, .what = Fault::What::up}};
    const auto network = make(single_switch(2, gbit100, 10 * ps_per_us), settings);
    const FlowIndex flow = open(*network, {.source = 0,
                                           .destination = 1,
                                           .transport = Transport::tcp,
                                           .ack_packets = 2,
                                           .retransmit_timeout = 200 * ps_per_ms});
    network->post(flow, 200 * payload, 0);
    network->advance(posted);
    network->post(flow, 4 * payload, 1);
    AfterOutage found;
    Outcome outcome;
    while (network->advance_to_outcome(ps_per_s))
        while (network->take_outcome(outcome))
            found.last = outcome.time;
    found.lost = network->totals().lost;
    return found;
}

TEST(Tcp, ALostLastPacketIsNoticedAfterTwoRoundTrips) {
    const AfterOutage found = two_messages_over_tcp(ps_per_ms - 25 * ps_per_us, ps_per_ms, 30 * ps_per_us);
    EXPECT_GT(found.lost, 0U);
    EXPECT_GT(found.last, ps_per_ms + 40 * ps_per_us);
    EXPECT_LT(found.last, 2 * ps_per_ms) << "not the 200 ms of a time-out";
}

TEST(Tcp, WhicheverOfTheLastPacketsIsLostItIsSentAgainBeforeATimeOut) {
    std::uint64_t outages_with_loss = 0;
    // An outage shorter than a packet, wherever it falls.
    for (Time offset = -2 * ps_per_us; offset < 3 * ps_per_us; offset += 100 * ps_per_ns) {
        const Time down = ps_per_ms + offset;
        const AfterOutage found = two_messages_over_tcp(ps_per_ms - 22 * ps_per_us, down, 100 * ps_per_ns);
        outages_with_loss += found.lost != 0 ? 1 : 0;
        EXPECT_LT(found.last, 2 * ps_per_ms) << found.lost << " lost, outage at " << down;
    }
    EXPECT_EQ(outages_with_loss, 4U) << "each of the four";
}

TEST(Datagrams, WhatIsLostIsReported) {
    NetworkSettings settings;
    settings.faults = {{.at = 0, .cable = 1, .what = Fault::What::corrupt, .per_million = 100'000}};
    const auto network = make(single_switch(2, gbit100, 0), settings);
    const FlowIndex flow = datagrams(*network, 0, 1);
    constexpr unsigned messages = 1000;
    for (unsigned message = 0; message < messages; ++message)
        network->post(flow, 4 * payload, message);
    testing::run_out(*network);
    std::uint64_t bytes = 0;
    unsigned whole = 0;
    unsigned reported = 0;
    Outcome outcome;
    while (network->take_outcome(outcome)) {
        bytes += outcome.bytes;
        ++reported;
        whole += outcome.what == Outcome::What::delivered ? 1 : 0;
    }
    // The last few may still be waited for.
    EXPECT_GE(reported, messages - 65);
    EXPECT_NEAR(whole, 0.9 * 0.9 * 0.9 * 0.9 * messages, 80);
    EXPECT_LE(bytes + network->totals().lost * payload, 4 * payload * messages);
}

TEST(Spray, AnyOrderMessagesUseAllPathsOfALosslessTree) {
    NetworkSettings settings;
    settings.routing = Routing::spray;
    settings.switches[0].kind = SwitchKind::credit;
    settings.switches[0].input_buffer_bytes = 128ULL * 1024;
    const auto network = make(leaf_spine({.leaves = 2,
                                          .hosts_per_leaf = 4,
                                          .spines = 4,
                                          .host_rate = gbit100,
                                          .uplink_rate = gbit100,
                                          .uplink_propagation = 100 * ps_per_ns}),
                              settings);
    EXPECT_FALSE(network->open({.source = 0, .destination = 1}).ok());
    std::vector<FlowIndex> flows;
    for (HostIndex host = 0; host < 4; ++host)
        flows.push_back(open(*network, {.source = host, .destination = host + 4, .any_order = true}));
    const Time warm = ps_per_ms / 2;
    const Time end = 3 * ps_per_ms;
    const std::vector<std::uint64_t> bytes = saturate(*network, flows, 16 * payload, warm, end, 16);
    const double line = 100.0 * payload / wire;
    for (const FlowIndex flow : flows)
        EXPECT_NEAR(gbit_per_second(bytes[flow], end - warm), line, 0.05 * line);  // chance fills some paths more
}

/// Bytes that flows from one leaf to the other deliver in the last of ten milliseconds, a cable behind the spine being
/// cut after the first.
std::uint64_t delivered_around_a_cut(SwitchKind kind, Time reroute_after, Time up_again = 0) {
    NetworkSettings settings;
    settings.switches[0].kind = kind;
    settings.switches[0].pfc = {.classes = 1, .headroom_bytes = 128ULL * 1024};
    settings.switches[0].input_buffer_bytes = 128ULL * 1024;
    if (kind == SwitchKind::deep_buffer) settings.switches[0].pfc.xoff_bytes = 256ULL * 1024;
    settings.reroute_after = reroute_after;
    constexpr std::uint32_t leaf1_to_spine0 = 8 + 2;  // after the cables of eight hosts and the two of leaf 0
    settings.faults.push_back({.at = ps_per_ms, .cable = leaf1_to_spine0, .what = Fault::What::down});
    if (up_again != 0) settings.faults.push_back({.at = up_again, .cable = leaf1_to_spine0, .what = Fault::What::up});
    const auto network =
        make(leaf_spine(
                 {.leaves = 2, .hosts_per_leaf = 4, .spines = 2, .host_rate = gbit_per_s(10), .uplink_rate = gbit100}),
             settings);
    EXPECT_EQ(network->name(2 * leaf1_to_spine0), "leaf1 to spine0 (cable 10)");
    std::vector<FlowIndex> flows;
    for (HostIndex host = 0; host < 4; ++host)
        flows.push_back(open(*network, {.source = host,
                                        .destination = host + 4,
                                        .window_packets = 64,
                                        .ack_packets = 4,
                                        .retransmit_timeout = 200 * ps_per_us}));
    const std::vector<std::uint64_t> bytes = saturate(*network, flows, 4 * payload, 9 * ps_per_ms, 10 * ps_per_ms, 16);
    return *std::ranges::min_element(bytes);
}

TEST(Faults, RoutesAreMadeAnewAroundACutCable) {
    const auto line = static_cast<std::uint64_t>(10e9 / 8 * 1e-3 * payload / wire);
    for (const SwitchKind kind :
         {SwitchKind::shared_buffer, SwitchKind::credit, SwitchKind::input_fifo, SwitchKind::deep_buffer}) {
        SCOPED_TRACE(static_cast<int>(kind));
        // Four flows in one FIFO hold each other up, with or without a cut.
        const std::uint64_t full = kind == SwitchKind::input_fifo ? line / 9 : line;
        EXPECT_EQ(delivered_around_a_cut(kind, 0), 0U) << "some flow starves";
        EXPECT_GE(delivered_around_a_cut(kind, 2 * ps_per_ms), full * 9 / 10);
        EXPECT_GE(delivered_around_a_cut(kind, 2 * ps_per_ms, 2 * ps_per_ms), full * 9 / 10) << "up before that";
        EXPECT_GE(delivered_around_a_cut(kind, ps_per_ms, 6 * ps_per_ms), full * 9 / 10);
    }
}

/// Jain's index of what TCP flows of equal round trips get of one drop-tail queue of 100 packets.
double fairness_of_tcp(HostIndex senders) {
    NetworkSettings settings;
    settings.switches[0].buffer_bytes = 1ULL << 30;
    settings.switches[0].egress_limit_bytes = 100 * testing::stored_bytes;
    const auto network = make(single_switch(senders + 1, gbit_per_s(10), 25 * ps_per_us), settings);
    std::vector<FlowIndex> flows;
    for (HostIndex host = 1; host <= senders; ++host)
        flows.push_back(open(*network, {.source = host,
                                        .destination = 0,
                                        .transport = Transport::tcp,
                                        .window_packets = 256,
                                        .ack_packets = 1,
                                        .retransmit_timeout = 10 * ps_per_ms}));
    const std::vector<std::uint64_t> bytes =
        saturate(*network, flows, 1000 * payload, 50 * ps_per_ms, 500 * ps_per_ms, 4);
    double sum = 0;
    double squares = 0;
    for (const FlowIndex flow : flows) {
        const auto share = static_cast<double>(bytes[flow]);
        sum += share;
        squares += share * share;
    }
    return sum * sum / senders / squares;
}

TEST(Tcp, FlowsOfEqualRoundTripsShareAFullQueue) {
    EXPECT_GE(fairness_of_tcp(4), 0.95);
    EXPECT_GE(fairness_of_tcp(16), 0.95);
}

TEST(Host, RatesAreThoseOfItsLimits) {
    const Time end = 4 * ps_per_ms;
    const auto rate = [&](const HostSettings& host, std::uint64_t bytes, Rate limit) {
        NetworkSettings settings;
        settings.hosts[0] = host;
        settings.switches[0].kind = SwitchKind::credit;
        const auto network = make(single_switch(2, gbit100, 0), settings);
        const FlowIndex flow = open(*network, {.source = 0, .destination = 1, .rate_limit = limit});
        return gbit_per_second(saturate(*network, {flow}, bytes, ps_per_ms, end, 16)[flow], end - ps_per_ms);
    };
    const double line = 100.0 * payload / wire;
    EXPECT_NEAR(rate({}, 4 * payload, {}), line, 0.01 * line);
    EXPECT_NEAR(rate({}, 4 * payload, gbit_per_s(10)), 10.0 * payload / wire, 0.1);
    HostSettings transmit;
    transmit.transmit_limit = gbit_per_s(50);
    EXPECT_NEAR(rate(transmit, 4 * payload, {}), 50, 0.5);
    HostSettings receive;
    receive.receive_limit = gbit_per_s(60);
    receive.receive_buffer_bytes = 64ULL * 1024;
    EXPECT_NEAR(rate(receive, 4 * payload, {}), 60, 0.6);
    // A cost per message stands before its bytes: 16 KiB then take 1 us more than the 1.337 us on the cable.
    HostSettings costly;
    costly.message_cost = ps_per_us;
    const double expected = 4 * payload * 8000.0 / static_cast<double>(4 * packet_time + ps_per_us);
    EXPECT_NEAR(rate(costly, 4 * payload, {}), expected, 0.01 * expected);
}

TEST(Host, ReadsAreLimitedByWhatMayBeOutstanding) {
    const Time propagation = 10 * ps_per_us;
    for (const std::uint32_t outstanding : {1U, 4U, 16U}) {
        NetworkSettings settings;
        settings.hosts[0].outstanding_reads = outstanding;
        settings.switches[0].kind = SwitchKind::credit;
        settings.switches[0].input_buffer_bytes = 1 << 20;
        const auto network = make(single_switch(2, gbit100, propagation), settings);
        const FlowIndex flow = open(*network, {.source = 0, .destination = 1});
        const Time end = 10 * ps_per_ms;
        for (unsigned read = 0; read < 32; ++read)
            network->post_read(flow, 4 * payload, read);
        std::uint64_t bytes = 0;
        Outcome outcome;
        while (network->advance_to_outcome(end)) {
            while (network->take_outcome(outcome)) {
                ASSERT_EQ(outcome.what, Outcome::What::delivered);
                bytes += outcome.bytes;
                network->post_read(flow, 4 * payload, 0);
            }
        }
        const Time round_trip = 4 * propagation + 2 * BytePace(gbit100).of(98) + 5 * packet_time;
        const double expected =
            std::min(100.0 * payload / wire, gbit_per_second(4 * payload * outstanding, round_trip));
        EXPECT_NEAR(gbit_per_second(bytes, end), expected, 0.02 * expected) << outstanding;
    }
}

TEST(Host, TrainsCarryTheSameBytesInFewerEvents) {
    std::uint64_t events_of_packets = 0;
    for (const std::uint32_t train : {1U, 4U}) {
        NetworkSettings settings;
        settings.hosts[0].train_packets = train;
        settings.switches[0].kind = SwitchKind::credit;
        settings.switches[0].input_buffer_bytes = 256ULL * 1024;
        const auto network = make(single_switch(3, gbit100, 0), settings);
        for (HostIndex host = 1; host < 3; ++host)
            network->post(datagrams(*network, host, 0), 1000 * payload, host);
        testing::run_out(*network);
        // The wire is as busy; what differs is how much has to come in before the first can be sent on.
        EXPECT_EQ(network->now(), 2000 * packet_time + train * packet_time);
        if (train == 1) events_of_packets = network->events();
        EXPECT_LE(network->events(), train == 1 ? events_of_packets : events_of_packets / 3);
    }
}

}  // namespace
}  // namespace incast::sim::packet

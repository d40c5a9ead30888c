// The cases of docs/packet-model.md with an analytic answer: exact where the answer is exact, within 1 % otherwise.
#include <algorithm>
#include <array>
#include <cmath>
#include <map>

#include <gtest/gtest.h>

#include "base/prng.h"
#include "sim/packet/routing.h"
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
using testing::stored_bytes;
using testing::wire;

// Where the code is not optimised, statistics are a sixteenth as long and four times as wide.
#ifdef NDEBUG
constexpr unsigned shorter = 1;
constexpr double tolerance = 0.01;
#else
constexpr unsigned shorter = 16;
constexpr double tolerance = 0.04;
#endif

/// Mean wait of single packets in front of a cable, in packet times, for Poisson arrivals.
double wait_in_packet_times(double load, unsigned messages) {
    Topology pair;
    pair.add_cable(pair.add_host("one"), pair.add_host("two"), gbit100, 0);
    const auto network = make(pair, {});
    const FlowIndex flow = datagrams(*network, 0, 1);
    base::Prng prng(1);
    const double gap = static_cast<double>(packet_time) / load;
    double at = 0;
    double waited = 0;
    unsigned delivered = 0;
    const auto take = [&] {
        Outcome outcome;
        while (network->take_outcome(outcome)) {
            waited += static_cast<double>(outcome.time - static_cast<Time>(outcome.token) - packet_time);
            ++delivered;
        }
    };
    for (unsigned message = 0; message < messages; ++message) {
        at -= gap * std::log(1.0 - prng.uniform());
        network->advance(static_cast<Time>(at));
        take();
        network->post(flow, payload, static_cast<std::uint64_t>(network->now()));
    }
    testing::run_out(*network);
    take();
    EXPECT_EQ(delivered, messages);
    return waited / messages / static_cast<double>(packet_time);
}

TEST(Validation, Case1WaitOfAnMD1Queue) {
    // Pollaczek and Khinchine: rho / 2 (1 - rho).
    EXPECT_NEAR(wait_in_packet_times(0.5, 1'000'000 / shorter), 0.5, 0.5 * tolerance);
    EXPECT_NEAR(wait_in_packet_times(0.8, 2'000'000 / shorter), 2.0, 2.0 * tolerance);
    EXPECT_NEAR(wait_in_packet_times(0.9, 4'000'000 / shorter), 4.5, 4.5 * tolerance);
}

/// Throughput per port of `ports` saturated inputs with one FIFO each, destinations uniform and independent.
double fifo_throughput(std::uint32_t ports, unsigned slots) {
    NetworkSettings settings;
    settings.hosts[0].order = HostSettings::Order::message_order;
    SwitchSettings& middle = settings.switches[0];
    middle.kind = SwitchKind::input_fifo;
    middle.random_choice = true;
    middle.input_buffer_bytes = 8ULL * 4160;
    const auto network = make(single_switch(2 * ports, gbit100, 0), settings);
    base::Prng prng(2);
    std::vector<FlowIndex> flows(std::size_t{ports} * ports, nil);
    const auto post = [&](HostIndex from) {
        const auto to = static_cast<std::uint32_t>(prng.below(ports));
        FlowIndex& flow = flows[std::size_t{from} * ports + to];
        if (flow == nil) flow = datagrams(*network, from, ports + to);
        network->post(flow, payload, from);
    };
    for (HostIndex host = 0; host < ports; ++host)
        for (unsigned message = 0; message < 24; ++message)
            post(host);
    const Time warm = 200 * packet_time;
    const Time end = warm + slots * packet_time;
    std::uint64_t delivered = 0;
    Outcome outcome;
    while (network->advance_to_outcome(end)) {
        while (network->take_outcome(outcome)) {
            if (outcome.time > warm) ++delivered;
            post(static_cast<HostIndex>(outcome.token));
        }
    }
    return static_cast<double>(delivered) / slots / ports;
}

TEST(Validation, Case2HeadOfLineBlockingOfInputFifos) {
    // Karol, Hluchyj, Morgan 1987, table I; the limit is 2 - sqrt 2.
    const std::map<std::uint32_t, double> published = {{2, 0.750},  {4, 0.655},  {8, 0.619},
                                                       {16, 0.602}, {64, 0.590}, {512, 0.586}};
    for (const auto& [ports, throughput] : published) {
        const unsigned slots = ports <= 16 ? 40'000 : ports <= 64 ? 10'000 : 2000;
        if (ports > 64 && shorter > 1) continue;
        EXPECT_NEAR(fifo_throughput(ports, slots / shorter), throughput, tolerance * throughput) << ports << " ports";
    }
}

/// Hosts of one leaf each send a packet in a slot with this probability; the leaf sprays them over as many uplinks.
/// Returns the mean wait in front of an uplink, in slots.
double wait_of_sprayed_packets(std::uint32_t ports, double load, unsigned slots) {
    NetworkSettings settings;
    settings.routing = Routing::spray;
    const auto network =
        make(leaf_spine(
                 {.leaves = 2, .hosts_per_leaf = ports, .spines = ports, .host_rate = gbit100, .uplink_rate = gbit100}),
             settings);
    std::vector<FlowIndex> flows;
    for (HostIndex host = 0; host < ports; ++host)
        flows.push_back(datagrams(*network, host, ports + host));
    base::Prng prng(3);
    Outcome outcome;
    for (unsigned slot = 0; slot < slots; ++slot) {
        network->advance(slot * packet_time);
        while (network->take_outcome(outcome)) {
        }
        for (const FlowIndex flow : flows)
            if (prng.uniform() < load) network->post(flow, payload, 0);
    }
    double waiting = 0;
    unsigned uplinks = 0;
    for (PortIndex port = 0; port < network->ports(); ++port) {
        if (!network->name(port).starts_with("leaf0 to spine")) continue;
        waiting += network->queue(port, 0).mean_bytes / stored_bytes;
        ++uplinks;
    }
    EXPECT_EQ(uplinks, ports);
    return waiting / ports / load;  // J. Little
}

TEST(Validation, Case2bSprayedPacketsWaitAsAtOutputsChosenAtRandom) {
    // Karol, Hluchyj, Morgan 1987, section II: (N - 1) / N x p / 2 (1 - p). Turns in common would not wait at all.
    for (const auto& [ports, load] : {std::pair{4U, 0.5}, {8U, 0.8}, {16U, 0.9}}) {
        if (load > 0.8 && shorter > 1) continue;
        const double expected = (ports - 1.0) / ports * load / 2 / (1 - load);
        EXPECT_NEAR(wait_of_sprayed_packets(ports, load, 40'000 / shorter), expected, 3 * tolerance * expected)
            << ports << " uplinks";
    }
}

TEST(Validation, Case3BarrelShifterFillsEveryLinkOfOneSwitch) {
    constexpr HostIndex hosts = 16;
    constexpr unsigned packets = 32;
    for (const SwitchKind kind : {SwitchKind::shared_buffer, SwitchKind::credit, SwitchKind::deep_buffer}) {
        NetworkSettings settings;
        settings.hosts[0].order = HostSettings::Order::message_order;
        settings.switches[0].kind = kind;
        settings.switches[0].latency = 300 * ps_per_ns;
        settings.switches[0].input_buffer_bytes = 64ULL * 1024;
        const Time propagation = 50 * ps_per_ns;
        const auto network = make(single_switch(hosts, gbit100, propagation), settings);
        for (HostIndex phase = 1; phase < hosts; ++phase)
            for (HostIndex host = 0; host < hosts; ++host)
                network->post(datagrams(*network, host, (host + phase) % hosts), packets * payload, phase);
        const Time latency = packet_time + 2 * propagation + settings.switches[0].latency;
        std::array<unsigned, hosts> done{};
        Outcome outcome;
        while (network->advance_to_outcome(ps_per_ms)) {
            while (network->take_outcome(outcome)) {
                ++done[outcome.token];
                // Every phase ends everywhere in the same picosecond: no link had a gap.
                ASSERT_EQ(outcome.time, latency + static_cast<Time>(outcome.token) * packets * packet_time);
            }
        }
        for (HostIndex phase = 1; phase < hosts; ++phase)
            EXPECT_EQ(done[phase], hosts);
    }
}

struct Shifted {
    std::vector<double> simulated;  // Gb/s of payload by host
    std::vector<double> fair;       // the max-min share of the same hash
};

/// Everybody sends to the host N/2 further on, over two tiers of 8-host leaves and 8 spines.
Shifted shift_by_half(Routing routing) {
    constexpr std::uint32_t leaves = 8;
    constexpr std::uint32_t per_leaf = 8;
    constexpr std::uint32_t hosts = leaves * per_leaf;
    NetworkSettings settings;
    settings.routing = routing;
    settings.switches[0].kind = SwitchKind::credit;
    settings.switches[0].input_buffer_bytes = 128ULL * 1024;
    const Topology topology = leaf_spine({.leaves = leaves,
                                          .hosts_per_leaf = per_leaf,
                                          .spines = 8,
                                          .host_rate = gbit100,
                                          .uplink_rate = gbit100,
                                          .host_propagation = 20 * ps_per_ns,
                                          .uplink_propagation = 100 * ps_per_ns});
    const auto network = make(topology, settings);
    std::vector<FlowIndex> flows;
    std::map<std::pair<std::uint32_t, std::uint32_t>, unsigned> sharing;  // by (leaf, spine)
    std::vector<std::pair<std::uint32_t, std::uint32_t>> uplink;
    for (HostIndex host = 0; host < hosts; ++host) {
        const HostIndex to = (host + hosts / 2) % hosts;
        // Without acknowledgements, each of which would take a turn at the switches.
        const FlowIndex flow = datagrams(*network, host, to);
        flows.push_back(flow);
        const std::uint32_t leaf = host / per_leaf;
        const std::uint32_t spine = routing == Routing::shift_aware ? to % 8 : ecmp_choice(flow, hosts + leaf, 8);
        uplink.emplace_back(leaf, spine);
        ++sharing[uplink.back()];
    }
    const Time warm = ps_per_ms;
    const Time measured = 4 * ps_per_ms;
    const std::vector<std::uint64_t> bytes = saturate(*network, flows, 16 * payload, warm, warm + measured, 32);
    Shifted result;
    for (HostIndex host = 0; host < hosts; ++host) {
        result.simulated.push_back(gbit_per_second(bytes[flows[host]], measured));
        // The flows of an uplink go to the same leaf, so they share its downlink too, and with nobody else.
        result.fair.push_back(100.0 * payload / wire / sharing[uplink[host]]);
    }
    return result;
}

TEST(Validation, Case3bShiftOverStaticEcmpGetsTheMaxMinShareOfItsHash) {
    const Shifted ecmp = shift_by_half(Routing::ecmp);
    double lowest = 100;
    for (std::size_t host = 0; host < ecmp.fair.size(); ++host) {
        EXPECT_NEAR(ecmp.simulated[host], ecmp.fair[host], 0.01 * ecmp.fair[host]) << "host " << host;
        lowest = std::min(lowest, ecmp.fair[host]);
    }
    EXPECT_LE(lowest, 25.0);  // four of eight flows on one link: hashing is far from a permutation
    const Shifted aware = shift_by_half(Routing::shift_aware);
    for (const double rate : aware.simulated)
        EXPECT_NEAR(rate, 100.0 * payload / wire, 0.01 * 98);
}

/// Max-min fair rates by water-filling, in units of a link: `uses[flow]` are the links of that flow.
std::vector<double> water_filling(const std::vector<std::vector<PortIndex>>& uses, std::size_t links) {
    std::vector<double> rate(uses.size(), -1);
    for (std::size_t left = uses.size(); left > 0;) {
        std::vector<double> room(links, 1);
        std::vector<unsigned> open(links);
        for (std::size_t flow = 0; flow < uses.size(); ++flow) {
            for (const PortIndex link : uses[flow]) {
                if (rate[flow] < 0) {
                    ++open[link];
                } else {
                    room[link] -= rate[flow];
                }
            }
        }
        double lowest = 2;
        for (std::size_t link = 0; link < links; ++link)
            if (open[link] > 0) lowest = std::min(lowest, room[link] / open[link]);
        std::vector<bool> full(links);
        for (std::size_t link = 0; link < links; ++link)
            full[link] = open[link] > 0 && room[link] / open[link] < lowest * (1 + 1e-9);
        for (std::size_t flow = 0; flow < uses.size(); ++flow) {
            if (rate[flow] >= 0) continue;
            if (std::ranges::none_of(uses[flow], [&](PortIndex link) { return full[link]; })) continue;
            rate[flow] = lowest;
            --left;
        }
    }
    return rate;
}

/// The links of a flow between two hosts by static ECMP.
std::vector<PortIndex> path_of(const Topology& topology, const RouteTable& routes, HostIndex from, HostIndex to,
                               std::uint32_t entropy) {
    std::vector<PortIndex> path{port_from_one(from)};
    for (NodeIndex at = topology.cables[from].two; at != to;) {
        const std::uint32_t entry = routes.entry(at, to);
        PortIndex port = entry;
        if (entry >= RouteTable::first_group) {
            const PortGroup& group = routes.group(entry);
            port = routes.ports[group.first + ecmp_choice(entropy, at, group.count)];
        }
        path.push_back(port);
        at = port % 2 == 0 ? topology.cables[port / 2].two : topology.cables[port / 2].one;
    }
    return path;
}

TEST(Validation, Case3bOnThreeTiersTheNetworkCarriesTheMaxMinShareOfItsHash) {
    // Switches that serve their inputs in turn are fair to inputs, not to flows, so here every flow is paced at its
    // max-min share: each must get it, which fails if a packet takes any other way than the hash says.
    const Topology topology = fat_tree(8, gbit100, 100 * ps_per_ns);
    constexpr HostIndex hosts = 128;
    const Result<RouteTable> routes = make_routes(topology, Routing::ecmp);
    ASSERT_TRUE(routes.ok());
    std::vector<std::vector<PortIndex>> uses;
    for (HostIndex host = 0; host < hosts; ++host)
        uses.push_back(path_of(topology, *routes, host, (host + hosts / 2) % hosts, host));
    const std::vector<double> share = water_filling(uses, 2 * topology.cables.size());
    EXPECT_LT(*std::ranges::min_element(share), 0.26);
    EXPECT_EQ(*std::ranges::max_element(share), 1.0);
    NetworkSettings settings;
    settings.switches[0].kind = SwitchKind::credit;
    settings.switches[0].input_buffer_bytes = 128ULL * 1024;
    const auto network = make(topology, settings);
    std::vector<FlowIndex> flows;
    for (HostIndex host = 0; host < hosts; ++host)
        flows.push_back(open(*network, {.source = host,
                                        .destination = (host + hosts / 2) % hosts,
                                        .transport = Transport::datagram,
                                        .entropy = host,
                                        .rate_limit = Rate{static_cast<std::uint64_t>(share[host] * 100e9)}}));
    const Time warm = ps_per_ms / 2;
    const Time measured = 2 * ps_per_ms;
    const std::vector<std::uint64_t> bytes = saturate(*network, flows, 16 * payload, warm, warm + measured, 8);
    for (HostIndex host = 0; host < hosts; ++host) {
        const double fair = share[host] * 100.0 * payload / wire;
        // A message is counted when it is whole: the window may cut one.
        EXPECT_NEAR(gbit_per_second(bytes[flows[host]], measured), fair, 0.01 * fair + 0.5) << "host " << host;
        for (const PortIndex link : uses[host])
            EXPECT_GT(network->counters(link).packets, 0U) << network->name(link);
    }
}

TEST(Validation, Case4LosslessIncastEndsAtTheWireBound) {
    constexpr unsigned packets = 978;
    NetworkSettings settings;
    settings.switches[0].kind = SwitchKind::credit;
    settings.switches[0].latency = 300 * ps_per_ns;
    const Time propagation = 500 * ps_per_ns;
    const auto network = make(fat_tree(8, gbit100, propagation), settings);
    constexpr HostIndex hosts = 128;
    for (HostIndex host = 1; host < hosts; ++host)
        network->post(open(*network, {.source = host, .destination = 0}), packets * payload, host);
    Time last = 0;
    unsigned delivered = 0;
    Outcome outcome;
    while (network->advance_to_outcome(ps_per_s)) {
        while (network->take_outcome(outcome)) {
            if (outcome.what != Outcome::What::delivered) continue;
            last = outcome.time;
            ++delivered;
        }
    }
    EXPECT_EQ(delivered, hosts - 1);
    // 3 hosts are 2 cables away, 12 are 4, 112 are 6.
    EXPECT_EQ(network->hops(), packets * (3 * 2 + 12 * 4 + 112 * 6));
    EXPECT_EQ(network->hops(), 710'028U);
    const Time first_at_edge = packet_time + propagation + settings.switches[0].latency;
    EXPECT_EQ(last, first_at_edge + Time{hosts - 1} * packets * packet_time + propagation);
}

TEST(Validation, Case5DropTailIncastDropsExactlyWhatDoesNotFit) {
    constexpr unsigned senders = 8;
    constexpr unsigned packets = 200;
    constexpr unsigned room = 50;
    NetworkSettings settings;
    settings.switches[0].egress_limit_bytes = room * stored_bytes;
    const auto network = make(single_switch(senders + 1, gbit100, 0), settings);
    for (HostIndex host = 1; host <= senders; ++host) {
        const FlowIndex flow = datagrams(*network, host, 0);
        for (unsigned packet = 0; packet < packets; ++packet)
            network->post(flow, payload, host);
    }
    // In the middle: what came is what left, what waits, and what was dropped.
    network->advance(100 * packet_time);
    const PortIndex out = port_from_two(0);
    EXPECT_EQ(network->queue(out, 0).bytes, room * stored_bytes);
    EXPECT_EQ(senders * 100U, network->counters(out).packets + room + network->counters(out).dropped);
    testing::run_out(*network);
    // While packets come, one leaves per packet time; the first does not even wait. Then the queue drains.
    EXPECT_EQ(network->counters(out).packets, packets + room);
    EXPECT_EQ(network->counters(out).dropped, senders * packets - (packets + room));
    EXPECT_EQ(network->queue(out, 0).peak_bytes, room * stored_bytes);
    EXPECT_EQ(network->packets_in_flight(), 0U);
}

TEST(Validation, Case6CreditLoop) {
    // A cable long enough that the credit, not the rate, is the limit: min(C, credits x size / round trip).
    const Time propagation = 5 * ps_per_us;
    const Time round_trip = 2 * propagation + 2 * packet_time;  // sent, and sent on by the switch
    for (const unsigned credits : {1U, 2U, 7U, 20U, 31U, 32U, 40U, 100U}) {
        NetworkSettings settings;
        settings.switches[0].kind = SwitchKind::credit;
        settings.switches[0].input_buffer_bytes = 4160ULL * credits;  // 65 units of 64 B hold the 4158 B of a packet
        Topology topology = single_switch(2, gbit100, 0);
        topology.cables[0].propagation = propagation;
        const auto network = make(topology, settings);
        const FlowIndex flow = datagrams(*network, 0, 1);
        constexpr unsigned packets = 1000;
        for (unsigned packet = 0; packet < packets; ++packet)
            network->post(flow, payload, packet);
        std::vector<Time> times;
        Outcome outcome;
        while (network->advance_to_outcome(ps_per_s)) {
            while (network->take_outcome(outcome))
                times.push_back(outcome.time);
        }
        ASSERT_EQ(times.size(), packets);
        for (unsigned packet = credits; packet < packets; ++packet)
            ASSERT_EQ(times[packet] - times[packet - credits], std::max(round_trip, credits * packet_time))
                << credits << " credits, packet " << packet;
    }
}

/// When a 100 Gb/s sender first meets `limit` in front of a 25 Gb/s port: the first drop, or the first pause.
Time first_time(bool pfc, std::uint64_t limit, Rate in, Rate out) {
    NetworkSettings settings;
    if (pfc) {
        settings.switches[0].pfc = {.classes = 1, .xoff_bytes = limit, .headroom_bytes = 1 << 20};
    } else {
        settings.switches[0].egress_limit_bytes = limit;
    }
    Topology topology = single_switch(2, in, 0);
    topology.cables[1].rate = out;
    const auto network = make(topology, settings);
    const FlowIndex flow = datagrams(*network, 0, 1);
    network->post(flow, 8000 * payload, 0);
    const PortIndex drops = port_from_two(1);
    const PortIndex pauses = port_from_two(0);
    while (network->counters(drops).dropped == 0 && network->counters(pauses).pauses_sent == 0 &&
           network->next_time() != time_never)
        network->advance(network->next_time());
    return network->now();
}

TEST(Validation, Case9BufferFillsAtTheDifferenceOfTheRates) {
    constexpr std::uint64_t room = 1000;
    // Packets come every packet time; one in four leaves. Exactly: the packet that finds the queue full.
    std::uint64_t queued = 0;
    std::uint64_t number = 0;
    for (std::uint64_t sending_until = 0; queued <= room; ++number) {
        if (number >= sending_until && queued > 0) {
            --queued;
            sending_until += 4;
        }
        if (number == 0) {
            sending_until = 4;
        } else {
            ++queued;
        }
    }
    const Time exact = static_cast<Time>(number) * packet_time;
    const Time dropped = first_time(false, room * stored_bytes, gbit100, gbit_per_s(25));
    EXPECT_EQ(dropped, exact);
    // One byte below: the pause comes with the packet that crosses it.
    const Time paused = first_time(true, room * stored_bytes, gbit100, gbit_per_s(25));
    EXPECT_EQ(paused, exact);
    // And as arithmetic: room / 75 Gb/s, but for the packet on its way in and the first, which does not wait.
    const double filled = static_cast<double>(room * wire) * 8000.0 / 75.0;
    EXPECT_NEAR(static_cast<double>(dropped), filled, 0.01 * filled);
}

TEST(Validation, Case10DeepBufferIsLimitedByItsMemory) {
    constexpr unsigned pairs = 4;
    for (const std::uint64_t bandwidth : {100ULL, 200ULL, 400ULL, 700ULL, 1000ULL}) {
        NetworkSettings settings;
        SwitchSettings& middle = settings.switches[0];
        middle.kind = SwitchKind::deep_buffer;
        middle.ports_per_asic = 2 * pairs;
        middle.buffer_bytes = 4ULL << 30;
        middle.spill_bytes = 0;  // all traffic is buffered off chip
        middle.memory_bandwidth = gbit_per_s(bandwidth);
        middle.pfc = {.classes = 1, .xoff_bytes = 256ULL * 1024};
        const auto network = make(single_switch(2 * pairs, gbit100, 20 * ps_per_ns), settings);
        std::vector<FlowIndex> flows;
        for (HostIndex host = 0; host < pairs; ++host)
            flows.push_back(datagrams(*network, host, pairs + host));
        const Time warm = ps_per_ms;
        const Time measured = 4 * ps_per_ms;
        std::uint64_t bytes = 0;
        for (const std::uint64_t one : saturate(*network, flows, 16 * payload, warm, warm + measured, 64))
            bytes += one;
        const double memory = static_cast<double>(bandwidth) / 2 * payload / stored_bytes;
        const double expected = std::min(memory, pairs * 100.0 * payload / wire);
        EXPECT_NEAR(gbit_per_second(bytes, measured), expected, 0.01 * expected) << bandwidth << " Gb/s of memory";
        EXPECT_EQ(network->totals().dropped, 0U);
    }
}

TEST(Validation, Case11VirtualLanesShareByWeight) {
    for (const SwitchKind kind : {SwitchKind::credit, SwitchKind::shared_buffer}) {
        NetworkSettings settings;
        SwitchSettings& middle = settings.switches[0];
        middle.kind = kind;
        middle.service.weight = {3, 1, 4, 2, 1, 1, 1, 1};
        middle.pfc = {.classes = 0xff, .xoff_bytes = 64ULL * 1024, .headroom_bytes = 64ULL * 1024};
        const auto network = make(single_switch(5, gbit100, 0), settings);
        std::vector<FlowIndex> flows;
        for (std::uint8_t lane = 0; lane < 4; ++lane)
            flows.push_back(datagrams(*network, 1U + lane, 0, lane));
        const Time warm = 100 * packet_time;
        constexpr unsigned rounds = 1000;
        const std::vector<std::uint64_t> bytes =
            saturate(*network, flows, payload, warm, warm + 10 * packet_time * rounds, 64);
        const std::array<unsigned, 4> shares = {3, 1, 4, 2};
        for (std::size_t lane = 0; lane < 4; ++lane)
            // The window may cut a round: at its two ends a packet more or less for each unit of weight.
            EXPECT_NEAR(static_cast<double>(bytes[flows[lane]]) / payload, shares[lane] * rounds, shares[lane]);
    }
}

}  // namespace
}  // namespace incast::sim::packet

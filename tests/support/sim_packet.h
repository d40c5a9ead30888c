// Small networks and streams for the tests of this folder.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "sim/packet/network.h"

namespace incast::sim::packet::testing {

inline constexpr Rate gbit100 = gbit_per_s(100);
inline constexpr std::uint64_t payload = 4096;
inline constexpr std::uint64_t wire = 4096 + 82;
inline constexpr std::uint64_t stored_bytes = wire - 20;
inline constexpr Time packet_time = wire * 80;  // at 100 Gb/s

inline std::unique_ptr<Network> make(const Topology& topology, const NetworkSettings& settings) {
    Result<std::unique_ptr<Network>> network = Network::make(topology, settings);
    if (!network) {
        ADD_FAILURE() << network.error().message;
        std::abort();
    }
    return std::move(*network);
}

inline FlowIndex open(Network& network, const FlowSettings& settings) {
    const Result<FlowIndex> flow = network.open(settings);
    if (!flow) {
        ADD_FAILURE() << flow.error().message;
        std::abort();
    }
    return *flow;
}

inline FlowIndex datagrams(Network& network, HostIndex from, HostIndex to, std::uint8_t traffic_class = 0) {
    return open(network,
                {.source = from, .destination = to, .transport = Transport::datagram, .traffic_class = traffic_class});
}

/// Until nothing more happens: the time of the last event.
inline Time run_out(Network& network) {
    while (network.next_time() != time_never)
        network.advance(network.next_time());
    return network.now();
}

/// Keeps `messages` of `bytes` posted on each flow until `until`; payload bytes delivered per flow after `from`.
inline std::vector<std::uint64_t> saturate(Network& network, const std::vector<FlowIndex>& flows, std::uint64_t bytes,
                                           Time from, Time until, unsigned messages = 4) {
    std::vector<std::uint64_t> delivered(flows.back() + 1);
    for (const FlowIndex flow : flows)
        for (unsigned message = 0; message < messages; ++message)
            network.post(flow, bytes, 0);
    Outcome outcome;
    while (network.advance_to_outcome(until)) {
        while (network.take_outcome(outcome)) {
            if (outcome.what != Outcome::What::delivered) continue;
            if (outcome.time >= from) delivered[outcome.flow] += outcome.bytes;
            network.post(outcome.flow, bytes, 0);
        }
    }
    return delivered;
}

/// Switches in a ring, two hosts each, of which every one sends to the one `hops` switches further round.
struct RingOfSwitches {
    static constexpr std::uint32_t switches = 5;
    static constexpr std::uint32_t hosts_per_switch = 2;
    static constexpr std::uint32_t hosts = switches * hosts_per_switch;
    std::unique_ptr<Network> network;
    std::vector<FlowIndex> flows;

    RingOfSwitches(const NetworkSettings& settings, std::uint32_t hops, std::uint32_t length = switches) {
        const std::uint32_t ends = length * hosts_per_switch;
        Topology topology;
        for (std::uint32_t host = 0; host < ends; ++host)
            topology.add_host("host" + std::to_string(host));
        for (std::uint32_t node = 0; node < length; ++node)
            topology.add_switch("switch" + std::to_string(node));
        for (std::uint32_t host = 0; host < ends; ++host)
            topology.add_cable(host, ends + host / hosts_per_switch, gbit100, 100 * ps_per_ns);
        for (std::uint32_t node = 0; node < length; ++node)
            topology.add_cable(ends + node, ends + (node + 1) % length, gbit100, 100 * ps_per_ns);
        network = make(topology, settings);
        for (HostIndex host = 0; host < ends; ++host)
            flows.push_back(datagrams(*network, host, (host + hops * hosts_per_switch) % ends));
    }
};

inline double gbit_per_second(std::uint64_t bytes, Time duration) {
    return static_cast<double>(bytes) * 8000.0 / static_cast<double>(duration);
}

}  // namespace incast::sim::packet::testing

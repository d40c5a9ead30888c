// The packet model without the event builder: how long N hosts take to send one message each to the same host, over
// Ethernet with PFC and over InfiniBand-like credits, and what the switch in the middle held meanwhile.
// usage: packet-example [HOSTS [KIBIBYTES]]
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>

#include "sim/packet/network.h"

namespace {

using namespace incast::sim::packet;
using incast::ps_per_ns;
using incast::ps_per_s;
using incast::Time;

/// False, with the reason on the standard error, if the network cannot be made.
bool incast_to_host_0(std::uint32_t hosts, std::uint64_t bytes, SwitchKind kind) {
    const Rate rate = gbit_per_s(100);
    const Time propagation = 50 * ps_per_ns;  // 10 m
    NetworkSettings settings;
    SwitchSettings& middle = settings.switches.front();
    middle.kind = kind;
    middle.latency = 300 * ps_per_ns;
    const HostSettings& host = settings.hosts.front();
    middle.pfc.classes = 1;
    middle.pfc.headroom_bytes = pfc_headroom(rate, propagation + middle.latency, propagation,
                                             host.mtu_bytes + host.header_bytes, settings.pause_bytes);
    const auto network = Network::make(single_switch(hosts, rate, propagation), settings);
    if (!network) {
        std::fprintf(stderr, "%s\n", network.error().message.c_str());
        return false;
    }
    for (HostIndex sender = 1; sender < hosts; ++sender) {
        FlowSettings flow;
        flow.source = sender;
        flow.destination = 0;
        const auto index = (*network)->open(flow);
        if (!index) {
            std::fprintf(stderr, "%s\n", index.error().message.c_str());
            return false;
        }
        (*network)->post(*index, bytes, sender);
    }
    Time last = 0;
    Outcome outcome;
    while ((*network)->advance_to_outcome(10 * ps_per_s)) {
        while ((*network)->take_outcome(outcome))
            if (outcome.what == Outcome::What::delivered) last = std::max(last, outcome.time);
    }
    const QueueCounters queue = (*network)->queue(port_from_two(0), 0);
    const double seconds = static_cast<double>(last) / static_cast<double>(ps_per_s);
    std::printf("%-13s  %10.1f us  %6.2f Gb/s  queue at most %8.1f KB  pauses %5llu  dropped %llu\n",
                kind == SwitchKind::credit ? "credits" : "shared buffer", seconds * 1e6,
                static_cast<double>(bytes) * (hosts - 1) * 8 / seconds / 1e9,
                static_cast<double>(queue.peak_bytes) / 1e3,
                static_cast<unsigned long long>((*network)->totals().pauses_sent),
                static_cast<unsigned long long>((*network)->totals().dropped));
    return true;
}

}  // namespace

int main(int argc, char** argv) {
    const long hosts = argc > 1 ? std::strtol(argv[1], nullptr, 10) : 32;
    const long kibibytes = argc > 2 ? std::strtol(argv[2], nullptr, 10) : 1024;
    if (hosts < 2 || hosts > 10'000 || kibibytes < 1 || kibibytes > 1'000'000) {
        std::fprintf(stderr, "usage: packet-example [HOSTS (2 to 10000) [KIBIBYTES (1 to 1000000)]]\n");
        return 2;
    }
    for (const SwitchKind kind : {SwitchKind::shared_buffer, SwitchKind::credit})
        if (!incast_to_host_0(static_cast<std::uint32_t>(hosts), static_cast<std::uint64_t>(kibibytes) * 1024, kind))
            return 2;
    return 0;
}

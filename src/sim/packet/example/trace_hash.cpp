// Plays busy networks with most of the model in them and prints a hash over every event of each: the same lines from
// every compiler, with and without optimisation (tools/check_determinism.sh).
// usage: packet-trace-hash [FILE]    FILE: what it should print; exit status 1 and both lines where it differs
#include <cinttypes>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "base/prng.h"
#include "sim/packet/network.h"

namespace {

using namespace incast::sim::packet;
using incast::ps_per_ms;
using incast::ps_per_ns;
using incast::ps_per_us;

struct Case {
    const char* name;
    SwitchKind kind;
    Routing routing;
    bool links_repeat;
};

NetworkSettings settings_of(const Case& chosen) {
    NetworkSettings settings;
    settings.routing = chosen.routing;
    settings.hosts[0].receive_limit = gbit_per_s(90);
    settings.hosts[0].receive_xoff_bytes = 100'000;
    settings.hosts[0].message_cost = 200 * ps_per_ns;
    SwitchSettings& middle = settings.switches[0];
    middle.kind = chosen.kind;
    middle.latency = 300 * ps_per_ns;
    middle.cut_through = chosen.kind == SwitchKind::credit;
    middle.service.weight = {3, 1, 0, 1, 1, 1, 1, 1};
    middle.ecn = {.classes = 0xff, .kmin_bytes = 20'000, .kmax_bytes = 200'000, .pmax_per_million = 100'000};
    middle.pfc = {.classes = 3, .xoff_bytes = 100'000, .headroom_bytes = 100'000, .quanta = 500};
    middle.egress_limit_bytes = 300'000;
    middle.spill_bytes = 50'000;
    middle.memory_bandwidth = gbit_per_s(500);
    middle.receiver_controlled = chosen.links_repeat;
    settings.faults = {{.at = 100 * ps_per_us, .cable = 3, .what = Fault::What::corrupt, .per_million = 1000},
                       {.at = 400 * ps_per_us, .cable = 20, .what = Fault::What::down},
                       {.at = 600 * ps_per_us, .cable = 20, .what = Fault::What::up}};
    return settings;
}

/// "name hash hops", or what is wrong.
std::string line_of(const Case& chosen) {
    Topology topology = fat_tree(4, gbit_per_s(100), 100 * ps_per_ns);
    for (Topology::Cable& cable : topology.cables)
        cable.repeats = chosen.links_repeat;
    const auto made = Network::make(topology, settings_of(chosen));
    if (!made) return std::string(chosen.name) + ": " + made.error().message;
    Network& network = **made;
    incast::base::Prng prng(1);
    std::vector<FlowIndex> flows;
    for (unsigned number = 0; number < 40; ++number) {
        const auto from = static_cast<HostIndex>(prng.below(16));
        const auto to = static_cast<HostIndex>((from + 1 + prng.below(15)) % 16);
        const bool sprayed = chosen.routing == Routing::spray;
        const auto flow = network.open({.source = from,
                                        .destination = to,
                                        .transport = sprayed           ? Transport::datagram
                                                     : number % 4 == 0 ? Transport::tcp
                                                                       : Transport::reliable,
                                        .traffic_class = static_cast<std::uint8_t>(number % 3),
                                        .window_packets = sprayed ? nil : 100,
                                        .ack_packets = 4,
                                        .retransmit_timeout = sprayed ? 0 : 200 * ps_per_us,
                                        .dcqcn = number % 2 == 0});
        if (!flow) return std::string(chosen.name) + ": " + flow.error().message;
        flows.push_back(*flow);
    }
    for (const FlowIndex flow : flows)
        for (unsigned message = 0; message < 4; ++message)
            network.post(flow, 40'000 + prng.below(10'000), 0);
    Outcome outcome;
    while (network.advance_to_outcome(2 * ps_per_ms))
        while (network.take_outcome(outcome))
            if (outcome.what != Outcome::What::acknowledged) network.post(outcome.flow, 40'000 + prng.below(10'000), 0);
    char line[128];
    std::snprintf(line, sizeof line, "%s %016" PRIx64 " %" PRIu64, chosen.name, network.trace_hash(), network.hops());
    return line;
}

}  // namespace

int main(int argc, char** argv) {
    constexpr Case cases[]{{"shared-buffer", SwitchKind::shared_buffer, Routing::ecmp, false},
                           {"shared-buffer-sprayed", SwitchKind::shared_buffer, Routing::spray, false},
                           {"credit", SwitchKind::credit, Routing::ecmp, false},
                           {"credit-shift-aware", SwitchKind::credit, Routing::shift_aware, false},
                           {"links-that-repeat", SwitchKind::credit, Routing::ecmp, true},
                           {"input-fifo", SwitchKind::input_fifo, Routing::ecmp, false},
                           {"deep-buffer", SwitchKind::deep_buffer, Routing::ecmp, false}};
    std::ifstream expected(argc > 1 ? argv[1] : "");
    int status = 0;
    for (const Case& one : cases) {
        const std::string line = line_of(one);
        std::string wanted;
        if (argc > 1 && (!std::getline(expected, wanted) || wanted != line)) {
            std::printf("expected %s\nseen     %s\n", wanted.c_str(), line.c_str());
            status = 1;
        } else {
            std::printf("%s\n", line.c_str());
        }
    }
    return status;
}

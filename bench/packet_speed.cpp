// How fast the packet model is: data packets of 4 KiB put on a cable ("hops"; acknowledgements do not count) per second
// of CPU on one core, and the memory it takes. usage: packet_speed [CASE [MICROSECONDS]]
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <memory>
#include <numeric>
#include <string_view>
#include <vector>

#include <sys/resource.h>

#include "base/prng.h"
#include "sim/packet/network.h"

namespace {

using namespace incast;
using namespace incast::sim::packet;

double cpu_seconds() {
    timespec now{};
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

double peak_megabytes() {
    rusage usage{};
    getrusage(RUSAGE_SELF, &usage);
    return static_cast<double>(usage.ru_maxrss) / 1024;
}

constexpr std::uint64_t message_bytes = 1 << 20;

struct Case {
    const char* name;
    std::uint32_t tree;  // k of the fat tree: k^3/4 hosts
    SwitchKind kind;
    Routing routing;
    bool incast;  // all to host 0, not a permutation
    Time duration;
};

constexpr Case cases[] = {
    {"permutation-16", 4, SwitchKind::shared_buffer, Routing::ecmp, false, 100 * ps_per_ms},
    {"permutation-128", 8, SwitchKind::shared_buffer, Routing::ecmp, false, 20 * ps_per_ms},
    {"permutation-128-shift", 8, SwitchKind::shared_buffer, Routing::shift_aware, false, 10 * ps_per_ms},
    {"permutation-1024", 16, SwitchKind::shared_buffer, Routing::ecmp, false, 3 * ps_per_ms},
    {"incast-128", 8, SwitchKind::shared_buffer, Routing::ecmp, true, 100 * ps_per_ms},
    {"credit-128", 8, SwitchKind::credit, Routing::ecmp, false, 20 * ps_per_ms},
    {"credit-128-shift", 8, SwitchKind::credit, Routing::shift_aware, false, 10 * ps_per_ms},
    {"credit-1024", 16, SwitchKind::credit, Routing::ecmp, false, 3 * ps_per_ms},
    {"credit-incast-128", 8, SwitchKind::credit, Routing::ecmp, true, 100 * ps_per_ms},
};

NetworkSettings settings_of(const Case& bench, Rate rate, Time propagation) {
    NetworkSettings settings;
    settings.routing = bench.routing;
    SwitchSettings& node = settings.switches.front();
    node.kind = bench.kind;
    node.latency = 300 * ps_per_ns;
    node.buffer_bytes = 32 << 20;
    if (bench.kind == SwitchKind::shared_buffer) {
        node.pfc.classes = 0xff;
        node.pfc.headroom_bytes = pfc_headroom(rate, propagation + node.latency, propagation + node.latency, 4178, 84);
        // HPCC's artefact, at 100 Gb/s.
        node.ecn = {.classes = 1, .kmin_bytes = 400'000, .kmax_bytes = 1'600'000, .pmax_per_million = 200'000};
    } else {
        node.input_buffer_bytes = 64 * 1024;
    }
    return settings;
}

void measure(const Case& bench, Time duration) {
    const Rate rate = gbit_per_s(100);
    const Time propagation = 500 * ps_per_ns;
    auto network =
        Network::make(fat_tree(bench.tree, rate, propagation), settings_of(bench, rate, propagation)).value();
    const std::uint32_t hosts = bench.tree * bench.tree * bench.tree / 4;
    std::vector<HostIndex> to(hosts);
    std::iota(to.begin(), to.end(), 0U);
    base::Prng prng(1);
    // Sattolo's shuffle: one cycle, so nobody sends to itself.
    for (std::uint32_t host = hosts - 1; host > 0; --host)
        std::swap(to[host], to[prng.below(host)]);
    for (HostIndex host = 0; host < hosts; ++host) {
        if (bench.incast && host == 0) continue;
        FlowSettings flow;
        flow.source = host;
        flow.destination = bench.incast ? 0 : to[host];
        flow.dcqcn = bench.kind == SwitchKind::shared_buffer;
        const FlowIndex index = *network->open(flow);
        network->post(index, message_bytes, 0);
        network->post(index, message_bytes, 0);
    }
    const auto run = [&](Time until) {
        Outcome outcome;
        while (network->advance_to_outcome(until)) {
            while (network->take_outcome(outcome))
                if (outcome.what == Outcome::What::acknowledged) network->post(outcome.flow, message_bytes, 0);
        }
    };
    run(duration / 20);
    const std::uint64_t hops = network->hops();
    const std::uint64_t events = network->events();
    const double start = cpu_seconds();
    run(duration);
    const double seconds = cpu_seconds() - start;
    const auto done = static_cast<double>(network->hops() - hops);
    const PortCounters totals = network->totals();
    std::printf(
        "%-22s %5u hosts  %6.2f M hops/s  %6.2f M events/s  %4.2f events/hop  %5.1f MB  %.0f hops, %llu marked, "
        "%llu pauses, %llu dropped, trace %016llx\n",
        bench.name, hosts, done / seconds / 1e6, static_cast<double>(network->events() - events) / seconds / 1e6,
        static_cast<double>(network->events() - events) / done, peak_megabytes(), done,
        static_cast<unsigned long long>(totals.marked), static_cast<unsigned long long>(totals.pauses_sent),
        static_cast<unsigned long long>(totals.dropped), static_cast<unsigned long long>(network->trace_hash()));
    std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
    bool found = false;
    for (const Case& bench : cases) {
        if (argc > 1 && std::string_view(argv[1]) != bench.name) continue;
        found = true;
        measure(bench, argc > 2 ? std::strtoll(argv[2], nullptr, 10) * ps_per_us : bench.duration);
    }
    if (!found) std::fprintf(stderr, "packet_speed: no case '%s'\n", argv[1]);
    return found ? 0 : 2;
}

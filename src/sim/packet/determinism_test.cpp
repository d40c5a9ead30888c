// The same seed gives the same run, whoever compiled it and whatever runs beside it, and a warm network allocates
// nothing.
#include <array>
#include <thread>

#include <gtest/gtest.h>

#include "base/count_allocations.h"
#include "base/prng.h"
#include "support/sim_packet.h"

namespace incast::sim::packet {
namespace {

using testing::gbit100;
using testing::make;
using testing::open;
using testing::payload;
using testing::saturate;

/// A busy network with most of the model in it, driven from a seed.
struct Busy {
    std::unique_ptr<Network> network;
    std::vector<FlowIndex> flows;
};
Busy busy(std::uint64_t seed, SwitchKind kind) {
    NetworkSettings settings;
    settings.seed = seed;
    SwitchSettings& middle = settings.switches[0];
    middle.kind = kind;
    middle.ecn = {.classes = 0xff, .kmin_bytes = 20'000, .kmax_bytes = 200'000, .pmax_per_million = 100'000};
    middle.pfc = {.classes = 3, .xoff_bytes = 100'000, .headroom_bytes = 100'000};
    middle.egress_limit_bytes = 300'000;
    middle.spill_bytes = 50'000;
    middle.memory_bandwidth = gbit_per_s(500);
    middle.latency = 300 * ps_per_ns;
    settings.faults = {{.at = 100 * ps_per_us, .cable = 3, .what = Fault::What::corrupt, .per_million = 1000}};
    Busy busy{make(fat_tree(4, gbit100, 100 * ps_per_ns), settings), {}};
    base::Prng prng(seed);
    for (unsigned flow = 0; flow < 40; ++flow) {
        const auto from = static_cast<HostIndex>(prng.below(16));
        const auto to = static_cast<HostIndex>((from + 1 + prng.below(15)) % 16);
        busy.flows.push_back(open(*busy.network, {.source = from,
                                                  .destination = to,
                                                  .transport = flow % 4 == 0 ? Transport::tcp : Transport::reliable,
                                                  .traffic_class = static_cast<std::uint8_t>(flow % 3),
                                                  .window_packets = 100,
                                                  .ack_packets = 4,
                                                  .retransmit_timeout = 200 * ps_per_us,
                                                  .dcqcn = flow % 2 == 0}));
    }
    return busy;
}

std::uint64_t trace_of(std::uint64_t seed, SwitchKind kind) {
    const Busy run = busy(seed, kind);
    saturate(*run.network, run.flows, 10 * payload + 77, 0, 2 * ps_per_ms);
    EXPECT_GT(run.network->hops(), 10'000U);
    return run.network->trace_hash();
}

// Which bits they are, from every compiler: packet-trace-hash.
TEST(Determinism, TheSameSeedGivesTheSameBitsAndAnotherOneOthers) {
    EXPECT_EQ(trace_of(1, SwitchKind::shared_buffer), trace_of(1, SwitchKind::shared_buffer));
    EXPECT_NE(trace_of(2, SwitchKind::shared_buffer), trace_of(1, SwitchKind::shared_buffer));
}

TEST(Determinism, NetworksInParallelThreadsDoNotDisturbEachOther) {
    std::array<std::uint64_t, 3> traces{};
    std::vector<std::thread> threads;
    for (std::uint64_t& trace : traces)
        threads.emplace_back([&trace] { trace = trace_of(5, SwitchKind::shared_buffer); });
    for (std::thread& thread : threads)
        thread.join();
    EXPECT_EQ(traces[0], traces[1]);
    EXPECT_EQ(traces[0], traces[2]);
}

TEST(Determinism, HowFarEachCallAdvancesChangesNothing) {
    const auto trace = [](Time step) {
        const Busy run = busy(7, SwitchKind::shared_buffer);
        for (const FlowIndex flow : run.flows)
            run.network->post(flow, 300 * payload, 0);
        for (Time now = step; now <= ps_per_ms; now += step)
            run.network->advance(now);
        return run.network->trace_hash();
    };
    EXPECT_EQ(trace(ps_per_ms), trace(ps_per_ns * 250));
}

TEST(Allocation, AWarmNetworkAllocatesNothing) {
    for (const SwitchKind kind : {SwitchKind::shared_buffer, SwitchKind::credit}) {
        const Busy run = busy(1, kind);
        const auto play = [&](Time until) {
            Outcome outcome;
            while (run.network->advance_to_outcome(until)) {
                while (run.network->take_outcome(outcome))
                    if (outcome.what == Outcome::What::delivered) run.network->post(outcome.flow, 10 * payload, 0);
            }
        };
        for (const FlowIndex flow : run.flows)
            for (unsigned message = 0; message < 4; ++message)
                run.network->post(flow, 10 * payload, 0);
        // Pools grow to new peaks; from here on few are left, and each of them at most doubles one array.
        play(10 * ps_per_ms);
        const std::uint64_t hops = run.network->hops();
        const std::uint64_t before = base::allocations.load();
        play(14 * ps_per_ms);
        EXPECT_LE(base::allocations.load() - before, 8U);
        EXPECT_GT(run.network->hops() - hops, 50'000U);
    }
}

}  // namespace
}  // namespace incast::sim::packet

// How evenly TCP flows of equal round trips share one drop-tail queue, beside Debian's ns-3.
#include <cstdio>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "support/sim_packet.h"

namespace incast::sim::packet {
namespace {

constexpr std::uint32_t segment = 1448;
constexpr std::uint32_t header = 54;  // TCP with time stamps 32, IP 20, ns-3's point-to-point device 2
constexpr unsigned window_packets = 256;
constexpr long from_ms = 15;
constexpr long until_ms = 315;

struct Bottleneck {
    HostIndex senders;
    unsigned room;  // packets
};

/// What came of each flow between the two times.
struct Shares {
    double bytes = 0;  // of all flows
    double jain = 0;
};

Shares shares_of(const std::vector<std::uint64_t>& flows) {
    Shares shares;
    double squares = 0;
    for (const std::uint64_t flow : flows) {
        const auto bytes = static_cast<double>(flow);
        shares.bytes += bytes;
        squares += bytes * bytes;
    }
    shares.jain = shares.bytes * shares.bytes / (static_cast<double>(flows.size()) * squares);
    return shares;
}

Shares ours(const Bottleneck& bottleneck, std::uint64_t seed) {
    NetworkSettings settings;
    settings.seed = seed;
    settings.unstored_bytes = 0;
    settings.hosts[0].mtu_bytes = segment;
    settings.hosts[0].header_bytes = header;
    settings.hosts[0].ack_bytes = header;
    settings.switches[0].buffer_bytes = 1ULL << 30;
    settings.switches[0].egress_limit_bytes = std::uint64_t{bottleneck.room} * (segment + header);
    settings.switches[0].latency = 0;
    const auto network = testing::make(single_switch(bottleneck.senders + 1, gbit_per_s(10), 25 * ps_per_us), settings);
    std::vector<FlowIndex> flows;
    for (HostIndex host = 1; host <= bottleneck.senders; ++host)
        flows.push_back(testing::open(*network, {.source = host,
                                                 .destination = 0,
                                                 .transport = Transport::tcp,
                                                 .window_packets = window_packets,
                                                 .ack_packets = 1,
                                                 .retransmit_timeout = 10 * ps_per_ms}));
    // Short messages, so that what has come is known to 8 packets, and more of them posted than a window holds.
    constexpr unsigned packets = 8;
    return shares_of(testing::saturate(*network, flows, std::uint64_t{packets} * segment, from_ms * ps_per_ms,
                                       until_ms * ps_per_ms, 2 * window_packets / packets));
}

#ifdef NS3_TCP_REFERENCE
/// Empty: it could not be run.
std::vector<std::uint64_t> reference(const Bottleneck& bottleneck) {
    std::string command = NS3_TCP_REFERENCE;
    for (const long word : {long{bottleneck.senders}, long{bottleneck.room}, 0L, from_ms, until_ms})
        command += " " + std::to_string(word);
    std::vector<std::uint64_t> flows;
    FILE* const pipe = popen(command.c_str(), "r");
    if (pipe == nullptr) return flows;
    unsigned long bytes = 0;
    while (std::fscanf(pipe, "%lu", &bytes) == 1)
        flows.push_back(bytes);
    if (pclose(pipe) != 0) flows.clear();
    return flows;
}
#else
std::vector<std::uint64_t> reference(const Bottleneck&) {
    return {};
}
#endif

class Ns3Tcp : public ::testing::TestWithParam<Bottleneck> {
protected:
    void SetUp() override {
#ifndef NS3_TCP_REFERENCE
        GTEST_SKIP() << "ns-3 was not found when this was built (Debian: libns3-dev)";
#endif
    }
};

TEST_P(Ns3Tcp, FlowsShareADropTailQueueAsTheyDoThere) {
    const std::vector<std::uint64_t> flows = reference(GetParam());
    ASSERT_EQ(flows.size(), GetParam().senders);
    const Shares theirs = shares_of(flows);
    std::printf("ns-3: %.4f GB, Jain's index %.4f; here:", theirs.bytes / 1e9, theirs.jain);
    for (const std::uint64_t seed : {1U, 2U, 3U}) {
        const Shares own = ours(GetParam(), seed);
        std::printf(" %.4f GB, %.4f;", own.bytes / 1e9, own.jain);
        EXPECT_NEAR(own.jain, theirs.jain, 0.05) << "seed " << seed;
        EXPECT_NEAR(own.bytes, theirs.bytes, 0.01 * theirs.bytes) << "seed " << seed;
    }
    std::printf("\n");
}

INSTANTIATE_TEST_SUITE_P(Rooms, Ns3Tcp,
                         ::testing::Values(Bottleneck{.senders = 4, .room = 100}, Bottleneck{.senders = 4, .room = 400},
                                           Bottleneck{.senders = 16, .room = 100},
                                           Bottleneck{.senders = 16, .room = 400}));

}  // namespace
}  // namespace incast::sim::packet

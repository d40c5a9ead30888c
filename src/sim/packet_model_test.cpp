// The packet model behind the transport contract: times that can be computed by hand, order, and what it refuses.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "sim/fabric/fabric.h"
#include "sim/models/packet.h"
#include "sim/sim_medium.h"
#include "support/sim.h"

namespace incast::sim {
namespace {

using ::testing::HasSubstr;
using testing::Listener;

constexpr Time ps_per_byte = 80;  // 100 Gb/s
constexpr Time cable = 500 * ps_per_ns;
constexpr Time switch_latency = 200 * ps_per_ns;

std::string text_of(const std::string& flow = "") {
    return R"(
[fabric]
name = "four"
[hosts.nic]
mtu = "1000B"
header = "0B"
ack = "1B"
[switches.s]
kind = "credit"
latency = "200ns"
input_buffer = "1MiB"
[links.cable]
rate = "100Gb/s"
delay = "500ns"
[network]
unstored = "0B"
routing = "ecmp"
[flow]
)" + flow + R"(
[topology]
hosts = 4
)";
}

std::unique_ptr<Model> model_of(const std::string& text, std::uint64_t run_seed) {
    auto model = PacketModel::make(fabric::parse(text, "four.toml").value()).value();
    model->seed(run_seed);
    return model;
}

/// Four nodes on one switch, each with a region that all others may write.
class FourHosts {
public:
    explicit FourHosts(const std::string& text = text_of(), std::uint64_t run_seed = 1)
        : world(model_of(text, run_seed)) {
        for (std::uint32_t self = 0; self < 4; ++self) {
            nodes.push_back(std::make_unique<Listener>(world, self));
            regions.push_back(nodes.back()->endpoint->allocate(std::size_t{1} << 30).value());
        }
        for (std::uint32_t one = 0; one < 4; ++one) {
            for (std::uint32_t two = 0; two < 4; ++two) {
                (void)nodes[one]->endpoint->connect(Peer{two}, nodes[two]->endpoint->address(), 1);
            }
        }
        while (world.advance()) {
        }
        for (auto& node : nodes) {
            EXPECT_EQ(node->count(Event::Kind::peer_up), 4U);
            node->seen.clear();
            for (std::uint32_t peer = 0; peer < 4; ++peer) {
                const Blob key = nodes[peer]->endpoint->expose(regions[peer]).value();
                EXPECT_EQ(static_cast<std::uint32_t>(node->endpoint->import_key(Peer{peer}, key).value()), peer);
            }
        }
        start = world.now();
    }
    void write(std::uint32_t from, std::uint32_t to, std::uint32_t bytes, Notice notice, Token token = 0) {
        ASSERT_EQ(nodes[from]->endpoint->write(Peer{to}, {}, {regions[from], bytes, 0},
                                               {Remote{to}, std::uint64_t{from} << 20}, notice, token),
                  Post::pending);
    }
    void finish() {
        while (world.advance()) {
        }
    }

    World world;
    std::vector<std::unique_ptr<Listener>> nodes;
    std::vector<Local> regions;
    Time start = 0;
};

TEST(PacketModel, AWriteTakesItsPacketsThroughTheSwitch) {
    FourHosts hosts;
    hosts.write(0, 1, 10'000, 7, 42);
    hosts.finish();
    // The switch stores and forwards: the last of ten packets leaves the host after all ten, and the switch after that.
    const Time arrival = 10 * 1000 * ps_per_byte + cable + switch_latency + 1000 * ps_per_byte + cable;
    ASSERT_EQ(hosts.nodes[1]->count(Event::Kind::notice), 1U);
    EXPECT_EQ(hosts.nodes[1]->of(Event::Kind::notice)[0].time - hosts.start, arrival);
    EXPECT_EQ(hosts.nodes[1]->of(Event::Kind::notice)[0].event.size_or_value, 7);
    // The acknowledgement has one byte and goes the same way back.
    const auto completed = hosts.nodes[0]->of(Event::Kind::completed);
    ASSERT_EQ(completed.size(), 1U);
    EXPECT_EQ(completed[0].event.token, 42U);
    EXPECT_EQ(completed[0].time - hosts.start, arrival + 2 * cable + switch_latency + 2 * ps_per_byte);
}

TEST(PacketModel, WhatArrivesWaitsForTheNextLook) {
    constexpr Time interval = 5 * ps_per_us;
    FourHosts hosts;
    hosts.world.poll_every(interval);
    hosts.write(0, 1, 10'000, 7, 42);
    hosts.write(2, 1, 100, 8);
    hosts.finish();
    const auto look_after = [&](Time time) { return (hosts.start + time + interval - 1) / interval * interval; };
    const Time long_one = 11 * 1000 * ps_per_byte + 2 * cable + switch_latency;
    const auto notices = hosts.nodes[1]->of(Event::Kind::notice);
    ASSERT_EQ(notices.size(), 2U);
    EXPECT_EQ(notices[0].event.size_or_value, 8);
    EXPECT_EQ(notices[1].event.size_or_value, 7);
    EXPECT_EQ(notices[1].time, look_after(long_one));
    EXPECT_EQ(notices[0].time % interval, 0);
    ASSERT_EQ(hosts.nodes[0]->count(Event::Kind::completed), 1U);
    EXPECT_EQ(hosts.nodes[0]->of(Event::Kind::completed)[0].time % interval, 0);
}

TEST(PacketModel, SendersToOneHostShareItsCable) {
    FourHosts hosts;
    constexpr std::uint32_t bytes = 1'000'000;
    for (const std::uint32_t from : {0U, 1U, 2U})
        hosts.write(from, 3, bytes, static_cast<std::uint16_t>(from));
    hosts.finish();
    const auto notices = hosts.nodes[3]->of(Event::Kind::notice);
    ASSERT_EQ(notices.size(), 3U);
    // All three at the cable's rate, behind the first packet's way to the switch.
    EXPECT_EQ(notices[2].time - hosts.start,
              1000 * ps_per_byte + cable + switch_latency + Time{3} * bytes * ps_per_byte + cable);
    // And fairly: none is done long before the others.
    EXPECT_GT(notices[0].time - hosts.start, Time{29} * bytes * ps_per_byte / 10);
}

TEST(PacketModel, AMessageStaysBehindTheWriteBeforeIt) {
    FourHosts hosts;
    hosts.write(0, 1, 100'000, std::nullopt);
    hosts.write(0, 1, 100'000, 5);
    (void)hosts.nodes[0]->send(1, "after");
    hosts.finish();
    ASSERT_EQ(hosts.nodes[1]->seen.size(), 2U);
    EXPECT_EQ(hosts.nodes[1]->seen[0].event.kind, Event::Kind::notice);
    EXPECT_EQ(hosts.nodes[1]->seen[1].message, "after");
    EXPECT_GE(hosts.nodes[1]->seen[1].time - hosts.start, 200'000 * ps_per_byte);
}

/// Over several paths packets overtake each other; what the contract orders still comes in order.
TEST(PacketModel, OrderHoldsWherePacketsAreSprayed) {
    std::string text = text_of("any_order = true");
    text.replace(text.find("routing = \"ecmp\""), 16, "routing = \"spray\"");
    text.replace(text.find("[topology]\nhosts = 4"), 20,
                 "[topology]\nkind = \"leaf-spine\"\nleaves = 2\nhosts_per_leaf = 2\nspines = 3\n");
    FourHosts hosts(text);
    for (std::uint16_t number = 0; number < 200; ++number)
        hosts.write(0, 3, number % 2 == 0 ? 20'000 : 100, number);
    hosts.finish();
    const auto notices = hosts.nodes[3]->of(Event::Kind::notice);
    ASSERT_EQ(notices.size(), 200U);
    for (std::uint16_t number = 0; number < 200; ++number)
        EXPECT_EQ(notices[number].event.size_or_value, number);
}

/// When 40 writes across a fat tree, of which those of different pods meet or miss each other by chance, are done.
Time end_of_writes(const std::string& network, std::uint64_t run_seed) {
    std::string text = text_of("any_order = true");
    text.replace(text.find("routing = \"ecmp\""), 16, network);
    text.replace(text.find("[topology]\nhosts = 4"), 20,
                 "[topology]\nkind = \"leaf-spine\"\nleaves = 2\nhosts_per_leaf = 2\nspines = 3\n");
    FourHosts hosts(text, run_seed);
    for (std::uint16_t number = 0; number < 40; ++number)
        for (const std::uint32_t from : {0U, 1U})
            hosts.write(from, from + 2, 20'000, number);
    hosts.finish();
    return hosts.world.now() - hosts.start;
}

TEST(PacketModel, TheRunsSeedSeedsTheNetworkUnlessItsFileDoes) {
    const std::string spray = "routing = \"spray\"";
    EXPECT_NE(end_of_writes(spray, 1), end_of_writes(spray, 2));
    EXPECT_EQ(end_of_writes(spray, 2), end_of_writes(spray, 2));
    EXPECT_EQ(end_of_writes(spray + "\nseed = 2", 1), end_of_writes(spray, 2));
    EXPECT_EQ(end_of_writes(spray + "\nseed = 2", 7), end_of_writes(spray, 2));
}

TEST(PacketModel, AReadAsksAndIsAnswered) {
    FourHosts hosts;
    ASSERT_EQ(hosts.nodes[0]->endpoint->read(Peer{1}, {Remote{1}, 0}, {hosts.regions[0], 10'000, 0}, 9), Post::pending);
    hosts.finish();
    const auto completed = hosts.nodes[0]->of(Event::Kind::completed);
    ASSERT_EQ(completed.size(), 1U);
    EXPECT_EQ(completed[0].event.status, Status::ok);
    // There and back again, and ten packets on the way back.
    EXPECT_GE(completed[0].time - hosts.start, 4 * cable + 2 * switch_latency + 11'000 * ps_per_byte);
}

/// Three hosts fill the little memory in front of the fourth one's cable.
TEST(PacketModel, WhatIsDroppedIsRepeated) {
    std::string text = text_of("ack_packets = 4\nretransmit_timeout = \"100us\"\nwindow_packets = 64");
    text.replace(text.find("kind = \"credit\""), 15, "kind = \"shared-buffer\"\nbuffer = \"20KiB\"");
    text.replace(text.find("input_buffer = \"1MiB\""), 21, "");
    FourHosts hosts(text);
    EXPECT_FALSE(hosts.nodes[0]->endpoint->capabilities().read) << "a lost request would not be repeated";
    for (const std::uint32_t from : {0U, 1U, 2U})
        hosts.write(from, 3, 300'000, static_cast<std::uint16_t>(from));
    hosts.finish();
    EXPECT_EQ(hosts.nodes[3]->count(Event::Kind::notice), 3U);
    EXPECT_GT(dynamic_cast<PacketModel&>(hosts.world.model()).network().totals().dropped, 0U);
}

TEST(PacketModel, ANodeToItselfUsesNoNetwork) {
    FourHosts hosts;
    hosts.write(2, 2, 100'000, 3);
    hosts.finish();
    ASSERT_EQ(hosts.nodes[2]->count(Event::Kind::notice), 1U);
    EXPECT_EQ(hosts.nodes[2]->of(Event::Kind::notice)[0].time, hosts.start);
}

TEST(PacketModel, WhatIsOnItsWayToALostPeerIsCancelledOnce) {
    FourHosts hosts;
    hosts.write(0, 1, 1'000'000, 1, 11);
    hosts.nodes[1].reset();
    hosts.finish();
    const auto completed = hosts.nodes[0]->of(Event::Kind::completed);
    ASSERT_EQ(completed.size(), 1U);
    EXPECT_EQ(completed[0].event.token, 11U);
    EXPECT_EQ(hosts.nodes[0]->count(Event::Kind::peer_down), 1U);
}

TEST(PacketModel, TimeStandsAtTheLimitWhileTheNetworkGoesOn) {
    FourHosts hosts;
    hosts.write(0, 1, 1'000'000, 1);
    hosts.world.run_until(hosts.start + 10 * ps_per_us);
    EXPECT_EQ(hosts.world.now(), hosts.start + 10 * ps_per_us);
    EXPECT_EQ(hosts.nodes[1]->count(Event::Kind::notice), 0U);
    hosts.world.run_until(hosts.start + 1 * ps_per_ms);
    EXPECT_EQ(hosts.nodes[1]->count(Event::Kind::notice), 1U);
}

TEST(PacketModel, TheSameCallsGiveTheSameTrace) {
    const auto trace = [](std::uint32_t bytes) {
        FourHosts hosts;
        for (std::uint32_t from = 0; from < 4; ++from)
            hosts.write(from, (from + 1) % 4, bytes, 1);
        hosts.finish();
        return hosts.world.trace_hash();
    };
    EXPECT_EQ(trace(100'000), trace(100'000));
    EXPECT_NE(trace(100'000), trace(101'000));
}

TEST(PacketModel, RefusesWhatItCannotCarry) {
    World world(model_of(text_of(), 1));
    transport::EndpointOptions options;
    options.self = Peer{4};
    options.max_peers = 8;
    EXPECT_THAT(world.endpoint(options).error().message, HasSubstr("node 4: fabric 'four' has 4 hosts"));
    const auto datagrams = fabric::parse(text_of("transport = \"datagram\""), "four.toml");
    ASSERT_TRUE(datagrams);
    EXPECT_THAT(PacketModel::make(*datagrams).error().message, HasSubstr("flow.transport = datagram loses messages"));
    EXPECT_THAT(make_sim_medium({{"fabric", "no/such.toml"}}).error().message, HasSubstr("cannot be read"));
}

}  // namespace
}  // namespace incast::sim

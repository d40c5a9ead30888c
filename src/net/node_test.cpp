#include "net/node.h"

#include <array>
#include <memory>
#include <string>
#include <tuple>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "sim/models/ideal.h"
#include "sim/world.h"
#include "support/net.h"
#include "transport/decorator/forward.h"
#include "transport/decorator/pad.h"

namespace incast::net {
namespace {

using ::testing::HasSubstr;

constexpr std::uint32_t n_nodes = 4;
constexpr std::uint64_t messages = 300;

Config config_of(Pattern pattern, bool duplex, std::uint32_t queues, Measure measure) {
    Config config;
    config.n_nodes = pattern == Pattern::one_to_one ? 2 : n_nodes;
    config.pairs = make_pairs({pattern, config.n_nodes, 3, 1, duplex});
    config.measure = measure;
    config.queues = queues;
    config.outstanding = measure == Measure::latency ? 1 : 5;
    config.message_bytes = 200;
    config.messages = messages;
    config.working_set_bytes = 20'000;
    config.verify = true;
    return config;
}

/// Every pair of the pattern, and no other, has carried every message of every queue once, in order, unchanged.
void expect_all_arrived(const Config& config, const std::vector<std::unique_ptr<Node>>& nodes, bool phantom) {
    const std::uint64_t per_pair = config.messages * config.queues;
    std::vector<Pair> seen;
    for (std::uint32_t self = 0; self < nodes.size(); ++self) {
        const Node& node = *nodes[self];
        const Counters& counters = node.counters();
        EXPECT_EQ(node.failure(), "");
        EXPECT_EQ(node.first_error(), "");
        EXPECT_EQ(counters.order_errors + counters.content_errors + counters.bad_messages, 0U);
        std::uint64_t asked = 0;
        for (std::size_t partner = 0; partner < node.partner_count(); ++partner) {
            const PairCount count = node.pair_count(partner);
            if (count.messages_sent > 0) {
                EXPECT_EQ(count.messages_sent, per_pair);
                asked += per_pair;
                seen.push_back({self, static_cast<std::uint32_t>(count.peer)});
            }
            const auto from = static_cast<std::uint32_t>(count.peer);
            const bool hears = std::ranges::binary_search(config.pairs, Pair{from, self});
            EXPECT_EQ(count.messages_received, hears ? per_pair : 0);
            if (const base::Histogram* trips = node.round_trips(partner)) {
                EXPECT_EQ(trips->count(), count.messages_sent);
            }
        }
        const std::uint64_t answers = config.measure == Measure::latency ? asked : 0;
        EXPECT_EQ(counters.verified_messages, phantom ? 0 : counters.messages_received + answers);
    }
    EXPECT_EQ(seen, config.pairs);
}

class Traffic : public ::testing::TestWithParam<std::tuple<Pattern, bool, std::uint32_t, Measure>> {
protected:
    [[nodiscard]] static Config config() {
        return std::apply([](auto... values) { return config_of(values...); }, GetParam());
    }
};

TEST_P(Traffic, ArrivesOnceAndInOrderOverInproc) {
    // Every other node with a key of the greatest length, the others' with a short one.
    testing::Cluster cluster(config(), [](Peer peer, std::unique_ptr<Transport> transport) {
        const bool longest = static_cast<std::uint32_t>(peer) % 2 == 0;
        if (longest) (void)transport->allocate(64);
        return transport::decorator::make_pad(std::move(transport));
    });
    ASSERT_TRUE(cluster.run_until([&] { return cluster.all(State::ready); }));
    cluster.go();
    ASSERT_TRUE(cluster.run_until([&] { return cluster.all(State::finished); }));
    expect_all_arrived(config(), cluster.nodes, false);
}

class NodeActor final : public sim::Actor {
public:
    explicit NodeActor(Node& node) : node_(node) {}
    bool step(Time now) override { return node_.step(now); }
    [[nodiscard]] Time next_deadline() const override { return node_.next_deadline(); }

private:
    Node& node_;
};

TEST_P(Traffic, ArrivesOnceAndInOrderOverSim) {
    const Config config = Traffic::config();
    sim::World world(std::make_unique<sim::IdealModel>(sim::IdealSettings{}));
    testing::PlainContent content;
    std::vector<std::unique_ptr<Transport>> transports;
    std::vector<std::unique_ptr<Node>> nodes;
    std::vector<std::unique_ptr<NodeActor>> actors;
    for (std::uint32_t self = 0; self < config.n_nodes; ++self) {
        transport::EndpointOptions options;
        options.self = Peer{self};
        options.max_peers = config.n_nodes;
        transports.push_back(world.endpoint(options).value());
        nodes.push_back(std::make_unique<Node>(config, Peer{self}, *transports.back(), content));
        ASSERT_TRUE(nodes.back()->start().ok());
        nodes.back()->go(ps_per_ms);
        actors.push_back(std::make_unique<NodeActor>(*nodes.back()));
        world.bind(*transports.back(), world.add_actor(*actors.back()));
    }
    for (const std::unique_ptr<Node>& node : nodes) {
        for (std::uint32_t peer = 0; peer < config.n_nodes; ++peer) {
            node->update_peer(0, Peer{peer}, 1, transports[peer]->address());
        }
    }
    world.run_until(ps_per_s);
    expect_all_arrived(config, nodes, true);
    for (const std::unique_ptr<Node>& node : nodes) {
        EXPECT_EQ(node->state(), State::finished);
        EXPECT_EQ(node->began_at(), ps_per_ms);
    }
    if (config.measure == Measure::latency && config.pairs.size() == 1) {
        // Alone on its links: latency, and head and body once each way.
        const double expected_ns = 2 * (1000 + (64 + 200) / 12.5);
        const double alone = static_cast<double>(nodes[0]->round_trips(0)->quantile(0.5));
        EXPECT_GE(alone, expected_ns - 1);
        EXPECT_LT(alone, 1.05 * expected_ns * config.queues);
    }
}

INSTANTIATE_TEST_SUITE_P(All, Traffic,
                         ::testing::Combine(::testing::Values(Pattern::one_to_one, Pattern::many_to_one,
                                                              Pattern::one_to_many, Pattern::pairs, Pattern::all_to_all,
                                                              Pattern::bipartite),
                                            ::testing::Bool(), ::testing::Values(1U, 3U),
                                            ::testing::Values(Measure::bandwidth, Measure::latency)));

TEST(FlowControl, ASlotIsNotWrittenBeforeItsNoticeWasPolled) {
    Config config = config_of(Pattern::one_to_one, false, 2, Measure::bandwidth);
    config.messages = 0;
    testing::Cluster cluster(config);
    ASSERT_TRUE(cluster.run_until([&] { return cluster.all(State::ready); }));
    cluster.go();
    for (int round = 0; round < 50; ++round) {
        // The receiver sleeps: the sender fills what it has credit for, and no more.
        for (int step = 0; step < 20; ++step) {
            cluster.nodes[0]->step(cluster.now += ps_per_us);
        }
        const std::uint64_t polled = cluster.nodes[1]->counters().messages_received;
        EXPECT_LE(cluster.nodes[0]->counters().messages_sent,
                  polled + std::uint64_t{config.queues} * config.outstanding);
        cluster.nodes[1]->step(cluster.now);
    }
    EXPECT_GT(cluster.nodes[1]->counters().messages_received, 100U);
    EXPECT_EQ(cluster.nodes[1]->first_error(), "");
}

TEST(Stop, WhatIsUnderWayStillArrives) {
    for (const Measure measure : {Measure::bandwidth, Measure::latency}) {
        Config config = config_of(Pattern::all_to_all, false, 2, measure);
        config.messages = 0;
        testing::Cluster cluster(config);
        ASSERT_TRUE(cluster.run_until([&] { return cluster.all(State::ready); }));
        cluster.go();
        ASSERT_TRUE(cluster.run_until([&] { return cluster.nodes[3]->counters().messages_received > 1000; }));
        cluster.stop();
        ASSERT_TRUE(cluster.run_until([&] { return cluster.all(State::finished); }));
        std::uint64_t sent = 0;
        std::uint64_t received = 0;
        for (const std::unique_ptr<Node>& node : cluster.nodes) {
            sent += node->counters().messages_sent;
            received += node->counters().messages_received;
            EXPECT_EQ(node->first_error(), "");
        }
        EXPECT_EQ(sent, received);
    }
}

/// Breaks one write of node 0, and says of the others that they were done.
class Breaking final : public transport::decorator::Forward {
public:
    enum class How : std::uint8_t { drop, repeat, other_body };
    Breaking(std::unique_ptr<Transport> inner, How how) : Forward(std::move(inner)), how_(how) {}
    Post write(Peer peer, Bytes head, Slice body, Target target, Notice notice, Token token) override {
        if (++writes_ != 100) {
            return Forward::write(peer, head, body, target, notice, token);
        }
        if (how_ == How::drop) {
            return Post::done;
        }
        if (how_ == How::other_body) {
            body.offset = body.offset == 0 ? 256 : 0;
        }
        const Post post = Forward::write(peer, head, body, target, notice, token);
        return how_ == How::repeat ? Forward::write(peer, head, body, target, notice, token) : post;
    }

private:
    How how_;
    int writes_ = 0;
};

class Broken : public ::testing::TestWithParam<Breaking::How> {};

TEST_P(Broken, IsSeen) {
    Config config = config_of(Pattern::one_to_one, false, 1, Measure::bandwidth);
    config.outstanding = 64;
    testing::Cluster cluster(config, [](Peer self, std::unique_ptr<Transport> inner) -> std::unique_ptr<Transport> {
        if (self == Peer{0}) {
            return std::make_unique<Breaking>(std::move(inner), GetParam());
        }
        return inner;
    });
    ASSERT_TRUE(cluster.run_until([&] { return cluster.all(State::ready); }));
    cluster.go();
    cluster.run_until([&] { return cluster.all(State::finished); }, 2000);
    const Counters& counters = cluster.nodes[1]->counters();
    if (GetParam() == Breaking::How::other_body) {
        EXPECT_EQ(counters.content_errors, 1U);
        EXPECT_EQ(counters.order_errors, 0U);
        EXPECT_THAT(cluster.nodes[1]->first_error(), HasSubstr("node 0, queue 0, message 99: byte 0 differs"));
    } else {
        EXPECT_GT(counters.order_errors, 0U);
        EXPECT_THAT(cluster.nodes[1]->first_error(), HasSubstr("node 0, queue 0"));
    }
}

INSTANTIATE_TEST_SUITE_P(All, Broken,
                         ::testing::Values(Breaking::How::drop, Breaking::How::repeat, Breaking::How::other_body));

TEST(Loss, IsAFailureAfterTheGrace) {
    Config config = config_of(Pattern::all_to_all, false, 1, Measure::bandwidth);
    config.messages = 0;
    testing::Cluster cluster(config);
    ASSERT_TRUE(cluster.run_until([&] { return cluster.all(State::ready); }));
    cluster.go();
    ASSERT_TRUE(cluster.run_until([&] { return cluster.nodes[0]->counters().messages_received > 100; }));
    cluster.nodes[2].reset();
    cluster.transports[2].reset();
    const Time lost_at = cluster.now;
    for (int round = 0; round < 100; ++round) {
        cluster.round();
    }
    EXPECT_EQ(cluster.nodes[0]->failure(), "") << "the launcher may say better what happened";
    EXPECT_LE(cluster.nodes[0]->next_deadline(), cluster.now + config.loss_grace);
    cluster.now = lost_at + 2 * config.loss_grace;
    cluster.round();
    EXPECT_EQ(cluster.nodes[0]->failure(), "the connection to node 2 was lost");
}

TEST(Finished, TheOthersMayGoFirst) {
    testing::Cluster cluster(config_of(Pattern::all_to_all, false, 1, Measure::bandwidth));
    ASSERT_TRUE(cluster.run_until([&] { return cluster.all(State::ready); }));
    cluster.go();
    ASSERT_TRUE(cluster.run_until([&] { return cluster.all(State::finished); }));
    cluster.nodes[2].reset();
    cluster.transports[2].reset();
    cluster.now += ps_per_s;
    cluster.round();
    cluster.now += ps_per_s;
    cluster.round();
    EXPECT_EQ(cluster.nodes[0]->failure(), "");
}

}  // namespace
}  // namespace incast::net

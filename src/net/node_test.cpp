#include "net/node.h"

#include <array>
#include <memory>
#include <string>
#include <tuple>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/net.h"
#include "support/net_sim.h"
#include "transport/decorator/forward.h"
#include "transport/decorator/pad.h"

namespace incast::net {
namespace {

using ::testing::HasSubstr;

constexpr std::uint32_t n_nodes = 4;
constexpr std::uint64_t messages = 300;

Config config_of(Pattern pattern, bool duplex, std::uint32_t queues, Measure measure,
                 Operation operation = Operation::write) {
    Config config;
    config.n_nodes = pattern == Pattern::one_to_one ? 2 : n_nodes;
    config.pairs = make_pairs({pattern, config.n_nodes, 3, 1, duplex});
    config.measure = measure;
    config.operation = operation;
    config.ping_bytes = measure == Measure::loaded ? 24 : 0;
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
            const base::Histogram* trips = node.round_trips(partner);
            if (trips != nullptr && config.measure == Measure::loaded) {
                EXPECT_GT(trips->count(), 0U);
            } else if (trips != nullptr) {
                EXPECT_EQ(trips->count(),
                          config.operation == Operation::read ? count.messages_received : count.messages_sent);
            }
        }
        if (config.measure == Measure::loaded) {
            EXPECT_GE(counters.verified_messages, phantom ? 0 : counters.messages_received);
            continue;
        }
        const bool answered = config.measure == Measure::latency && config.operation == Operation::write;
        EXPECT_EQ(counters.verified_messages, phantom ? 0 : counters.messages_received + (answered ? asked : 0));
    }
    EXPECT_EQ(seen, config.pairs);
}

class Traffic : public ::testing::TestWithParam<std::tuple<Pattern, bool, std::uint32_t, Measure, Operation>> {
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

TEST_P(Traffic, ArrivesOnceAndInOrderOverSim) {
    const Config config = Traffic::config();
    testing::Simulated simulated(config, sim::IdealSettings{});
    const auto& nodes = simulated.nodes;
    simulated.run_until(ps_per_s);
    expect_all_arrived(config, nodes, true);
    for (const std::unique_ptr<Node>& node : nodes) {
        EXPECT_EQ(node->state(), State::finished);
        EXPECT_EQ(node->began_at(), ps_per_ms);
    }
    if (config.measure == Measure::latency && config.pairs.size() == 1 && config.operation == Operation::write) {
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
                                            ::testing::Values(Measure::bandwidth, Measure::latency),
                                            ::testing::Values(Operation::write, Operation::read)));
INSTANTIATE_TEST_SUITE_P(Loaded, Traffic,
                         ::testing::Combine(::testing::Values(Pattern::one_to_one, Pattern::many_to_one,
                                                              Pattern::all_to_all),
                                            ::testing::Bool(), ::testing::Values(1U, 3U),
                                            ::testing::Values(Measure::loaded), ::testing::Values(Operation::write)));

// A head that names another place of the ring than its only one is an order error.
TEST(Buffers, OneIsSentAgainAndAgain) {
    constexpr std::array cases{
        std::pair{Measure::bandwidth, Operation::write}, std::pair{Measure::bandwidth, Operation::read},
        std::pair{Measure::latency, Operation::write}, std::pair{Measure::loaded, Operation::write}};
    for (const auto& [measure, operation] : cases) {
        Config config = config_of(Pattern::all_to_all, false, 3, measure, operation);
        config.buffers = Buffers::one;
        testing::Cluster cluster(config);
        ASSERT_TRUE(cluster.run_until([&] { return cluster.all(State::ready); }));
        cluster.go();
        ASSERT_TRUE(cluster.run_until([&] { return cluster.all(State::finished); }));
        expect_all_arrived(config, cluster.nodes, false);
    }
}

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

/// Writes with a token that were pending at a time.
class CountsPending final : public transport::decorator::Forward {
public:
    explicit CountsPending(std::unique_ptr<Transport> inner) : Forward(std::move(inner)) {}
    Post write(Peer peer, Bytes head, Slice body, Target target, Notice notice, Token token) override {
        const Post post = Forward::write(peer, head, body, target, notice, token);
        pending_ += post == Post::pending ? 1 : 0;
        most_ = std::max(most_, pending_);
        return post;
    }
    std::size_t poll(Time now, std::span<Event> events) override {
        const std::size_t n = Forward::poll(now, events);
        for (const Event& event : events.first(n)) {
            pending_ -= event.kind == Event::Kind::completed ? 1 : 0;
        }
        return n;
    }
    [[nodiscard]] std::uint64_t most() const { return most_; }

private:
    std::uint64_t pending_ = 0;
    std::uint64_t most_ = 0;
};

TEST(FlowControl, NoMoreWritesAreUnderWayThanMaySend) {
    Config config = config_of(Pattern::one_to_one, false, 3, Measure::bandwidth);
    config.sends = 2;
    // What a network takes is pending until it says otherwise.
    auto settings = sim::IdealSettings{};
    testing::Simulated simulated(config, settings, [](Peer, std::unique_ptr<Transport> inner) {
        return std::make_unique<CountsPending>(std::move(inner));
    });
    simulated.run_until(ps_per_s);
    expect_all_arrived(config, simulated.nodes, true);
    const auto& sender = static_cast<const CountsPending&>(*simulated.transports[0]);
    EXPECT_EQ(sender.most(), std::uint64_t{config.queues} * config.sends);
}

TEST(Stop, WhatIsUnderWayStillArrives) {
    const std::array cases{std::pair{Measure::bandwidth, Operation::write},
                           std::pair{Measure::latency, Operation::write}, std::pair{Measure::loaded, Operation::write},
                           std::pair{Measure::bandwidth, Operation::read},
                           std::pair{Measure::latency, Operation::read}};
    for (const auto& [measure, operation] : cases) {
        Config config = config_of(Pattern::all_to_all, false, 2, measure, operation);
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

TEST(Loaded, APingWaitsBehindWhatIsInFlightAndNoLonger) {
    Config config = config_of(Pattern::one_to_one, false, 1, Measure::loaded);
    config.outstanding = 16;
    config.message_bytes = 64 << 10;
    config.messages = 2000;
    testing::Simulated simulated(config, sim::IdealSettings{});
    simulated.run_until(ps_per_s);
    expect_all_arrived(config, simulated.nodes, true);
    const base::Histogram& trips = *simulated.nodes[0]->round_trips(0);
    // 12.5 bytes a nanosecond, 1000 ns of latency each way. What is in flight stands before the ping, less what is on
    // its way, and what waits for its credit, which comes for a quarter of the slots at a time.
    const double message_ns = ((64 << 10) + 64) / 12.5;
    const double idle_ns = 2 * (1000 + (24 + 64) / 12.5);
    EXPECT_GT(trips.count(), 100U);
    EXPECT_LE(static_cast<double>(trips.max()), 1.05 * (idle_ns + config.outstanding * message_ns));
    EXPECT_GE(static_cast<double>(trips.quantile(0.5)), 11 * message_ns);
    EXPECT_GE(static_cast<double>(trips.min()), idle_ns - 1);
}

/// What was written leaves within the next poll, which takes time; the other side answers meanwhile.
class LeavesWithPoll final : public transport::decorator::Forward {
public:
    static constexpr Time takes = 50 * ps_per_us;
    LeavesWithPoll(std::unique_ptr<Transport> inner, std::function<void(Time)> meanwhile)
        : Forward(std::move(inner)), meanwhile_(std::move(meanwhile)) {}
    Post write(Peer peer, Bytes head, Slice body, Target target, Notice notice, Token token) override {
        waits_ = true;
        return Forward::write(peer, head, body, target, notice, token);
    }
    std::size_t poll(Time now, std::span<Event> events) override {
        meanwhile_(std::exchange(waits_, false) ? takes : 0);
        return Forward::poll(now, events);
    }

private:
    std::function<void(Time)> meanwhile_;
    bool waits_ = false;
};

TEST(Latency, ARoundTripWithinOnePollTookAsLongAsThePoll) {
    Config config = config_of(Pattern::one_to_one, false, 1, Measure::latency);
    testing::Cluster* cluster = nullptr;
    testing::Cluster made(config,
                          [&cluster](Peer self, std::unique_ptr<Transport> inner) -> std::unique_ptr<Transport> {
                              if (self != Peer{0}) return inner;
                              return std::make_unique<LeavesWithPoll>(std::move(inner), [&cluster](Time takes) {
                                  if (cluster == nullptr) return;
                                  cluster->now += takes;
                                  cluster->nodes[1]->step(cluster->now);
                              });
                          });
    cluster = &made;
    ASSERT_TRUE(made.run_until([&] { return made.all(State::ready); }));
    made.go();
    ASSERT_TRUE(made.run_until([&] { return made.all(State::finished); }));
    const base::Histogram& trips = *made.nodes[0]->round_trips(0);
    EXPECT_EQ(trips.count(), messages);
    EXPECT_GE(trips.min(), static_cast<std::uint64_t>(LeavesWithPoll::takes / ps_per_ns));
}

TEST(Read, TakesALatencyEachWayAndTheTimeOfItsBytes) {
    Config config = config_of(Pattern::one_to_one, false, 1, Measure::latency, Operation::read);
    config.message_bytes = 64 << 10;
    testing::Simulated simulated(config, sim::IdealSettings{});
    simulated.run_until(ps_per_s);
    expect_all_arrived(config, simulated.nodes, true);
    const base::Histogram& trips = *simulated.nodes[1]->round_trips(0);
    const double expected_ns = 2 * 1000 + (64 << 10) / 12.5;
    EXPECT_EQ(simulated.nodes[0]->round_trips(0), nullptr);
    EXPECT_GE(static_cast<double>(trips.min()), expected_ns - 1);
    EXPECT_LT(static_cast<double>(trips.max()), 1.02 * expected_ns);
}

/// A transport without reads, or one whose peers have nothing where it reads.
class ReadsNothing final : public transport::decorator::Forward {
public:
    ReadsNothing(std::unique_ptr<Transport> inner, bool able)
        : Forward(std::move(inner)), can_(Forward::capabilities()) {
        can_.read = able;
    }
    [[nodiscard]] const Capabilities& capabilities() const override { return can_; }
    std::size_t poll(Time now, std::span<Event> events) override {
        const std::size_t n = Forward::poll(now, events);
        for (Event& event : events.first(n)) {
            event.status = event.kind == Event::Kind::completed ? Status::remote_fault : event.status;
        }
        return n;
    }

private:
    Capabilities can_;
};

TEST(Read, FailsInOneLine) {
    const Config config = config_of(Pattern::one_to_one, false, 1, Measure::bandwidth, Operation::read);
    const testing::Wrap wrap = [](Peer, std::unique_ptr<Transport> inner) {
        return std::make_unique<ReadsNothing>(std::move(inner), true);
    };
    testing::Simulated simulated(config, sim::IdealSettings{}, wrap);
    simulated.run_until(ps_per_s);
    EXPECT_EQ(simulated.nodes[1]->failure(),
              "node 0 cannot be read from: what was asked for is not there, or not allowed");
    ReadsNothing unable(std::move(simulated.transports[0]), false);
    testing::PlainContent content;
    EXPECT_EQ(Node(config, Peer{0}, unable, content).start().error().message,
              "net.operation = read: the transport cannot read; allowed: write");
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

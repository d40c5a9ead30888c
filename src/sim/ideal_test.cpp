// The ideal model against what can be computed by hand: times are exact, to the picosecond.
#include "sim/models/ideal.h"

#include <gtest/gtest.h>

#include "base/prng.h"
#include "sim/test_support.h"

namespace incast::sim {
namespace {

using testing::Listener;

constexpr Time latency = 3 * ps_per_us;
constexpr Time ps_per_byte = 80;  // 100 Gb/s

/// N endpoints, all connected, each with a region that all others may write.
class Network {
public:
    explicit Network(std::uint32_t count, std::uint64_t rate = 12'500'000'000)
        : world(std::make_unique<IdealModel>(IdealSettings{rate, latency})) {
        for (std::uint32_t self = 0; self < count; ++self) {
            nodes.push_back(std::make_unique<Listener>(world, self));
            regions.push_back(nodes.back()->endpoint->allocate(std::size_t{1} << 40).value());
        }
        for (std::uint32_t one = 0; one < count; ++one) {
            for (std::uint32_t two = 0; two < count; ++two) {
                (void)nodes[one]->endpoint->connect(Peer{two}, nodes[two]->endpoint->address(), 1);
            }
        }
        while (world.advance()) {
        }
        for (auto& node : nodes) {
            EXPECT_EQ(node->count(Event::Kind::peer_up), count);
            node->seen.clear();
            for (std::uint32_t peer = 0; peer < count; ++peer) {
                const Blob key = nodes[peer]->endpoint->expose(regions[peer]).value();
                EXPECT_EQ(static_cast<std::uint32_t>(node->endpoint->import_key(Peer{peer}, key).value()), peer);
            }
        }
        start = world.now();
    }

    void write(std::uint32_t from, std::uint32_t to, std::uint32_t body_bytes, std::uint16_t notice = 0) {
        ASSERT_EQ(nodes[from]->endpoint->write(Peer{to}, {}, {regions[from], body_bytes, 0},
                                               {Remote{to}, std::uint64_t{from} << 32}, notice, 0),
                  Post::pending);
    }
    void finish() {
        while (world.advance()) {
        }
    }
    [[nodiscard]] Time last_notice(std::uint32_t node) const {
        return nodes[node]->of(Event::Kind::notice).back().time - start;
    }

    World world;
    std::vector<std::unique_ptr<Listener>> nodes;
    std::vector<Local> regions;
    Time start = 0;
};

TEST(IdealModel, OneTransferTakesLatencyPlusBytesOverRate) {
    Network network(2);
    network.write(0, 1, 1'000'000);
    network.finish();
    EXPECT_EQ(network.last_notice(1), latency + 1'000'000 * ps_per_byte);
    Network odd(2, 3);  // a rate that divides nothing: 3 B/s, rounded to the picosecond
    odd.write(0, 1, 2);
    odd.finish();
    EXPECT_EQ(odd.last_notice(1), latency + 666'666'666'667);
}

TEST(IdealModel, MessagesShareTheLinksWithWrites) {
    Network network(2);
    network.write(0, 1, 10'000);
    ASSERT_EQ(network.nodes[0]->send(1, "0123456789"), Post::done);
    network.finish();
    ASSERT_EQ(network.nodes[1]->count(Event::Kind::message), 1U);
    EXPECT_EQ(network.nodes[1]->of(Event::Kind::message)[0].time - network.start, latency + 10'010 * ps_per_byte);
}

TEST(IdealModel, IncastFinishesAtTheWireBound) {
    constexpr std::uint32_t senders = 127;
    constexpr std::uint32_t bytes = 65'536;
    Network network(senders + 1);
    for (std::uint32_t from = 1; from <= senders; ++from)
        network.write(from, 0, bytes);
    network.finish();
    EXPECT_EQ(network.nodes[0]->count(Event::Kind::notice), senders);
    EXPECT_EQ(network.last_notice(0), latency + Time{senders} * bytes * ps_per_byte);
}

TEST(IdealModel, BarrelShifterFillsEveryLink) {
    constexpr std::uint32_t nodes = 16;
    constexpr std::uint32_t bytes = 1 << 20;
    Network network(nodes);
    for (std::uint32_t round = 0; round < nodes; ++round) {
        for (std::uint32_t from = 0; from < nodes; ++from)
            network.write(from, (from + round) % nodes, bytes);
    }
    network.finish();
    for (std::uint32_t node = 0; node < nodes; ++node) {
        EXPECT_EQ(network.nodes[node]->count(Event::Kind::notice), nodes);
        EXPECT_EQ(network.last_notice(node), latency + Time{nodes} * bytes * ps_per_byte);
    }
}

/// Without the shift all start at the same destination, and each waits behind the others: what a schedule is for.
TEST(IdealModel, UnshiftedAllToAllIsNotSlowerWithoutContentionInside) {
    constexpr std::uint32_t nodes = 8;
    constexpr std::uint32_t bytes = 1 << 20;
    Network network(nodes);
    for (std::uint32_t to = 0; to < nodes; ++to) {
        for (std::uint32_t from = 0; from < nodes; ++from)
            network.write(from, to, bytes);
    }
    network.finish();
    // The last destination is idle until every sender comes to it; then it takes all of them one by one.
    EXPECT_EQ(network.last_notice(nodes - 1), latency + Time{2 * nodes - 1} * bytes * ps_per_byte);
}

std::uint64_t random_traffic(std::uint64_t seed, Statistics& statistics) {
    constexpr std::uint32_t nodes = 6;
    Network network(nodes);
    base::Prng prng(seed);
    for (int index = 0; index < 2000; ++index) {
        const auto from = static_cast<std::uint32_t>(prng.below(nodes));
        const auto to = static_cast<std::uint32_t>(prng.below(nodes));
        if (prng.chance(500'000)) {
            (void)network.nodes[from]->send(to, "some message");
        } else {
            network.write(from, to, static_cast<std::uint32_t>(prng.below(100'000)));
        }
        if (prng.chance(50'000))
            network.world.run_until(network.world.now() + static_cast<Time>(prng.below(10'000'000)));
    }
    network.finish();
    statistics = network.world.statistics();
    return network.world.trace_hash();
}

TEST(IdealModel, ConservesBytesAndRepeatsItself) {
    Statistics first;
    Statistics second;
    const std::uint64_t hash = random_traffic(1, first);
    EXPECT_EQ(first.bytes_posted, first.bytes_delivered);
    EXPECT_GT(first.bytes_posted, 10'000'000U);
    EXPECT_EQ(random_traffic(1, second), hash);
    EXPECT_EQ(second.events, first.events);
    EXPECT_NE(random_traffic(2, second), hash);
}

}  // namespace
}  // namespace incast::sim

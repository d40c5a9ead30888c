// The ideal model against what can be computed by hand: times are exact, to the picosecond.
#include "sim/models/ideal.h"

#include <algorithm>
#include <array>

#include <gtest/gtest.h>

#include "base/prng.h"
#include "support/sim.h"

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
    void read(std::uint32_t from, std::uint32_t owner, std::uint32_t bytes, std::uint64_t offset = 0, Token token = 1) {
        ASSERT_EQ(nodes[from]->endpoint->read(Peer{owner}, {Remote{owner}, offset},
                                              {regions[from], bytes, std::uint64_t{owner} << 32}, token),
                  Post::pending);
    }
    void finish() {
        while (world.advance()) {
        }
    }
    [[nodiscard]] Time last_completion(std::uint32_t node) const {
        return nodes[node]->of(Event::Kind::completed).back().time - start;
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

TEST(IdealModel, AReadTakesTwoLatenciesPlusBytesOverRate) {
    Network network(2);
    network.read(0, 1, 1'000'000);
    network.finish();
    ASSERT_EQ(network.nodes[0]->count(Event::Kind::completed), 1U);
    EXPECT_EQ(network.nodes[0]->seen[0].event.status, Status::ok);
    EXPECT_EQ(network.last_completion(0), 2 * latency + 1'000'000 * ps_per_byte);
    EXPECT_TRUE(network.nodes[1]->seen.empty()) << "the owner of the bytes sees nothing";
}

TEST(IdealModel, AReadOfNothingAndARefusedOneTakeTwoLatencies) {
    Network network(2);
    network.read(0, 1, 0, std::uint64_t{1} << 40);
    network.finish();
    ASSERT_EQ(network.nodes[0]->count(Event::Kind::completed), 1U);
    EXPECT_EQ(network.nodes[0]->seen[0].event.status, Status::ok);
    EXPECT_EQ(network.last_completion(0), 2 * latency);
    Network refused(2);
    refused.read(0, 1, 1'000'000, (std::uint64_t{1} << 40) - 999'999);
    refused.finish();
    ASSERT_EQ(refused.nodes[0]->count(Event::Kind::completed), 1U);
    EXPECT_EQ(refused.nodes[0]->seen[0].event.status, Status::remote_fault);
    EXPECT_EQ(refused.last_completion(0), 2 * latency);
}

TEST(IdealModel, ARequestWaitsBehindWhatWasPostedBefore) {
    Network network(2);
    network.write(0, 1, 10'000);
    network.read(0, 1, 10);
    network.finish();
    EXPECT_EQ(network.last_notice(1), latency + 10'000 * ps_per_byte);
    EXPECT_EQ(network.last_completion(0), 2 * latency + 10'010 * ps_per_byte);
}

TEST(IdealModel, AReaderOfManyIsAtTheWireBound) {
    constexpr std::uint32_t owners = 127;
    constexpr std::uint32_t bytes = 65'536;
    Network network(owners + 1);
    for (std::uint32_t owner = 1; owner <= owners; ++owner)
        network.read(0, owner, bytes);
    network.finish();
    EXPECT_EQ(network.nodes[0]->count(Event::Kind::completed), owners);
    EXPECT_EQ(network.last_completion(0), 2 * latency + Time{owners} * bytes * ps_per_byte);
}

TEST(IdealModel, AnOwnerServesItsReadersOneAfterTheOther) {
    constexpr std::uint32_t bytes = 65'536;
    Network network(3);
    network.read(0, 2, bytes);
    network.read(1, 2, bytes);
    network.read(2, 2, bytes);  // its own bytes pass its links, too
    network.finish();
    std::array<Time, 3> completed{};
    for (std::uint32_t node = 0; node < 3; ++node)
        completed[node] = network.last_completion(node);
    std::ranges::sort(completed);
    for (std::uint32_t turn = 0; turn < 3; ++turn)
        EXPECT_EQ(completed[turn], 2 * latency + Time{turn + 1} * bytes * ps_per_byte);
}

TEST(IdealModel, AReadBringsTheHeadThatLiesThereAndTakesAwayWhatLayHere) {
    Network network(3);
    const auto write_head = [&](std::uint32_t to, std::uint64_t offset, std::string_view head) {
        ASSERT_EQ(network.nodes[2]->endpoint->write(Peer{to}, std::as_bytes(std::span(head)), {}, {Remote{to}, offset},
                                                    {}, 0),
                  Post::pending);
    };
    const Slice here{network.regions[0], 64, std::uint64_t{1} << 32};
    const auto local = [&] {
        const Bytes head = network.nodes[0]->endpoint->local(here);
        return std::string(reinterpret_cast<const char*>(head.data()), head.size());
    };
    write_head(1, 4096, "a head");
    write_head(0, here.offset, "an older one");
    network.finish();
    EXPECT_EQ(local(), "an older one");
    network.read(0, 1, 64, 4096);
    network.finish();
    EXPECT_EQ(local(), "a head");
    network.read(0, 1, 3, 4096);
    network.finish();
    EXPECT_EQ(local(), "a h") << "no more than was asked for";
    network.read(0, 1, 64, 4097);
    network.finish();
    EXPECT_EQ(local(), "") << "overwritten with a body";
}

TEST(IdealModel, ReadsEndWithTheConnection) {
    Network network(3);
    const auto statuses = [&] {
        std::vector<std::pair<Event::Kind, Status>> seen;
        for (const Listener::Seen& each : network.nodes[0]->seen)
            seen.emplace_back(each.event.kind, each.event.status);
        network.nodes[0]->seen.clear();
        return seen;
    };
    using Seen = std::vector<std::pair<Event::Kind, Status>>;
    network.read(0, 1, 1'000'000);
    network.world.run_until(network.start + latency);
    network.nodes[0]->endpoint->disconnect(Peer{1});
    EXPECT_EQ(network.nodes[0]->endpoint->read(Peer{1}, {Remote{1}, 0}, {network.regions[0], 8, 0}, 1), Post::refused);
    network.finish();
    EXPECT_EQ(statuses(),
              (Seen{{Event::Kind::completed, Status::cancelled}, {Event::Kind::peer_down, Status::peer_lost}}));

    network.read(0, 2, 1'000'000);
    network.world.run_until(network.world.now() + latency / 2);
    network.nodes[2]->endpoint.reset();
    network.finish();
    EXPECT_EQ(statuses(),
              (Seen{{Event::Kind::completed, Status::peer_lost}, {Event::Kind::peer_down, Status::peer_lost}}));
}

std::uint64_t random_traffic(std::uint64_t seed, Statistics& statistics) {
    constexpr std::uint32_t nodes = 6;
    Network network(nodes);
    base::Prng prng(seed);
    for (int index = 0; index < 2000; ++index) {
        const auto from = static_cast<std::uint32_t>(prng.below(nodes));
        const auto to = static_cast<std::uint32_t>(prng.below(nodes));
        if (prng.chance(300'000)) {
            (void)network.nodes[from]->send(to, "some message");
        } else if (prng.chance(500'000)) {
            network.read(from, to, static_cast<std::uint32_t>(prng.below(100'000)));
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
    EXPECT_GT(first.reads, 100U);
    EXPECT_EQ(random_traffic(1, second), hash);
    EXPECT_EQ(second.events, first.events);
    EXPECT_NE(random_traffic(2, second), hash);
}

}  // namespace
}  // namespace incast::sim

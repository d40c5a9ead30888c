#include "net/config.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <tuple>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "net/wire.h"

namespace incast::net {
namespace {

using testing::ElementsAre;

std::vector<Pair> pairs_of(Pattern pattern, std::uint32_t nodes, bool duplex = false, std::uint32_t producers = 0,
                           std::uint32_t consumers = 0) {
    return make_pairs({pattern, nodes, producers, consumers, duplex});
}

TEST(Pairs, OfEveryPattern) {
    EXPECT_THAT(pairs_of(Pattern::one_to_one, 2), ElementsAre(Pair{0, 1}));
    EXPECT_THAT(pairs_of(Pattern::many_to_one, 4), ElementsAre(Pair{1, 0}, Pair{2, 0}, Pair{3, 0}));
    EXPECT_THAT(pairs_of(Pattern::one_to_many, 4), ElementsAre(Pair{0, 1}, Pair{0, 2}, Pair{0, 3}));
    EXPECT_THAT(pairs_of(Pattern::pairs, 6), ElementsAre(Pair{0, 3}, Pair{1, 4}, Pair{2, 5}));
    EXPECT_THAT(pairs_of(Pattern::all_to_all, 3),
                ElementsAre(Pair{0, 1}, Pair{0, 2}, Pair{1, 0}, Pair{1, 2}, Pair{2, 0}, Pair{2, 1}));
    EXPECT_THAT(pairs_of(Pattern::bipartite, 5, false, 2, 3),
                ElementsAre(Pair{0, 2}, Pair{0, 3}, Pair{0, 4}, Pair{1, 2}, Pair{1, 3}, Pair{1, 4}));
}

TEST(Pairs, DuplexAddsTheReverseOnce) {
    EXPECT_THAT(pairs_of(Pattern::one_to_one, 2, true), ElementsAre(Pair{0, 1}, Pair{1, 0}));
    EXPECT_THAT(pairs_of(Pattern::pairs, 4, true), ElementsAre(Pair{0, 2}, Pair{1, 3}, Pair{2, 0}, Pair{3, 1}));
    EXPECT_EQ(pairs_of(Pattern::all_to_all, 5, true), pairs_of(Pattern::all_to_all, 5));
}

Config config_of(Pattern pattern, bool duplex, std::uint32_t queues, Measure measure) {
    Config config;
    config.n_nodes = 6;
    config.pairs = pairs_of(pattern, 6, duplex, 2, 4);
    config.measure = measure;
    config.queues = queues;
    config.outstanding = measure == Measure::latency ? 1 : 3;
    config.message_bytes = 100;
    config.ping_bytes = measure == Measure::loaded ? 10 : 0;
    return config;
}

class LayoutOf : public testing::TestWithParam<std::tuple<Pattern, bool, std::uint32_t, Measure>> {};

/// Both ends of a pair derive the same places, no two areas of a region share a byte, and none is wasted.
TEST_P(LayoutOf, AgreesAndFillsTheRegion) {
    const auto [pattern, duplex, queues, measure] = GetParam();
    const Config config = config_of(pattern, duplex, queues, measure);
    ASSERT_TRUE(validate(config).ok());
    std::vector<Layout> layouts;
    for (std::uint32_t node = 0; node < config.n_nodes; ++node) {
        layouts.push_back(layout_of(config, Peer{node}));
    }
    const auto partner = [&](std::uint32_t node, std::uint32_t peer) {
        return *std::ranges::find(layouts[node].partners, Peer{peer}, &Partner::peer);
    };
    const bool loaded = measure == Measure::loaded;
    const std::uint64_t area = slot_stride(config) * (queues + (loaded ? 1 : 0)) * config.outstanding;
    const std::uint64_t answers = slot_stride(config) * (measure == Measure::latency ? queues : loaded ? 1 : 0);
    std::vector<std::vector<std::pair<std::uint64_t, std::uint64_t>>> used(config.n_nodes);
    for (const Pair& pair : config.pairs) {
        const Partner sender = partner(pair.from, pair.to);
        const Partner receiver = partner(pair.to, pair.from);
        EXPECT_TRUE(sender.sends_to);
        EXPECT_TRUE(receiver.hears_from);
        EXPECT_EQ(sender.area_there, receiver.area_here);
        used[pair.to].emplace_back(receiver.area_here, area);
        if (answers > 0) {
            EXPECT_EQ(sender.answers_here, receiver.answers_there);
            used[pair.from].emplace_back(sender.answers_here, answers);
        }
    }
    for (std::uint32_t node = 0; node < config.n_nodes; ++node) {
        std::ranges::sort(used[node]);
        std::uint64_t end = 0;
        for (const auto& [begin, bytes] : used[node]) {
            EXPECT_EQ(begin, end);
            end = begin + bytes;
        }
        EXPECT_EQ(end, layouts[node].region_bytes);
    }
}

INSTANTIATE_TEST_SUITE_P(All, LayoutOf,
                         testing::Combine(testing::Values(Pattern::one_to_one, Pattern::many_to_one,
                                                          Pattern::one_to_many, Pattern::pairs, Pattern::all_to_all,
                                                          Pattern::bipartite),
                                          testing::Bool(), testing::Values(1U, 3U),
                                          testing::Values(Measure::bandwidth, Measure::latency, Measure::loaded)));

TEST(Ring, HasNoPeriodInCommonWithItsSlots) {
    for (const std::uint32_t outstanding : {1U, 2U, 6U, 64U, 100U}) {
        for (const std::uint64_t working_set : {std::uint64_t{0}, std::uint64_t{6400}, std::uint64_t{1} << 20U}) {
            Config config = config_of(Pattern::all_to_all, false, 1, Measure::bandwidth);
            config.outstanding = outstanding;
            config.working_set_bytes = working_set;
            EXPECT_EQ(std::gcd(ring_messages(config), std::uint64_t{outstanding}), 1U);
            EXPECT_GT(ring_messages(config), outstanding);
            EXPECT_GE(ring_bytes(config) + slot_stride(config), working_set);
        }
    }
}

TEST(Ring, OfOneBufferHasOneMessageWhateverTheWorkingSet) {
    Config config = config_of(Pattern::all_to_all, false, 3, Measure::bandwidth);
    config.working_set_bytes = std::uint64_t{1} << 20U;
    const std::uint64_t cycled = fingerprint(config);
    config.buffers = Buffers::one;
    EXPECT_EQ(ring_messages(config), 1U);
    EXPECT_EQ(ring_bytes(config), 128U);
    EXPECT_NE(fingerprint(config), cycled);
}

TEST(Validate, RefusesWhatCannotWork) {
    const Config good = config_of(Pattern::pairs, false, 2, Measure::bandwidth);
    ASSERT_TRUE(validate(good).ok());
    const auto refused = [&good](auto&& change) {
        Config config = good;
        change(config);
        return !validate(config).ok();
    };
    EXPECT_TRUE(refused([](Config& config) { config.pairs.clear(); }));
    EXPECT_TRUE(refused([](Config& config) { config.pairs = {{1, 1}}; }));
    EXPECT_TRUE(refused([](Config& config) { config.pairs = {{0, 6}}; }));
    EXPECT_TRUE(refused([](Config& config) { config.pairs = {{1, 0}, {0, 1}}; }));
    EXPECT_TRUE(refused([](Config& config) { config.queues = 0; }));
    EXPECT_TRUE(refused([](Config& config) { config.queues = max_queues + 1; }));
    EXPECT_TRUE(refused([](Config& config) { config.outstanding = max_slots_per_pair; }));
    EXPECT_TRUE(refused([](Config& config) { config.message_bytes = 0; }));
    EXPECT_TRUE(refused([](Config& config) { config.message_bytes = max_write_bytes; }));
    EXPECT_TRUE(refused([](Config& config) { config.measure = Measure::latency; }));
    EXPECT_TRUE(refused([](Config& config) { config.measure = Measure::loaded; }));  // pings of no size
    EXPECT_TRUE(refused([](Config& config) {
        config.operation = Operation::read;
        config.sends = 1;
    }));
}

TEST(Control, IsReadOnlyIfItIsWhole) {
    constexpr std::uint32_t queues = 3;
    ControlMessage message(7, ControlKind::credits);
    for (std::uint64_t queue = 0; queue < queues; ++queue) {
        message.add(10 + queue);
    }
    const Bytes bytes = message.bytes();
    const std::optional<ControlView> view = read_control(bytes, 7, queues);
    ASSERT_TRUE(view.has_value());
    EXPECT_EQ(view->kind, ControlKind::credits);
    EXPECT_EQ(view->value(2), 12U);
    EXPECT_FALSE(read_control(bytes, 8, queues));      // of another run
    EXPECT_FALSE(read_control(bytes, 7, queues + 1));  // too few entries
    EXPECT_FALSE(read_control(bytes, 7, queues - 1));  // too many
    EXPECT_FALSE(read_control(bytes.first(bytes.size() - 1), 7, queues));
    EXPECT_FALSE(read_control({}, 7, queues));
    std::array<std::byte, 40> changed{};
    ASSERT_EQ(bytes.size(), changed.size());
    std::ranges::copy(bytes, changed.begin());
    changed[12] = std::byte{9};  // a kind that is none
    EXPECT_FALSE(read_control(changed, 7, queues));
}

}  // namespace
}  // namespace incast::net

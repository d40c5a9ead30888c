// Whole sessions through a network that drops, doubles, delays and reorders, from seeds, in virtual time: everything is
// delivered once, in order within its lane, with its bytes; and all of it, once the faults stop.
#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <map>
#include <vector>

#include <gtest/gtest.h>

#include "base/count_allocations.h"
#include "base/prng.h"
#include "reliable/connection.h"

namespace incast::reliable {
namespace {

constexpr std::uint8_t lanes = 4;  // lane 0 without order

struct Faults {
    std::uint32_t drop = 0;  // of a million
    std::uint32_t twice = 0;
    std::int64_t delay_ns = 0;  // at most, on top of 20 us: what overtakes what follows from it
    std::uint32_t damage = 0;
};

class World {
public:
    World(std::uint64_t seed, const Faults& faults)
        : random_(seed), faults_(faults), ends_{Connection(settings(), 0, {}), Connection(settings(), 1, {})} {}

    static Settings settings() { return {.datagram_bytes = 256, .window_packets = 64}; }

    void run(std::uint64_t messages, std::int64_t faults_until_ns) {
        ends_[0].open(now_ns_, random_.next());
        wanted_ = messages;
        while (!is_complete()) {
            ASSERT_LT(now_ns_, 120'000 * ms_ns) << "it does not come to an end";
            if (now_ns_ > faults_until_ns) faults_ = {};
            for (int end = 0; end < 2; ++end) {
                feed(end);
                send(end);
            }
            step();
            if (::testing::Test::HasFailure()) return;
        }
    }

    std::array<std::uint64_t, 2> delivered{};
    std::uint64_t repeated() const { return ends_[0].send_counters().repeated; }

private:
    [[nodiscard]] bool is_complete() const {
        return delivered[0] == wanted_ && delivered[1] == wanted_ && ends_[0].is_settled() && ends_[1].is_settled();
    }

    void feed(int end) {
        Connection& from = ends_[static_cast<std::size_t>(end)];
        while (from.room() > 0 && added_[static_cast<std::size_t>(end)] < wanted_) {
            const auto lane = static_cast<std::uint8_t>(random_.below(lanes));
            auto& number = next_[static_cast<std::size_t>(end)][lane];
            const std::size_t bytes = 8 + random_.below(World::settings().datagram_bytes - header_bytes - 8 + 1);
            fill(from.body().first(bytes), lane, number++);
            from.add(lane, bytes);
            ++added_[static_cast<std::size_t>(end)];
        }
    }

    static void fill(std::span<std::byte> into, std::uint8_t lane, std::uint64_t number) {
        std::memcpy(into.data(), &number, sizeof number);
        for (std::size_t at = sizeof number; at < into.size(); ++at)
            into[at] = static_cast<std::byte>(base::mix64(number * lanes + lane + at));
    }

    void send(int end) {
        while (true) {
            const Datagram datagram = ends_[static_cast<std::size_t>(end)].next_datagram(now_ns_);
            if (datagram.bytes.empty()) return;
            const int copies = random_.chance(faults_.drop) ? 0 : random_.chance(faults_.twice) ? 2 : 1;
            for (int copy = 0; copy < copies; ++copy) {
                const auto late = faults_.delay_ns == 0 ? 0 : random_.between(0, faults_.delay_ns);
                std::vector<std::byte> bytes(datagram.bytes.begin(), datagram.bytes.end());
                if (random_.chance(faults_.damage)) bytes.resize(random_.below(bytes.size()));
                flying_.emplace(now_ns_ + 20'000 + late, std::pair{1 - end, std::move(bytes)});
            }
        }
    }

    void step() {
        std::int64_t next = flying_.empty() ? never_ns : flying_.begin()->first;
        for (const Connection& each : ends_)
            next = std::min(next, each.next_deadline_ns());
        ASSERT_NE(next, never_ns) << "nothing will ever happen again";
        now_ns_ = std::max(now_ns_ + 1, next);
        for (Connection& each : ends_) {
            each.advance(now_ns_);
            ASSERT_FALSE(each.take_loss().has_value()) << "nobody died";
        }
        while (!flying_.empty() && flying_.begin()->first <= now_ns_) {
            const auto [to, bytes] = std::move(flying_.begin()->second);
            flying_.erase(flying_.begin());
            arrive(to, bytes);
        }
    }

    void arrive(int to, const std::vector<std::byte>& bytes) {
        const auto packet = parse(bytes);
        if (!packet) return;
        Connection& end = ends_[static_cast<std::size_t>(to)];
        const std::uint64_t random = random_.next();
        const bool takes = !random_.chance(faults_.drop / 4);
        const std::uint64_t before = base::allocations.load();
        (void)end.receive(now_ns_, random, *packet, takes);
        while (const auto delivery = end.next_delivery())
            check(static_cast<std::size_t>(to), *delivery);
        ASSERT_EQ(base::allocations.load() - before, 0U) << "per packet nothing is allocated";
        ASSERT_FALSE(end.take_loss().has_value());
    }

    void check(std::size_t to, const Delivery& delivery) {
        std::uint64_t number = 0;
        ASSERT_GE(delivery.body.size(), sizeof number);
        std::memcpy(&number, delivery.body.data(), sizeof number);
        std::array<std::byte, 256> expected{};
        fill(std::span(expected).first(delivery.body.size()), delivery.lane, number);
        ASSERT_TRUE(std::ranges::equal(delivery.body, std::span(expected).first(delivery.body.size())));
        if (delivery.lane == 0) {
            ASSERT_LT(number, seen_[to].size());
            ASSERT_FALSE(seen_[to][number]) << "twice";
            seen_[to][number] = true;
        } else {
            ASSERT_EQ(number, expected_[to][delivery.lane]++);
        }
        ++delivered[to];
    }

    base::Prng random_;
    Faults faults_;
    std::array<Connection, 2> ends_;
    std::int64_t now_ns_ = 1;
    std::uint64_t wanted_ = 0;
    std::array<std::uint64_t, 2> added_{};
    std::array<std::array<std::uint64_t, lanes>, 2> next_{};
    std::array<std::array<std::uint64_t, lanes>, 2> expected_{};
    std::array<std::vector<bool>, 2> seen_{std::vector<bool>(100'000), std::vector<bool>(100'000)};
    std::multimap<std::int64_t, std::pair<int, std::vector<std::byte>>> flying_;
};

void play(const Faults& faults, std::uint64_t seeds, std::uint64_t messages, std::int64_t faults_until_ns) {
    for (std::uint64_t seed = 1; seed <= seeds; ++seed) {
        SCOPED_TRACE("seed " + std::to_string(seed));
        World world(seed, faults);
        world.run(messages, faults_until_ns);
        ASSERT_EQ(world.delivered[0], messages);
        ASSERT_EQ(world.delivered[1], messages);
        if (::testing::Test::HasFailure()) return;
    }
}

TEST(Simulation, APerfectNetworkNeedsNothingTwice) {
    World world(1, {});
    world.run(2000, never_ns);
    EXPECT_EQ(world.delivered[0], 2000U);
    EXPECT_EQ(world.repeated(), 0U);
}

TEST(Simulation, LossOfOnePercent) {
    play({.drop = 10'000}, 20, 2000, never_ns);
}

TEST(Simulation, LossOfAThird) {
    play({.drop = 333'000, .twice = 50'000}, 20, 500, never_ns);
}

TEST(Simulation, EverythingAtOnce) {
    play({.drop = 100'000, .twice = 200'000, .delay_ns = 30 * ms_ns, .damage = 50'000}, 40, 500, never_ns);
}

TEST(Simulation, NothingGetsThroughUntilTheFaultsStop) {
    play({.drop = 1'000'000}, 5, 200, 900 * ms_ns);
}

TEST(Simulation, SameSeedSameHistory) {
    std::array<std::uint64_t, 2> repeated{};
    for (std::uint64_t& each : repeated) {
        World world(7, {.drop = 100'000, .delay_ns = ms_ns});
        world.run(1000, never_ns);
        each = world.repeated();
    }
    EXPECT_EQ(repeated[0], repeated[1]);
    EXPECT_GT(repeated[0], 0U);
}

}  // namespace
}  // namespace incast::reliable

// The farm's protocol over a network as unkind as the contract allows, from seeds: farm nodes are killed, stopped,
// leave and join, and connections are cut. Every MEP is finished at least once, by a process that had it, and of all
// that get it at most one gets it without a mark. INCAST_FARM_SEEDS says how many seeds, 100 if it is not set.
#include "farm/simulated/farm.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <deque>
#include <set>
#include <string>

#include <gtest/gtest.h>

#include "base/prng.h"
#include "sim/models/adversarial.h"
#include "sim/models/ideal.h"

namespace incast::farm::simulated {
namespace {

constexpr std::uint32_t n_events = 10;

/// A builder unit that has MEPs at once, as long as its sink takes them.
class Builder final : public sim::Actor {
public:
    Builder(sim::World& world, std::uint32_t node, std::uint64_t meps, std::uint32_t held)
        : world_(world), meps_(meps) {
        config_.credits = 1;
        config_.quarantine_slots = 0;
        config_.held_slots = held;
        sink = std::make_unique<sinks::LendingSink>(sinks::SinkOptions{}, config_);
        for (std::uint16_t slot = 0; slot < held; ++slot)
            free_.push_back(slot);
        next_ = std::uint64_t{node} << 32U;
        end_ = next_ + meps;
        id = world.add_actor(*this);
    }
    ~Builder() override { world_.remove_actor(id); }

    bool step(Time now) override {
        std::array<protocol::MepId, 8> meps{};
        std::array<std::uint16_t, 8> slots{};
        for (std::size_t many = meps.size(); many == meps.size();) {
            many = sink->durable(now, meps);
            for (std::size_t index = 0; index < many; ++index)
                EXPECT_TRUE(committed.insert(meps[index]).second) << "committed twice";
        }
        for (std::size_t many = slots.size(); many == slots.size();) {
            many = sink->returned(now, slots);
            free_.insert(free_.end(), slots.begin(), slots.begin() + static_cast<std::ptrdiff_t>(many));
        }
        while (!free_.empty() && next_ < end_) {
            protocol::BuiltMep mep;
            mep.mep = next_;
            mep.slot = free_.front();
            mep.n_events = n_events;
            mep.goodput_bytes = 1000;
            if (sink->take(now, mep) == protocol::Sink::Taken::busy) return false;
            free_.pop_front();
            ++next_;
        }
        return false;
    }
    [[nodiscard]] Time next_deadline() const override { return time_never; }
    [[nodiscard]] bool is_done() const { return committed.size() == meps_; }

    std::unique_ptr<sinks::LendingSink> sink;
    std::set<protocol::MepId> committed;
    sim::ActorId id = 0;

private:
    sim::World& world_;
    protocol::Config config_;
    std::deque<std::uint16_t> free_;
    std::uint64_t meps_;
    std::uint64_t next_ = 0;
    std::uint64_t end_ = 0;
};

/// What processes were handed.
class Book final : public Witness {
public:
    void came(std::uint32_t /*node*/, const MepFrame& frame) override {
        const bool is_marked = (frame.flags & MepFrame::repeated) != 0;
        EXPECT_TRUE(is_marked || unmarked.insert(frame.mep).second) << "MEP " << frame.mep << " twice without a mark";
        meps.insert(frame.mep);
        EXPECT_EQ(frame.n_events, n_events);
        marked += is_marked ? 1 : 0;
    }
    std::set<std::uint64_t> meps;
    std::set<std::uint64_t> unmarked;
    std::uint64_t marked = 0;
};

struct Faults {
    std::uint64_t kills = 0, starts = 0, leaves = 0, cuts = 0, stalls = 0;
};

constexpr std::uint32_t builders = 4;
constexpr std::uint32_t nodes = 6;

FarmOptions options_for(base::Prng& random) {
    FarmOptions options;
    for (std::uint32_t builder = 0; builder < builders; ++builder)
        options.builders.push_back(builder);
    options.first_host = builders;
    options.nodes = nodes;
    options.own_network = random.chance(500'000);
    options.dispatchers = static_cast<std::uint32_t>(random.below(builders + 1));
    options.window = 1 + static_cast<std::uint32_t>(random.below(6));
    options.processes = 1 + static_cast<std::uint32_t>(random.below(3));
    options.n_sources = 3;
    options.mep_bytes = 100'000;
    options.work = static_cast<Time>(random.below(3)) * 200 * ps_per_us;
    options.limits = {.silence = 20 * ps_per_ms, .patience = 0};
    return options;
}

void play(std::uint64_t seed, Faults& faults, std::uint64_t& repeats) {
    base::Prng random(seed);
    sim::AdversarialSettings settings;
    settings.seed = seed;
    settings.tail_chance = 20'000;
    settings.overtake_chance = 300'000;
    settings.scatter_chance = 300'000;
    settings.done_chance = 200'000;
    settings.again_chance = 100'000;
    settings.connect_again_chance = 200'000;
    settings.connect_refused_chance = 200'000;
    auto owned = std::make_unique<sim::AdversarialModel>(settings);
    sim::AdversarialModel& model = *owned;
    sim::World world(std::move(owned));
    const std::uint64_t meps = 50 + random.below(100);
    std::vector<std::unique_ptr<Builder>> all;
    for (std::uint32_t builder = 0; builder < builders; ++builder)
        all.push_back(std::make_unique<Builder>(world, builder, meps, 1 + static_cast<std::uint32_t>(random.below(8))));
    auto made = Farm::make(world, options_for(random));
    ASSERT_TRUE(made) << made.error().message;
    Farm& farm = **made;
    Book book;
    farm.watch(book);
    for (std::uint32_t builder = 0; builder < builders; ++builder) {
        Builder& each = *all[builder];
        farm.attach(builder, *each.sink, [&world, &each] { world.wake(each.id); });
    }
    const auto is_done = [&] { return std::ranges::all_of(all, [](const auto& each) { return each->is_done(); }); };
    Time until = 0;
    for (int round = 0; round < 40 && !is_done(); ++round) {
        until += 1 + static_cast<Time>(random.below(static_cast<std::uint64_t>(2 * ps_per_ms)));
        world.run_until(until);
        const auto node = static_cast<std::uint32_t>(random.below(nodes));
        const auto connection = static_cast<sim::ConnectionId>(random.below(world.connection_count() + 1));
        const bool has_one = connection < world.connection_count();
        switch (random.below(6)) {
            case 0:
                farm.kill(node);
                ++faults.kills;
                break;
            case 1:
                ASSERT_TRUE(farm.start(node));
                ++faults.starts;
                break;
            case 2:
                farm.leave(node);
                ++faults.leaves;
                break;
            case 3:
                if (has_one) model.cut(world, connection);
                ++faults.cuts;
                break;
            case 4:
                if (has_one)
                    model.stall(world, connection, static_cast<std::uint8_t>(random.below(2)), until + 40 * ps_per_ms);
                ++faults.stalls;
                break;
            default:
                break;
        }
    }
    // From now on nothing goes wrong, and every farm node is there anew.
    model.calm();
    for (std::uint32_t node = 0; node < nodes; ++node) {
        farm.kill(node);
        ASSERT_TRUE(farm.start(node));
    }
    for (const Time end = until + 20 * ps_per_s; until < end && !is_done();)
        world.run_until(until += 5 * ps_per_ms);
    ASSERT_TRUE(is_done()) << "MEPs are still out: " << farm.in_flight();
    EXPECT_EQ(farm.in_flight(), 0U);
    EXPECT_EQ(book.meps.size(), builders * meps) << "of those committed some were never finished";
    EXPECT_EQ(world.statistics().spins, 0U);
    repeats += book.marked;
}

TEST(SimulatedFarm, FinishesEveryMepAndMarksRepeats) {
    const char* given = std::getenv("INCAST_FARM_SEEDS");
    const std::uint64_t seeds = given != nullptr ? std::strtoull(given, nullptr, 10) : 100;
    Faults faults;
    std::uint64_t repeats = 0;
    for (std::uint64_t seed = 0; seed < seeds; ++seed) {
        SCOPED_TRACE("seed " + std::to_string(seed));
        play(seed, faults, repeats);
        if (::testing::Test::HasFailure()) return;
    }
    RecordProperty("kills", std::to_string(faults.kills));
    RecordProperty("repeats", std::to_string(repeats));
    EXPECT_GT(repeats, seeds / 4) << "faults should hit something";
}

/// One builder unit, one farm node, a link of 10 Gb/s, 5 us of latency.
FarmCounts measure(std::uint32_t window, std::uint32_t processes, Time work) {
    sim::World world(std::make_unique<sim::IdealModel>(
        sim::IdealSettings{.rate_bytes_per_s = 1'250'000'000, .latency = 5 * ps_per_us}));
    Builder builder(world, 0, 1'000'000, 16);
    auto farm = Farm::make(
        world,
        {.builders = {0}, .first_host = 1, .window = window, .processes = processes, .mep_bytes = 1000, .work = work});
    EXPECT_TRUE(farm);
    (*farm)->attach(0, *builder.sink, [&] { world.wake(builder.id); });
    world.run_until(ps_per_ms);
    (*farm)->begin_window(world.now());
    world.run_until(11 * ps_per_ms);
    (*farm)->end_window(world.now());
    return (*farm)->counts();
}

TEST(SimulatedFarm, AFarmNodeThatPullsOneMepAtATimeIsIdleForARoundTrip) {
    // A MEP of no bytes, its frames, and its answer: two latencies, and some nanoseconds of links.
    const FarmCounts one = measure(1, 1, 40 * ps_per_us);
    EXPECT_NEAR(one.idle.front(), 10.0 / 50.0, 0.01);
    EXPECT_NEAR(static_cast<double>(one.nodes.done_meps), 10'000.0 / 50.0, 3);
    const FarmCounts two = measure(2, 1, 40 * ps_per_us);
    EXPECT_NEAR(two.idle.front(), 0, 0.01) << "the next one is there already";
    const FarmCounts both = measure(2, 2, 40 * ps_per_us);
    EXPECT_NEAR(both.idle.front(), 10.0 / 50.0, 0.01);
    EXPECT_EQ(both.dispatchers.lost_nodes, 0U);
}

TEST(SimulatedFarm, RefusesMepsThatNoWriteCarries) {
    sim::World world(std::make_unique<sim::IdealModel>(sim::IdealSettings{}));
    const auto farm = Farm::make(world, {.builders = {0}, .first_host = 1, .mep_bytes = std::uint64_t{1} << 31U});
    ASSERT_FALSE(farm);
    EXPECT_NE(farm.error().message.find("allowed: up to"), std::string::npos);
}

}  // namespace
}  // namespace incast::farm::simulated

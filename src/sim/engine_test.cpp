// The engine and the contract it keeps, on the ideal network.
#include <algorithm>
#include <array>
#include <numeric>

#include <gtest/gtest.h>

#include "base/prng.h"
#include "sim/area_map.h"
#include "sim/endpoint.h"
#include "sim/event_queue.h"
#include "sim/models/ideal.h"
#include "sim/sim_medium.h"
#include "support/sim.h"

namespace incast::sim {
namespace {

using testing::join;
using testing::Listener;

std::unique_ptr<Model> ideal() {
    return std::make_unique<IdealModel>(IdealSettings{});
}
Bytes bytes_of(std::string_view text) {
    return std::as_bytes(std::span(text.data(), text.size()));
}

TEST(EventQueue, OrdersByTimeThenPortThenSequence) {
    EventQueue queue;
    base::Prng prng(7);
    for (std::uint32_t index = 0; index < 2000; ++index) {
        queue.push({.time = static_cast<Time>(prng.below(20)),
                    .port = static_cast<std::uint32_t>(prng.below(4)),
                    .subject = index});
        if (index % 3 == 0) queue.pop();
    }
    Scheduled last = queue.pop();
    while (!queue.empty()) {
        const Scheduled next = queue.pop();
        ASSERT_TRUE(last.before(next));
        ASSERT_FALSE(next.before(last));
        last = next;
    }
}

TEST(AreaMap, KeepsAddressesWhileItGrows) {
    AreaMap map;
    Area* first = &map.at(1ULL << 40);
    first->head_write = 99;
    for (std::uint64_t offset = 0; offset < 5000; ++offset)
        map.at(offset * 64).head_write = offset;
    EXPECT_EQ(map.find(1ULL << 40), first);
    EXPECT_EQ(first->head_write, 99U);
    for (std::uint64_t offset = 0; offset < 5000; ++offset)
        ASSERT_EQ(map.find(offset * 64)->head_write, offset);
    EXPECT_EQ(map.find(63), nullptr);
}

TEST(World, PollsInIntervals) {
    constexpr Time interval = 7 * ps_per_us;
    World world(ideal());
    world.poll_every(interval);
    Listener one(world, 0);
    Listener two(world, 1);
    join(world, one, 0, two, 1);
    // More than one arrives before the next look, and all are seen in it, in order.
    const Time before = world.now();
    ASSERT_EQ(one.send(1, "first"), Post::done);
    ASSERT_EQ(one.send(1, "second"), Post::done);
    world.run_until(before + interval / 2);
    EXPECT_EQ(two.count(Event::Kind::message), 0U);  // it is there, and nobody has looked
    EXPECT_EQ(world.next_time(), before + interval);
    world.run_until(before + interval);
    const auto messages = two.of(Event::Kind::message);
    ASSERT_EQ(messages.size(), 2U);
    EXPECT_EQ(messages[0].message, "first");
    EXPECT_EQ(messages[1].message, "second");
    for (const Listener* each : {&one, &two})
        for (const Listener::Seen& seen : each->seen)
            EXPECT_EQ(seen.time % interval, 0);
}

TEST(World, ConnectsOnlyWhenBothSidesDoAndIdentitiesAgree) {
    World world(ideal());
    Listener one(world, 0);
    Listener two(world, 1);
    EXPECT_EQ(one.endpoint->connect(Peer{1}, two.endpoint->address(), 1), Post::pending);
    world.run_until(ps_per_s);
    EXPECT_TRUE(one.seen.empty());
    EXPECT_EQ(one.send(1, "early"), Post::refused);
    EXPECT_EQ(two.endpoint->connect(Peer{0}, one.endpoint->address(), 2),
              Post::pending);  // not the incarnation that lives there
    world.run_until(2 * ps_per_s);
    EXPECT_EQ(two.count(Event::Kind::peer_down), 1U);
    EXPECT_EQ(two.endpoint->connect(Peer{0}, one.endpoint->address(), 1), Post::pending);
    world.run_until(3 * ps_per_s);
    ASSERT_EQ(one.count(Event::Kind::peer_up), 1U);
    ASSERT_EQ(two.count(Event::Kind::peer_up), 1U);
    EXPECT_EQ(one.seen[0].event.incarnation, 1U);
    EXPECT_EQ(one.endpoint->connect(Peer{1}, one.endpoint->address(), 1), Post::refused);  // that address is node 0's
    EXPECT_EQ(one.endpoint->connect(Peer{1}, Blob{}, 1), Post::refused);
}

TEST(World, LoopbackNeedsOneCall) {
    World world(ideal());
    Listener one(world, 0);
    EXPECT_EQ(one.endpoint->connect(Peer{0}, one.endpoint->address(), 1), Post::pending);
    world.run_until(ps_per_ms);
    ASSERT_EQ(one.count(Event::Kind::peer_up), 1U);
    EXPECT_EQ(one.send(0, "me"), Post::done);
    world.run_until(2 * ps_per_ms);
    ASSERT_EQ(one.count(Event::Kind::message), 1U);
    one.endpoint->disconnect(Peer{0});
    world.run_until(3 * ps_per_ms);
    EXPECT_EQ(one.count(Event::Kind::peer_down), 1U);
}

TEST(World, HeadsLandWhereTheyWereAimedAndNowhereElse) {
    World world(ideal());
    Listener one(world, 0);
    Listener two(world, 1);
    join(world, one, 0, two, 1);
    const Local source = one.endpoint->allocate(1 << 20).value();
    const Local region = two.endpoint->allocate(std::size_t{1} << 42).value();  // 4 TiB of phantom
    EXPECT_TRUE(two.endpoint->memory(region).empty());
    const Remote remote = one.endpoint->import_key(Peer{1}, two.endpoint->expose(region).value()).value();
    const std::uint64_t far = (std::uint64_t{1} << 41) + 64;
    EXPECT_EQ(one.endpoint->write(Peer{1}, bytes_of("head"), {source, 1000, 0}, {remote, far}, std::uint16_t{7}, 42),
              Post::pending);
    world.run_until(ps_per_s);
    ASSERT_EQ(two.count(Event::Kind::notice), 1U);
    EXPECT_EQ(two.of(Event::Kind::notice)[0].event.size_or_value, 7);
    ASSERT_EQ(one.count(Event::Kind::completed), 1U);
    EXPECT_EQ(one.of(Event::Kind::completed)[0].event.token, 42U);
    const Bytes landed = two.endpoint->local({region, 4, far});
    ASSERT_EQ(landed.size(), 4U);
    EXPECT_EQ(std::memcmp(landed.data(), "head", 4), 0);
    EXPECT_TRUE(two.endpoint->local({region, 4, far + 64}).empty());
    EXPECT_TRUE(two.endpoint->local({region, 4, far + 1}).empty());
    // The same place keeps its address.
    EXPECT_EQ(one.endpoint->write(Peer{1}, bytes_of("next"), {source, 1000, 0}, {remote, far}, {}, 0), Post::pending);
    world.run_until(2 * ps_per_s);
    EXPECT_EQ(std::memcmp(landed.data(), "next", 4), 0);
    EXPECT_EQ(one.count(Event::Kind::completed), 1U);  // token 0
}

TEST(World, RefusesCallersErrorsAndReportsRemoteFaults) {
    World world(ideal());
    Listener one(world, 0);
    Listener two(world, 1);
    join(world, one, 0, two, 1);
    const Local source = one.endpoint->allocate(4096).value();
    const Local region = two.endpoint->allocate(4096).value();
    const Remote remote = one.endpoint->import_key(Peer{1}, two.endpoint->expose(region).value()).value();
    const std::string long_text(max_message_bytes + 1, 'x');
    EXPECT_EQ(one.send(1, long_text), Post::refused);
    EXPECT_EQ(one.send(1, ""), Post::refused);
    EXPECT_EQ(one.endpoint->write(Peer{1}, bytes_of(long_text).first(65), {source, 0, 0}, {remote, 0}, {}, 1),
              Post::refused);
    EXPECT_EQ(one.endpoint->write(Peer{1}, {}, {source, 100, 4000}, {remote, 0}, {}, 1), Post::refused);
    EXPECT_EQ(one.endpoint->write(Peer{1}, {}, {source, 100, 0}, {Remote{9}, 0}, {}, 1), Post::refused);
    EXPECT_EQ(one.endpoint->write(Peer{1}, bytes_of("head"), {source, 100, 0}, {remote, 4000}, std::uint16_t{1}, 5),
              Post::pending);
    world.run_until(ps_per_s);
    ASSERT_EQ(one.count(Event::Kind::completed), 1U);
    EXPECT_EQ(one.of(Event::Kind::completed)[0].event.status, Status::remote_fault);
    EXPECT_EQ(two.count(Event::Kind::notice), 0U);
    EXPECT_TRUE(two.endpoint->local({region, 4, 4000}).empty());
    EXPECT_FALSE(one.endpoint->import_key(Peer{1}, Blob{}).ok());
    EXPECT_FALSE(one.endpoint->import_key(Peer{0}, two.endpoint->expose(region).value()).ok());
}

TEST(World, BackPressureGivesExactlyOneRoom) {
    World world(ideal());
    Listener one(world, 0, 1, 4);
    Listener two(world, 1);
    join(world, one, 0, two, 1);
    for (int index = 0; index < 4; ++index)
        ASSERT_EQ(one.send(1, "m"), Post::done);
    EXPECT_EQ(one.send(1, "m"), Post::again);
    EXPECT_EQ(one.send(1, "m"), Post::again);
    world.run_until(ps_per_s);
    EXPECT_EQ(one.count(Event::Kind::room), 1U);
    EXPECT_EQ(two.count(Event::Kind::message), 4U);
    EXPECT_EQ(one.send(1, "m"), Post::done);
}

TEST(World, DisconnectCancelsThenFencesAndAllowsANewConnection) {
    World world(ideal());
    Listener one(world, 0);
    Listener two(world, 1);
    join(world, one, 0, two, 1);
    const Local source = one.endpoint->allocate(1 << 30).value();
    const Local region = two.endpoint->allocate(1 << 30).value();
    const Remote remote = one.endpoint->import_key(Peer{1}, two.endpoint->expose(region).value()).value();
    ASSERT_EQ(one.endpoint->write(Peer{1}, bytes_of("head"), {source, 1 << 29, 0}, {remote, 0}, std::uint16_t{1}, 5),
              Post::pending);
    one.endpoint->disconnect(Peer{1});
    EXPECT_EQ(one.endpoint->connect(Peer{1}, two.endpoint->address(), 1), Post::again);  // not fenced yet
    world.run_until(world.now() + ps_per_ms);
    ASSERT_EQ(one.seen.size(), 3U);
    EXPECT_EQ(one.seen[1].event.kind, Event::Kind::completed);
    EXPECT_EQ(one.seen[1].event.status, Status::cancelled);
    EXPECT_EQ(one.seen[2].event.kind, Event::Kind::peer_down);
    EXPECT_EQ(two.count(Event::Kind::peer_down), 1U);
    one.endpoint->disconnect(Peer{1});  // not known: no-op
    world.run_until(world.now() + ps_per_s);
    EXPECT_TRUE(two.endpoint->local({region, 4, 0}).empty());
    EXPECT_EQ(one.seen.size(), 3U);
    (void)one.endpoint->connect(Peer{1}, two.endpoint->address(), 1);
    (void)two.endpoint->connect(Peer{0}, one.endpoint->address(), 1);
    world.run_until(world.now() + ps_per_s);
    EXPECT_EQ(one.count(Event::Kind::peer_up), 2U);
    EXPECT_EQ(one.send(1, "again"), Post::done);
}

TEST(World, ADestroyedEndpointIsFencedAtItsPeersAndItsSuccessorMayConnect) {
    World world(ideal());
    Listener one(world, 0);
    auto two = std::make_unique<Listener>(world, 1U);
    join(world, one, 0, *two, 1);
    const Blob old_address = two->endpoint->address();
    EXPECT_EQ(one.send(1, "x"), Post::done);
    two.reset();
    world.run_until(world.now() + ps_per_s);
    EXPECT_EQ(one.count(Event::Kind::peer_down), 1U);
    EXPECT_EQ(one.endpoint->connect(Peer{1}, old_address, 1), Post::pending);  // nobody answers
    world.run_until(world.now() + ps_per_s);
    EXPECT_EQ(one.count(Event::Kind::peer_down), 2U);
    Listener successor(world, 1, 2);
    (void)one.endpoint->connect(Peer{1}, successor.endpoint->address(), 2);
    (void)successor.endpoint->connect(Peer{0}, one.endpoint->address(), 1);
    world.run_until(world.now() + ps_per_s);
    EXPECT_EQ(one.of(Event::Kind::peer_up).back().event.incarnation, 2U);
}

TEST(World, AnActorThatPutOffItsDeadlineSleepsUntilThen) {
    struct Sleeper final : Actor {
        bool step(Time now) override {
            times.push_back(now);
            next = now + 1000;
            return false;
        }
        [[nodiscard]] Time next_deadline() const override { return next; }
        Time next = 0;
        std::vector<Time> times;
    };
    World world(ideal());
    Sleeper sleeper;
    const ActorId id = world.add_actor(sleeper);
    world.run_until(500);
    world.wake(id);
    world.run_until(2000);
    EXPECT_EQ(sleeper.times, (std::vector<Time>{0, 500, 1500}));
}

TEST(World, ActorsHearThatTheirTurnIsNear) {
    struct Waiting final : Actor {
        bool step(Time) override {
            heard_before_step = levels;
            return false;
        }
        [[nodiscard]] Time next_deadline() const override { return time_never; }
        void prefetch(unsigned level) const override { levels.push_back(level); }
        mutable std::vector<unsigned> levels;
        std::vector<unsigned> heard_before_step;
    };
    World world(ideal());
    std::array<Waiting, Actor::prefetch_levels + 3> actors;
    for (Waiting& actor : actors)
        world.add_actor(actor);
    world.run_until(0);
    std::vector<unsigned> all(Actor::prefetch_levels);
    std::iota(all.begin(), all.end(), 0U);
    // Those at the front have no time for all of it.
    for (std::size_t index = Actor::prefetch_levels; index < actors.size(); ++index)
        EXPECT_EQ(actors[index].heard_before_step, all) << index;
    EXPECT_TRUE(actors[0].heard_before_step.empty());
}

TEST(World, AnActorIsWokenAtItsDeadlineAndCannotStopTheClock) {
    struct Ticker final : Actor {
        bool step(Time now) override {
            if (now >= next) {
                times.push_back(now);
                next += 1000;
            }
            return false;
        }
        [[nodiscard]] Time next_deadline() const override { return next; }
        Time next = 500;
        std::vector<Time> times;
    };
    struct Spinner final : Actor {
        bool step(Time) override { return true; }
        [[nodiscard]] Time next_deadline() const override { return time_never; }
    };
    World world(ideal());
    Ticker ticker;
    world.add_actor(ticker);
    world.run_until(3000);
    EXPECT_EQ(ticker.times, (std::vector<Time>{500, 1500, 2500}));
    EXPECT_EQ(world.statistics().spins, 0U);
    Spinner spinner;
    world.add_actor(spinner);
    world.run_until(5000);
    EXPECT_GT(world.statistics().spins, 0U);
    EXPECT_EQ(ticker.times.size(), 5U);
}

TEST(SimMedium, ChecksItsParameters) {
    EXPECT_TRUE(make_sim_medium({}).ok());
    EXPECT_TRUE(make_sim_medium({{"rate", "25Gb/s"}, {"latency", "500ns"}}).ok());
    const auto unknown = make_sim_medium({{"speed", "1"}});
    ASSERT_FALSE(unknown.ok());
    EXPECT_NE(unknown.error().message.find("speed"), std::string::npos);
    EXPECT_FALSE(make_sim_medium({{"rate", "0"}}).ok());
    EXPECT_FALSE(make_sim_medium({{"rate", "fast"}}).ok());
    EXPECT_FALSE(make_sim_medium({{"latency", "-1us"}}).ok());
    EXPECT_FALSE(make_sim_medium({{"latency", "1h"}}).ok());
}

TEST(SimMedium, WithoutAnActorPollMovesTheClock) {
    auto medium = make_sim_medium({}).value();
    transport::EndpointOptions options;
    auto one = medium->endpoint(options).value();
    options.self = Peer{1};
    auto two = medium->endpoint(options).value();
    (void)one->connect(Peer{1}, two->address(), 1);
    (void)two->connect(Peer{0}, one->address(), 1);
    std::array<Event, 4> events;
    EXPECT_EQ(one->poll(0, events), 0U);
    const Time up = one->next_deadline();
    EXPECT_EQ(up, ps_per_us);
    ASSERT_EQ(one->poll(up, events), 1U);
    EXPECT_EQ(events[0].kind, Event::Kind::peer_up);
    ASSERT_EQ(two->poll(up, events), 1U);
    EXPECT_TRUE(two->prepare_wait());
}

}  // namespace
}  // namespace incast::sim

// Once warm, a world posts and delivers without allocating: every record comes from a pool.
#include <array>

#include <gtest/gtest.h>

#include "base/count_allocations.h"
#include "sim/models/ideal.h"
#include "sim/world.h"

namespace incast::sim {
namespace {

/// Answers each message with one of another length, writes and reads.
class Chatter final : public Actor {
public:
    Chatter(World& world, std::uint32_t self) : peer_(Peer{1 - self}) {
        transport::EndpointOptions options;
        options.self = Peer{self};
        endpoint = world.endpoint(options).value();
        region = endpoint->allocate(1 << 20).value();
        actor = world.add_actor(*this);
        world.bind(*endpoint, actor);
    }
    bool step(Time now) override {
        std::array<Event, 16> events;
        const std::size_t count = endpoint->poll(now, events);
        for (std::size_t index = 0; index < count; ++index) {
            if (events[index].kind == Event::Kind::message && heard < 200'000) talk();
        }
        return count > 0;
    }
    [[nodiscard]] Time next_deadline() const override { return time_never; }
    void talk() {
        static constexpr std::array<std::byte, max_message_bytes> text{};
        ++heard;
        EXPECT_EQ(endpoint->send(peer_, Bytes(text).first(1 + heard * 37 % max_message_bytes)), Post::done);
        const Notice notice = heard % 2 == 0 ? Notice(std::uint16_t{1}) : std::nullopt;
        EXPECT_EQ(endpoint->write(peer_, Bytes(text).first(64), {region, 1000, 0}, {remote, heard % 64 * 4096}, notice,
                                  heard),
                  Post::pending);
        EXPECT_EQ(endpoint->read(peer_, {remote, heard % 64 * 4096}, {region, 1000, (64 + heard % 64) * 4096}, heard),
                  Post::pending);
    }

    std::unique_ptr<Transport> endpoint;
    Local region{};
    Remote remote{};
    ActorId actor = 0;
    std::uint64_t heard = 0;

private:
    Peer peer_;
};

void chat(World& world) {
    Chatter one(world, 0);
    Chatter two(world, 1);
    one.remote = one.endpoint->import_key(Peer{1}, two.endpoint->expose(two.region).value()).value();
    two.remote = two.endpoint->import_key(Peer{0}, one.endpoint->expose(one.region).value()).value();
    (void)one.endpoint->connect(Peer{1}, two.endpoint->address(), 1);
    (void)two.endpoint->connect(Peer{0}, one.endpoint->address(), 1);
    while (world.advance()) {
    }
    for (int index = 0; index < 20; ++index)
        one.talk();
    while (one.heard < 20'000 && world.advance()) {
    }
    const std::uint64_t before = base::allocations.load();
    while (one.heard < 100'000 && world.advance()) {
    }
    const std::uint64_t after = base::allocations.load();
    EXPECT_GE(one.heard, 100'000U);
    EXPECT_EQ(after, before);
    world.remove_actor(one.actor);
    world.remove_actor(two.actor);
}

TEST(WorldAllocation, IdealWorldAllocatesNothingOnceWarm) {
    World world(std::make_unique<IdealModel>(IdealSettings{}));
    chat(world);
}

}  // namespace
}  // namespace incast::sim

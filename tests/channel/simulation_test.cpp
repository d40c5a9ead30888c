// Hubs over the adversarial network, in virtual time, from seeds: channels with all ways to hear of a write, opened,
// used and closed while writes land in any order and in parts, posts are turned away, and an endpoint may end. What is
// read is what was written; all of it, unless the endpoint ended; and nothing is left. INCAST_CHANNEL_SEEDS says how
// many seeds, 200 if it is not set.
#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "base/prng.h"
#include "pair.h"
#include "sim/models/adversarial.h"
#include "sim/sim_medium.h"

namespace incast::channel {
namespace {

class World {
public:
    explicit World(std::uint64_t seed) : random_(seed), medium_(std::make_unique<sim::AdversarialModel>(unkind(seed))) {
        for (std::uint32_t each = 0; each < 2; ++each) {
            auto endpoint = medium_.endpoint({.self = Peer{each}, .max_peers = 4, .log = {}});
            sides_[each].endpoint = std::move(*endpoint);
            sides_[each].hub = std::make_unique<Hub>(*sides_[each].endpoint, Peer{each});
            EXPECT_TRUE(sides_[each].hub->listen(port, Kind::bytes));
        }
        for (std::uint32_t each = 0; each < 2; ++each)
            (void)sides_[each].endpoint->connect(Peer{1 - each}, sides_[1 - each].endpoint->address(), 1);
        if (random_.chance(200'000)) ends_at_ = static_cast<Time>(random_.below(3'000)) * ps_per_us;
    }

    void run() {
        while (now_ < 2 * ps_per_s) {
            now_ += ps_per_us;
            const auto turn = random_.below(2);
            step(turn);
            if (::testing::Test::HasFailure()) return;
            if (now_ > ends_at_) return run_out();
            if (is_done()) return;
        }
        FAIL() << "stuck: " << opened_ << " channels opened, " << read_whole_ << " read whole";
    }

private:
    struct Line {
        std::array<Id, 2> ids{};
        bool is_accepted = false;
        std::array<Stream, 2> streams;  // by who writes
        std::array<bool, 2> is_closed{};
    };

    static sim::AdversarialSettings unkind(std::uint64_t seed) {
        sim::AdversarialSettings settings;
        settings.seed = seed;
        settings.tail_chance = 5'000;
        settings.tail_max = ps_per_ms;
        settings.overtake_chance = 500'000;
        settings.scatter_chance = 500'000;
        settings.done_chance = 200'000;
        settings.again_chance = 100'000;
        return settings;
    }

    void step(std::size_t side) {
        Side& here = sides_[side];
        if (here.hub == nullptr) return;
        (void)here.hub->poll(now_);
        while (const auto event = here.hub->next_peer_event())
            here.peers.push_back(event->event);
        if (side == 0 && opened_ < channels && here.saw(Event::Kind::peer_up) && random_.chance(100'000)) open();
        if (side == 1) {
            // In the order of the opens: messages keep it.
            while (const auto id = here.hub->accept(port)) {
                const auto line = std::ranges::find(lines_, false, &Line::is_accepted);
                ASSERT_NE(line, lines_.end());
                line->ids[1] = *id;
                line->is_accepted = true;
            }
        }
        for (Line& line : lines_)
            use(line, side);
    }

    void open() {
        const Options options{
            .shape = {.buffers = 1 + static_cast<std::uint32_t>(random_.below(5)), .buffer_bytes = 64, .batch = 1},
            .announce = static_cast<Way>(random_.below(3)),
            .acknowledge = static_cast<Way>(random_.below(3))};
        const auto id = sides_[0].hub->connect(Peer{1}, port, options);
        ASSERT_TRUE(id) << id.error().message;
        lines_.push_back(
            {.ids = {*id, Id{}},
             .streams = {Stream(random_.next(), random_.below(400)), Stream(random_.next(), random_.below(400))}});
        ++opened_;
    }

    void use(Line& line, std::size_t side) {
        if (line.is_closed[side] || (side == 1 && !line.is_accepted)) return;
        Hub& hub = *sides_[side].hub;
        const Id id = line.ids[side];
        ASSERT_TRUE(hub.fault(id) == Fault::none || now_ > ends_at_ || line.is_closed[1 - side])
            << to_string(hub.fault(id));
        if (random_.chance(300'000)) line.streams[side].write(hub, id);
        if (random_.chance(300'000)) line.streams[1 - side].read(hub, id);
        if (!hub.has_ended(id) || !hub.is_finished(id)) return;
        EXPECT_TRUE(line.streams[1 - side].is_read());
        ++read_whole_;
        hub.close(id);
        line.is_closed[side] = true;
    }

    [[nodiscard]] bool is_done() const {
        return opened_ == channels && read_whole_ == 2 * channels &&
               sides_[0].hub->channels() + sides_[1].hub->channels() == 0;
    }

    /// One endpoint ends. The other hears of it, and has nothing left once its channels are closed.
    void run_out() {
        const std::size_t dead = random_.below(2);
        Side& left = sides_[1 - dead];
        sides_[dead].end();
        const auto was_up = left.saw(Event::Kind::peer_up);
        for (const Time until = now_ + ps_per_s; now_ < until && !left.saw(Event::Kind::peer_down);) {
            now_ += ps_per_us;
            step(1 - dead);
            if (::testing::Test::HasFailure()) return;
        }
        EXPECT_TRUE(left.saw(Event::Kind::peer_down) || !was_up);
        while (const auto id = left.hub->accept(port))
            left.hub->close(*id);
        for (const Line& line : lines_)
            left.hub->close(line.ids[1 - dead]);
        for (int each = 0; each < 100; ++each)
            (void)left.hub->poll(now_ += ps_per_us);
        EXPECT_EQ(left.hub->channels(), 0U);
    }

    static constexpr std::size_t channels = 4;
    base::Prng random_;
    sim::SimMedium medium_;
    std::array<Side, 2> sides_;
    std::vector<Line> lines_;
    Time now_ = 0;
    Time ends_at_ = time_never;
    std::size_t opened_ = 0;
    std::size_t read_whole_ = 0;
};

TEST(HubSimulation, CH_O1_WhatIsReadIsWhatWasWrittenWhateverTheNetworkDoes) {
    const char* given = std::getenv("INCAST_CHANNEL_SEEDS");
    const std::uint64_t seeds = given != nullptr ? std::strtoull(given, nullptr, 10) : 200;
    for (std::uint64_t seed = 0; seed < seeds; ++seed) {
        SCOPED_TRACE("seed " + std::to_string(seed));
        World world(seed);
        world.run();
        if (::testing::Test::HasFailure()) return;
    }
}

}  // namespace
}  // namespace incast::channel

// Two links, and two endpoints, over messages that match as those of MPI do, and whose ends are told late and in any
// order: what was posted arrives once, in order and whole; a sender stops where its peer takes nothing in; both let go
// of everything; a peer that lies is left, and one that has given up.
#include <algorithm>
#include <array>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "base/prng.h"
#include "transport/mpi/endpoint.h"

namespace incast::transport::mpi {
namespace {

constexpr std::size_t place_bytes = 16384;
constexpr std::uint64_t places = 8;
constexpr std::uint64_t rounds = 60;
constexpr std::size_t eager_bytes = 256;  // what is longer stays with its sender until it is received
constexpr std::uint32_t first_tag = 100;  // of rank 0; twice that of rank 1
constexpr std::uint32_t chunk_bytes = 1024;

void fill(std::span<std::byte> into, std::uint64_t seed) {
    for (std::size_t at = 0; at < into.size(); ++at)
        into[at] = static_cast<std::byte>(base::mix64(seed + at / 8) >> (8 * (at % 8)));
}
std::size_t body_bytes(std::uint64_t number) {
    return base::mix64(number) % (place_bytes + 1);
}

/// What lies between the two ranks.
struct Between {
    struct Message {
        std::size_t to = 0;
        std::uint32_t tag = 0;
        Bytes bytes;
        std::vector<std::byte> copy;
        std::uint64_t what = 0;
    };
    struct Wanted {
        std::size_t by = 0;
        std::uint32_t tag = 0;
        std::span<std::byte> into;
        std::uint64_t what = 0;
    };
    std::vector<Message> messages;  // that nobody has received
    std::vector<Wanted> wanted;
    std::array<std::vector<Library::Ended>, 2> ended;

    void match() {
        for (auto message = messages.begin(); message != messages.end();) {
            const auto found = std::ranges::find_if(
                wanted, [&](const Wanted& each) { return each.by == message->to && each.tag == message->tag; });
            if (found == wanted.end()) {
                ++message;
                continue;
            }
            const Bytes bytes = message->copy.empty() ? message->bytes : Bytes(message->copy);
            const bool fits = bytes.size() <= found->into.size();
            std::copy_n(bytes.begin(), std::min(bytes.size(), found->into.size()), found->into.begin());
            ended[message->to].push_back({found->what, bytes.size(), fits});
            if (message->copy.empty()) ended[1 - message->to].push_back({message->what, 0, true});
            wanted.erase(found);
            message = messages.erase(message);
        }
    }
};

class Fake final : public Library {
public:
    Fake(Between& between, std::size_t self, std::uint64_t seed) : between_(between), self_(self), random_(seed) {}
    [[nodiscard]] int rank() const override { return static_cast<int>(self_); }
    [[nodiscard]] int size() const override { return 2; }
    [[nodiscard]] std::uint32_t tags() const override { return 32767; }

    void send(int rank, std::uint32_t tag, Bytes bytes, std::uint64_t what) override {
        ASSERT_EQ(rank, 1 - static_cast<int>(self_));
        Between::Message message{.to = 1 - self_, .tag = tag, .bytes = bytes, .copy = {}, .what = what};
        if (bytes.size() <= eager_bytes) {
            message.copy.assign(bytes.begin(), bytes.end());
            between_.ended[self_].push_back({what, 0, true});
        }
        between_.messages.push_back(std::move(message));
        between_.match();
    }
    void receive(int rank, std::uint32_t tag, std::span<std::byte> into, std::uint64_t what) override {
        ASSERT_TRUE(rank == 1 - static_cast<int>(self_) || rank == any_rank);
        between_.wanted.push_back({self_, tag, into, what});
        between_.match();
    }
    void cancel(std::uint64_t what) override {
        std::erase_if(between_.wanted, [&](const Between::Wanted& each) {
            if (each.by != self_ || each.what != what) return false;
            between_.ended[self_].push_back({what, 0, false});
            return true;
        });
    }
    /// Some of them, in any order.
    std::span<const Ended> test() override {
        auto& ended = between_.ended[self_];
        for (std::size_t left = ended.size(); left > 1; --left)
            std::swap(ended[left - 1], ended[random_.below(left)]);
        const auto first = ended.end() - static_cast<std::ptrdiff_t>(random_.below(ended.size() + 1));
        told_.assign(first, ended.end());
        ended.erase(first, ended.end());
        return told_;
    }
    void somebody_died() override {}

private:
    Between& between_;
    std::size_t self_;
    base::Prng random_;
    std::vector<Ended> told_;
};

struct Side {
    Side(Between& between, std::uint32_t self, std::uint32_t streams, std::uint32_t chunks, std::uint64_t seed)
        : number(self),
          library(between, self, seed + self),
          link(library,
               {.number = 1,
                .rank = 1 - static_cast<int>(self),
                .first_tag = first_tag * (1 + self),
                .peer_tag = first_tag * (2 - self),
                .streams = streams,
                .chunks = chunks,
                .chunk_bytes = chunk_bytes,
                .direct_bytes = 3000},
               framed::SessionOptions{.self = Peer{self},
                                      .peer = Peer{1 - self},
                                      .self_incarnation = 1,
                                      .peer_incarnation = 1,
                                      .streams = streams,
                                      .max_posted = 8,
                                      .max_peer_reads = 8,
                                      .staging_bytes = 8192,
                                      .copied_bytes = 16384,
                                      .copy_below_bytes = 100},
               regions) {
        source = regions.allocate(place_bytes * places).value();
        slots = regions.allocate(place_bytes * places).value();
        EXPECT_TRUE(regions.expose(slots, {}));
        key = {.generation = 1, .region = static_cast<std::uint32_t>(slots), .bytes = place_bytes * places, .write = 1};
    }
    void take_ended() {
        for (const Library::Ended& each : library.test())
            link.ended(each);
    }
    /// Once, with so many places for events.
    bool work(std::span<Event> room, std::size_t& count) {
        take_ended();
        framed::EventWriter events(room);
        const bool is_up = link.work(events, ++polls);
        count = events.count();
        return is_up;
    }

    std::uint32_t number;
    Regions regions{4};
    Fake library;
    Link link;
    Local source{};
    Local slots{};
    framed::Key key;
    std::uint64_t posted = 0;  // a write and a message in each round
    std::uint64_t completed = 0;
    std::uint64_t arrived = 0;
    bool message_is_due = false;
    std::uint64_t polls = 0;
};

class World {
public:
    World(std::uint64_t seed, std::uint32_t streams, std::uint32_t chunks)
        : random_(seed), sides_{Side(between_, 0, streams, chunks, seed), Side(between_, 1, streams, chunks, seed)} {}

    void exchange() {
        for (int step = 0; sides_[0].arrived < rounds || sides_[1].arrived < rounds || !sides_[0].link.drained() ||
                           !sides_[1].link.drained();
             ++step) {
            ASSERT_LT(step, 200'000) << "it does not come to an end";
            Side& side = sides_[random_.below(2)];
            post(side);
            std::array<Event, 8> room;
            const std::span<Event> some = std::span(room).first(random_.below(room.size() + 1));
            std::size_t count = 0;
            ASSERT_TRUE(side.work(some, count)) << side.link.why_lost();
            for (const Event& event : some.first(count))
                check(side, event);
            if (testing::Test::HasFailure()) return;
        }
    }

    /// One begins; the other hears of it, and does the same.
    void end() {
        sides_[0].link.stop();
        bool has_heard = false;
        std::array<bool, 2> is_over{};
        for (int step = 0; !is_over[0] || !is_over[1]; ++step) {
            ASSERT_LT(step, 10'000) << "it does not come to an end";
            std::array<Event, 8> room;
            std::size_t count = 0;
            if (!has_heard && !sides_[1].work(room, count)) {
                EXPECT_EQ(sides_[1].link.why_lost(), "");
                sides_[1].link.stop();
                has_heard = true;
            }
            for (Side& side : sides_) {
                side.take_ended();
                is_over[side.number] = side.link.let_go();
            }
        }
        EXPECT_TRUE(between_.messages.empty()) << "a message that nobody received";
        EXPECT_TRUE(between_.wanted.empty()) << "a receive that waits for ever";
        EXPECT_FALSE(sides_[0].link.is_under_way() || sides_[1].link.is_under_way());
    }

    Between& between() { return between_; }
    Side& side(std::size_t number) { return sides_[number]; }

private:
    void post(Side& side) {
        const Side& other = sides_[1 - side.number];
        while (side.posted < rounds && side.posted < other.arrived + places && side.completed + places > side.posted) {
            const std::uint64_t number = side.posted;
            const std::size_t offset = number % places * place_bytes;
            const std::span body = side.regions.memory(side.source).subspan(offset, body_bytes(number));
            fill(body, number + side.number);
            const Post post =
                side.link.session().write({}, body, other.key, offset, static_cast<std::uint16_t>(number), number + 1);
            if (post == Post::again) return;
            if (post == Post::done) ++side.completed;
            std::array<std::byte, 40> message;
            fill(message, ~number);
            ASSERT_EQ(side.link.session().send(message), Post::done);
            ++side.posted;
        }
    }

    void check(Side& side, const Event& event) {
        if (event.kind == Event::Kind::room) return;
        if (event.kind == Event::Kind::completed) {
            EXPECT_EQ(event.status, Status::ok);
            ++side.completed;
            return;
        }
        const std::uint64_t number = side.arrived;
        std::vector<std::byte> expected(side.message_is_due ? 40 : body_bytes(number));
        fill(expected, side.message_is_due ? ~number : number + 1 - side.number);
        if (side.message_is_due) {
            ASSERT_EQ(event.kind, Event::Kind::message);
            ASSERT_EQ(event.size_or_value, expected.size());
            EXPECT_EQ(std::memcmp(event.data, expected.data(), expected.size()), 0);
            ++side.arrived;
        } else {
            ASSERT_EQ(event.kind, Event::Kind::notice);
            ASSERT_EQ(event.size_or_value, number);
            const auto landed = side.regions.memory(side.slots).subspan(number % places * place_bytes);
            EXPECT_TRUE(std::equal(expected.begin(), expected.end(), landed.begin())) << "body " << number;
        }
        side.message_is_due = !side.message_is_due;
    }

    base::Prng random_;
    Between between_;
    std::array<Side, 2> sides_;
};

TEST(MpiLink, WhatWasPostedArrivesOnceInOrderAndWholeAndNothingIsLeft) {
    for (std::uint64_t seed = 1; seed <= 12; ++seed) {
        SCOPED_TRACE("seed " + std::to_string(seed));
        World world(seed, seed % 3 == 0 ? 3 : 1, seed % 2 == 0 ? 3 : 2);
        world.exchange();
        if (HasFailure()) return;
        world.end();
    }
}

TEST(MpiLink, WhoTakesNothingInIsSentSoManyChunksAndNoMore) {
    constexpr std::uint32_t chunks = 3;
    World world(1, 1, chunks);
    Side& sender = world.side(0);
    const std::array<std::byte, 200> message{};
    while (sender.link.session().send(message) == Post::done) {
    }
    std::size_t left = 0;
    std::array<Event, 8> room;
    for (int step = 0; step < 100; ++step) {
        std::size_t count = 0;
        ASSERT_TRUE(sender.work(room, count));
        left = static_cast<std::size_t>(std::ranges::count(world.between().wanted, 1U, &Between::Wanted::by));
    }
    EXPECT_EQ(left, 4U) << "places that are left of " << chunks << " and 4 for words";
    EXPECT_FALSE(sender.link.drained());
}

struct Lie {
    const char* name;
    ChunkHead head;
    std::size_t bytes;
    const char* why;
};

class MpiLinkLies : public testing::TestWithParam<Lie> {};

TEST_P(MpiLinkLies, EndTheConnection) {
    World world(1, 1, 2);
    Side& liar = world.side(1);
    Side& side = world.side(0);
    std::array<std::byte, sizeof(ChunkHead)> bytes{};
    std::memcpy(bytes.data(), &GetParam().head, sizeof(ChunkHead));
    liar.library.send(0, first_tag, Bytes(bytes).first(GetParam().bytes), 0);
    std::array<Event, 8> room;
    std::size_t count = 0;
    int step = 0;
    for (; side.work(room, count); ++step)
        ASSERT_LT(step, 1000) << "nobody noticed";
    EXPECT_EQ(side.link.why_lost(), GetParam().why);
    side.link.stop();
    for (step = 0; !side.link.let_go(); ++step) {
        ASSERT_LT(step, 1000) << "it waits for the end of whoever lies";
        side.take_ended();
    }
}

constexpr std::size_t whole = sizeof(ChunkHead);
INSTANTIATE_TEST_SUITE_P(
    All, MpiLinkLies,
    testing::Values(
        Lie{"short", {}, 3, "a chunk without a head"},
        Lie{"kind", {.kind = static_cast<ChunkHead::Kind>(9)}, whole, "a chunk of an unknown kind"},
        Lie{"credit", {.kind = ChunkHead::Kind::credit, .taken = 1}, whole, "a credit for what was not sent"},
        Lie{"back", {.kind = ChunkHead::Kind::credit, .taken = 0xFFFFFFFF}, whole, "a credit for what was not sent"},
        Lie{"body", {.kind = ChunkHead::Kind::data, .body_bytes = 0xFFFFFFFF}, whole, "a body of a forbidden size"}),
    [](const auto& lie) { return lie.param.name; });

/// Whose hello was answered at once, but who gives up before it hears that.
TEST(MpiEndpoint, DoesNotWaitForWhoGivesUpWhileItIsLetIn) {
    for (std::uint64_t seed = 1; seed <= 8; ++seed) {
        SCOPED_TRACE("seed " + std::to_string(seed));
        Between between;
        std::array<Fake, 2> libraries{Fake(between, 0, seed), Fake(between, 1, seed)};
        std::array<Hub, 2> hubs{Hub(libraries[0]), Hub(libraries[1])};
        const EndpointSettings settings{
            .streams = 2, .chunks = 2, .chunk_bytes = 8192, .copy_below_bytes = 4096, .connect_timeout = ps_per_s};
        Endpoint caller(settings, {.self = Peer{0}, .log = {}}, hubs[0]);
        Endpoint called(settings, {.self = Peer{1}, .log = {}}, hubs[1]);
        std::array<Event, 8> room;
        ASSERT_EQ(caller.connect(Peer{1}, called.address(), 1), Post::pending);
        for (int step = 0; step < 50; ++step)
            EXPECT_EQ(called.poll(0, room), 0U) << "the hello waits there";
        ASSERT_EQ(called.connect(Peer{0}, caller.address(), 1), Post::pending);
        called.disconnect(Peer{0});
        caller.disconnect(Peer{1});
        std::array<bool, 2> is_down{};
        for (int step = 0; !is_down[0] || !is_down[1]; ++step) {
            ASSERT_LT(step, 1000) << is_down[0] << is_down[1];
            for (const Event& event : std::span(room).first(caller.poll(0, room)))
                is_down[0] = is_down[0] || event.kind == Event::Kind::peer_down;
            for (const Event& event : std::span(room).first(called.poll(0, room)))
                is_down[1] = is_down[1] || event.kind == Event::Kind::peer_down;
        }
    }
}

}  // namespace

Result<Library*> start_library() {
    return Error{"no MPI here"};
}

}  // namespace incast::transport::mpi

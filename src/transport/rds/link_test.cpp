// Two links over a pair of sockets that keep messages whole and in order, as RDS does: what was posted arrives once, in
// order and whole; who lies, loses messages, or is silent is left, with one line; strangers change nothing.
#include "transport/rds/link.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include "base/prng.h"

namespace incast::transport::rds {
namespace {

constexpr std::size_t place_bytes = 65536;
constexpr std::uint64_t places = 4;
constexpr std::uint64_t rounds = 60;
constexpr std::uint32_t message_bytes = 24000;
constexpr std::uint64_t token = 0x0123'4567'89AB'CDEF;
constexpr Time deadline = 8 * ps_per_s;

void fill(std::span<std::byte> into, std::uint64_t seed) {
    for (std::size_t at = 0; at < into.size(); ++at)
        into[at] = static_cast<std::byte>(base::mix64(seed + at / 8) >> (8 * (at % 8)));
}
/// Small ones, those that travel with others, and those that begin messages.
std::size_t body_bytes(std::uint64_t number) {
    return base::mix64(number) % (number % 2 == 0 ? place_bytes + 1 : 3000);
}

struct Side {
    Side(std::uint32_t self, int fd)
        : number(self),
          link(os::Descriptor(fd),
               {.token = token + self,
                .peer_token = token + 1 - self,
                .message_bytes = message_bytes,
                .peer_bytes = message_bytes,
                .deadline = deadline},
               framed::SessionOptions{.self = Peer{self},
                                      .peer = Peer{1 - self},
                                      .self_incarnation = 1,
                                      .peer_incarnation = 1,
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
    /// Once, with so many places for events.
    bool work(std::span<Event> room, std::size_t& count, Time now = 0) {
        link.note(EPOLLIN | EPOLLOUT);
        framed::EventWriter events(room);
        const bool is_up = link.work(now, events, ++polls);
        count = events.count();
        return is_up;
    }

    std::uint32_t number;
    Regions regions{4};
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

class RdsLink : public testing::Test {
protected:
    void begin() {
        std::array<int, 2> fds{};
        ASSERT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds.data()), 0);
        for (std::uint32_t self = 0; self < 2; ++self)
            sides_[self] = std::make_unique<Side>(self, fds[self]);
    }
    Side& side(std::size_t number) { return *sides_[number]; }

    void post(Side& side) {
        const Side& other = *sides_[1 - side.number];
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

    /// What side 1 sends by itself.
    void forge(MessageHead head, std::size_t bytes) {
        std::vector<std::byte> message(std::max(bytes, sizeof head));
        std::memcpy(message.data(), &head, sizeof head);
        ASSERT_EQ(::send(side(1).link.socket().fd(), message.data(), bytes, MSG_DONTWAIT), static_cast<ssize_t>(bytes));
    }

    std::array<std::unique_ptr<Side>, 2> sides_;
};

TEST_F(RdsLink, WhatIsPostedArrivesOnceInOrderAndWhole) {
    for (std::uint64_t seed = 1; seed <= 6; ++seed) {
        SCOPED_TRACE("seed " + std::to_string(seed));
        base::Prng random(seed);
        begin();
        Time now = 0;
        for (int step = 0;
             side(0).arrived < rounds || side(1).arrived < rounds || !side(0).link.drained() || !side(1).link.drained();
             ++step) {
            ASSERT_LT(step, 200'000) << "it does not come to an end";
            Side& one = side(random.below(2));
            post(one);
            std::array<Event, 8> room;
            const std::span<Event> some = std::span(room).first(random.below(room.size() + 1));
            std::size_t count = 0;
            now += ps_per_ms;
            ASSERT_TRUE(one.work(some, count, now)) << one.link.why_lost();
            for (const Event& event : some.first(count))
                check(one, event);
            if (HasFailure()) return;
        }
        std::array<Event, 8> room;
        std::size_t count = 0;
        side(0).link.close();
        EXPECT_FALSE(side(1).work(room, count));
        EXPECT_EQ(side(1).link.why_lost(), "");
    }
}

/// Of a body that begins a message, each byte is copied by the kernel alone: once here, once there.
TEST_F(RdsLink, LargeBodiesGoStraightToTheirPlace) {
    begin();
    constexpr std::size_t bytes = 60000;
    const std::span body = side(0).regions.memory(side(0).source).first(bytes);
    fill(body, 1);
    ASSERT_EQ(side(0).link.session().write({}, body, side(1).key, 0, std::uint16_t{3}, 1), Post::pending);
    std::array<Event, 8> room;
    std::size_t count = 0;
    for (int step = 0; count == 0; ++step) {
        ASSERT_LT(step, 100);
        ASSERT_TRUE(side(0).work(room, count));
        ASSERT_TRUE(side(1).work(room, count));
    }
    EXPECT_EQ(room[0].kind, Event::Kind::notice);
    EXPECT_TRUE(std::ranges::equal(side(1).regions.memory(side(1).slots).first(bytes), body));
    EXPECT_LT(side(1).link.copied_bytes(), bytes + 200);
}

TEST_F(RdsLink, WhoIsSilentForTooLongIsLost) {
    begin();
    std::array<Event, 8> room;
    std::size_t count = 0;
    ASSERT_TRUE(side(0).work(room, count, 0));
    EXPECT_EQ(side(0).link.next_deadline(), deadline / 4);
    ASSERT_TRUE(side(1).work(room, count, 0));
    ASSERT_TRUE(side(1).work(room, count, deadline / 4));
    ASSERT_TRUE(side(0).work(room, count, deadline / 2)) << "it has said a word";
    ASSERT_TRUE(side(0).work(room, count, deadline + deadline / 2 - 1));
    ASSERT_FALSE(side(0).work(room, count, deadline + deadline / 2));
    EXPECT_EQ(side(0).link.why_lost(), "no sign of life for 8.00 s");
}

TEST_F(RdsLink, WhoWasStoppedItselfReadsWhatHasComeBeforeItComplains) {
    begin();
    std::array<Event, 8> room;
    std::size_t count = 0;
    ASSERT_TRUE(side(0).work(room, count, 0));
    ASSERT_TRUE(side(1).work(room, count, 0));
    ASSERT_TRUE(side(1).work(room, count, deadline / 4));
    EXPECT_TRUE(side(0).work(room, count, 3 * deadline)) << side(0).link.why_lost();
}

TEST_F(RdsLink, StrangersChangeNothing) {
    begin();
    forge({.token = token ^ 1, .kind = MessageHead::Kind::data, .number = 7}, 500);
    forge({.token = token ^ 1, .kind = MessageHead::Kind::end}, sizeof(MessageHead));
    forge({.token = token, .kind = MessageHead::Kind::end}, 12);
    const std::array<std::byte, 10> message{};
    ASSERT_EQ(side(1).link.session().send(message), Post::done);
    std::array<Event, 8> room;
    std::size_t count = 0;
    ASSERT_TRUE(side(1).work(room, count));
    ASSERT_TRUE(side(0).work(room, count));
    ASSERT_EQ(count, 1U);
    EXPECT_EQ(room[0].kind, Event::Kind::message);
}

TEST_F(RdsLink, AMessageThatComesTwiceCountsOnce) {
    begin();
    const std::array<std::byte, 10> message{};
    ASSERT_EQ(side(1).link.session().send(message), Post::done);
    std::array<Event, 8> room;
    std::size_t count = 0;
    ASSERT_TRUE(side(1).work(room, count));
    forge({.token = token, .kind = MessageHead::Kind::data, .number = 0}, 66);
    ASSERT_TRUE(side(0).work(room, count)) << side(0).link.why_lost();
    EXPECT_EQ(count, 1U);
}

struct Lie {
    const char* name;
    MessageHead head;
    std::size_t bytes;
    const char* why;
};

class RdsLinkLies : public RdsLink, public testing::WithParamInterface<Lie> {};

TEST_P(RdsLinkLies, EndTheConnection) {
    begin();
    MessageHead head = GetParam().head;
    head.token = token;
    forge(head, GetParam().bytes);
    std::array<Event, 8> room;
    std::size_t count = 0;
    EXPECT_FALSE(side(0).work(room, count));
    EXPECT_EQ(side(0).link.why_lost(), GetParam().why);
}

using Kind = MessageHead::Kind;
constexpr std::size_t whole = sizeof(MessageHead);
INSTANTIATE_TEST_SUITE_P(
    All, RdsLinkLies,
    testing::Values(
        Lie{"kind", {.kind = static_cast<Kind>(9)}, whole, "a message that makes no sense"},
        Lie{"empty", {.kind = Kind::data}, whole, "a message that makes no sense"},
        Lie{"full", {.kind = Kind::word}, whole + 1, "a message that makes no sense"},
        Lie{"zero", {.kind = Kind::word, .zero = 1}, whole, "a message that makes no sense"},
        Lie{"long", {.kind = Kind::data}, whole + message_bytes + 1, "a message that is longer than agreed"},
        Lie{"gap", {.kind = Kind::data, .number = 1}, whole + 40, "messages are missing"},
        Lie{"loss", {.kind = Kind::word, .number = 1}, whole, "messages are missing"},
        Lie{"taken", {.kind = Kind::word, .taken = 1}, whole, "it took in more than was sent"}),
    [](const auto& lie) { return lie.param.name; });

}  // namespace
}  // namespace incast::transport::rds

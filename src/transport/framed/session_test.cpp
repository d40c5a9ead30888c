// Two sessions joined by byte streams that the test cuts and delays as it likes.
#include "transport/framed/session.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <deque>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "base/prng.h"

namespace incast::transport::framed {
namespace {

std::vector<std::byte> bytes_of(std::size_t size, std::uint64_t seed) {
    std::vector<std::byte> bytes(size);
    for (std::size_t i = 0; i < size; ++i)
        bytes[i] = static_cast<std::byte>(base::mix64(seed + i / 8) >> (8 * (i % 8)));
    return bytes;
}

constexpr std::size_t region_bytes = std::size_t{4} << 20;

/// One side: regions, session, and what is on its way to it, per stream.
struct Side {
    Side(std::uint32_t self, std::uint32_t peer, std::uint32_t streams, std::uint32_t first_sequence = 0) {
        session.emplace(SessionOptions{.self = Peer{self},
                                       .peer = Peer{peer},
                                       .self_incarnation = self + 10,
                                       .peer_incarnation = peer + 10,
                                       .streams = streams,
                                       .max_posted = 8,
                                       .max_peer_reads = 8,
                                       .staging_bytes = 8192,
                                       .copied_bytes = 16384,
                                       .copy_below_bytes = 100,
                                       .first_sequence = first_sequence},
                        regions);
        incoming.resize(streams);
    }

    Key expose(std::size_t bytes) {
        const Local region = regions.allocate(bytes).value();
        EXPECT_TRUE(regions.expose(region, {}));
        return {.generation = generation(), .region = static_cast<std::uint32_t>(region), .bytes = bytes};
    }
    [[nodiscard]] std::uint32_t generation() const { return own_index + 10; }

    Regions regions{16};
    std::optional<Session> session;
    std::vector<std::deque<std::byte>> incoming;
    std::uint32_t own_index = 0;
    std::uint64_t polls = 0;
};

class SessionTest : public testing::TestWithParam<std::uint32_t> {
protected:
    SessionTest() { b_.own_index = 1; }

    /// Takes up to `bytes` from the sender's stream.
    void send_some(Side& from, Side& to, std::size_t stream, std::size_t bytes, std::vector<Event>& events) {
        std::array<Event, 16> room;
        EventWriter writer(room);
        std::array<Bytes, 4> pieces;
        const std::size_t count = from.session->gather(stream, pieces, writer);
        std::size_t sent = 0;
        for (const Bytes piece : std::span(pieces).first(count)) {
            const std::size_t part = std::min(bytes - sent, piece.size());
            to.incoming[stream].insert(to.incoming[stream].end(), piece.begin(),
                                       piece.begin() + static_cast<std::ptrdiff_t>(part));
            sent += part;
            if (sent == bytes) break;
        }
        if (sent > 0) from.session->sent(stream, sent, writer);
        events.insert(events.end(), room.begin(), room.begin() + static_cast<std::ptrdiff_t>(writer.count()));
    }

    /// Delivers up to `bytes` to the receiver's stream. Message bytes are kept as they were at that time.
    Parse receive_some(Side& to, std::size_t stream, std::size_t bytes, std::size_t events_at_a_time,
                       std::vector<Event>& events) {
        ++to.polls;
        std::vector<Event> room(events_at_a_time);
        EventWriter writer(room);
        Parse result = Parse::hungry;
        if (to.session->blocked(stream)) result = to.session->parse(stream, writer, to.polls);
        auto& line = to.incoming[stream];
        const Receiver::Space space = to.session->space(stream, to.polls);
        std::size_t filled = 0;
        for (const std::span<std::byte> part : {space.payload, space.staging}) {
            const std::size_t now = std::min({part.size(), line.size(), bytes - filled});
            std::copy_n(line.begin(), now, part.begin());
            line.erase(line.begin(), line.begin() + static_cast<std::ptrdiff_t>(now));
            filled += now;
            if (now < part.size()) break;
        }
        if (filled > 0) {
            to.session->filled(stream, filled);
            result = to.session->parse(stream, writer, to.polls);
        }
        for (const Event& event : std::span(room).first(writer.count())) {
            if (event.kind == Event::Kind::message) {
                messages_.emplace_back(reinterpret_cast<const char*>(event.data), event.size_or_value);
            }
            events.push_back(event);
        }
        return result;
    }

    Side a_{0, 1, GetParam()};
    Side b_{1, 0, GetParam()};
    std::vector<std::string> messages_;
};

TEST_P(SessionTest, AnyCutOfTheStreamsGivesTheSameEventsAndBytes) {
    for (std::uint64_t seed = 1; seed <= 24; ++seed) {
        const std::uint32_t first_sequence = seed % 2 == 0 ? 0U : 0U - 20;  // over the end of 32 bits
        Side a(0, 1, GetParam(), first_sequence);
        Side b(1, 0, GetParam(), first_sequence);
        b.own_index = 1;
        base::Prng random(seed);
        messages_.clear();
        const Key key = b.expose(region_bytes);
        const Local source = a.regions.allocate(region_bytes).value();
        const auto content = bytes_of(region_bytes, seed);
        std::copy(content.begin(), content.end(), a.regions.memory(source).begin());
        std::vector<std::byte> expected(region_bytes);

        std::vector<Event> at_a;
        std::vector<Event> at_b;
        std::vector<std::string> sent_messages;
        std::vector<int> order;  // -1: message, else notice
        std::size_t pending = 0;
        std::uint16_t posted = 0;
        constexpr std::uint16_t items = 60;
        for (int step = 0; step < 200'000; ++step) {
            if (posted < items) {
                if (random.below(3) == 0) {
                    const auto message = bytes_of(1 + random.below(max_message_bytes), random.next());
                    if (a.session->send(message) == Post::done) {
                        sent_messages.emplace_back(reinterpret_cast<const char*>(message.data()), message.size());
                        order.push_back(-1);
                        ++posted;
                    }
                } else {
                    // Disjoint targets, so that the expected content does not depend on when writes land.
                    const std::size_t length = random.below(random.below(2) == 0 ? 200 : 40'000);
                    const std::size_t head_bytes = random.below(65);
                    const std::uint64_t offset = std::uint64_t{posted} * 41'000;
                    const auto head = bytes_of(head_bytes, random.next());
                    const std::uint64_t from = random.below(1000);
                    const Bytes body = a.regions.memory(source).subspan(from, length);
                    const bool noticed = random.below(4) > 0;
                    const Post post = a.session->write(head, body, key, offset, noticed ? Notice{posted} : Notice{},
                                                       posted + std::uint64_t{1});
                    ASSERT_NE(post, Post::refused);
                    if (post != Post::again) {
                        std::copy(head.begin(), head.end(), expected.begin() + static_cast<std::ptrdiff_t>(offset));
                        std::copy(body.begin(), body.end(),
                                  expected.begin() + static_cast<std::ptrdiff_t>(offset + head_bytes));
                        if (post == Post::pending) ++pending;
                        if (noticed) order.push_back(posted);
                        ++posted;
                    }
                }
            }
            const std::size_t stream = random.below(GetParam());
            if (random.below(2) == 0) send_some(a, b, stream, 1 + random.below(9000), at_a);
            if (random.below(2) == 0) {
                ASSERT_NE(receive_some(b, stream, 1 + random.below(9000), random.below(4), at_b), Parse::violation)
                    << b.session->violation();
            }
            if (posted == items && at_b.size() == order.size() && at_a.size() == pending &&
                b.incoming[stream].empty()) {
                bool quiet = true;
                for (std::size_t i = 0; i < GetParam(); ++i)
                    quiet = quiet && !a.session->has_output(i) && b.incoming[i].empty();
                if (quiet) break;
            }
        }
        ASSERT_EQ(at_b.size(), order.size()) << "seed " << seed;
        std::size_t message = 0;
        for (std::size_t i = 0; i < order.size(); ++i) {
            if (order[i] < 0) {
                ASSERT_EQ(at_b[i].kind, Event::Kind::message);
                ASSERT_EQ(messages_[message], sent_messages[message]) << "seed " << seed;
                ++message;
            } else {
                ASSERT_EQ(at_b[i].kind, Event::Kind::notice);
                ASSERT_EQ(at_b[i].size_or_value, order[i]) << "seed " << seed;
            }
        }
        EXPECT_EQ(at_a.size(), pending);
        const auto landed = b.regions.memory(Local{0});
        EXPECT_TRUE(std::equal(landed.begin(), landed.end(), expected.begin())) << "seed " << seed;
    }
}

TEST_P(SessionTest, ReadsComeBackWhole) {
    const Key key = b_.expose(100'000);
    const auto content = bytes_of(100'000, 5);
    std::copy(content.begin(), content.end(), b_.regions.memory(Local{0}).begin());
    const Local into = a_.regions.allocate(100'000).value();
    std::vector<std::byte> buffer(50'000);
    EXPECT_EQ(a_.session->read(key, 17, a_.regions.memory(into).first(50'000), 9), Post::pending);
    std::vector<Event> events;
    for (int step = 0; step < 1000 && events.empty(); ++step) {
        for (std::size_t stream = 0; stream < GetParam(); ++stream) {
            send_some(a_, b_, stream, 1000, events);
            ASSERT_NE(receive_some(b_, stream, 1000, 4, events), Parse::violation);
            send_some(b_, a_, stream, 5000, events);
            ASSERT_NE(receive_some(a_, stream, 5000, 4, events), Parse::violation);
        }
    }
    ASSERT_EQ(events.size(), 1u);
    EXPECT_EQ(events[0].kind, Event::Kind::completed);
    EXPECT_EQ(events[0].status, Status::ok);
    EXPECT_EQ(events[0].token, 9u);
    EXPECT_TRUE(std::equal(content.begin() + 17, content.begin() + 50'017, a_.regions.memory(into).begin()));
}

TEST_P(SessionTest, AKeyThatLiesAboutItsRegionIsAViolationForWritesAndAFaultForReads) {
    Key key = b_.expose(1000);
    key.bytes = 1'000'000;
    const Local mine = a_.regions.allocate(4096).value();
    std::vector<Event> events;
    EXPECT_EQ(a_.session->read(key, 999, a_.regions.memory(mine).first(2), 4), Post::pending);
    for (int step = 0; step < 10; ++step) {
        send_some(a_, b_, 0, 1000, events);
        ASSERT_NE(receive_some(b_, 0, 1000, 4, events), Parse::violation);
        send_some(b_, a_, 0, 1000, events);
        ASSERT_NE(receive_some(a_, 0, 1000, 4, events), Parse::violation);
    }
    ASSERT_EQ(events.size(), 1u);
    EXPECT_EQ(events[0].status, Status::remote_fault);
    EXPECT_NE(a_.session->write({}, a_.regions.memory(mine).first(8), key, 996, {}, 5), Post::refused);
    send_some(a_, b_, 0, 1000, events);
    EXPECT_EQ(receive_some(b_, 0, 1000, 4, events), Parse::violation);
    EXPECT_STREQ(b_.session->violation(), "a write outside an exposed region");
    EXPECT_EQ(b_.regions.memory(Local{0})[996], std::byte{0});
}

TEST_P(SessionTest, TC_R2_AReadThroughAKeyOfAnotherIncarnationBringsNothing) {
    Side later(2, 0, GetParam());  // as a_ knows it: of the incarnation before
    Key key = later.expose(1000);
    key.generation = b_.generation();
    const Local mine = a_.regions.allocate(4096).value();
    std::vector<Event> events;
    EXPECT_EQ(a_.session->read(key, 0, a_.regions.memory(mine).first(2), 4), Post::pending);
    for (int step = 0; step < 10; ++step) {
        send_some(a_, later, 0, 1000, events);
        ASSERT_NE(receive_some(later, 0, 1000, 4, events), Parse::violation);
        send_some(later, a_, 0, 1000, events);
        ASSERT_NE(receive_some(a_, 0, 1000, 4, events), Parse::violation);
    }
    ASSERT_EQ(events.size(), 1u);
    EXPECT_EQ(events[0].status, Status::remote_fault);
}

TEST_P(SessionTest, AbandonCompletesEverythingOnce) {
    const Key key = b_.expose(100'000);
    const Local mine = a_.regions.allocate(100'000).value();
    const Bytes body = a_.regions.memory(mine).first(5000);
    EXPECT_EQ(a_.session->write({}, body, key, 0, {}, 1), Post::pending);
    EXPECT_EQ(a_.session->write({}, body, key, 0, {}, 0), Post::pending);
    EXPECT_EQ(a_.session->read(key, 0, a_.regions.memory(mine).first(10), 2), Post::pending);
    EXPECT_EQ(a_.session->write({}, body, key, 99'000, {}, 3), Post::pending);  // outside
    std::vector<Event> events;
    send_some(a_, b_, 0, 100, events);
    std::vector<Token> tokens;
    for (bool finished = false; !finished;) {
        std::array<Event, 1> room;
        EventWriter writer(room);
        finished = a_.session->abandon(Status::peer_lost, writer);
        if (writer.count() == 1) {
            tokens.push_back(room[0].token);
            EXPECT_EQ(room[0].status, room[0].token == 3 ? Status::remote_fault : Status::peer_lost);
        }
    }
    std::ranges::sort(tokens);
    EXPECT_EQ(tokens, (std::vector<Token>{1, 2, 3}));
}

TEST_P(SessionTest, WhatIsWrittenToAReleasedRegionIsReadAndDropped) {
    const Key key = b_.expose(8192);
    const Local source = a_.regions.allocate(8192).value();
    const auto content = a_.regions.memory(source);
    std::ranges::fill(content, std::byte{5});
    std::vector<Event> events;
    const auto move = [&](std::size_t bytes) {
        for (std::size_t stream = 0; stream < GetParam(); ++stream) {
            send_some(a_, b_, stream, bytes, events);
            EXPECT_NE(receive_some(b_, stream, bytes, 8, events), Parse::violation) << b_.session->violation();
        }
    };
    EXPECT_NE(a_.session->write({}, content, key, 0, std::uint16_t{1}, 0), Post::refused);
    move(4000);
    const Bytes old = b_.regions.memory(Local{0});
    ASSERT_TRUE(b_.regions.release(Local{0}));
    // The memory of what is being received stays until it is there.
    const auto in_use = [&](Bytes memory) { return b_.session->uses(memory); };
    b_.regions.sweep(in_use);
    EXPECT_TRUE(b_.regions.has_retired());
    const Key next = b_.expose(8192);
    EXPECT_EQ(next.region, key.region);
    EXPECT_EQ(b_.regions.use(Local{0}), 1u);
    // Posted before it was heard of, and after.
    EXPECT_NE(a_.session->write({}, content.first(3000), key, 0, std::uint16_t{2}, 0), Post::refused);
    EXPECT_EQ(a_.session->read(key, 0, content.first(10), 7), Post::pending);
    EXPECT_EQ(a_.session->send(content.first(20)), Post::done);
    for (int round = 0; round < 40; ++round)
        move(2000);
    b_.regions.sweep(in_use);
    EXPECT_FALSE(b_.regions.has_retired());
    EXPECT_NE(b_.regions.memory(Local{0}).data(), old.data());
    EXPECT_TRUE(std::ranges::all_of(b_.regions.memory(Local{0}), [](std::byte b) { return b == std::byte{0}; }));
    EXPECT_EQ(std::ranges::count(events, Event::Kind::notice, &Event::kind), 0);
    EXPECT_EQ(messages_.size(), 1u) << "what comes behind them arrives";
    for (std::size_t stream = 0; stream < GetParam(); ++stream) {
        for (int round = 0; round < 10; ++round) {
            send_some(b_, a_, stream, 1000, events);
            (void)receive_some(a_, stream, 1000, 8, events);
        }
    }
    const auto refused = std::ranges::find(events, Token{7}, &Event::token);
    ASSERT_NE(refused, events.end());
    EXPECT_EQ(refused->status, Status::remote_fault);
}

TEST(Regions, ANumberThatWasUsedUpNamesNothingAnyMore) {
    Regions regions{2};
    for (int round = 0; round < 65535; ++round)
        ASSERT_TRUE(regions.release(regions.allocate(1).value()));
    EXPECT_EQ(regions.use(Local{0}), 65535u);
    EXPECT_TRUE(regions.is_past(0, 65534));
    EXPECT_EQ(regions.allocate(1).value(), Local{1});
    EXPECT_FALSE(regions.allocate(1).ok());
}

TEST(Grants, APeerIsBoundedToThePlacesThatWereGrantedToIt) {
    Regions regions{4};
    const Local region = regions.allocate(1000).value();
    const Local other = regions.allocate(1000).value();
    const auto may = [&](std::uint32_t peer, std::uint64_t offset, std::uint64_t length) {
        return regions.may_write(Peer{peer}, static_cast<std::size_t>(region), offset, length);
    };
    const Grant strided{.peer = Peer{1}, .read = false, .offset = 100, .length = 50, .stride = 200, .count = 5};
    EXPECT_TRUE(regions.expose(region, strided));
    EXPECT_TRUE(regions.expose(region, strided)) << "again";
    EXPECT_TRUE(regions.expose(region, {.peer = Peer{1}, .offset = 990}));
    EXPECT_TRUE(regions.expose(other, {.peer = Peer{1}, .length = 10}));
    for (std::uint64_t place = 0; place < 5; ++place) {
        const std::uint64_t from = 100 + place * 200;
        EXPECT_TRUE(may(1, from, 50));
        EXPECT_TRUE(may(1, from + 49, 1));
        EXPECT_TRUE(may(1, from + 50, 0)) << "nothing, at its end";
        EXPECT_FALSE(may(1, from + 49, 2));
        EXPECT_FALSE(may(1, from - 1, 1));
        EXPECT_FALSE(may(1, from + 51, 1));
        EXPECT_FALSE(may(2, from, 1)) << "another peer's";
        EXPECT_FALSE(regions.may_read(Peer{1}, static_cast<std::size_t>(region), from, 50)) << "for writing";
    }
    EXPECT_TRUE(may(1, 990, 10));
    EXPECT_TRUE(regions.may_read(Peer{1}, static_cast<std::size_t>(region), 990, 10));
    EXPECT_FALSE(may(1, 100, 250)) << "two places at once";
    EXPECT_TRUE(regions.may_write(Peer{1}, static_cast<std::size_t>(other), 0, 10));
    EXPECT_FALSE(regions.may_write(Peer{1}, static_cast<std::size_t>(other), 100, 10));
    EXPECT_TRUE(regions.expose(other, {.peer = Peer{2}, .length = 10, .stride = 100, .count = 2}));
    EXPECT_TRUE(regions.may_write(Peer{2}, static_cast<std::size_t>(other), 100, 10));
    EXPECT_FALSE(regions.may_write(Peer{2}, static_cast<std::size_t>(other), 200, 10)) << "behind the last place";
    for (const Grant& wrong :
         {Grant{.offset = 100, .length = 50, .stride = 200, .count = 6}, Grant{.offset = 1, .length = 1000},
          Grant{.offset = 1001}, Grant{.count = 2}, Grant{.length = 1, .stride = ~std::uint64_t{0} / 2, .count = 3}}) {
        EXPECT_FALSE(regions.expose(region, wrong));
    }
    EXPECT_FALSE(regions.expose(Local{9}, {}));
    EXPECT_TRUE(regions.expose(region, {.write = false}));
    EXPECT_TRUE(regions.may_read(Peer{7}, static_cast<std::size_t>(region), 0, 1000)) << "everybody's";
    EXPECT_FALSE(may(7, 0, 1));
    EXPECT_TRUE(regions.expose(other, {}));
    EXPECT_TRUE(regions.may_write(Peer{3}, static_cast<std::size_t>(other), 100, 10)) << "to everybody, everything";
    EXPECT_TRUE(regions.release(region));
    EXPECT_EQ(regions.allocate(1000).value(), region);
    EXPECT_FALSE(may(1, 990, 10)) << "that was of the region before";
}

INSTANTIATE_TEST_SUITE_P(Streams, SessionTest, testing::Values(1, 2, 5), testing::PrintToStringParamName());

struct BadFrame {
    const char* name;
    FrameHeader frame;
    const char* violation;
};

class BadFrameTest : public testing::TestWithParam<BadFrame> {};

TEST_P(BadFrameTest, IsAViolationAndLandsNowhere) {
    Side side(0, 1, 1);
    const Key exposed = side.expose(1000);
    const Local hidden = side.regions.allocate(1000).value();
    ASSERT_EQ(exposed.region, 0u);
    ASSERT_EQ(static_cast<std::uint32_t>(hidden), 1u);
    const FrameHeader frame = GetParam().frame;
    std::array<Event, 4> room;
    EventWriter events(room);
    const Receiver::Space space = side.session->space(0, 1);
    std::memcpy(space.staging.data(), &frame, sizeof frame);
    std::fill_n(space.staging.begin() + sizeof frame, 2000, std::byte{7});
    side.session->filled(0, sizeof frame + 2000);
    EXPECT_EQ(side.session->parse(0, events, 1), Parse::violation);
    EXPECT_STREQ(side.session->violation(), GetParam().violation);
    EXPECT_EQ(events.count(), 0u);
    for (const Local region : {Local{0}, Local{1}}) {
        EXPECT_TRUE(std::ranges::all_of(side.regions.memory(region), [](std::byte b) { return b == std::byte{0}; }));
    }
}

constexpr auto outside = "a write outside an exposed region";
INSTANTIATE_TEST_SUITE_P(
    Frames, BadFrameTest,
    testing::Values(
        BadFrame{"UnknownKind", {.kind = FrameKind{99}}, "a frame of an unknown kind"},
        BadFrame{"ReservedByte",
                 {.kind = FrameKind::message, .zero_8 = 1, .length = 1},
                 "a reserved field of a frame is not zero"},
        BadFrame{"UseOfNoRegion",
                 {.kind = FrameKind::message, .length = 1, .use = 1},
                 "a reserved field of a frame is not zero"},
        BadFrame{"LaterUse", {.kind = FrameKind::write, .length = 1, .generation = 10, .use = 1}, outside},
        BadFrame{"EmptyMessage", {.kind = FrameKind::message}, "a message of a forbidden size"},
        BadFrame{"LongMessage", {.kind = FrameKind::message, .length = 4001}, "a message of a forbidden size"},
        BadFrame{"HugeWrite",
                 {.kind = FrameKind::write, .length = 0xFFFFFFFF, .generation = 10},
                 "a write of a forbidden size"},
        BadFrame{"OtherGeneration",
                 {.kind = FrameKind::write, .length = 8, .generation = 9},
                 "a write for another incarnation"},
        BadFrame{
            "PastTheEnd", {.kind = FrameKind::write_notice, .length = 8, .generation = 10, .offset = 993}, outside},
        BadFrame{"OffsetWraps",
                 {.kind = FrameKind::write, .length = 8, .generation = 10, .offset = ~std::uint64_t{0} - 3},
                 outside},
        BadFrame{"HiddenRegion", {.kind = FrameKind::write, .length = 8, .generation = 10, .region = 1}, outside},
        BadFrame{"UnknownRegion", {.kind = FrameKind::write, .length = 8, .generation = 10, .region = 65535}, outside},
        BadFrame{"NumberOfThePast",
                 {.kind = FrameKind::message, .length = 8, .sequence = 0xFFFFFFFF},
                 "a frame number came twice"},
        BadFrame{"HugeRead", {.kind = FrameKind::read_request, .length = 0xFFFFFFFF}, "a read of a forbidden size"},
        BadFrame{"ReplyToNoRead", {.kind = FrameKind::read_reply, .length = 8, .tag = 3}, "an answer to no read"},
        BadFrame{"RefusalOfNoRead", {.kind = FrameKind::read_refused, .tag = 0xFFFFFFFF}, "an answer to no read"}),
    [](const testing::TestParamInfo<BadFrame>& each) { return std::string(each.param.name); });

}  // namespace
}  // namespace incast::transport::framed

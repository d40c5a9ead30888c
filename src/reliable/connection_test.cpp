// What single packets do to a session. The behaviour of whole sessions under faults is in simulation_test.cpp.
#include "reliable/connection.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

namespace incast::reliable {
namespace {

using Bytes = std::vector<std::byte>;

constexpr Settings settings = {.datagram_bytes = 200, .window_packets = 16};

/// Both ends in one place; what they send is moved by hand.
struct Ends {
    Ends() : a(settings, 1, {}), b(settings, 2, {}) {}

    std::vector<Bytes> out(Connection& from) {
        std::vector<Bytes> all;
        while (true) {
            const Datagram datagram = from.next_datagram(now_ns);
            if (datagram.bytes.empty()) return all;
            all.emplace_back(datagram.bytes.begin(), datagram.bytes.end());
        }
    }
    bool give(Connection& to, const Bytes& datagram, bool takes_data = true) {
        const auto packet = parse(datagram);
        EXPECT_TRUE(packet.has_value());
        const bool taken = packet && to.receive(now_ns, next_random += 0x10001, *packet, takes_data);
        while (const auto delivery = to.next_delivery())
            got.emplace_back(reinterpret_cast<const char*>(delivery->body.data()), delivery->body.size());
        return taken;
    }
    /// Until both have nothing more to say.
    void settle() {
        for (bool is_moving = true; is_moving;) {
            is_moving = false;
            for (auto [from, to] : {std::pair{&a, &b}, {&b, &a}}) {
                for (const Bytes& each : out(*from)) {
                    is_moving = true;
                    (void)give(*to, each);
                }
            }
        }
    }
    void add(Connection& to, const std::string& text, std::uint8_t lane = 1) {
        ASSERT_GT(to.room(), 0U);
        std::memcpy(to.body().data(), text.data(), text.size());
        to.add(lane, text.size());
    }
    void connect() {
        a.open(now_ns, 0x1234'0000);
        settle();
        ASSERT_TRUE(a.is_established());
        ASSERT_TRUE(b.is_established());
    }

    std::int64_t now_ns = 1'000'000'000;
    std::uint64_t next_random = 0x5555'0000;
    Connection a;
    Connection b;
    std::vector<std::string> got;
};

TEST(Connection, PacketsPastFutureAndTwice) {
    Ends ends;
    ends.connect();
    for (const char* text : {"one", "two", "three"})
        ends.add(ends.a, text);
    const auto sent = ends.out(ends.a);
    ASSERT_EQ(sent.size(), 3U);
    EXPECT_TRUE(ends.give(ends.b, sent[2]));
    EXPECT_TRUE(ends.got.empty()) << "it waits for those before it";
    EXPECT_TRUE(ends.give(ends.b, sent[0]));
    EXPECT_TRUE(ends.give(ends.b, sent[0])) << "a replay";
    EXPECT_TRUE(ends.give(ends.b, sent[1], false)) << "there was no room";
    EXPECT_EQ(ends.got, (std::vector<std::string>{"one"}));
    EXPECT_TRUE(ends.give(ends.b, sent[1]));
    EXPECT_EQ(ends.got, (std::vector<std::string>{"one", "two", "three"}));
    EXPECT_EQ(ends.b.receive_counters().duplicates, 1U);
    EXPECT_EQ(ends.b.receive_counters().delivered, 3U);
}

TEST(Connection, AForgedHelloStopsNoOpening) {
    for (const bool comes_first : {false, true}) {
        Ends ends;
        Connection forger(settings, 3, {});
        forger.open(ends.now_ns, 0x6666'0000);
        const auto forged = ends.out(forger);
        ASSERT_EQ(forged.size(), 1U);
        if (!comes_first) ends.a.open(ends.now_ns, 0x1234'0000);
        EXPECT_TRUE(ends.give(ends.a, forged[0]));
        if (comes_first) ends.a.open(ends.now_ns, 0x1234'0000);
        ends.settle();
        if (!ends.a.is_established()) {
            ends.now_ns = ends.a.next_deadline_ns();
            ends.a.advance(ends.now_ns);
            ends.settle();
        }
        ASSERT_TRUE(ends.a.is_established());
        ASSERT_TRUE(ends.b.is_established());
        ends.add(ends.a, "heard");
        ends.settle();
        EXPECT_EQ(ends.got, std::vector<std::string>{"heard"});
    }
}

TEST(Connection, LanesDoNotWaitForEachOther) {
    Ends ends;
    ends.connect();
    ends.add(ends.a, "slow", 1);
    ends.add(ends.a, "fast", 2);
    ends.add(ends.a, "free", 0);
    const auto sent = ends.out(ends.a);
    for (const std::size_t index : {2U, 1U, 0U})
        (void)ends.give(ends.b, sent[index]);
    EXPECT_EQ(ends.got, (std::vector<std::string>{"free", "fast", "slow"}));
}

TEST(Connection, OnlyWhatIsMissingIsSentAgain) {
    Ends ends;
    ends.connect();
    for (int number = 0; number < 8; ++number)
        ends.add(ends.a, std::to_string(number));
    const auto sent = ends.out(ends.a);
    for (std::size_t index = 0; index < sent.size(); ++index) {
        if (index != 2) (void)ends.give(ends.b, sent[index]);
    }
    for (const Bytes& each : ends.out(ends.b))
        (void)ends.give(ends.a, each);
    const auto again = ends.out(ends.a);
    ASSERT_EQ(again.size(), 1U);
    EXPECT_EQ(parse(again[0])->sequence, 2U);
    (void)ends.give(ends.b, again[0]);
    EXPECT_EQ(ends.got.size(), 8U);
    ends.settle();
    EXPECT_TRUE(ends.a.is_settled());
    EXPECT_EQ(ends.a.send_counters().repeated, 1U);
}

TEST(Connection, TheWindowIsTheLimit) {
    Ends ends;
    ends.connect();
    for (std::uint32_t number = 0; number < settings.window_packets; ++number)
        ends.add(ends.a, "x");
    EXPECT_EQ(ends.a.room(), 0U);
    ends.settle();
    EXPECT_EQ(ends.a.room(), settings.window_packets);
}

TEST(Connection, PacketsOfAFormerLifeAreDropped) {
    Ends ends;
    ends.connect();
    ends.add(ends.a, "old");
    const auto old = ends.out(ends.a);
    // b begins anew, and calls.
    ends.b = Connection(settings, 2, {});
    ends.b.open(ends.now_ns, 0x9999'0000);
    ends.settle();
    EXPECT_EQ(ends.a.take_loss(), Loss::restarted);
    ASSERT_TRUE(ends.a.is_established());
    EXPECT_FALSE(ends.give(ends.b, old[0]));
    EXPECT_EQ(ends.b.strangers(), 1U);
    ends.add(ends.a, "new");
    ends.settle();
    EXPECT_EQ(ends.got, (std::vector<std::string>{"new"}));
}

TEST(Connection, AReplayedHelloEndsNothing) {
    Ends ends;
    ends.a.open(ends.now_ns, 0x1234'0000);
    const auto hello = ends.out(ends.a);
    ends.a.close();
    ends.a.open(ends.now_ns, 0x7777'0000);
    ends.settle();
    ASSERT_TRUE(ends.b.is_established());
    (void)ends.give(ends.b, hello[0]);
    ends.settle();
    EXPECT_FALSE(ends.b.take_loss().has_value());
    ends.add(ends.a, "still here");
    ends.settle();
    EXPECT_EQ(ends.got, (std::vector<std::string>{"still here"}));
}

TEST(Connection, WhoKnowsNoSuchSessionSaysSo) {
    Ends ends;
    ends.connect();
    ends.add(ends.a, "x");
    const auto sent = ends.out(ends.a);
    std::array<std::byte, header_bytes> answer{};
    ASSERT_EQ(Connection::answer_unknown(*parse(sent[0]), answer), header_bytes);
    Bytes forged(answer.begin(), answer.end());
    forged[8] ^= std::byte{1};
    EXPECT_FALSE(ends.give(ends.a, forged)) << "of another token";
    EXPECT_FALSE(ends.a.take_loss().has_value());
    EXPECT_TRUE(ends.give(ends.a, Bytes(answer.begin(), answer.end())));
    EXPECT_EQ(ends.a.take_loss(), Loss::restarted);
    EXPECT_TRUE(ends.a.is_idle());
}

TEST(Connection, SilenceIsDeathAtTheDeadline) {
    Ends ends;
    ends.connect();
    const std::int64_t until = ends.now_ns + settings.deadline_ns;
    int pings = 0;
    while (ends.a.is_established()) {
        ends.now_ns = ends.a.next_deadline_ns();
        ASSERT_LE(ends.now_ns, until);
        ends.a.advance(ends.now_ns);
        pings += static_cast<int>(ends.out(ends.a).size());
    }
    EXPECT_EQ(ends.now_ns, until);
    EXPECT_EQ(ends.a.take_loss(), Loss::silent);
    EXPECT_GE(pings, 3);
    EXPECT_FALSE(ends.a.take_loss().has_value()) << "said once";
}

/// Both are stopped, together with what is between them, and one of them goes on first.
TEST(Connection, APauseOfItsOwnIsNobodysSilence) {
    for (const std::int64_t pause_ns : {settings.deadline_ns, 10 * settings.deadline_ns, 86'400'000 * ms_ns}) {
        Ends ends;
        ends.connect();
        ends.add(ends.a, "under way");
        const auto sent = ends.out(ends.a);
        ends.now_ns += settings.deadline_ns / 6;
        ends.a.advance(ends.now_ns);
        ends.b.advance(ends.now_ns);
        ends.now_ns += pause_ns;
        ends.a.advance(ends.now_ns);
        ASSERT_TRUE(ends.a.is_established()) << pause_ns;
        ends.now_ns += settings.deadline_ns / 2;
        EXPECT_TRUE(ends.give(ends.b, sent[0]));
        ends.b.advance(ends.now_ns);
        ASSERT_TRUE(ends.b.is_established()) << pause_ns;
        ends.a.advance(ends.now_ns);
        ends.settle();
        EXPECT_EQ(ends.got, std::vector<std::string>{"under way"});
        EXPECT_TRUE(ends.a.is_settled());
        EXPECT_FALSE(ends.a.take_loss().has_value());
        EXPECT_FALSE(ends.b.take_loss().has_value());
        // From then on the other's silence counts, and only that.
        const std::int64_t until = ends.now_ns + settings.deadline_ns;
        while (ends.a.is_established()) {
            ends.now_ns = ends.a.next_deadline_ns();
            ASSERT_LE(ends.now_ns, until);
            ends.a.advance(ends.now_ns);
            (void)ends.out(ends.a);
        }
        EXPECT_EQ(ends.now_ns, until);
    }
}

TEST(Connection, APauseWhileItOpensTakesNothingFromTheTimeForThat) {
    Ends ends;
    ends.a.open(ends.now_ns, 0x1234'0000);
    (void)ends.out(ends.a);
    ends.now_ns += 10 * settings.open_ns;
    ends.a.advance(ends.now_ns);
    ASSERT_FALSE(ends.a.is_idle());
    ends.settle();
    EXPECT_TRUE(ends.a.is_established());
}

/// Late by a little, again and again, is no pause: whoever is silent is dead at last.
TEST(Connection, ALateOwnerStillNoticesSilence) {
    Ends ends;
    ends.connect();
    const std::int64_t begin_ns = ends.now_ns;
    while (ends.a.is_established()) {
        ASSERT_LT(ends.now_ns, begin_ns + 2 * settings.deadline_ns);
        ends.now_ns = std::max(ends.a.next_deadline_ns(), ends.now_ns) + settings.deadline_ns / 6;
        ends.a.advance(ends.now_ns);
        (void)ends.out(ends.a);
    }
    EXPECT_EQ(ends.a.take_loss(), Loss::silent);
}

TEST(Connection, NobodyAnswers) {
    Ends ends;
    ends.a.open(ends.now_ns, 0x1234'0000);
    while (!ends.a.is_idle()) {
        (void)ends.out(ends.a);
        ends.now_ns = ends.a.next_deadline_ns();
        ends.a.advance(ends.now_ns);
    }
    EXPECT_EQ(ends.a.take_loss(), Loss::unreachable);
}

TEST(Connection, DatagramsOfTwoSizesAreNoSession) {
    Settings other = settings;
    other.datagram_bytes = 300;
    Ends ends;
    ends.b = Connection(other, 2, {});
    ends.a.open(ends.now_ns, 0x1234'0000);
    ends.settle();
    EXPECT_FALSE(ends.a.is_established());
    EXPECT_TRUE(ends.b.is_idle());
}

TEST(Connection, GoodbyeIsHeard) {
    Ends ends;
    ends.connect();
    ends.b.close();
    ends.settle();
    EXPECT_EQ(ends.a.take_loss(), Loss::closed);
}

TEST(Connection, AcknowledgingTheFutureIsRefused) {
    Ends ends;
    ends.connect();
    ends.add(ends.b, "x");
    const std::uint64_t token = parse(ends.out(ends.b)[0])->token;
    Bytes lie(header_bytes);
    write_header(
        {.kind = Kind::ack, .lane = 0, .time_us = 0, .token = token, .sequence = 5, .lane_sequence = 0, .body = {}},
        lie.data());
    EXPECT_FALSE(ends.give(ends.a, lie));
}

/// The header has microseconds in 32 bits, which are full after 71 minutes of the host's being up.
TEST(Connection, RoundTripsAreMeasuredWhereTheirTimeBeginsAnew) {
    constexpr std::int64_t full_ns = (std::int64_t{1} << 32) * 1000;
    Ends ends;
    ends.now_ns = full_ns - ms_ns;
    ends.connect();
    ends.add(ends.a, "x");
    const auto sent = ends.out(ends.a);
    ends.now_ns += 5 * ms_ns;
    EXPECT_TRUE(ends.give(ends.b, sent[0]));
    ends.settle();
    EXPECT_TRUE(ends.a.is_settled());
    EXPECT_EQ(ends.a.round_trip_ns(), 5 * ms_ns);
}

TEST(Connection, ThePaceIsKept) {
    Settings paced = settings;
    paced.pace_bytes_per_s = 1'000'000;
    Ends ends;
    ends.a = Connection(paced, 1, {});
    ends.connect();
    const std::int64_t begin = ends.now_ns;
    constexpr int count = 200;
    const std::string text(100, 'x');
    for (int sent = 0; sent < count;) {
        for (; sent < count && ends.a.room() > 0; ++sent)
            ends.add(ends.a, text);
        ends.settle();
        ends.now_ns = std::max(ends.now_ns, std::min(ends.a.next_deadline_ns(), ends.b.next_deadline_ns()));
        ends.a.advance(ends.now_ns);
        ends.b.advance(ends.now_ns);
    }
    const double bytes = count * static_cast<double>(header_bytes + text.size());
    const double seconds = static_cast<double>(ends.now_ns - begin) * 1e-9;
    EXPECT_NEAR(bytes / seconds, 1e6, 1.5e5);
}

TEST(Connection, WhatIsSentOnceComesOnceOrAsNothing) {
    Connection a(settings, 1, {});
    Connection b(settings, 2, {});
    a.start(0, 0x10001, 0x20002, 64);
    b.start(0, 0x20002, 0x10001, 64);
    const std::array<std::byte, 100> rest{std::byte{7}};
    std::int64_t now = 0;
    std::vector<std::vector<std::byte>> sent;
    const auto pass = [&] {
        a.body()[0] = static_cast<std::byte>(sent.size());
        const auto head = a.pass(now, 1, rest.size());
        EXPECT_EQ(head.size(), header_bytes + 1);
        std::vector<std::byte> whole(head.begin(), head.end());
        whole.insert(whole.end(), rest.begin(), rest.end());
        sent.push_back(whole);
    };
    for (int i = 0; i < 8; ++i) {
        ASSERT_TRUE(a.may_pass(now));
        pass();
    }
    // The second gets lost; that the third and later ones are here says so.
    std::size_t arrived = 0;
    for (std::size_t i = 0; i < sent.size(); ++i) {
        if (i == 1) continue;
        ASSERT_TRUE(b.receive(now, 0, *parse(sent[i])));
        const auto delivery = b.next_delivery();
        ASSERT_TRUE(delivery.has_value());
        EXPECT_EQ(delivery->lane, 0);
        EXPECT_EQ(delivery->body.size(), 1 + rest.size());
        EXPECT_EQ(delivery->body[0], static_cast<std::byte>(i));
        ++arrived;
    }
    EXPECT_EQ(arrived, 7U);
    const Datagram ack = b.next_datagram(now);
    const std::vector<std::byte> said(ack.bytes.begin(), ack.bytes.end());
    ASSERT_TRUE(a.receive(now, 0, *parse(said)));
    EXPECT_FALSE(a.may_pass(now)) << "what is lost goes first";
    const Datagram again = a.next_datagram(now);
    EXPECT_EQ(again.bytes.size(), header_bytes) << "its number, and nothing else";
    ASSERT_TRUE(b.receive(now, 0, *parse(again.bytes)));
    EXPECT_TRUE(b.next_delivery()->body.empty());
    EXPECT_EQ(a.send_counters().lost, 1U);
    EXPECT_EQ(a.send_counters().repeated, 0U) << "nothing was";
    // What comes late is of a number that is here.
    ASSERT_TRUE(b.receive(now, 0, *parse(sent[1])));
    EXPECT_FALSE(b.next_delivery().has_value());
    const Datagram last = b.next_datagram(now);
    const std::vector<std::byte> final_word(last.bytes.begin(), last.bytes.end());
    ASSERT_TRUE(a.receive(now, 0, *parse(final_word)));
    EXPECT_TRUE(a.is_settled());
}

TEST(Connection, WhatIsSentOnceKeepsThePace) {
    Settings paced;
    paced.pace_bytes_per_s = 1'000'000;
    Connection a(paced, 1, {});
    std::int64_t now = 10 * ms_ns;
    a.start(now, 0x10001, 0x20002, 512);
    int sent = 0;
    for (; a.may_pass(now) && sent < 100; ++sent)
        (void)a.pass(now, 1, 1000);
    EXPECT_LT(sent, 10);
    a.wait_for_pace(now);
    now = a.next_deadline_ns();
    EXPECT_LT(now, 15 * ms_ns);
    EXPECT_TRUE(a.may_pass(now));
}

}  // namespace
}  // namespace incast::reliable

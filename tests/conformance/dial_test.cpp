// Clauses about peers that are no nodes of the rendezvous: they dial, knock, and are let in or turned away (TC-D1 to
// TC-D6).
#include "conformance.h"

#define INCAST_NEEDS_DIALLING INCAST_SKIP_UNLESS(capabilities().max_dialled > 0, "nobody dials")

namespace incast::conformance {
namespace {

constexpr std::uint64_t kib = 1024;
constexpr std::uint32_t max_peers = 4;  // of every endpoint here

TEST_P(Conformance, TC_D1_WhoDialsKnocksAndIsAPeerOnceItIsLetIn) {
    INCAST_NEEDS_DIALLING;
    Node& a = node(3);
    Node& b = node(1);
    for (const std::uint64_t greeting : {std::uint64_t{0}, std::uint64_t{max_greeting_bytes}}) {
        SCOPED_TRACE(greeting);
        const std::uint32_t there = a.dial(b.address(), greeting, 7);
        const Seen knock = wait_for_knock(b);
        const std::uint32_t here = knock.peer;
        EXPECT_GE(there, max_peers);
        EXPECT_GE(here, max_peers);
        EXPECT_EQ(knock.message, message_of(greeting, 7));
        EXPECT_EQ(knock.incarnation, 1u);
        let_time_pass();
        EXPECT_FALSE(a.take(Event::Kind::peer_up)) << "nobody let it in";
        EXPECT_EQ(a.send(there, 10, 0), Post::refused);
        EXPECT_EQ(b.send(here, 10, 0), Post::refused);
        ASSERT_EQ(b.accept(here), Post::pending);
        EXPECT_EQ(wait_for(a, Event::Kind::peer_up, there).incarnation, 1u);
        EXPECT_EQ(wait_for(b, Event::Kind::peer_up, here).incarnation, 1u);
        EXPECT_EQ(b.accept(here), Post::refused) << "it is in";

        const std::uint16_t region = b.allocate(8 * kib);
        const Reply key =
            b.execute({.op = Op::grant, .head_bytes = 3, .region = region, .peer = here, .length = 8 * kib});
        ASSERT_TRUE(key.ok) << key.text;
        const std::uint32_t remote = a.import_key(there, key.blob);
        for (std::uint16_t round = 0; round < 3; ++round) {
            const WriteArguments write{.head_bytes = 64, .remote = remote, .notice = round, .seed = round};
            ASSERT_TRUE(wait_until("the write to be taken", [&] { return taken(a.write(there, write)); }));
            EXPECT_EQ(wait_for(b, Event::Kind::notice, here).value, round);
            EXPECT_TRUE(b.matches(region, 0, 64, round));
            EXPECT_EQ(b.send(here, 100, round), Post::done);
            EXPECT_EQ(wait_for(a, Event::Kind::message, there).message, message_of(100, round));
            EXPECT_EQ(a.send(there, 200, round), Post::done);
            EXPECT_EQ(wait_for(b, Event::Kind::message, here).message, message_of(200, round));
        }
        // Far more than there is room for at a time, so that somebody has to be told of room.
        std::uint64_t sent = 0;
        std::uint64_t heard = 0;
        wait_until("all messages", [&] {
            sent += a.send_many(there, 1000, sent, 3000 - sent).first;
            for (; const auto seen = b.take(Event::Kind::message, here); ++heard)
                EXPECT_EQ(seen->message, message_of(1000, heard));
            return heard == 3000;
        });
        a.disconnect(there);
        EXPECT_EQ(wait_for(a, Event::Kind::peer_down, there).incarnation, 1u);
        EXPECT_EQ(wait_for(b, Event::Kind::peer_down, here).incarnation, 1u);
        a.take();
        b.take();
    }
}

TEST_P(Conformance, TC_D2_WhoIsTurnedAwayOrGivesUpIsDown) {
    INCAST_NEEDS_DIALLING;
    Node& a = node(0);
    Node& b = node(1);
    for (const bool turned_away : {true, false}) {
        SCOPED_TRACE(turned_away ? "turned away" : "given up");
        const std::uint32_t there = a.dial(b.address(), 10);
        const std::uint32_t here = wait_for_knock(b).peer;
        EXPECT_EQ(a.accept(there), Post::refused) << "it does not knock here";
        EXPECT_EQ(b.accept(here == max_peers ? here + 1 : max_peers), Post::refused) << "nobody has that number";
        EXPECT_EQ(b.accept(0), Post::refused) << "that is a node";
        if (turned_away) {
            b.disconnect(here);
        } else {
            a.disconnect(there);
        }
        wait_for(a, Event::Kind::peer_down, there);
        wait_for(b, Event::Kind::peer_down, here);
        EXPECT_EQ(b.accept(here), Post::refused);
        EXPECT_FALSE(a.take(Event::Kind::peer_up));
        EXPECT_FALSE(b.take(Event::Kind::peer_up));
    }
    // Whoever ends while it knocks is as any lost peer.
    (void)a.dial(b.address(), 10);
    const std::uint32_t here = wait_for_knock(b).peer;
    a.destroy();
    wait_for(b, Event::Kind::peer_down, here);
}

TEST_P(Conformance, TC_D3_ThereIsRoomForMaxDialledAndNumbersAreUsedAgain) {
    INCAST_NEEDS_DIALLING;
    Node& a = node(0);
    Node& b = node(1, {.max_dialled = 2});
    Node& c = node(2, {.max_dialled = 2});
    std::vector<std::uint32_t> knocks;
    for (int dials = 0; dials < 2; ++dials) {
        (void)a.dial(b.address(), 10);
        knocks.push_back(wait_for_knock(b).peer);
    }
    const std::uint32_t third = a.dial(b.address(), 10);
    wait_for(a, Event::Kind::peer_down, third);
    EXPECT_FALSE(b.take(Event::Kind::knock)) << "there is no room for it";
    const Reply full = b.execute({.op = Op::dial, .blob = c.address()});
    EXPECT_FALSE(full.ok);
    EXPECT_NE(full.text, "");
    for (const std::uint32_t knock : knocks) {
        b.disconnect(knock);
        wait_for(b, Event::Kind::peer_down, knock);
    }
    for (int rounds = 0; rounds < 20 && !HasFailure(); ++rounds) {
        const std::uint32_t there = b.dial(c.address(), 10, 3);
        const std::uint32_t here = wait_for_knock(c).peer;
        EXPECT_LT(there, max_peers + 2);
        EXPECT_LT(here, max_peers + 2);
        ASSERT_EQ(c.accept(here), Post::pending);
        wait_for(b, Event::Kind::peer_up, there);
        wait_for(c, Event::Kind::peer_up, here);
        c.disconnect(here);
        wait_for(b, Event::Kind::peer_down, there);
        wait_for(c, Event::Kind::peer_down, here);
    }
}

TEST_P(Conformance, TC_D4_WhoGetsANumberNextHasNothingOfWhatWasBefore) {
    INCAST_NEEDS_DIALLING;
    Node& a = node(0, {.max_dialled = 1});
    Node& b = node(1, {.max_dialled = 1});
    const std::uint16_t region = b.allocate(kib);
    const Command grant{.op = Op::grant, .head_bytes = 3, .region = region, .peer = max_peers, .length = kib};
    EXPECT_TRUE(capabilities().nature.bounds == Bounds::trusted || !b.execute(grant).ok) << "nobody has that number";
    Blob key;
    std::uint32_t remote = 0;
    for (const bool again : {false, true}) {
        SCOPED_TRACE(again ? "the next" : "the first");
        const std::uint32_t there = a.dial(b.address(), 0);
        const std::uint32_t here = wait_for_knock(b).peer;
        ASSERT_EQ(there, max_peers);
        ASSERT_EQ(here, max_peers);
        ASSERT_EQ(b.accept(here), Post::pending);
        wait_for(a, Event::Kind::peer_up, there);
        if (!again) {
            key = b.execute(grant).blob;
            remote = a.import_key(there, key);
            ASSERT_TRUE(wait_until("the write to be taken", [&] {
                return taken(a.write(there, {.head_bytes = 8, .remote = remote, .notice = std::uint16_t{1}}));
            }));
            wait_for(b, Event::Kind::notice, here);
        } else {
            EXPECT_EQ(a.write(there, {.head_bytes = 8, .remote = remote}), Post::refused) << "that import went";
            EXPECT_FALSE(a.release_import(remote).ok);
            if (capabilities().nature.bounds != Bounds::trusted) {
                const std::uint32_t anew = a.import_key(there, key);
                (void)a.write(there, {.head_bytes = 64, .remote = anew, .remote_offset = 128, .seed = 9});
                let_time_pass();
                EXPECT_FALSE(b.matches(region, 128, 64, 9)) << "that grant went";
            }
        }
        a.disconnect(there);
        wait_for(a, Event::Kind::peer_down, there);
        wait_for(b, Event::Kind::peer_down, here);
    }
}

TEST_P(Conformance, TC_D5_StrangersDoNotKnockAndDialsInVainGiveDown) {
    INCAST_NEEDS_DIALLING;
    Node& a = node(0, {.run = 1, .token = 7});
    for (const Command& other : {Command{.run = 1, .token = 8}, Command{.run = 2, .token = 7}}) {
        SCOPED_TRACE(other.run == 1 ? "token" : "run");
        Node& b = node(1, other);
        const std::uint32_t there = b.dial(a.address(), 10);
        wait_for(b, Event::Kind::peer_down, there);
        let_time_pass();
        EXPECT_FALSE(a.take(Event::Kind::knock));
    }
    Node& c = node(2, {.run = 1, .token = 7});
    const Blob address = c.address();
    const Reply too_long = a.execute({.op = Op::dial, .length = max_greeting_bytes + 1, .blob = address});
    EXPECT_FALSE(too_long.ok);
    EXPECT_NE(too_long.text, "");
    Blob nonsense;
    nonsense.bytes.resize(11);
    EXPECT_FALSE(a.execute({.op = Op::dial, .blob = nonsense}).ok);
    let_time_pass();
    EXPECT_FALSE(c.take(Event::Kind::knock));
    c.destroy();
    wait_for(a, Event::Kind::peer_down, a.dial(address, 10));
    EXPECT_FALSE(a.take(Event::Kind::peer_up));
}

TEST_P(Conformance, TC_D6_TwoThatDialEachOtherHaveTwoConnections) {
    INCAST_NEEDS_DIALLING;
    Node& a = node(0);
    Node& b = node(1);
    join(a, b);
    const std::uint32_t b_at_a = a.dial(b.address(), 10, 1);
    const std::uint32_t a_at_b = b.dial(a.address(), 10, 2);
    const std::uint32_t knock_at_b = wait_for_knock(b).peer;
    const std::uint32_t knock_at_a = wait_for_knock(a).peer;
    EXPECT_NE(b_at_a, knock_at_a);
    EXPECT_NE(a_at_b, knock_at_b);
    ASSERT_EQ(a.accept(knock_at_a), Post::pending);
    ASSERT_EQ(b.accept(knock_at_b), Post::pending);
    for (const std::uint32_t peer : {b_at_a, knock_at_a})
        wait_for(a, Event::Kind::peer_up, peer);
    for (const std::uint32_t peer : {a_at_b, knock_at_b})
        wait_for(b, Event::Kind::peer_up, peer);
    EXPECT_EQ(a.send(b_at_a, 10, 1), Post::done);
    EXPECT_EQ(a.send(knock_at_a, 10, 2), Post::done);
    EXPECT_EQ(a.send(b, 10, 3), Post::done);
    EXPECT_EQ(wait_for(b, Event::Kind::message, knock_at_b).message, message_of(10, 1));
    EXPECT_EQ(wait_for(b, Event::Kind::message, a_at_b).message, message_of(10, 2));
    EXPECT_EQ(wait_for(b, Event::Kind::message, a).message, message_of(10, 3));
    a.disconnect(b_at_a);
    wait_for(a, Event::Kind::peer_down, b_at_a);
    wait_for(b, Event::Kind::peer_down, knock_at_b);
    EXPECT_EQ(a.send(knock_at_a, 10, 4), Post::done);
    EXPECT_EQ(wait_for(b, Event::Kind::message, a_at_b).message, message_of(10, 4));
    barrier(a, b);
}

}  // namespace
}  // namespace incast::conformance

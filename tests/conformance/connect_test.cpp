// Clauses K (connecting), F (fence).
#include <algorithm>

#include "conformance.h"

namespace incast::conformance {
namespace {

constexpr std::uint64_t kib = 1024;
constexpr std::uint64_t mib = 1024 * kib;

bool saw(const std::vector<Seen>& events, Event::Kind kind) {
    return std::ranges::any_of(events, [&](const Seen& seen) { return seen.kind == kind; });
}

TEST_P(Conformance, TC_K1_PeersAreUpOnlyOnceBothHaveCalledConnect) {
    for (const bool lower_first : {true, false}) {
        SCOPED_TRACE(lower_first ? "the lower index calls first" : "the higher index calls first");
        Node& a = node(lower_first ? 0 : 3);
        Node& b = node(lower_first ? 1 : 2);
        ASSERT_EQ(a.connect(b, b.address(), 1), Post::pending);
        let_time_pass();
        EXPECT_TRUE(a.take().empty());
        EXPECT_TRUE(b.take().empty());
        EXPECT_EQ(a.send(b, 10, 0), Post::refused) << "not up yet";
        ASSERT_EQ(b.connect(a, a.address(), 1), Post::pending);
        EXPECT_EQ(wait_for(a, Event::Kind::peer_up, b).incarnation, 1u);
        EXPECT_EQ(wait_for(b, Event::Kind::peer_up, a).incarnation, 1u);
        EXPECT_EQ(a.send(b, 10, 1), Post::done);
        EXPECT_EQ(b.send(a, 10, 2), Post::done);
        EXPECT_EQ(wait_for(b, Event::Kind::message, a).message, message_of(10, 1));
        EXPECT_EQ(wait_for(a, Event::Kind::message, b).message, message_of(10, 2));
    }
}

TEST_P(Conformance, TC_K2_RepeatingConnectChangesNothing) {
    Node& a = node(0);
    Node& b = node(1);
    ASSERT_EQ(a.connect(b, b.address(), 1), Post::pending);
    ASSERT_EQ(a.connect(b, b.address(), 1), Post::pending);
    ASSERT_EQ(b.connect(a, a.address(), 1), Post::pending);
    wait_for(a, Event::Kind::peer_up, b);
    wait_for(b, Event::Kind::peer_up, a);
    EXPECT_EQ(a.connect(b, b.address(), 1), Post::refused) << "it is up";
    EXPECT_EQ(b.connect(a, a.address(), 1), Post::refused);
    barrier(a, b);
    barrier(b, a);
    EXPECT_TRUE(a.take().empty()) << "one peer_up, no more";
    EXPECT_TRUE(b.take().empty());
}

TEST_P(Conformance, TC_K3_AForeignAddressIsRefused) {
    Node& a = node(0);
    Node& b = node(1);
    Blob nonsense;
    nonsense.bytes.resize(11);
    EXPECT_EQ(a.connect(b, nonsense, 1), Post::refused);
    EXPECT_EQ(a.connect(b, Blob{}, 1), Post::refused);
    Blob damaged = b.address();
    damaged.bytes[0] ^= std::byte{1};
    EXPECT_EQ(a.connect(b, damaged, 1), Post::refused);
    EXPECT_EQ(a.execute({.op = Op::connect, .peer = 2, .blob = b.address()}).post, Post::refused)
        << "the address of node 1";
    EXPECT_EQ(a.execute({.op = Op::connect, .peer = 4, .blob = b.address()}).post, Post::refused) << "beyond max_peers";
    join(a, b);
}

TEST_P(Conformance, TC_K4_ADeadAddressGivesPeerDown) {
    Node& a = node(0);
    Node& b = node(1);
    const Blob address = b.address();
    b.destroy();
    ASSERT_EQ(a.connect(b, address, 1), Post::pending);
    EXPECT_EQ(wait_for(a, Event::Kind::peer_down, b).incarnation, 1u);
    EXPECT_FALSE(saw(a.take(), Event::Kind::peer_up));
}

TEST_P(Conformance, TC_K5_AReturningNodeConnectsWithAHigherIncarnation) {
    Node& a = node(0);
    Node& b = node(1);
    join(a, b);
    b.destroy();
    EXPECT_EQ(wait_for(a, Event::Kind::peer_down, b).incarnation, 1u);
    b.create(5);
    join(a, b);
    EXPECT_EQ(a.send(b, 100, 9), Post::done);
    EXPECT_EQ(wait_for(b, Event::Kind::message, a).message, message_of(100, 9));
    a.destroy();
    EXPECT_EQ(wait_for(b, Event::Kind::peer_down, a).incarnation, 1u);
    a.create(2);
    join(a, b);
    EXPECT_EQ(b.send(a, 100, 10), Post::done);
    EXPECT_EQ(wait_for(a, Event::Kind::message, b).message, message_of(100, 10));
}

TEST_P(Conformance, TC_K6_AConnectForANewerIncarnationDropsTheOlder) {
    Node& a = node(0);
    Node& b = node(1);
    join(a, b);
    const Blob address = b.address();
    // Node b lives on; its next incarnation is announced before the old one is gone.
    EXPECT_EQ(a.connect(b, address, 2), Post::again);
    EXPECT_EQ(wait_for(a, Event::Kind::peer_down, b).incarnation, 1u);
    EXPECT_EQ(wait_for(b, Event::Kind::peer_down, a).incarnation, 1u);
    b.destroy();
    b.create(2);
    join(a, b);
    EXPECT_EQ(a.connect(b, b.address(), 1), Post::refused) << "older than the connected one";
}

TEST_P(Conformance, TC_K7_AnotherIncarnationThanExpectedNeverComesUp) {
    Node& a = node(0);
    Node& b = node(1);
    // a waits for incarnation 7 of b, which is incarnation 1.
    ASSERT_EQ(a.connect(b, b.address(), 7), Post::pending);
    ASSERT_EQ(b.connect(a, a.address(), 1), Post::pending);
    EXPECT_EQ(wait_for(a, Event::Kind::peer_down, b).incarnation, 7u);
    let_time_pass();
    EXPECT_FALSE(saw(a.take(), Event::Kind::peer_up));
    EXPECT_FALSE(saw(b.take(), Event::Kind::peer_up));

    // The other way round: who dials is of another incarnation than awaited.
    Node& c = node(2);
    Node& d = node(3);
    ASSERT_EQ(c.connect(d, d.address(), 1), Post::pending);
    let_time_pass();
    ASSERT_EQ(d.connect(c, c.address(), 7), Post::pending);
    let_time_pass();
    EXPECT_FALSE(saw(c.take(), Event::Kind::peer_up));
    EXPECT_FALSE(saw(d.take(), Event::Kind::peer_up));
}

TEST_P(Conformance, TC_K8_AConnectionMayBeMadeAgain) {
    Node& a = node(0);
    Node& b = node(1);
    join(a, b);
    const Shared shared = share(b, a, 4 * kib);
    for (std::uint16_t round = 0; round < 5; ++round) {
        Node& dropper = round % 2 == 0 ? a : b;
        Node& other = round % 2 == 0 ? b : a;
        dropper.disconnect(other);
        EXPECT_EQ(wait_for(dropper, Event::Kind::peer_down, other).incarnation, 1u);
        EXPECT_EQ(wait_for(other, Event::Kind::peer_down, dropper).incarnation, 1u);
        join(a, b);
        // The key lives as long as the incarnation, not the connection.
        ASSERT_TRUE(taken(a.write(b, {.head_bytes = 8, .remote = shared.remote, .notice = round, .seed = round})));
        EXPECT_EQ(wait_for(b, Event::Kind::notice, a).value, round);
        EXPECT_TRUE(b.matches(shared.region, 0, 8, round));
    }
}

TEST_P(Conformance, TC_K9_OtherRunsAndTokensNeverConnect) {
    struct Difference {
        std::uint64_t run;
        std::uint64_t token;
    };
    for (const Difference& difference : {Difference{1, 8}, Difference{2, 7}}) {
        SCOPED_TRACE(difference.run == 1 ? "token" : "run");
        Node& a = node(0, {.run = 1, .token = 7});
        Node& b = node(1, {.run = difference.run, .token = difference.token});
        ASSERT_EQ(a.connect(b, b.address(), 1), Post::pending);
        ASSERT_EQ(b.connect(a, a.address(), 1), Post::pending);
        wait_for(a, Event::Kind::peer_down, b);
        let_time_pass();
        EXPECT_FALSE(saw(a.take(), Event::Kind::peer_up));
        EXPECT_FALSE(saw(b.take(), Event::Kind::peer_up));
    }
}

TEST_P(Conformance, TC_K10_DisconnectingWhileConnectingEndsIt) {
    Node& a = node(0);
    Node& b = node(1);
    a.disconnect(b);
    let_time_pass();
    EXPECT_TRUE(a.take().empty()) << "not known: nothing happens";
    for (Node* caller : {&a, &b}) {
        Node& other = caller == &a ? b : a;
        ASSERT_EQ(caller->connect(other, other.address(), 1), Post::pending);
        caller->disconnect(other);
        EXPECT_EQ(wait_for(*caller, Event::Kind::peer_down, other).incarnation, 1u);
    }
    EXPECT_FALSE(saw(a.take(), Event::Kind::peer_up));
    EXPECT_FALSE(saw(b.take(), Event::Kind::peer_up));
}

TEST_P(Conformance, TC_F1_DisconnectCompletesWhatIsPendingThenPeerDown) {
    Node& a = node(0);
    Node& b = node(1);
    join(a, b);
    const Shared shared = share(b, a, 8 * mib);
    const std::uint16_t source = a.allocate(8 * mib);
    std::vector<Token> pending;
    for (Token token = 1; token <= 16; ++token) {
        const Post post = a.write(
            b,
            {.length = 8 * mib, .region = source, .remote = shared.remote, .notice = std::uint16_t{1}, .token = token});
        if (post == Post::pending) pending.push_back(token);
    }
    a.disconnect(b);
    EXPECT_EQ(a.send(b, 10, 0), Post::refused) << "posts are refused from the call on";
    std::vector<Token> completed;
    bool down = false;
    wait_until("peer_down", [&] {
        for (const Seen& seen : a.take()) {
            EXPECT_FALSE(down) << "after peer_down: " << to_string(seen);
            if (seen.kind == Event::Kind::peer_down) down = true;
            if (seen.kind != Event::Kind::completed) continue;
            EXPECT_TRUE(seen.status == Status::cancelled || seen.status == Status::ok) << to_string(seen);
            completed.push_back(seen.token);
        }
        return down;
    });
    std::ranges::sort(completed);
    EXPECT_EQ(completed, pending) << "each exactly once, before peer_down";
    EXPECT_EQ(wait_for(b, Event::Kind::peer_down, a).incarnation, 1u);
    let_time_pass();
    EXPECT_TRUE(a.take().empty());
}

TEST_P(Conformance, TC_F2_NothingLandsAfterPeerDown) {
    Node& a = node(0);
    Node& b = node(1);
    join(a, b);
    const Shared shared = share(b, a, 8 * mib);
    const std::uint16_t source = a.allocate(8 * mib);
    a.fill(source, 0, 8 * mib, 1);
    for (std::uint64_t i = 0; i < 4; ++i) {
        a.write(b, {.head_bytes = 8,
                    .length = 8 * mib - 8,
                    .region = source,
                    .remote = shared.remote,
                    .notice = std::uint16_t{1},
                    .seed = i});
    }
    round();
    b.disconnect(a);
    std::vector<Seen> before;
    wait_until("peer_down", [&] {
        for (Seen& seen : b.take())
            before.push_back(std::move(seen));
        return saw(before, Event::Kind::peer_down);
    });
    EXPECT_EQ(before.back().kind, Event::Kind::peer_down);
    // From here on b's memory is b's alone.
    b.fill(shared.region, 0, 8 * mib, 2);
    const std::string head = b.execute({.op = Op::local, .region = shared.region, .length = 8}).text;
    let_time_pass();
    if (capabilities().phantom_bodies) {
        EXPECT_EQ(b.execute({.op = Op::local, .region = shared.region, .length = 8}).text, head);
    } else {
        EXPECT_TRUE(b.matches(shared.region, 0, 8 * mib, 2));
    }
    EXPECT_TRUE(b.take().empty()) << "no event of a follows its peer_down";
    wait_for(a, Event::Kind::peer_down, b);
}

TEST_P(Conformance, TC_F3_APeerThatIsDestroyedIsDown) {
    Node& a = node(0);
    Node& b = node(1);
    Node& c = node(2);
    join(a, b);
    join(a, c);
    b.destroy();
    EXPECT_EQ(wait_for(a, Event::Kind::peer_down, b).incarnation, 1u);
    EXPECT_EQ(a.send(b, 10, 0), Post::refused);
    // Others do not notice.
    EXPECT_EQ(a.send(c, 10, 1), Post::done);
    EXPECT_EQ(wait_for(c, Event::Kind::message, a).message, message_of(10, 1));
}

TEST_P(Conformance, TC_F4_WhatIsPendingToALostPeerCompletesAsLost) {
    Node& a = node(0);
    Node& b = node(1);
    join(a, b);
    const Shared shared = share(b, a, 8 * mib);
    const std::uint16_t source = a.allocate(8 * mib);
    std::vector<Token> pending;
    for (Token token = 1; token <= 16; ++token) {
        const Post post = a.write(b, {.length = 8 * mib, .region = source, .remote = shared.remote, .token = token});
        if (post == Post::pending) pending.push_back(token);
    }
    b.destroy();
    std::vector<Token> completed;
    bool down = false;
    wait_until("peer_down", [&] {
        for (const Seen& seen : a.take()) {
            EXPECT_FALSE(down) << "after peer_down: " << to_string(seen);
            if (seen.kind == Event::Kind::peer_down) down = true;
            if (seen.kind != Event::Kind::completed) continue;
            EXPECT_TRUE(seen.status == Status::peer_lost || seen.status == Status::ok) << to_string(seen);
            completed.push_back(seen.token);
        }
        return down;
    });
    std::ranges::sort(completed);
    EXPECT_EQ(completed, pending);
}

TEST_P(Conformance, TC_F5_AKilledProcessIsDown) {
    INCAST_SKIP_UNLESS(GetParam().mode == Mode::two_processes && !capabilities().nature.launch, "no process to kill");
    Node& a = node(0);
    Node& b = node(1);
    join(a, b);
    const Shared shared = share(b, a, 8 * mib);
    const std::uint16_t source = a.allocate(8 * mib);
    for (Token token = 1; token <= 4; ++token) {
        a.write(b, {.length = 8 * mib, .region = source, .remote = shared.remote, .token = token});
    }
    ASSERT_TRUE(b.kill());
    EXPECT_EQ(wait_for(a, Event::Kind::peer_down, b).incarnation, 1u);
}

TEST_P(Conformance, TC_F6_WhatWasSentBeforeDestructionAndPolledArrives) {
    Node& a = node(0);
    Node& b = node(1);
    join(a, b);
    ASSERT_EQ(a.send(b, 100, 1), Post::done);
    ASSERT_EQ(a.send(b, 200, 2), Post::done);
    // What b sends stays unread at a: that must not cost b what a sent.
    ASSERT_EQ(b.send(a, 300, 3), Post::done);
    a.poll(now());
    b.poll(now());
    if (virtual_time()) let_time_pass();
    a.destroy();
    EXPECT_EQ(wait_for(b, Event::Kind::message, a).message, message_of(100, 1));
    EXPECT_EQ(wait_for(b, Event::Kind::message, a).message, message_of(200, 2));
    wait_for(b, Event::Kind::peer_down, a);
}

TEST_P(Conformance, TC_F7_WhoIsProvenToHaveEndedIsLost) {
    Node& a = node(1);  // the higher number, which others wait for to be called
    Node& b = node(0);
    ASSERT_EQ(a.connect(b, b.address(), 1), Post::pending);
    a.ended(b, 2);
    a.ended(Number{2}, 1);
    a.ended(Number{77}, 1);
    let_time_pass();
    EXPECT_TRUE(a.take().empty()) << "nothing is known of those";
    b.destroy();
    a.ended(b, 1);
    EXPECT_EQ(wait_for(a, Event::Kind::peer_down, b).incarnation, 1u);
    b.create(2);
    join(a, b);
    a.ended(b, 1);
    barrier(a, b);
    barrier(b, a);

    const Shared shared = share(b, a, 8 * mib);
    const std::uint16_t source = a.allocate(8 * mib);
    std::vector<Token> pending;
    for (Token token = 1; token <= 8; ++token) {
        const WriteArguments write{.length = 8 * mib, .region = source, .remote = shared.remote, .token = token};
        if (a.write(b, write) == Post::pending) pending.push_back(token);
    }
    b.destroy();
    a.ended(b, 2);
    EXPECT_EQ(wait_for(a, Event::Kind::peer_down, b).incarnation, 2u);
    for (const Seen& seen : a.take()) {
        if (seen.kind == Event::Kind::room) continue;
        EXPECT_EQ(seen.kind, Event::Kind::completed);
        EXPECT_NE(seen.status, Status::cancelled);
        EXPECT_EQ(std::erase(pending, seen.token), 1u);
    }
    EXPECT_TRUE(pending.empty());
    EXPECT_EQ(a.send(b, 10, 0), Post::refused);
}

TEST_P(Conformance, TC_F8_WhatIsDrainedArrivesWithoutItsSender) {
    Node& a = node(0);
    Node& b = node(1);
    join(a, b);
    // More than a kernel takes at once; where everything goes in small pieces that would take long.
    const std::uint64_t bytes = GetParam().variant.empty() ? 8 * mib : 256 * kib;
    const Shared shared = share(b, a, bytes);
    const std::uint16_t source = a.allocate(bytes);
    a.fill(source, 0, bytes, 5);
    const WriteArguments write{
        .length = bytes, .region = source, .remote = shared.remote, .notice = std::uint16_t{7}, .token = 1};
    ASSERT_TRUE(wait_until("the write to be taken", [&] { return taken(a.write(b, write)); }));
    ASSERT_TRUE(wait_until("the message to be taken", [&] { return a.send(b, 300, 2) == Post::done; }));
    ASSERT_TRUE(wait_until("all of it to have left", [&] { return a.drained(); }));
    // What b sends stays unread at a: that must not cost b what a sent.
    ASSERT_EQ(b.send(a, 300, 3), Post::done);
    b.poll(now());
    a.destroy();
    EXPECT_EQ(wait_for(b, Event::Kind::notice, a).value, 7);
    EXPECT_EQ(wait_for(b, Event::Kind::message, a).message, message_of(300, 2));
    EXPECT_TRUE(capabilities().phantom_bodies || b.matches(shared.region, 0, bytes, 5));
    wait_for(b, Event::Kind::peer_down, a);
}

}  // namespace
}  // namespace incast::conformance

// Clauses P (pressure), W (waiting, poll).
#include "conformance.h"

namespace incast::conformance {
namespace {

constexpr std::uint64_t kib = 1024;

TEST_P(Conformance, TC_P1_AgainIsFollowedByOneRoom) {
    Node& a = node(0, {.max_posted = 64});
    Node& b = node(1, {.max_posted = 64});
    join(a, b);
    std::uint64_t accepted = 0;
    std::uint64_t received = 0;
    const auto receive = [&] {
        while (const auto seen = b.take(Event::Kind::message, a)) {
            ASSERT_EQ(seen->message, message_of(4000, received)) << "message " << received;
            ++received;
        }
    };
    // As far as it goes without b polling: until no room comes any more, or long enough.
    bool blocked = false;
    for (int episode = 0; episode < 40 && !blocked; ++episode) {
        const auto [count, post] = a.send_many(b, 4000, accepted, 100'000);
        accepted += count;
        ASSERT_EQ(post, Post::again) << "back-pressure is bounded memory";
        std::size_t rooms = 0;
        for (int polls = 0; polls < 100 && rooms == 0; ++polls) {
            a.poll(now());
            if (virtual_time()) round(0);
            while (a.take(Event::Kind::room, b))
                ++rooms;
        }
        EXPECT_LE(rooms, 1u);
        blocked = rooms == 0;
    }
    if (!blocked) {
        const auto [count, post] = a.send_many(b, 4000, accepted, 100'000);
        accepted += count;
        ASSERT_EQ(post, Post::again);
    }
    // `again` means that nothing happened: what was accepted arrives, and nothing else.
    wait_until("all messages", [&] {
        receive();
        return received == accepted;
    });
    wait_for(a, Event::Kind::room, b);
    EXPECT_EQ(a.send(b, 4000, accepted), Post::done) << "after room there is room";
    ++accepted;
    wait_until("the last message", [&] {
        receive();
        return received == accepted;
    });
    barrier(b, a);
    barrier(a, b);
    EXPECT_TRUE(a.take().empty()) << "one room per `again`";
    EXPECT_TRUE(b.take().empty());
}

TEST_P(Conformance, TC_P2_RoomFollowsForWritesToo) {
    Node& a = node(0, {.max_posted = 16});
    Node& b = node(1, {.max_posted = 16});
    join(a, b);
    const Shared shared = share(b, a, 256 * kib);
    const std::uint16_t source = a.allocate(256 * kib);
    std::uint16_t posted = 0;
    std::uint16_t noticed = 0;
    std::uint64_t agains = 0;
    bool waiting = false;
    constexpr std::uint16_t count = 6000;
    wait_until("all notices", [&] {
        if (waiting) waiting = !a.take(Event::Kind::room, b).has_value();
        while (!waiting && posted < count) {
            const Post post = a.write(
                b, {.head_bytes = 8, .length = 4 * kib, .region = source, .remote = shared.remote, .notice = posted});
            EXPECT_NE(post, Post::refused);
            if (post == Post::again) {
                waiting = true;
                ++agains;
            } else {
                ++posted;
            }
        }
        while (const auto seen = b.take(Event::Kind::notice, a)) {
            EXPECT_EQ(seen->value, noticed);
            ++noticed;
        }
        return noticed == count;
    });
    EXPECT_GT(agains, 0u) << "6000 writes against 16 that may be pending, or a ring of notices";
    barrier(b, a);
    EXPECT_LE(a.take().size(), 1u);
}

TEST_P(Conformance, TC_P3_ASlowReceiverHindersNobodyElse) {
    Node& a = node(0, {.max_posted = 64});
    Node& slow = node(1, {.max_posted = 64});
    Node& quick = node(2, {.max_posted = 64});
    join(a, slow);
    join(a, quick);
    join(quick, slow);
    const auto [count, post] = a.send_many(slow, 4000, 0, 100'000);
    ASSERT_EQ(post, Post::again);
    for (std::uint64_t i = 0; i < 100; ++i) {
        ASSERT_TRUE(wait_without(slow, "a way to the quick one", [&] { return a.send(quick, 4000, i) == Post::done; }));
        wait_without(slow, "it arrives", [&] { return quick.take(Event::Kind::message, a).has_value(); });
    }
    EXPECT_EQ(quick.send(slow, 4000, 1), Post::done) << "another sender has its own share of the slow one's memory";
    std::uint64_t received = 0;
    wait_until("the rest", [&] {
        while (slow.take(Event::Kind::message, a))
            ++received;
        return received == count;
    });
}

TEST_P(Conformance, TC_P4_MisuseIsRefusedAndDoesNothing) {
    Node& a = node(0);
    Node& b = node(1);
    EXPECT_EQ(a.send(b, 10, 0), Post::refused) << "not connected";
    EXPECT_EQ(a.execute({.op = Op::send, .peer = 77, .length = 10}).post, Post::refused) << "no such peer";
    join(a, b);
    const Shared shared = share(b, a, 4 * kib);
    const std::uint16_t source = a.allocate(4 * kib);
    EXPECT_EQ(a.write(b, {.head_bytes = 8, .remote = 99, .notice = std::uint16_t{1}}), Post::refused)
        << "no such import";
    EXPECT_EQ(a.write(b, {.length = 8, .region = 99, .remote = shared.remote, .notice = std::uint16_t{1}}),
              Post::refused);
    EXPECT_EQ(a.write(b, {.length = 2, .region = source, .offset = 4 * kib - 1, .remote = shared.remote}),
              Post::refused)
        << "the body leaves the own region";
    EXPECT_EQ(a.write(b, {.length = max_write_bytes + 1, .region = source, .remote = shared.remote}), Post::refused);
    EXPECT_EQ(b.write(a, {.head_bytes = 8, .remote = shared.remote, .notice = std::uint16_t{1}}), Post::refused)
        << "an import of another endpoint";
    barrier(a, b);
    barrier(b, a);
    EXPECT_TRUE(a.take().empty());
    EXPECT_TRUE(b.take().empty());
}

TEST_P(Conformance, TC_P5_AnImportServesOnlyThePeerItIsOf) {
    Node& a = node(0);
    Node& b = node(1);
    Node& c = node(2);
    join(a, b);
    join(a, c);
    const Shared of_b = share(b, a, 4 * kib);
    EXPECT_EQ(a.write(c, {.head_bytes = 8, .remote = of_b.remote, .notice = std::uint16_t{1}}), Post::refused);
    barrier(a, c);
    EXPECT_TRUE(c.take().empty());
}

TEST_P(Conformance, TC_W1_OneEventAtATimeLosesNothing) {
    Node& a = node(0);
    Node& b = node(1);
    join(a, b);
    const Shared shared = share(b, a, 4 * kib);
    for (std::uint16_t i = 0; i < 20; ++i) {
        ASSERT_EQ(a.send(b, 1000, i), Post::done);
        ASSERT_TRUE(taken(a.write(b, {.head_bytes = 8, .remote = shared.remote, .notice = i})));
    }
    std::vector<Seen> seen;
    for (int rounds = 0; rounds < 100'000 && seen.size() < 40; ++rounds) {
        round(1);
        for (Seen& each : b.take())
            seen.push_back(std::move(each));
    }
    ASSERT_EQ(seen.size(), 40u);
    for (std::uint16_t i = 0; i < 20; ++i) {
        EXPECT_EQ(seen[2 * std::size_t{i}].message, message_of(1000, i));
        EXPECT_EQ(seen[2 * std::size_t{i} + 1].value, i);
    }
}

TEST_P(Conformance, TC_W2_PollWithNoRoomForEventsLosesNothing) {
    Node& a = node(0);
    Node& b = node(1);
    join(a, b);
    ASSERT_EQ(a.send(b, 10, 1), Post::done);
    for (int i = 0; i < 50; ++i)
        round(0);
    EXPECT_EQ(wait_for(b, Event::Kind::message, a).message, message_of(10, 1));
}

TEST_P(Conformance, TC_W3_PrepareWaitSeesWhatIsLeftToDo) {
    Node& a = node(0);
    Node& b = node(1);
    join(a, b);
    for (std::uint64_t i = 0; i < 3; ++i)
        ASSERT_EQ(a.send(b, 10, i), Post::done);
    for (int i = 0; i < 50; ++i)
        round(0);  // they arrive, but are not polled
    std::size_t polled = 0;
    wait_without(b, "the first message", [&] {
        polled += b.poll(now(), 1);
        return polled == 1;
    });
    if (!capabilities().has_wait_fd) {
        // With a descriptor, what is left may also show there.
        EXPECT_FALSE(b.execute({.op = Op::prepare_wait}).ok) << "two messages are waiting";
    }
    wait_without(b, "the others", [&] { return (polled += b.poll(now())) >= 3; });
    wait_until("nothing left to do",
               [&] { return a.execute({.op = Op::prepare_wait}).ok && b.execute({.op = Op::prepare_wait}).ok; });
}

TEST_P(Conformance, TC_W4_NoWakeUpIsLost) {
    INCAST_SKIP_UNLESS(capabilities().has_wait_fd, "nothing to sleep on");
    Node& a = node(0);
    Node& b = node(1);
    join(a, b);
    // b goes to sleep while a sends: whichever is first, b must see the message without waiting for its deadline.
    // a is polled once, and then when it says that it must be: its poll is the only progress of what it has under way.
    constexpr Time longest = 20 * ps_per_s;
    for (std::uint64_t i = 0; i < 300; ++i) {
        const Time end = now() + longest;
        const auto sleep_until_a_is_due = [&] {
            const auto due_ms =
                static_cast<std::uint64_t>(std::clamp(a.next_deadline() - now(), Time{0}, longest) / ps_per_ms);
            b.runner().start({.op = Op::sleep, .length = due_ms + 1});
        };
        if (GetParam().mode != Mode::one_thread) sleep_until_a_is_due();
        ASSERT_EQ(a.send(b, 64, i), Post::done);
        a.poll(now());
        if (GetParam().mode == Mode::one_thread) sleep_until_a_is_due();
        Reply reply = b.runner().finish();
        while (reply.events.empty() && now() < end) {
            a.poll(now());
            sleep_until_a_is_due();
            reply = b.runner().finish();
        }
        ASSERT_EQ(reply.events.size(), 1u) << "round " << i;
        EXPECT_EQ(reply.events[0].message, message_of(64, i));
    }
}

TEST_P(Conformance, TC_W5_ASleeperIsWokenByAPeersDeath) {
    INCAST_SKIP_UNLESS(capabilities().has_wait_fd, "nothing to sleep on");
    Node& a = node(0);
    Node& b = node(1);
    join(a, b);
    const Command sleep{.op = Op::sleep, .length = 20'000};
    if (GetParam().mode != Mode::one_thread) b.runner().start(sleep);
    a.destroy();
    if (GetParam().mode == Mode::one_thread) b.runner().start(sleep);
    const Reply reply = b.runner().finish();
    ASSERT_EQ(reply.events.size(), 1u);
    EXPECT_EQ(reply.events[0].kind, Event::Kind::peer_down);
}

}  // namespace
}  // namespace incast::conformance

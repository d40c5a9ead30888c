// Clauses O (order), C (completion), N (notice), H (head), S (sizes).
#include <algorithm>
#include <array>

#include "conformance.h"

namespace incast::conformance {
namespace {

constexpr std::uint64_t kib = 1024;
constexpr std::uint64_t mib = 1024 * kib;

TEST_P(Conformance, TC_O1_MessagesArriveInPostingOrder) {
    Node& a = node(0);
    Node& b = node(1);
    join(a, b);
    constexpr std::uint64_t count = 300;
    std::uint64_t sent = 0;
    wait_until("all messages sent", [&] {
        const std::uint64_t size = 1 + sent * 37 % 4000;
        if (sent < count && a.send(b, size, sent) == Post::done) ++sent;
        return sent == count;
    });
    for (std::uint64_t i = 0; i < count; ++i) {
        const Seen seen = wait_for(b, Event::Kind::message, a);
        ASSERT_EQ(seen.message, message_of(1 + i * 37 % 4000, i)) << "message " << i;
    }
}

TEST_P(Conformance, TC_O2_MessagesAndNoticesShareOneOrder) {
    Node& a = node(0);
    Node& b = node(1);
    join(a, b);
    const Shared shared = share(b, a, mib);
    const std::uint16_t source = a.allocate(mib);
    constexpr std::uint64_t count = 200;
    std::uint64_t posted = 0;
    wait_until("everything posted", [&] {
        // Large and small writes take different ways; neither may overtake a message.
        const Post post = posted % 2 == 0 ? a.send(b, 100, posted)
                                          : a.write(b, {.head_bytes = 8,
                                                        .length = posted % 4 == 1 ? 64 * kib : 10,
                                                        .region = source,
                                                        .remote = shared.remote,
                                                        .notice = static_cast<std::uint16_t>(posted)});
        if (taken(post)) ++posted;
        return posted == count;
    });
    std::vector<Seen> seen;
    wait_until("everything received", [&] {
        for (Seen& each : b.take()) {
            if (each.kind == Event::Kind::message || each.kind == Event::Kind::notice) seen.push_back(std::move(each));
        }
        return seen.size() >= count;
    });
    for (std::uint64_t i = 0; i < count; ++i) {
        ASSERT_EQ(seen[i].kind, i % 2 == 0 ? Event::Kind::message : Event::Kind::notice) << "event " << i;
        if (i % 2 == 0) {
            ASSERT_EQ(seen[i].message, message_of(100, i));
        } else {
            ASSERT_EQ(seen[i].value, i);
        }
    }
}

TEST_P(Conformance, TC_O3_ANoticeMeansThatItsWriteAndAllEarlierAreVisible) {
    Node& a = node(0);
    Node& b = node(1);
    join(a, b);
    constexpr std::uint64_t slot_bytes = 128 * kib;
    constexpr std::uint64_t slots = 8;
    const Shared shared = share(b, a, slots * slot_bytes);
    const std::uint16_t source = a.allocate(slots * slot_bytes);
    for (std::uint64_t round = 0; round < 5; ++round) {
        // One notice for all: it stands on the last and smallest write.
        for (std::uint64_t slot = 0; slot < slots; ++slot) {
            const std::uint64_t seed = 100 * round + slot;
            const bool last = slot + 1 == slots;
            const std::uint64_t length = last ? 1 : slot_bytes - 64;
            a.fill(source, slot * slot_bytes, length, seed);
            ASSERT_TRUE(wait_until("the write is taken", [&] {
                const Post post = a.write(b, {.head_bytes = 16,
                                              .length = length,
                                              .region = source,
                                              .offset = slot * slot_bytes,
                                              .remote = shared.remote,
                                              .remote_offset = slot * slot_bytes,
                                              .notice = last ? Notice{std::uint16_t{7}} : no_notice,
                                              .token = seed + 1,
                                              .seed = seed});
                return taken(post);
            }));
        }
        ASSERT_EQ(wait_for(b, Event::Kind::notice, a).value, 7);
        for (std::uint64_t slot = 0; slot < slots; ++slot) {
            const std::uint64_t seed = 100 * round + slot;
            EXPECT_TRUE(b.matches(shared.region, slot * slot_bytes, 16, seed)) << "head of slot " << slot;
            if (capabilities().phantom_bodies) continue;
            const std::uint64_t length = slot + 1 == slots ? 1 : slot_bytes - 64;
            EXPECT_TRUE(b.matches(shared.region, slot * slot_bytes + 16, length, seed)) << "body of slot " << slot;
        }
        // The bodies are reused in the next round.
        barrier(b, a);
        barrier(a, b);
    }
}

TEST_P(Conformance, TC_C1_DoneMeansTheBytesMayBeReusedAtOnce) {
    Node& a = node(0);
    Node& b = node(1);
    join(a, b);
    const Shared shared = share(b, a, 64 * kib);
    const std::uint16_t source = a.allocate(64 * kib);
    for (std::uint16_t i = 0; i < 32; ++i) {
        a.fill(source, 0, 256, i);
        const std::uint64_t at = 512 * std::uint64_t{i};
        const Post post = a.write(b, {.head_bytes = 16,
                                      .length = 256,
                                      .region = source,
                                      .remote = shared.remote,
                                      .remote_offset = at,
                                      .notice = i,
                                      .token = std::uint64_t{i} + 1,
                                      .seed = i});
        if (post == Post::done) a.fill(source, 0, 256, 999);
        ASSERT_EQ(wait_for(b, Event::Kind::notice, a).value, i);
        EXPECT_TRUE(b.matches(shared.region, at, 16, i));
        if (!capabilities().phantom_bodies) {
            EXPECT_TRUE(b.matches(shared.region, at + 16, 256, i));
        }
        if (post == Post::pending) {
            EXPECT_EQ(wait_for(a, Event::Kind::completed, b).token, i + 1);
        }
    }
    barrier(b, a);
    EXPECT_FALSE(a.take(Event::Kind::completed, b).has_value()) << "no completion after `done`";
}

TEST_P(Conformance, TC_C2_PendingCompletesExactlyOnce) {
    Node& a = node(0);
    Node& b = node(1);
    join(a, b);
    const Shared shared = share(b, a, mib);
    const std::uint16_t source = a.allocate(mib);
    std::vector<Token> pending;
    constexpr std::uint16_t count = 100;
    std::uint16_t posted = 0;
    wait_until("everything posted", [&] {
        const Token token = 5000 + std::uint64_t{posted};
        const Post post = a.write(
            b, {.length = 64 * kib, .region = source, .remote = shared.remote, .notice = posted, .token = token});
        if (post == Post::pending) pending.push_back(token);
        if (taken(post)) ++posted;
        return posted == count;
    });
    for (std::uint16_t i = 0; i < count; ++i)
        ASSERT_EQ(wait_for(b, Event::Kind::notice, a).value, i);
    barrier(b, a);
    std::vector<Token> completed;
    wait_until("all completions", [&] {
        while (const auto seen = a.take(Event::Kind::completed, b)) {
            EXPECT_EQ(seen->status, Status::ok);
            completed.push_back(seen->token);
        }
        return completed.size() >= pending.size();
    });
    barrier(b, a);
    EXPECT_FALSE(a.take(Event::Kind::completed, b).has_value()) << "a completion too many";
    std::ranges::sort(completed);
    EXPECT_EQ(completed, pending);
}

TEST_P(Conformance, TC_C3_TokenZeroWantsNoCompletion) {
    Node& a = node(0);
    Node& b = node(1);
    join(a, b);
    const Shared shared = share(b, a, mib);
    const std::uint16_t source = a.allocate(mib);
    for (std::uint16_t i = 0; i < 10; ++i) {
        const Post post = a.write(b, {.length = 64 * kib, .region = source, .remote = shared.remote, .notice = i});
        ASSERT_TRUE(taken(post));
    }
    for (std::uint16_t i = 0; i < 10; ++i)
        ASSERT_EQ(wait_for(b, Event::Kind::notice, a).value, i);
    barrier(b, a);
    EXPECT_FALSE(a.take(Event::Kind::completed, b).has_value());
}

TEST_P(Conformance, TC_N1_EveryNoticeArrivesOnceAndUnchanged) {
    Node& a = node(0);
    Node& b = node(1);
    join(a, b);
    const Shared shared = share(b, a, 4 * kib);
    // The same value again and again must not merge.
    const std::vector<std::uint16_t> values{0, 65535, 7, 7, 7, 7, 32768, 0, 0, 1};
    for (const std::uint16_t value : values) {
        ASSERT_TRUE(taken(a.write(b, {.head_bytes = 8, .remote = shared.remote, .notice = value})));
    }
    barrier(a, b);
    for (const std::uint16_t value : values) {
        const auto seen = b.take(Event::Kind::notice, a);
        ASSERT_TRUE(seen.has_value());
        EXPECT_EQ(seen->value, value);
    }
    EXPECT_FALSE(b.take(Event::Kind::notice, a).has_value()) << "a notice too many";
}

TEST_P(Conformance, TC_N2_AWriteWithoutNoticeGivesNoEvent) {
    Node& a = node(0);
    Node& b = node(1);
    join(a, b);
    const Shared shared = share(b, a, 4 * kib);
    ASSERT_TRUE(taken(a.write(b, {.head_bytes = 32, .remote = shared.remote, .seed = 4})));
    barrier(a, b);
    EXPECT_TRUE(b.take().empty());
    // The barrier is no notice; visibility is promised by one.
    ASSERT_TRUE(
        taken(a.write(b, {.head_bytes = 8, .remote = shared.remote, .remote_offset = 64, .notice = std::uint16_t{1}})));
    wait_for(b, Event::Kind::notice, a);
    EXPECT_TRUE(b.matches(shared.region, 0, 32, 4));
}

TEST_P(Conformance, TC_N3_AWriteOfNothingStillNotifies) {
    Node& a = node(0);
    Node& b = node(1);
    join(a, b);
    const Shared shared = share(b, a, 4 * kib);
    ASSERT_TRUE(taken(a.write(b, {.remote = shared.remote, .notice = std::uint16_t{3}, .token = 1})));
    EXPECT_EQ(wait_for(b, Event::Kind::notice, a).value, 3);
    ASSERT_TRUE(
        taken(a.write(b, {.remote = shared.remote, .remote_offset = 4 * kib, .notice = std::uint16_t{4}, .token = 2})))
        << "nothing fits at the very end of a region";
    EXPECT_EQ(wait_for(b, Event::Kind::notice, a).value, 4);
}

TEST_P(Conformance, TC_N4_ANoticeSaysWhetherItsBodyIsWhole) {
    const bool loses = capabilities().lossy_bodies && set("drop", "100000");
    Node& a = node(0);
    Node& b = node(1);
    join(a, b);
    constexpr std::uint64_t slots = 4;
    constexpr std::uint64_t slot_bytes = 64 * kib;
    const Shared shared = share(b, a, slots * slot_bytes);
    const std::uint16_t source = a.allocate(slots * slot_bytes);
    constexpr std::array<std::uint64_t, 4> lengths{100, 5000, 20'000, 60'000};
    std::uint64_t damaged = 0;
    for (std::uint16_t round = 0; round < 40; ++round) {
        const std::uint64_t length = lengths[round % 4];
        const std::uint64_t at = slot_bytes * ((round / 4 + round) % slots);
        const std::uint64_t half = length / 2;
        a.fill(source, at, length, round);
        // In two writes, of which the second announces both.
        for (const bool second : {false, true}) {
            ASSERT_TRUE(wait_until("the write is taken", [&] {
                return taken(a.write(b, {.head_bytes = static_cast<std::uint8_t>(second ? 0 : 16),
                                         .length = second ? length - half : half,
                                         .region = source,
                                         .offset = at + (second ? half : 0),
                                         .remote = shared.remote,
                                         .remote_offset = at + (second ? 16 + half : 0),
                                         .notice = second ? Notice{round} : no_notice,
                                         .token = 2 * std::uint64_t{round} + (second ? 2 : 1),
                                         .seed = round}));
            }));
        }
        const Seen seen = wait_for(b, Event::Kind::notice, a);
        ASSERT_EQ(seen.value, round);
        EXPECT_TRUE(b.matches(shared.region, at, 16, round)) << "heads are not lost";
        if (seen.status == Status::damaged) {
            ASSERT_TRUE(capabilities().lossy_bodies);
            ++damaged;
        } else {
            ASSERT_EQ(seen.status, Status::ok);
            EXPECT_TRUE(capabilities().phantom_bodies || b.matches(shared.region, at + 16, length, round));
        }
        barrier(b, a);
    }
    EXPECT_EQ(damaged > 0, loses);
}

TEST_P(Conformance, TC_H1_TheHeadLandsAtTheTargetAndTheBodyRightBehind) {
    Node& a = node(0);
    Node& b = node(1);
    join(a, b);
    const Shared shared = share(b, a, 64 * kib);
    const std::uint16_t source = a.allocate(64 * kib);
    std::uint16_t number = 0;
    for (const std::uint8_t head_bytes : std::array<std::uint8_t, 4>{1, 16, 63, 64}) {
        for (const std::uint64_t length : std::array<std::uint64_t, 4>{0, 1, 1000, 5000}) {
            const std::uint64_t at = 8 * kib * (number % 8) + 64;
            a.fill(source, 3, length, number);
            ASSERT_TRUE(taken(a.write(b, {.head_bytes = head_bytes,
                                          .length = length,
                                          .region = source,
                                          .offset = 3,
                                          .remote = shared.remote,
                                          .remote_offset = at,
                                          .notice = number,
                                          .seed = number})));
            ASSERT_EQ(wait_for(b, Event::Kind::notice, a).value, number);
            EXPECT_TRUE(b.matches(shared.region, at, head_bytes, number));
            if (!capabilities().phantom_bodies) {
                EXPECT_TRUE(b.matches(shared.region, at + head_bytes, length, number));
            }
            ++number;
            barrier(a, b);
        }
    }
}

TEST_P(Conformance, TC_H2_AHeadOfMoreThan64BytesIsRefused) {
    Node& a = node(0);
    Node& b = node(1);
    join(a, b);
    const Shared shared = share(b, a, 4 * kib);
    EXPECT_EQ(a.write(b, {.head_bytes = 65, .remote = shared.remote, .notice = std::uint16_t{1}}), Post::refused);
    barrier(a, b);
    EXPECT_TRUE(b.take().empty());
}

TEST_P(Conformance, TC_S1_MessagesHoldOneTo4000Bytes) {
    Node& a = node(0);
    Node& b = node(1);
    join(a, b);
    EXPECT_EQ(a.send(b, 0, 0), Post::refused);
    EXPECT_EQ(a.send(b, 4001, 0), Post::refused);
    EXPECT_EQ(a.send(b, 1, 1), Post::done);
    EXPECT_EQ(a.send(b, 4000, 2), Post::done);
    EXPECT_EQ(wait_for(b, Event::Kind::message, a).message, message_of(1, 1));
    EXPECT_EQ(wait_for(b, Event::Kind::message, a).message, message_of(4000, 2));
}

TEST_P(Conformance, TC_S2_WritesOfAnySizeArriveWhole) {
    Node& a = node(0);
    Node& b = node(1);
    join(a, b);
    const Shared shared = share(b, a, 3 * mib + 4 * kib);
    const std::uint16_t source = a.allocate(3 * mib + 4 * kib);
    std::uint16_t number = 0;
    for (const std::uint64_t length : {std::uint64_t{0}, std::uint64_t{1}, 2047 + 0 * kib, 2 * kib, 4 * kib - 1,
                                       32 * kib, 64 * kib, 64 * kib + 1, mib, 3 * mib}) {
        a.fill(source, 0, length, number + 50);
        ASSERT_TRUE(taken(a.write(b, {.head_bytes = 48,
                                      .length = length,
                                      .region = source,
                                      .remote = shared.remote,
                                      .remote_offset = number,
                                      .notice = number,
                                      .seed = number})))
            << length;
        ASSERT_EQ(wait_for(b, Event::Kind::notice, a).value, number);
        EXPECT_TRUE(b.matches(shared.region, number, 48, number)) << length;
        if (!capabilities().phantom_bodies) {
            EXPECT_TRUE(b.matches(shared.region, number + 48, length, number + 50)) << length;
        }
        ++number;
        barrier(b, a);
    }
}

TEST_P(Conformance, TC_T1_TrafficInBothDirectionsAtOnceStaysWhole) {
    Node& a = node(0);
    Node& b = node(1);
    join(a, b);
    const Shared at_b = share(b, a, Traffic::region_bytes);
    const Shared at_a = share(a, b, Traffic::region_bytes);
    const Shared source_of_b = share(b, a, Traffic::region_bytes);
    const Shared source_of_a = share(a, b, Traffic::region_bytes);
    ASSERT_EQ(source_of_a.region, at_a.region + 1);
    ASSERT_EQ(source_of_b.region, at_b.region + 1);
    ASSERT_EQ(source_of_b.remote, at_b.remote + 1);
    ASSERT_EQ(source_of_a.remote, at_a.remote + 1);
    // Of two processes each may wait for the other's turn on a busy processor, item by item.
    const std::uint64_t items = GetParam().mode == Mode::two_processes ? 200 : 600;
    const auto setup = [&](const Node& self, const Node& peer, const Shared& here, const Shared& there) {
        return Command{.op = Op::traffic,
                       .region = here.region,
                       .peer = peer.index(),
                       .incarnation = self.index(),  // whose items the node draws
                       .remote = there.remote,
                       .length = items,
                       .seed = 77};
    };
    a.execute(setup(a, b, at_a, at_b));
    b.execute(setup(b, a, at_b, at_a));
    if (GetParam().mode == Mode::one_thread) {
        bool a_runs = true;
        bool b_runs = true;
        std::uint64_t steps = 0;
        while (a_runs || b_runs) {
            ASSERT_LT(++steps, 10'000'000u);
            for (Node* each : {&a, &b}) {
                const Reply reply = each->execute({.op = Op::traffic_step, .now = now()});
                ASSERT_EQ(reply.text, "") << "node " << each->index();
                (each == &a ? a_runs : b_runs) = reply.ok;
            }
            if (virtual_time()) round(0);
        }
        return;
    }
    const Command run{.op = Op::traffic_run, .length = 120'000};
    b.runner().start(run);
    a.runner().start(run);
    EXPECT_EQ(a.runner().finish().text, "") << "node 0";
    EXPECT_EQ(b.runner().finish().text, "") << "node 1";
}

}  // namespace
}  // namespace incast::conformance

// Reads and views at the edges: what clauses C, F, K, P, W and T say of them, and R and V themselves (those of every
// day are in memory_test.cpp).
#include <algorithm>
#include <map>

#include "conformance.h"

namespace incast::conformance {
namespace {

constexpr std::uint64_t kib = 1024;
constexpr std::uint64_t mib = 1024 * kib;

TEST_P(Conformance, TC_R1_ReadsOfAnySizeArriveWhole) {
    INCAST_SKIP_UNLESS(capabilities().read, "no reads");
    Node& a = node(0);
    Node& b = node(1);
    join(a, b);
    const Shared shared = share(b, a, 4 * mib);
    const std::uint16_t into = a.allocate(4 * mib);
    std::uint64_t number = 0;
    for (const std::uint64_t length :
         {2 * kib - 1, 32 * kib - 1, 32 * kib, 64 * kib + 1, 256 * kib + 1, mib + 5, 3 * mib + 3}) {
        ++number;
        const bool phantom = capabilities().phantom_bodies;
        const std::uint64_t seen_bytes = phantom ? max_head_bytes : length;
        b.fill(shared.region, number, length, number);
        if (phantom) put_head(a, b, shared.remote, number, max_head_bytes, number);
        a.fill(into, 0, length + 64, 99);
        const Post post = a.read(b, {.remote = shared.remote,
                                     .remote_offset = number,
                                     .length = length,
                                     .region = into,
                                     .offset = 8,
                                     .token = number});
        ASSERT_TRUE(taken(post)) << length;
        if (post == Post::pending) {
            const Seen seen = wait_for(a, Event::Kind::completed, b);
            EXPECT_EQ(seen.status, Status::ok);
            EXPECT_EQ(seen.token, number);
        }
        EXPECT_TRUE(a.matches(into, 8, seen_bytes, number)) << length;
        if (phantom) continue;
        EXPECT_TRUE(a.matches(into, 0, 8, 99)) << "bytes before";
    }
}

TEST_P(Conformance, TC_R2_TheRegionsEndIsWhereAReadFaults) {
    INCAST_SKIP_UNLESS(capabilities().read, "no reads");
    Node& a = node(0);
    Node& b = node(1);
    join(a, b);
    const Shared shared = share(b, a, 4 * kib);
    const std::uint16_t into = a.allocate(8 * kib);
    struct Place {
        std::uint64_t offset;
        std::uint64_t length;
        bool inside;
    };
    Token token = 0;
    for (const Place& place :
         {Place{4 * kib - 8, 8, true}, Place{4 * kib, 0, true}, Place{0, 4 * kib, true}, Place{4 * kib - 7, 8, false},
          Place{4 * kib, 1, false}, Place{0, 4 * kib + 1, false}, Place{4 * kib + 1, 0, false},
          Place{~std::uint64_t{0} - 3, 8, false}, Place{~std::uint64_t{0}, 1, false}}) {
        a.fill(into, 0, 8 * kib, 3);
        const Post post = a.read(b, {.remote = shared.remote,
                                     .remote_offset = place.offset,
                                     .length = place.length,
                                     .region = into,
                                     .token = ++token});
        if (!place.inside) {
            ASSERT_EQ(post, Post::pending) << "offset " << place.offset;
        }
        if (post == Post::pending) {
            const Seen seen = wait_for(a, Event::Kind::completed, b);
            EXPECT_EQ(seen.status, place.inside ? Status::ok : Status::remote_fault) << "offset " << place.offset;
            EXPECT_EQ(seen.token, token);
        }
        if (!place.inside && !capabilities().phantom_bodies) {
            EXPECT_TRUE(a.matches(into, 0, 8 * kib, 3)) << "nothing was read";
        }
    }
    barrier(a, b);
    barrier(b, a);
    EXPECT_TRUE(a.take().empty()) << "a completion too many";
    EXPECT_TRUE(b.take().empty()) << "the owner of the bytes sees nothing";
}

TEST_P(Conformance, TC_R2_AReadWithAStaleKeyFaults) {
    INCAST_SKIP_UNLESS(capabilities().read, "no reads");
    Node& a = node(0);
    Node& b = node(1);
    join(a, b);
    const Shared old = share(b, a, 4 * kib);
    const std::uint16_t into = a.allocate(4 * kib);
    b.destroy();
    wait_for(a, Event::Kind::peer_down, b);
    EXPECT_EQ(a.read(b, {.remote = old.remote, .length = 8, .region = into, .token = 1}), Post::refused);
    b.create(2);
    join(a, b);
    const Shared fresh = share(b, a, 4 * kib);
    ASSERT_EQ(a.read(b, {.remote = old.remote, .length = 8, .region = into, .token = 2}), Post::pending);
    const Seen seen = wait_for(a, Event::Kind::completed, b);
    EXPECT_EQ(seen.status, Status::remote_fault);
    EXPECT_EQ(seen.token, 2u);
    const Post post = a.read(b, {.remote = fresh.remote, .length = 8, .region = into, .token = 3});
    ASSERT_TRUE(taken(post));
    if (post == Post::pending) {
        EXPECT_EQ(wait_for(a, Event::Kind::completed, b).status, Status::ok);
    }
}

TEST_P(Conformance, TC_K8_AKeyServesReadsOfTheNextConnection) {
    INCAST_SKIP_UNLESS(capabilities().read, "no reads");
    Node& a = node(0);
    Node& b = node(1);
    join(a, b);
    const Shared shared = share(b, a, 4 * kib);
    const std::uint16_t into = a.allocate(4 * kib);
    for (std::uint64_t round = 1; round <= 3; ++round) {
        (round % 2 == 0 ? a : b).disconnect(round % 2 == 0 ? b : a);
        wait_for(a, Event::Kind::peer_down, b);
        wait_for(b, Event::Kind::peer_down, a);
        join(a, b);
        b.fill(shared.region, 0, 4 * kib, round);
        Post post = Post::again;
        wait_until("a read to be taken", [&] {
            post = a.read(b, {.remote = shared.remote, .length = 4 * kib, .region = into, .token = round});
            return post != Post::again;
        });
        ASSERT_TRUE(taken(post));
        if (post == Post::pending) {
            EXPECT_EQ(wait_for(a, Event::Kind::completed, b).status, Status::ok);
        }
        if (!capabilities().phantom_bodies) {
            EXPECT_TRUE(a.matches(into, 0, 4 * kib, round));
        }
    }
}

TEST_P(Conformance, TC_C3_AReadWithTokenZeroWantsNoCompletion) {
    INCAST_SKIP_UNLESS(capabilities().read, "no reads");
    Node& a = node(0);
    Node& b = node(1);
    join(a, b);
    const Shared shared = share(b, a, 64 * kib);
    const std::uint16_t into = a.allocate(64 * kib);
    std::vector<Token> owed;
    for (Token token = 1; token <= 20; ++token) {
        ASSERT_TRUE(taken(a.read(b, {.remote = shared.remote, .length = 1000, .region = into})));
        EXPECT_TRUE(taken(a.read(b, {.remote = shared.remote, .remote_offset = 64 * kib, .length = 1, .region = into})))
            << "one that faults";
        const Post post = a.read(
            b, {.remote = shared.remote, .length = 1000, .region = into, .offset = 1000 * token, .token = token});
        ASSERT_TRUE(taken(post));
        if (post == Post::pending) owed.push_back(token);
    }
    std::vector<Token> completed;
    wait_until("the completions owed", [&] {
        while (const auto seen = a.take(Event::Kind::completed, b))
            completed.push_back(seen->token);
        return completed.size() >= owed.size();
    });
    barrier(a, b);
    barrier(b, a);
    EXPECT_TRUE(a.take().empty());
    // Their order is not promised.
    std::ranges::sort(completed);
    EXPECT_EQ(completed, owed);
}

TEST_P(Conformance, TC_P2_RoomFollowsForReadsToo) {
    INCAST_SKIP_UNLESS(capabilities().read, "no reads");
    Node& a = node(0, {.max_posted = 16});
    Node& b = node(1, {.max_posted = 16});
    join(a, b);
    const Shared shared = share(b, a, 256 * kib);
    const std::uint16_t into = a.allocate(256 * kib);
    constexpr std::uint64_t count = 3000;
    for (const bool faulty : {false, true}) {
        SCOPED_TRACE(faulty ? "reads that fault" : "reads that bring something");
        std::uint64_t posted = 0;
        std::uint64_t owed = 0;
        std::uint64_t agains = 0;
        std::uint64_t rooms = 0;
        bool waiting = false;
        wait_until("all reads", [&] {
            while (a.take(Event::Kind::room, b)) {
                ++rooms;
                waiting = false;
            }
            while (!waiting && posted < count) {
                const Post post = a.read(b, {.remote = shared.remote,
                                             .remote_offset = faulty ? 256 * kib - 1 : posted % 64 * 4 * kib,
                                             .length = 4 * kib,
                                             .region = into,
                                             .offset = posted % 64 * 4 * kib,
                                             .token = posted + 1});
                EXPECT_NE(post, Post::refused);
                if (post == Post::again) {
                    waiting = true;
                    ++agains;
                    break;
                }
                if (post == Post::pending) ++owed;
                ++posted;
            }
            while (const auto seen = a.take(Event::Kind::completed, b)) {
                EXPECT_EQ(seen->status, faulty ? Status::remote_fault : Status::ok);
                --owed;
            }
            return posted == count && owed == 0;
        });
        if (faulty) {
            EXPECT_GT(agains, 0u) << "memory for completions is bounded";
        }
        barrier(b, a);
        while (a.take(Event::Kind::room, b))
            ++rooms;
        EXPECT_LE(rooms, agains);
    }
}

TEST_P(Conformance, TC_P4_MisuseOfReadsIsRefused) {
    INCAST_SKIP_UNLESS(capabilities().read, "no reads");
    Node& a = node(0);
    Node& b = node(1);
    Node& c = node(2);
    const std::uint16_t into = a.allocate(4 * kib);
    EXPECT_EQ(a.read(b, {.length = 8, .region = into, .token = 1}), Post::refused) << "not connected";
    join(a, b);
    join(a, c);
    const Shared shared = share(b, a, 4 * kib);
    EXPECT_EQ(a.read(b, {.remote = 99, .length = 8, .region = into, .token = 1}), Post::refused) << "no such import";
    EXPECT_EQ(a.read(b, {.remote = shared.remote, .length = 8, .region = 99, .token = 1}), Post::refused);
    EXPECT_EQ(a.read(b, {.remote = shared.remote, .length = 2, .region = into, .offset = 4 * kib - 1, .token = 1}),
              Post::refused)
        << "beyond the own region";
    EXPECT_EQ(a.read(b, {.remote = shared.remote, .length = max_write_bytes + 1, .region = into, .token = 1}),
              Post::refused);
    EXPECT_EQ(a.read(c, {.remote = shared.remote, .length = 8, .region = into, .token = 1}), Post::refused)
        << "another peer's key";
    EXPECT_EQ(b.read(a, {.remote = shared.remote, .length = 8, .region = shared.region, .token = 1}), Post::refused)
        << "an import of another endpoint";
    barrier(a, b);
    barrier(b, a);
    EXPECT_TRUE(a.take().empty());
    EXPECT_TRUE(b.take().empty());
}

TEST_P(Conformance, TC_W1_OneEventAtATimeLosesNoReadCompletion) {
    INCAST_SKIP_UNLESS(capabilities().read, "no reads");
    Node& a = node(0);
    Node& b = node(1);
    join(a, b);
    const Shared shared = share(b, a, 64 * kib);
    const std::uint16_t into = a.allocate(64 * kib);
    b.fill(shared.region, 0, 64 * kib, 4);
    std::vector<Token> owed;
    for (Token token = 1; token <= 32; ++token) {
        const bool faulty = token % 8 == 0;
        const std::uint64_t at = (token - 1) * 2 * kib;
        const Post post = a.read(b, {.remote = shared.remote,
                                     .remote_offset = faulty ? 64 * kib : at,
                                     .length = 2 * kib,
                                     .region = into,
                                     .offset = at,
                                     .token = token});
        ASSERT_TRUE(taken(post));
        if (post == Post::pending) owed.push_back(token);
        ASSERT_EQ(b.send(a, 500, token), Post::done);
    }
    for (int rounds = 0; rounds < 50; ++rounds)
        round(0);
    std::vector<Token> completed;
    std::uint64_t messages = 0;
    for (int rounds = 0; rounds < 100'000 && (completed.size() < owed.size() || messages < 32); ++rounds) {
        round(1);
        for (const Seen& seen : a.take()) {
            if (seen.kind == Event::Kind::completed) {
                EXPECT_EQ(seen.status, seen.token % 8 == 0 ? Status::remote_fault : Status::ok);
                completed.push_back(seen.token);
            } else if (seen.kind == Event::Kind::message) {
                EXPECT_EQ(seen.message, message_of(500, ++messages));
            }
        }
    }
    EXPECT_EQ(messages, 32u);
    std::ranges::sort(completed);
    EXPECT_EQ(completed, owed);
    for (Token token = 1; token <= 32; ++token) {
        if (token % 8 == 0 || capabilities().phantom_bodies) continue;
        std::vector<std::byte> all(64 * kib);
        fill_pattern(all, 4);
        const std::uint64_t at = (token - 1) * 2 * kib;
        const std::string read = a.execute({.op = Op::local, .region = into, .length = 2 * kib, .offset = at}).text;
        EXPECT_TRUE(same_bytes(std::as_bytes(std::span(read)), std::span(all).subspan(at, 2 * kib))) << token;
    }
}

// --- the end of a connection with reads pending
// -------------------------------------------------------------------------------

/// Large reads of one place, and what becomes of them.
class Reads {
public:
    static constexpr std::uint64_t bytes = 1 * mib;
    static constexpr Token count = 8;

    /// The owner's bytes there are the pattern of `seed`.
    Reads(Node& reader, const Node& owner, std::uint32_t remote, std::uint64_t seed)
        : reader_(reader), seed_(seed), into_(reader.allocate(count * bytes)) {
        reader_.fill(into_, 0, count * bytes, 1);
        for (Token token = 1; token <= count; ++token) {
            const Post post = reader_.read(
                owner,
                {.remote = remote, .length = bytes, .region = into_, .offset = (token - 1) * bytes, .token = token});
            EXPECT_TRUE(taken(post));
            if (post == Post::pending) owed_.push_back(token);
            if (post == Post::done) ended(token, Status::ok);
        }
    }

    /// Takes what the reader polled. True once it has seen peer_down.
    bool look(Status bad) {
        for (const Seen& seen : reader_.take()) {
            EXPECT_FALSE(down_) << "after peer_down: " << to_string(seen);
            if (seen.kind == Event::Kind::peer_down) down_ = true;
            if (seen.kind != Event::Kind::completed) continue;
            EXPECT_TRUE(seen.status == Status::ok || seen.status == bad) << to_string(seen);
            completed_.push_back(seen.token);
            ended(seen.token, seen.status);
        }
        return down_;
    }

    void check() {
        std::ranges::sort(completed_);
        EXPECT_EQ(completed_, owed_) << "each exactly once, before peer_down";
        for (const auto& [token, head] : left_) {
            const std::uint64_t at = (token - 1) * bytes;
            if (reader_.capabilities().phantom_bodies) {
                EXPECT_EQ(head_at(at), head) << "read " << token << " landed after it had completed";
            } else {
                EXPECT_TRUE(reader_.matches(into_, at, bytes, 100 + token))
                    << "read " << token << " landed after it had completed";
            }
        }
    }

private:
    /// The place is the reader's again: it uses it for something else.
    void ended(Token token, Status status) {
        const std::uint64_t at = (token - 1) * bytes;
        if (status == Status::ok && !reader_.capabilities().phantom_bodies) {
            EXPECT_TRUE(reader_.matches(into_, at, bytes, seed_)) << "read " << token << " is not what was there";
        }
        reader_.fill(into_, at, bytes, 100 + token);
        left_[token] = head_at(at);
    }
    std::string head_at(std::uint64_t offset) {
        return reader_.execute({.op = Op::local, .region = into_, .length = max_head_bytes, .offset = offset}).text;
    }

    Node& reader_;
    std::uint64_t seed_;
    std::uint16_t into_;
    std::vector<Token> owed_;
    std::vector<Token> completed_;
    std::map<Token, std::string> left_;
    bool down_ = false;
};

TEST_P(Conformance, TC_R5_NothingOfAReadLandsOnceItHasCompleted) {
    INCAST_SKIP_UNLESS(capabilities().read, "no reads");
    // Left at once, and with bytes under way.
    for (const int rounds : {0, 2}) {
        SCOPED_TRACE(rounds);
        Node& a = node(0);
        Node& b = node(1);
        join(a, b);
        const Shared shared = share(b, a, Reads::bytes);
        b.fill(shared.region, 0, Reads::bytes, 7);
        put_head(a, b, shared.remote, 0, 0, 0);
        Reads reads(a, b, shared.remote, 7);
        for (int i = 0; i < rounds; ++i)
            round();
        reads.look(Status::cancelled);
        a.disconnect(b);
        EXPECT_EQ(a.read(b, {.remote = shared.remote, .length = 8, .region = 0, .token = 1}), Post::refused);
        wait_until("peer_down", [&] { return reads.look(Status::cancelled); });
        wait_for(b, Event::Kind::peer_down, a);
        let_time_pass();
        EXPECT_TRUE(a.take().empty());
        reads.check();
    }
}

TEST_P(Conformance, TC_F4_ReadsOfALostPeerCompleteAsLost) {
    INCAST_SKIP_UNLESS(capabilities().read, "no reads");
    for (const int rounds : {0, 2}) {
        SCOPED_TRACE(rounds);
        Node& a = node(0);
        Node& b = node(1);
        join(a, b);
        const Shared shared = share(b, a, Reads::bytes);
        b.fill(shared.region, 0, Reads::bytes, 7);
        Reads reads(a, b, shared.remote, 7);
        for (int i = 0; i < rounds; ++i)
            round();
        reads.look(Status::peer_lost);
        b.destroy();
        wait_until("peer_down", [&] { return reads.look(Status::peer_lost); });
        let_time_pass();
        EXPECT_TRUE(a.take().empty());
        reads.check();
    }
}

TEST_P(Conformance, TC_F5_ReadsOfAKilledProcessComplete) {
    INCAST_SKIP_UNLESS(capabilities().read, "no reads");
    INCAST_SKIP_UNLESS(GetParam().mode == Mode::two_processes && !capabilities().nature.launch, "no process to kill");
    Node& a = node(0);
    // Who does not survive a peer has lost the others, too.
    const std::uint32_t others = capabilities().survives_peer_loss ? 3 : 1;
    for (std::uint32_t other = 1; other <= others; ++other) {
        Node& b = node(other);
        join(a, b);
        const Shared shared = share(b, a, Reads::bytes);
        b.fill(shared.region, 0, Reads::bytes, 7);
        Reads reads(a, b, shared.remote, 7);
        for (std::uint32_t i = 1; i < other; ++i)
            round();
        reads.look(Status::peer_lost);
        ASSERT_TRUE(b.kill());
        wait_until("peer_down", [&] { return reads.look(Status::peer_lost); });
        let_time_pass();
        EXPECT_TRUE(a.take().empty());
        reads.check();
    }
}

TEST_P(Conformance, TC_F2_NothingIsReadAfterPeerDown) {
    INCAST_SKIP_UNLESS(capabilities().read, "no reads");
    Node& a = node(0);
    Node& b = node(1);
    join(a, b);
    const Shared shared = share(b, a, Reads::bytes);
    b.fill(shared.region, 0, Reads::bytes, 7);
    Reads reads(a, b, shared.remote, 7);
    round();
    b.disconnect(a);
    wait_for(b, Event::Kind::peer_down, a);
    // From here on b's memory is b's alone: what a reads of it, if anything, is of before.
    b.fill(shared.region, 0, Reads::bytes, 8);
    wait_until("peer_down", [&] { return reads.look(Status::peer_lost); });
    reads.check();
}

// --- views
// ---------------------------------------------------------------------------------------------------------------------

TEST_P(Conformance, TC_V1_AViewIsOfTheBytesThemselves) {
    INCAST_SKIP_UNLESS(capabilities().view, "no views");
    Node& a = node(0);
    Node& b = node(1);
    join(a, b);
    const Shared shared = share(b, a, 64 * kib);
    b.fill(shared.region, 0, 64 * kib, 1);
    const Command whole{.op = Op::hold_view, .remote = shared.remote, .length = 64 * kib, .seed = 1};
    EXPECT_TRUE(a.execute(whole).ok);
    b.fill(shared.region, 0, 64 * kib, 2);
    barrier(b, a);
    EXPECT_TRUE(a.execute({.op = Op::held_view, .length = 64 * kib, .seed = 2}).ok);
    const std::uint16_t source = a.allocate(64 * kib);
    a.fill(source, 0, 64 * kib, 3);
    ASSERT_TRUE(taken(a.write(
        b, {.length = 64 * kib, .region = source, .remote = shared.remote, .notice = std::uint16_t{1}, .token = 1})));
    wait_for(b, Event::Kind::notice, a);
    EXPECT_TRUE(a.execute({.op = Op::held_view, .length = 64 * kib, .seed = 3}).ok) << "what was written is there, too";
}

TEST_P(Conformance, TC_V1_AViewStaysInTheRegionAndOfThePeerThatIsUp) {
    INCAST_SKIP_UNLESS(capabilities().view, "no views");
    Node& a = node(0);
    Node& b = node(1);
    const Blob key = b.expose(b.allocate(64 * kib));
    const std::uint32_t remote = a.import_key(b, key);
    const auto view_bytes = [&](std::uint32_t of, std::uint64_t offset, std::uint64_t length) {
        return a.execute({.op = Op::view, .remote = of, .length = length, .remote_offset = offset}).length;
    };
    EXPECT_EQ(view_bytes(remote, 0, 8), 0u) << "not connected";
    join(a, b);
    wait_until("the region", [&] { return view_bytes(remote, 0, 8) == 8; });
    EXPECT_EQ(view_bytes(remote, 0, 64 * kib), 64 * kib);
    EXPECT_EQ(view_bytes(remote, 64 * kib - 8, 8), 8u);
    EXPECT_EQ(view_bytes(remote, 64 * kib - 7, 8), 0u);
    EXPECT_EQ(view_bytes(remote, ~std::uint64_t{0} - 3, 8), 0u);
    EXPECT_EQ(view_bytes(99, 0, 8), 0u) << "no such import";
    a.disconnect(b);
    EXPECT_EQ(view_bytes(remote, 0, 8), 0u) << "left";
    wait_for(a, Event::Kind::peer_down, b);
    wait_for(b, Event::Kind::peer_down, a);
    join(a, b);
    wait_until("the region", [&] { return view_bytes(remote, 0, 8) == 8; });
    b.destroy();
    wait_for(a, Event::Kind::peer_down, b);
    b.create(2);
    join(a, b);
    const Shared fresh = share(b, a, 64 * kib);
    wait_until("the new region", [&] { return view_bytes(fresh.remote, 0, 8) == 8; });
    EXPECT_EQ(view_bytes(remote, 0, 8), 0u) << "a stale key";
}

TEST_P(Conformance, TC_V3_AViewStaysReadableUntilThePollAfterPeerDown) {
    INCAST_SKIP_UNLESS(capabilities().view, "no views");
    constexpr std::uint64_t bytes = 256 * kib;
    Node& a = node(0);
    for (std::uint32_t other = 1; other < 4; ++other) {
        Node& b = node(other);
        join(a, b);
        const Shared shared = share(b, a, bytes);
        b.fill(shared.region, 0, bytes, other);
        wait_until("a view", [&] {
            return a.execute({.op = Op::hold_view, .remote = shared.remote, .length = bytes, .seed = other}).ok;
        });
        // What the peer sent last is handed out first, and whoever handles it may look at the view.
        ASSERT_EQ(b.send(a, 100, other), Post::done);
        b.poll(now());
        if (other == 1 || GetParam().mode != Mode::two_processes) {
            b.destroy();
        } else {
            ASSERT_TRUE(b.kill());
        }
        std::vector<Seen> seen;
        wait_until("peer_down", [&] {
            EXPECT_TRUE(a.execute({.op = Op::held_view, .length = bytes, .seed = other}).ok) << "node " << other;
            for (Seen& each : a.take())
                seen.push_back(std::move(each));
            return !seen.empty() && seen.back().kind == Event::Kind::peer_down;
        });
        EXPECT_EQ(seen.size(), 2u);
        EXPECT_TRUE(a.execute({.op = Op::held_view, .length = bytes, .seed = other}).ok) << "node " << other;
    }
}

}  // namespace
}  // namespace incast::conformance

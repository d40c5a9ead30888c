// Clauses M (memory), R (read), V (view).
#include <algorithm>

#include "conformance.h"

namespace incast::conformance {
namespace {

constexpr std::uint64_t kib = 1024;
constexpr std::uint64_t mib = 1024 * kib;

TEST_P(Conformance, TC_M1_RegionsAreZeroedAndAligned) {
    Node& a = node(0);
    const std::uint16_t region = a.allocate(100'001);
    const Reply memory = a.execute({.op = Op::memory, .region = region});
    if (capabilities().phantom_bodies) {
        EXPECT_EQ(memory.length, 0u);
    } else {
        EXPECT_EQ(memory.length, 100'001u);
        EXPECT_TRUE(memory.ok) << "not 64-byte aligned";
        EXPECT_TRUE(a.execute({.op = Op::is_zero, .region = region, .length = 100'001}).ok);
    }
    EXPECT_NE(a.allocate(1), region);
}

TEST_P(Conformance, TC_M2_ARegionOfNothingAndUnknownRegionsAreErrors) {
    Node& a = node(0);
    const Reply nothing = a.execute({.op = Op::allocate, .length = 0});
    EXPECT_FALSE(nothing.ok);
    EXPECT_NE(nothing.text, "");
    EXPECT_EQ(a.execute({.op = Op::memory, .region = 9}).length, 0u);
    const Reply unknown = a.execute({.op = Op::expose, .region = 9});
    EXPECT_FALSE(unknown.ok);
    EXPECT_NE(unknown.text, "");
    EXPECT_EQ(a.execute({.op = Op::local, .region = 9, .length = 1}).text, "");
}

TEST_P(Conformance, TC_S3_AddressesAndKeysAreOfLimitedSize) {
    Node& a = node(0);
    Node& b = node(1);
    for (Node* each : {&a, &b}) {
        const std::size_t address = each->address().bytes.size();
        EXPECT_GE(address, 1u);
        EXPECT_LE(address, max_address_bytes);
        for (const std::uint64_t bytes : {kib, 64 * kib}) {
            const std::size_t key = each->expose(each->allocate(bytes)).bytes.size();
            EXPECT_GE(key, 1u);
            EXPECT_LE(key, max_key_bytes);
        }
    }
}

TEST_P(Conformance, TC_M3_AWriteOutsideTheRegionNeverLandsAndFaults) {
    Node& a = node(0);
    Node& b = node(1);
    join(a, b);
    const Shared shared = share(b, a, 8 * kib);
    const std::uint16_t source = a.allocate(16 * kib);
    struct Outside {
        std::uint8_t head_bytes;
        std::uint64_t length;
        std::uint64_t offset;
    };
    Token token = 0;
    for (const Outside& outside : {Outside{8, 0, 8 * kib}, Outside{16, 8 * kib - 8, 0}, Outside{0, 1, 8 * kib},
                                   Outside{8, 4 * kib, 4 * kib}, Outside{8, 0, ~std::uint64_t{0} - 3}}) {
        const Post post = a.write(b, {.head_bytes = outside.head_bytes,
                                      .length = outside.length,
                                      .region = source,
                                      .remote = shared.remote,
                                      .remote_offset = outside.offset,
                                      .notice = std::uint16_t{1},
                                      .token = ++token,
                                      .seed = 99});
        ASSERT_EQ(post, Post::pending) << "offset " << outside.offset;
        const Seen seen = wait_for(a, Event::Kind::completed, b);
        EXPECT_EQ(seen.status, Status::remote_fault);
        EXPECT_EQ(seen.token, token);
    }
    barrier(a, b);
    EXPECT_TRUE(b.take().empty()) << "no notice";
    if (!capabilities().phantom_bodies) {
        EXPECT_TRUE(b.execute({.op = Op::is_zero, .region = shared.region, .length = 8 * kib}).ok);
    }
    // Neither side is worse for it.
    ASSERT_TRUE(taken(a.write(b, {.head_bytes = 8, .remote = shared.remote, .notice = std::uint16_t{2}, .seed = 5})));
    EXPECT_EQ(wait_for(b, Event::Kind::notice, a).value, 2);
    EXPECT_TRUE(b.matches(shared.region, 0, 8, 5));
}

TEST_P(Conformance, TC_M4_AKeyDiesWithItsIncarnation) {
    Node& a = node(0);
    Node& b = node(1);
    join(a, b);
    const Shared old = share(b, a, 4 * kib);
    b.destroy();
    wait_for(a, Event::Kind::peer_down, b);
    b.create(2);
    join(a, b);
    const Shared fresh = share(b, a, 4 * kib);
    ASSERT_EQ(a.write(b, {.head_bytes = 8, .remote = old.remote, .notice = std::uint16_t{1}, .token = 4, .seed = 1}),
              Post::pending);
    const Seen seen = wait_for(a, Event::Kind::completed, b);
    EXPECT_EQ(seen.status, Status::remote_fault);
    EXPECT_EQ(seen.token, 4u);
    ASSERT_TRUE(taken(a.write(b, {.head_bytes = 8, .remote = fresh.remote, .notice = std::uint16_t{2}, .seed = 6})));
    EXPECT_EQ(wait_for(b, Event::Kind::notice, a).value, 2) << "and no notice of the first";
    EXPECT_TRUE(b.matches(fresh.region, 0, 8, 6));
}

TEST_P(Conformance, TC_M5_WhatIsNoKeyIsAnError) {
    Node& a = node(0);
    Node& b = node(1);
    const Blob key = b.expose(b.allocate(4 * kib));
    Blob nonsense;
    nonsense.bytes.resize(33);
    EXPECT_FALSE(a.execute({.op = Op::import_key, .peer = 1, .blob = nonsense}).ok);
    EXPECT_FALSE(a.execute({.op = Op::import_key, .peer = 1, .blob = Blob{}}).ok);
    Blob damaged = key;
    damaged.bytes[0] ^= std::byte{1};
    const Reply reply = a.execute({.op = Op::import_key, .peer = 1, .blob = damaged});
    EXPECT_FALSE(reply.ok);
    EXPECT_NE(reply.text, "");
    EXPECT_TRUE(a.execute({.op = Op::import_key, .peer = 1, .blob = key}).ok);
}

TEST_P(Conformance, TC_M6_OneKeyServesManyWriters) {
    Node& a = node(0);
    Node& b = node(1);
    Node& c = node(2);
    join(a, b);
    join(c, b);
    const std::uint16_t region = b.allocate(4 * kib);
    const Blob key = b.expose(region);
    const std::uint32_t from_a = a.import_key(b, key);
    const std::uint32_t from_c = c.import_key(b, key);
    ASSERT_TRUE(taken(a.write(b, {.head_bytes = 64, .remote = from_a, .notice = std::uint16_t{1}, .seed = 1})));
    ASSERT_TRUE(taken(
        c.write(b, {.head_bytes = 64, .remote = from_c, .remote_offset = 64, .notice = std::uint16_t{2}, .seed = 2})));
    EXPECT_EQ(wait_for(b, Event::Kind::notice, a).value, 1);
    EXPECT_EQ(wait_for(b, Event::Kind::notice, c).value, 2);
    EXPECT_TRUE(b.matches(region, 0, 64, 1));
    EXPECT_TRUE(b.matches(region, 64, 64, 2));
}

TEST_P(Conformance, TC_M9_RegionsByTheHundredReachThePeer) {
    Node& a = node(0);
    Node& b = node(1);
    constexpr std::uint16_t n_regions = 500;
    std::vector<std::pair<std::uint16_t, Blob>> exposed;
    for (std::uint16_t number = 0; number < n_regions; ++number) {
        const std::uint16_t region = b.allocate(kib);
        exposed.emplace_back(region, b.expose(region));
    }
    join(a, b);
    for (std::uint16_t number = 0; number < n_regions; ++number) {
        const auto& [region, key] = exposed[number];
        const std::uint32_t remote = a.import_key(b, key);
        Post post = Post::again;
        wait_until("a write to be taken", [&] {
            post = a.write(b, {.head_bytes = 64, .remote = remote, .notice = number, .seed = number});
            return post != Post::again;
        });
        ASSERT_TRUE(taken(post)) << number;
        EXPECT_EQ(wait_for(b, Event::Kind::notice, a).value, number);
        EXPECT_TRUE(b.matches(region, 0, 64, number));
    }
}

TEST_P(Conformance, TC_M10_APeerReachesOnlyThePlacesThatWereGrantedToIt) {
    INCAST_SKIP_UNLESS(capabilities().nature.bounds == Bounds::strided, "it does not bound writers to places");
    Node& a = node(0);
    Node& b = node(1);
    Node& c = node(2);
    join(a, b);
    join(c, b);
    const std::uint16_t region = b.allocate(4 * kib);
    const std::uint16_t source = a.allocate(4 * kib);
    // Of each KiB the first 256 bytes are c's, and 256 behind them a's.
    const auto grant = [&](std::uint32_t peer, std::uint64_t offset) {
        const Reply reply = b.execute({.op = Op::grant,
                                       .head_bytes = 2,
                                       .region = region,
                                       .peer = peer,
                                       .length = 256,
                                       .offset = offset,
                                       .remote_offset = kib,
                                       .repeat = 4});
        EXPECT_TRUE(reply.ok) << reply.text;
        return reply.blob;
    };
    const Blob key_of_c = grant(2, 0);
    const Blob key = grant(0, 256);
    std::uint16_t notice = 0;
    const auto write = [&](std::uint64_t offset, std::uint8_t head_bytes, std::uint64_t length) {
        const std::uint32_t remote = a.import_key(b, key);
        return a.write(b, {.head_bytes = head_bytes,
                           .length = length,
                           .region = source,
                           .remote = remote,
                           .remote_offset = offset,
                           .notice = ++notice,
                           .seed = 7});
    };
    for (std::uint64_t place = 0; place < 4; ++place) {
        ASSERT_TRUE(taken(write(place * kib + 256, 64, 192)));
        EXPECT_EQ(wait_for(b, Event::Kind::notice, a).value, notice);
        EXPECT_TRUE(b.matches(region, place * kib + 256, 64, 7));
        ASSERT_TRUE(taken(write(place * kib + 300, 16, 0)));
        EXPECT_EQ(wait_for(b, Event::Kind::notice, a).value, notice);
    }
    ASSERT_EQ(
        a.read(b, {.remote = a.import_key(b, key), .remote_offset = 256, .length = 8, .region = source, .token = 5}),
        Post::pending);
    EXPECT_EQ(wait_for(a, Event::Kind::completed, b).status, Status::remote_fault) << "it may only write there";
    struct Elsewhere {
        std::uint64_t offset;
        std::uint8_t head_bytes;
        std::uint64_t length;
    };
    for (const Elsewhere& place : {Elsewhere{0, 64, 0}, Elsewhere{255, 8, 0}, Elsewhere{256, 64, 193},
                                   Elsewhere{512, 8, 0}, Elsewhere{3 * kib + 512, 0, 1}}) {
        ASSERT_TRUE(taken(write(place.offset, place.head_bytes, place.length)));
        EXPECT_EQ(wait_for(a, Event::Kind::peer_down, b).incarnation, 1u) << "offset " << place.offset;
        wait_for(b, Event::Kind::peer_down, a);
        join(a, b);
    }
    EXPECT_TRUE(b.execute({.op = Op::is_zero, .region = region, .length = 256}).ok);
    EXPECT_TRUE(b.execute({.op = Op::is_zero, .region = region, .length = 512, .offset = 512}).ok);
    EXPECT_TRUE(b.execute({.op = Op::is_zero, .region = region, .length = 512, .offset = 3 * kib + 512}).ok);
    // Others are none the worse for it.
    const std::uint32_t remote = c.import_key(b, key_of_c);
    ASSERT_TRUE(taken(c.write(b, {.head_bytes = 64, .remote = remote, .notice = std::uint16_t{99}, .seed = 2})));
    EXPECT_EQ(wait_for(b, Event::Kind::notice, c).value, 99);
    EXPECT_TRUE(b.matches(region, 0, 64, 2));
}

TEST_P(Conformance, TC_M14_AGrantIsForItsPeerAndForWhatItSays) {
    INCAST_SKIP_UNLESS(capabilities().nature.bounds != Bounds::trusted, "it does not bound writers");
    Node& a = node(0);
    Node& b = node(1);
    Node& c = node(2);
    join(a, b);
    join(c, b);
    const std::uint16_t region = b.allocate(4 * kib);
    b.fill(region, 0, 4 * kib, 3);
    const auto grant = [&](std::uint8_t access, std::uint64_t length, std::uint32_t peer) {
        return b.execute(
            {.op = Op::grant, .head_bytes = access, .region = region, .peer = peer, .length = length, .repeat = 1});
    };
    const Reply to_read = grant(1, 4 * kib, 0);
    ASSERT_TRUE(to_read.ok) << to_read.text;
    const Reply stolen = c.execute({.op = Op::import_key, .peer = 1, .blob = to_read.blob});
    EXPECT_FALSE(stolen.ok);
    EXPECT_NE(stolen.text, "");
    for (const Reply& wrong : {grant(2, 4 * kib + 1, 0), grant(2, kib, 77)}) {
        EXPECT_FALSE(wrong.ok);
        EXPECT_NE(wrong.text, "");
    }

    const std::uint16_t own = a.allocate(4 * kib);
    const std::uint32_t for_reading = a.import_key(b, to_read.blob);
    if (capabilities().read) {
        Post post = Post::again;
        ASSERT_TRUE(wait_until("the read to be taken", [&] {
            post = a.read(b, {.remote = for_reading, .length = 4 * kib, .region = own, .token = 4});
            return taken(post);
        }));
        if (post == Post::pending) {
            EXPECT_EQ(wait_for(a, Event::Kind::completed, b).status, Status::ok);
        }
        EXPECT_TRUE(a.matches(own, 0, 4 * kib, 3));
    }
    ASSERT_TRUE(taken(a.write(b, {.head_bytes = 64, .remote = for_reading, .token = 6, .seed = 9})));
    EXPECT_EQ(wait_for(a, Event::Kind::completed, b).status, Status::remote_fault);
    barrier(a, b);
    EXPECT_TRUE(b.matches(region, 0, 4 * kib, 3));

    const Reply to_write = grant(2, 4 * kib, 0);
    ASSERT_TRUE(to_write.ok) << to_write.text;
    const std::uint32_t for_writing = a.import_key(b, to_write.blob);
    const WriteArguments write{.head_bytes = 64, .remote = for_writing, .notice = std::uint16_t{1}, .seed = 9};
    ASSERT_TRUE(wait_until("the write to be taken", [&] { return taken(a.write(b, write)); }));
    EXPECT_EQ(wait_for(b, Event::Kind::notice, a).value, 1);
    EXPECT_TRUE(b.matches(region, 0, 64, 9));
}

TEST_P(Conformance, TC_M15_WhereAnyMemoryWillDoItNeedBeNoRegion) {
    Node& a = node(0);
    Node& b = node(1);
    join(a, b);
    constexpr std::uint64_t bytes = 2 * mib;
    const Shared shared = share(b, a, bytes);
    WriteArguments write{.head_bytes = 64, .remote = shared.remote, .notice = std::uint16_t{1}, .token = 5};
    if (!capabilities().nature.any_memory) {
        EXPECT_EQ(a.write_from(b, write), Post::refused);
        barrier(a, b);
        EXPECT_TRUE(b.take().empty());
        return;
    }
    for (const std::uint64_t length : {std::uint64_t{0}, std::uint64_t{1}, 5 * kib, bytes - 64}) {
        SCOPED_TRACE(length);
        write.length = length;
        write.offset = length + 3;
        write.seed = length + 4;
        Post post = Post::again;
        ASSERT_TRUE(wait_until("the write to be taken", [&] {
            post = a.write_from(b, write);
            return taken(post);
        }));
        wait_for(b, Event::Kind::notice, a);
        EXPECT_TRUE(b.matches(shared.region, 0, 64, write.seed));
        EXPECT_TRUE(b.matches(shared.region, 64, length, write.offset));
        if (capabilities().nature.copies == Copies::processor) {
            EXPECT_EQ(post, Post::done) << "the body is the caller's again";
        }
        if (post == Post::pending) {
            EXPECT_EQ(wait_for(a, Event::Kind::completed, b).status, Status::ok);
        }
        EXPECT_FALSE(a.take(Event::Kind::completed)) << "once";
    }
    write.length = bytes - 63;
    ASSERT_EQ(a.write_from(b, write), Post::pending);
    EXPECT_EQ(wait_for(a, Event::Kind::completed, b).status, Status::remote_fault);
    write.head_bytes = 65;
    EXPECT_EQ(a.write_from(b, write), Post::refused);
}

TEST_P(Conformance, TC_M7_EveryCopyOfABodyIsCounted) {
    Node& a = node(0);
    Node& b = node(1);
    join(a, b);
    const auto copied = [&] { return a.execute({.op = Op::copied}).length + b.execute({.op = Op::copied}).length; };
    const Copies who = capabilities().nature.copies;
    const bool no_processor = who == Copies::nobody || who == Copies::hardware;
    const Shared shared = share(b, a, 512 * kib);
    const std::uint16_t own = a.allocate(512 * kib);
    // Small bodies and large ones take different ways.
    for (const std::uint64_t length : {std::uint64_t{100}, 5 * kib, 300 * kib}) {
        const std::uint64_t before = copied();
        ASSERT_TRUE(taken(a.write(
            b, {.length = length, .region = own, .remote = shared.remote, .notice = std::uint16_t{7}, .seed = 1})));
        wait_for(b, Event::Kind::notice, a);
        const std::uint64_t more = copied() - before;
        if (no_processor) {
            EXPECT_EQ(more, 0u);
        } else {
            EXPECT_GE(more, length);
            EXPECT_LE(more, 4 * length + 4 * kib) << "a copy was counted that cannot have been";
        }
    }
    if (capabilities().read) {
        const std::uint64_t before = copied();
        const Command read{
            .op = Op::read, .region = own, .peer = 1, .remote = shared.remote, .token = 3, .length = 300 * kib};
        if (a.execute(read).post == Post::pending) wait_for(a, Event::Kind::completed, b);
        EXPECT_GE(copied() - before, no_processor ? 0 : 300 * kib);
    }
    if (capabilities().view) {
        const std::uint64_t before = copied();
        EXPECT_EQ(a.execute({.op = Op::view, .remote = shared.remote, .length = 300 * kib}).length, 300 * kib);
        EXPECT_EQ(copied(), before);
    }
}

TEST_P(Conformance, TC_M8_ASharedRegionIsReadElsewhereAndNotWritten) {
    Node& a = node(0);
    Node& b = node(1, {.shareable = true});
    EXPECT_FALSE(b.execute({.op = Op::share, .region = 9}).ok) << "there is no such region";
    join(a, b);
    const Shared shared = share(b, a, 8 * kib);
    ASSERT_TRUE(taken(a.write(
        b,
        {.head_bytes = 64, .remote = shared.remote, .remote_offset = 5'000, .notice = std::uint16_t{1}, .seed = 3})));
    wait_for(b, Event::Kind::notice, a);
    const Reply seen = b.execute({.op = Op::share, .region = shared.region, .length = 64, .offset = 5'000, .seed = 3});
    EXPECT_EQ(seen.ok, !capabilities().phantom_bodies) << seen.text;
    // Who was not asked for it may still do it, but never says nothing.
    const Reply unasked = a.execute({.op = Op::share, .region = a.allocate(kib), .length = 64, .seed = 3});
    EXPECT_NE(unasked.text, "");
}

TEST_P(Conformance, TC_R1_AReadBringsThePeersBytes) {
    INCAST_SKIP_UNLESS(capabilities().read, "no reads");
    Node& a = node(0);
    Node& b = node(1);
    join(a, b);
    const Shared shared = share(b, a, 2048 * kib);
    const std::uint16_t into = a.allocate(2048 * kib);
    Token token = 0;
    for (const std::uint64_t length : {std::uint64_t{0}, std::uint64_t{1}, std::uint64_t{4097}, 1024 * kib}) {
        b.fill(shared.region, 100, length, length);
        // Where bodies are phantom, a head is all that can be read.
        const std::uint64_t head_bytes = std::min<std::uint64_t>(length, max_head_bytes);
        if (capabilities().phantom_bodies) put_head(a, b, shared.remote, 100, head_bytes, length);
        const Post post = a.execute({.op = Op::read,
                                     .region = into,
                                     .peer = 1,
                                     .remote = shared.remote,
                                     .token = ++token,
                                     .length = length,
                                     .offset = 7,
                                     .remote_offset = 100})
                              .post;
        ASSERT_TRUE(taken(post));
        if (post == Post::pending) {
            const Seen seen = wait_for(a, Event::Kind::completed, b);
            EXPECT_EQ(seen.status, Status::ok);
            EXPECT_EQ(seen.token, token);
        }
        EXPECT_TRUE(a.matches(into, 7, capabilities().phantom_bodies ? head_bytes : length, length)) << length;
    }
    barrier(b, a);
    EXPECT_TRUE(a.take().empty()) << "a completion too many";
    EXPECT_TRUE(b.take().empty()) << "the owner of the bytes sees nothing";
}

TEST_P(Conformance, TC_R2_AReadOutsideTheRegionFaults) {
    INCAST_SKIP_UNLESS(capabilities().read, "no reads");
    Node& a = node(0);
    Node& b = node(1);
    join(a, b);
    const Shared shared = share(b, a, 4 * kib);
    const std::uint16_t into = a.allocate(8 * kib);
    a.fill(into, 0, 8 * kib, 3);
    const Command read{.op = Op::read,
                       .region = into,
                       .peer = 1,
                       .remote = shared.remote,
                       .token = 8,
                       .length = 4 * kib,
                       .remote_offset = 1};
    ASSERT_EQ(a.execute(read).post, Post::pending);
    const Seen seen = wait_for(a, Event::Kind::completed, b);
    EXPECT_EQ(seen.status, Status::remote_fault);
    EXPECT_EQ(seen.token, 8u);
    if (capabilities().phantom_bodies) {
        EXPECT_EQ(a.execute({.op = Op::local, .region = into, .length = 1}).text, "");
    } else {
        EXPECT_TRUE(a.matches(into, 0, 8 * kib, 3)) << "nothing was read";
    }
}

TEST_P(Conformance, TC_R3_ManyReadsAtATime) {
    INCAST_SKIP_UNLESS(capabilities().read, "no reads");
    Node& a = node(0, {.max_posted = 16});
    Node& b = node(1, {.max_posted = 16});
    join(a, b);
    const Shared shared = share(b, a, 1024 * kib);
    const std::uint16_t into = a.allocate(1024 * kib);
    b.fill(shared.region, 0, 1024 * kib, 11);
    constexpr std::uint64_t count = 100;
    std::uint64_t posted = 0;
    std::uint64_t owed = 0;
    wait_until("all reads", [&] {
        while (posted < count) {
            const std::uint64_t at = posted * 10 * kib;
            const Post post = a.execute({.op = Op::read,
                                         .region = into,
                                         .peer = 1,
                                         .remote = shared.remote,
                                         .token = posted + 1,
                                         .length = 10 * kib,
                                         .offset = at,
                                         .remote_offset = at})
                                  .post;
            if (post == Post::again) break;
            EXPECT_TRUE(taken(post));
            if (post == Post::pending) ++owed;
            ++posted;
        }
        while (const auto seen = a.take(Event::Kind::completed, b)) {
            EXPECT_EQ(seen->status, Status::ok);
            --owed;
        }
        return posted == count && owed == 0;
    });
    if (!capabilities().phantom_bodies) {
        EXPECT_TRUE(a.matches(into, 0, count * 10 * kib, 11));
    }
}

TEST_P(Conformance, TC_R4_WithoutTheCapabilityReadsAreRefused) {
    INCAST_SKIP_UNLESS(!capabilities().read, "it has reads");
    Node& a = node(0);
    Node& b = node(1);
    join(a, b);
    const Shared shared = share(b, a, 4 * kib);
    const std::uint16_t into = a.allocate(4 * kib);
    EXPECT_EQ(
        a.execute({.op = Op::read, .region = into, .peer = 1, .remote = shared.remote, .token = 1, .length = 8}).post,
        Post::refused);
}

TEST_P(Conformance, TC_V1_AViewShowsThePeersBytesInPlace) {
    INCAST_SKIP_UNLESS(capabilities().view, "no views");
    Node& a = node(0);
    Node& b = node(1);
    join(a, b);
    const Shared shared = share(b, a, 64 * kib);
    b.fill(shared.region, 10, 5000, 21);
    const Command view{.op = Op::view, .remote = shared.remote, .length = 5000, .remote_offset = 10, .seed = 21};
    EXPECT_TRUE(a.execute(view).ok);
    EXPECT_EQ(
        a.execute({.op = Op::view, .remote = shared.remote, .length = 5000, .remote_offset = 64 * kib - 4999}).length,
        0u);
    b.destroy();
    wait_for(a, Event::Kind::peer_down, b);
    EXPECT_EQ(a.execute(view).length, 0u) << "the peer is down";
}

TEST_P(Conformance, TC_V2_WithoutTheCapabilityViewsAreEmpty) {
    INCAST_SKIP_UNLESS(!capabilities().view, "it has views");
    Node& a = node(0);
    Node& b = node(1);
    join(a, b);
    const Shared shared = share(b, a, 4 * kib);
    EXPECT_EQ(a.execute({.op = Op::view, .remote = shared.remote, .length = 8}).length, 0u);
}

}  // namespace
}  // namespace incast::conformance

// Clauses about giving back regions and imports (TC-M11 to TC-M13), and about what a transport says of itself (TC-A1,
// TC-A2).
#include "conformance.h"
#include "transport/builtin/builtin.h"

namespace incast::conformance {
namespace {

constexpr std::uint64_t kib = 1024;

TEST_P(Conformance, TC_M11_AReleasedRegionIsReachedByNobody) {
    Node& a = node(0);
    Node& b = node(1);
    join(a, b);
    const Shared old = share(b, a, 8 * kib);
    const std::uint16_t source = a.allocate(8 * kib);
    a.fill(source, 0, 8 * kib, 1);
    ASSERT_TRUE(taken(a.write(b, {.head_bytes = 8, .remote = old.remote, .notice = std::uint16_t{1}, .seed = 5})));
    wait_for(b, Event::Kind::notice, a);
    EXPECT_TRUE(b.release(old.region).ok);
    EXPECT_EQ(b.execute({.op = Op::memory, .region = old.region}).length, 0u);
    EXPECT_EQ(b.execute({.op = Op::local, .region = old.region, .length = 8}).text, "");
    for (const Op op : {Op::release, Op::expose}) {
        const Reply again = b.execute({.op = op, .region = old.region});
        EXPECT_FALSE(again.ok);
        EXPECT_NE(again.text, "");
    }

    const std::uint16_t region = b.allocate(8 * kib);
    EXPECT_EQ(region, old.region);
    const std::uint32_t remote = a.import_key(b, b.expose(region));
    // What goes through the old key is lost, whether its sender knows of it yet or not. A read may bring what was.
    for (const bool known : {false, true}) {
        SCOPED_TRACE(known ? "told" : "at once");
        if (known) let_time_pass();
        const WriteArguments stale{
            .head_bytes = 64, .length = kib, .region = source, .remote = old.remote, .token = 7, .seed = 6};
        wait_until("the write to be answered", [&] { return a.write(b, stale) != Post::again; });
        barrier(a, b);
        if (capabilities().phantom_bodies) {
            EXPECT_EQ(b.execute({.op = Op::local, .region = region, .length = 64}).text, "");
        } else {
            EXPECT_TRUE(b.execute({.op = Op::is_zero, .region = region, .length = 8 * kib}).ok);
        }
    }
    let_time_pass();
    a.take();
    ASSERT_TRUE(wait_until("the write to be taken", [&] {
        return taken(a.write(b, {.head_bytes = 8, .remote = remote, .notice = std::uint16_t{3}, .seed = 9}));
    }));
    EXPECT_EQ(wait_for(b, Event::Kind::notice, a).value, 3);
    EXPECT_TRUE(b.matches(region, 0, 8, 9));

    // A connection made again, or a peer that comes later, changes nothing of that.
    a.disconnect(b);
    wait_for(a, Event::Kind::peer_down, b);
    wait_for(b, Event::Kind::peer_down, a);
    join(a, b);
    wait_until("the write to be answered", [&] {
        return a.write(b, {.head_bytes = 64, .remote = old.remote, .remote_offset = kib, .seed = 6}) != Post::again;
    });
    ASSERT_TRUE(wait_until("the write to be taken", [&] {
        return taken(a.write(b, {.head_bytes = 8, .remote = remote, .notice = std::uint16_t{4}, .seed = 10}));
    }));
    EXPECT_EQ(wait_for(b, Event::Kind::notice, a).value, 4);
    EXPECT_FALSE(b.matches(region, kib, 64, 6));
    EXPECT_TRUE(b.matches(region, 0, 8, 10));
}

TEST_P(Conformance, TC_M12_AReleasedImportIsNone) {
    Node& a = node(0);
    Node& b = node(1);
    join(a, b);
    const Shared first = share(b, a, 4 * kib);
    const Shared second = share(b, a, 4 * kib);
    EXPECT_TRUE(a.release_import(first.remote).ok);
    EXPECT_EQ(a.write(b, {.head_bytes = 8, .remote = first.remote}), Post::refused);
    for (const std::uint32_t unknown : {first.remote, second.remote + 100}) {
        const Reply again = a.release_import(unknown);
        EXPECT_FALSE(again.ok);
        EXPECT_NE(again.text, "");
    }
    ASSERT_TRUE(taken(a.write(b, {.head_bytes = 8, .remote = second.remote, .notice = std::uint16_t{2}, .seed = 2})));
    EXPECT_EQ(wait_for(b, Event::Kind::notice, a).value, 2) << "the other is still good";
    const std::uint32_t anew = a.import_key(b, b.expose(first.region));
    EXPECT_EQ(anew, first.remote);
    ASSERT_TRUE(taken(a.write(b, {.head_bytes = 8, .remote = anew, .notice = std::uint16_t{3}, .seed = 3})));
    EXPECT_EQ(wait_for(b, Event::Kind::notice, a).value, 3);
    EXPECT_TRUE(b.matches(first.region, 0, 8, 3));
    EXPECT_TRUE(b.matches(second.region, 0, 8, 2));
}

TEST_P(Conformance, TC_M13_RegionsComeAndGoWithoutEnd) {
    Node& a = node(0);
    Node& b = node(1);
    join(a, b);
    constexpr std::uint16_t rounds = 1100;  // more than an endpoint has at a time
    for (std::uint16_t round = 0; round < rounds && !HasFailure(); ++round) {
        const Shared shared = share(b, a, 256);
        if (round % 100 == 0) {
            const WriteArguments write{
                .head_bytes = 64, .remote = shared.remote, .remote_offset = 64, .notice = round, .seed = round};
            ASSERT_TRUE(wait_until("the write to be taken", [&] { return taken(a.write(b, write)); }));
            EXPECT_EQ(wait_for(b, Event::Kind::notice, a).value, round);
            EXPECT_TRUE(b.matches(shared.region, 64, 64, round));
        }
        EXPECT_TRUE(a.release_import(shared.remote).ok);
        const Reply released = b.release(shared.region);
        EXPECT_TRUE(released.ok) << released.text;
    }
}

TEST_P(Conformance, TC_A1_WhatIsSaidOfATransportHolds) {
    Node& a = node(0);
    const Nature& nature = transport::find_transport(GetParam().transport)->traits.nature;
    EXPECT_EQ(a.capabilities().nature, nature);
    EXPECT_EQ(nature.copies == Copies::nobody, a.capabilities().phantom_bodies);
    EXPECT_TRUE(nature.one_host || !a.capabilities().one_thread) << "what shares a thread shares a host";
    EXPECT_TRUE(nature.one_host || !a.capabilities().view) << "so does what looks into another's memory";
}

TEST_P(Conformance, TC_A2_IndependentProgressNeedsNoTarget) {
    INCAST_SKIP_UNLESS(capabilities().nature.progress == Progress::independent, "it needs its target to poll");
    Node& a = node(0);
    Node& b = node(1);
    join(a, b);
    constexpr std::uint64_t bytes = 1024 * kib;
    const Shared shared = share(b, a, bytes);
    const std::uint16_t source = a.allocate(bytes);
    a.fill(source, 0, bytes, 3);
    const WriteArguments write{
        .head_bytes = 64, .length = bytes - 64, .region = source, .remote = shared.remote, .seed = 8};
    ASSERT_TRUE(wait_until("the write to be taken", [&] { return taken(a.write(b, write)); }));
    wait_polling(a, "the bytes", [&] {
        return b.matches(shared.region, 0, 64, 8) &&
               (capabilities().phantom_bodies || b.matches(shared.region, 64, bytes - 64, 3));
    });
}

}  // namespace
}  // namespace incast::conformance

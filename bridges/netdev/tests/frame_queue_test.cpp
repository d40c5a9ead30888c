// The queue of frames that wait for a peer.
#include "frame_queue.h"

#include <deque>
#include <random>
#include <vector>

#include <gtest/gtest.h>

namespace incast::netdev {
namespace {

constexpr std::int64_t ms = 1'000'000;

std::vector<std::byte> some(std::size_t bytes, unsigned seed) {
    std::vector<std::byte> made(bytes);
    for (std::byte& byte : made)
        byte = static_cast<std::byte>(seed++ * 7);
    return made;
}

TEST(FrameQueue, KeepsOrderAndBytesAndItsBoundOverManyTurns) {
    FrameQueue queue(20'000);
    std::deque<std::vector<std::byte>> expected;
    std::mt19937 random(1);
    std::size_t refused = 0;
    for (unsigned step = 0; step < 20'000; ++step) {
        if (random() % 5 < 3) {
            const auto message = some(26 + random() % 3000, step);
            if (queue.push(message, 0))
                expected.push_back(message);
            else
                ++refused;
        } else if (!expected.empty()) {
            const auto head = queue.front(0);
            ASSERT_TRUE(
                std::equal(head.message.begin(), head.message.end(), expected.front().begin(), expected.front().end()));
            queue.pop();
            expected.pop_front();
        }
        std::size_t bytes = 0;
        for (const auto& each : expected)
            bytes += each.size();
        ASSERT_EQ(queue.bytes(), bytes);
        ASSERT_EQ(queue.frames(), expected.size());
        ASSERT_LE(bytes, 20'000U);
    }
    EXPECT_GT(refused, 100U) << "it was never full";
    queue.clear();
    EXPECT_TRUE(queue.is_empty());
    EXPECT_TRUE(queue.front(0).message.empty());
}

TEST(FrameQueue, OneMessageMayFillIt) {
    FrameQueue queue(4096);
    EXPECT_FALSE(queue.push(some(4096, 0), 0));
    for (int turn = 0; turn < 3; ++turn) {
        ASSERT_TRUE(queue.push(some(4080, 0), 0));
        EXPECT_FALSE(queue.push(some(1, 0), 0));
        queue.pop();
    }
}

/// An IPv4 frame, whose sender knows of marks or not.
std::vector<std::byte> packet(bool knows_marks) {
    std::vector<std::byte> made(offload_bytes + ethernet_bytes + 1000);
    made[offload_bytes + 12] = std::byte{0x08};
    made[offload_bytes + 14] = std::byte{0x45};
    made[offload_bytes + 15] = knows_marks ? std::byte{2} : std::byte{0};
    return made;
}

struct Signals {
    unsigned marked = 0, dropped = 0, passed = 0;
};

/// A frame comes and one leaves each millisecond; so many were there before.
Signals live_with(bool knows_marks, unsigned standing) {
    FrameQueue queue(1 << 20);
    Signals seen;
    for (unsigned each = 0; each < standing; ++each)
        EXPECT_TRUE(queue.push(packet(knows_marks), 0));
    for (std::int64_t at = 0; at < 400; ++at) {
        EXPECT_TRUE(queue.push(packet(knows_marks), at * ms));
        const auto head = queue.front(at * ms);
        seen.marked += head.marked;
        seen.dropped += head.dropped;
        const auto again = queue.front(at * ms);
        EXPECT_EQ(again.marked + again.dropped, 0U) << "counted twice";
        if (head.message.empty()) continue;
        if (head.marked != 0) {
            EXPECT_EQ(head.message[offload_bytes + 15], std::byte{3});
        }
        ++seen.passed;
        queue.pop();
    }
    return seen;
}

TEST(FrameQueue, AStandingQueueIsMarkedWhereTheSenderKnowsMarks) {
    const Signals seen = live_with(true, 20);
    EXPECT_GE(seen.marked, 4U);
    EXPECT_EQ(seen.dropped, 0U);
    EXPECT_EQ(seen.passed, 400U);
}

TEST(FrameQueue, AndDroppedFromWhereItDoesNot) {
    const Signals seen = live_with(false, 20);
    EXPECT_EQ(seen.marked, 0U);
    EXPECT_GE(seen.dropped, 4U);
}

TEST(FrameQueue, AShortQueueIsLeftAlone) {
    const Signals seen = live_with(false, 3);
    EXPECT_EQ(seen.marked + seen.dropped, 0U);
}

}  // namespace
}  // namespace incast::netdev

// CoDel: RFC 8289.
#include "codel.h"

#include <vector>

#include <gtest/gtest.h>

namespace incast::netdev {
namespace {

constexpr std::int64_t ms = 1'000'000;
constexpr std::size_t much = 1 << 20;
constexpr std::size_t frame = 1500;

/// When it signals, in ms, if a frame leaves each millisecond after it has waited for so long.
std::vector<std::int64_t> signals(Codel& codel, std::int64_t from_ms, std::int64_t to_ms, std::int64_t waited_ns) {
    std::vector<std::int64_t> found;
    for (std::int64_t at = from_ms; at < to_ms; ++at)
        if (codel.should_signal(at * ms, waited_ns, much, frame)) found.push_back(at);
    return found;
}

TEST(Codel, ABurstThatIsGoneWithinAnIntervalIsLeftAlone) {
    Codel codel;
    EXPECT_TRUE(signals(codel, 1000, 1100, 50 * ms).empty());
    EXPECT_TRUE(signals(codel, 1100, 1101, Codel::target_ns - 1).empty());
    EXPECT_TRUE(signals(codel, 1101, 1200, 50 * ms).empty()) << "a new interval";
}

TEST(Codel, AStandingQueueIsSignalledSoonerAndSooner) {
    Codel codel;
    // The first after an interval, the next ones after interval / sqrt(count): 100, 70.7, 57.7 ms.
    EXPECT_EQ(signals(codel, 1000, 1400, 6 * ms), (std::vector<std::int64_t>{1100, 1200, 1271, 1329, 1379}));
}

TEST(Codel, ItStopsOnceTheQueueIsShort) {
    Codel codel;
    EXPECT_FALSE(signals(codel, 1000, 1200, 6 * ms).empty());
    EXPECT_TRUE(signals(codel, 1200, 1300, 4 * ms).empty());
}

TEST(Codel, SoonAfterwardsItGoesOnWhereItWas) {
    Codel codel;
    const auto first = signals(codel, 1000, 2000, 6 * ms);
    EXPECT_TRUE(signals(codel, 2000, 2001, 0).empty());
    const auto again = signals(codel, 2001, 2301, 6 * ms);
    ASSERT_GT(again.size(), 2U);
    EXPECT_LT(again[1] - again[0], 50) << "not after a whole interval";
}

TEST(Codel, AQueueOfOneFrameDoesNotStand) {
    Codel codel;
    for (std::int64_t at = 1000; at < 3000; ++at)
        EXPECT_FALSE(codel.should_signal(at * ms, 50 * ms, frame, frame));
}

}  // namespace
}  // namespace incast::netdev

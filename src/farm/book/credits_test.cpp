#include "farm/book/credits.h"

#include <array>

#include <gtest/gtest.h>

namespace incast::farm {
namespace {

TEST(Credits, AreCumulative) {
    Credits credits;
    EXPECT_EQ(credits.free(), 0U);
    EXPECT_TRUE(credits.grant(3));
    EXPECT_TRUE(credits.grant(3)) << "said twice";
    credits.send();
    credits.send();
    EXPECT_EQ(credits.free(), 1U);
    EXPECT_FALSE(credits.grant(2)) << "backwards";
    EXPECT_FALSE(credits.grant(2 + most_window + 1)) << "more than one may have";
    EXPECT_TRUE(credits.grant(2 + most_window));
    EXPECT_EQ(credits.free(), most_window);
}

TEST(Turn, WhoeverHasMostGetsTheNextAndEqualsTakeTurns) {
    Turn turn;
    EXPECT_FALSE(turn.choose({}));
    EXPECT_FALSE(turn.choose(std::array<std::uint64_t, 2>{0, 0}));
    EXPECT_EQ(turn.choose(std::array<std::uint64_t, 3>{1, 5, 4}), 1U);
    EXPECT_EQ(turn.choose(std::array<std::uint64_t, 3>{0, 0, 1}), 2U);
    std::array<int, 3> got{};
    for (int round = 0; round < 30; ++round) {
        const auto chosen = turn.choose(std::array<std::uint64_t, 3>{2, 2, 2});
        ASSERT_TRUE(chosen);
        ++got[*chosen];
    }
    EXPECT_EQ(got, (std::array<int, 3>{10, 10, 10}));
}

}  // namespace
}  // namespace incast::farm

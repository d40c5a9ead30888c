#include "softrio/udp/newcomers.h"

#include <array>

#include <gtest/gtest.h>

namespace incast::softrio::udp {
namespace {

constexpr std::uint32_t newcomer = 5;
constexpr std::array<std::byte, 1> first = {std::byte{1}};
constexpr std::array<std::byte, 2> second = {std::byte{2}, std::byte{3}};

TEST(Newcomer, WhatItSaysWaitsInOrderUntilItIsKnown) {
    Newcomers newcomers;
    EXPECT_TRUE(newcomers.waiting().empty());
    EXPECT_TRUE(newcomers.keep(newcomer, first));
    EXPECT_TRUE(newcomers.keep(newcomer, second));
    EXPECT_EQ(newcomers.waiting(), std::vector<std::uint32_t>{newcomer});
    const std::vector<Newcomers::Message> said = newcomers.know(newcomer);
    ASSERT_EQ(said.size(), 2U);
    EXPECT_EQ(said[0], Newcomers::Message(first.begin(), first.end()));
    EXPECT_EQ(said[1], Newcomers::Message(second.begin(), second.end()));
    EXPECT_TRUE(newcomers.waiting().empty());
    EXPECT_FALSE(newcomers.keep(newcomer, first)) << "it is known";
    EXPECT_TRUE(newcomers.know(newcomer).empty());
    EXPECT_TRUE(newcomers.keep(newcomer + 1, first)) << "another is not";
}

TEST(Newcomer, WhatOneSaidThatHasGoneIsForgotten) {
    Newcomers newcomers;
    EXPECT_TRUE(newcomers.keep(newcomer, first));
    newcomers.forget(newcomer);
    EXPECT_TRUE(newcomers.waiting().empty());
    EXPECT_TRUE(newcomers.know(newcomer).empty());
    newcomers.forget(newcomer);
    EXPECT_FALSE(newcomers.keep(newcomer, first)) << "the kernel's object stays";
}

TEST(Newcomer, MemoryIsBounded) {
    Newcomers newcomers;
    std::size_t kept = 0;
    while (newcomers.keep(newcomer, first))
        ++kept;
    EXPECT_EQ(kept, 64U);
    std::uint32_t source = newcomer + 1;
    while (newcomers.keep(source, first))
        ++source;
    EXPECT_EQ(newcomers.waiting().size(), 64U);
}

}  // namespace
}  // namespace incast::softrio::udp

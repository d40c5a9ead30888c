// The first bytes of a connection: versions, and those that 0.1.0 said.
#include "transport/tcp/hello.h"

#include <array>
#include <bit>
#include <cstdint>

#include <gtest/gtest.h>

namespace incast::transport::tcp {
namespace {

/// The first bytes of 0.1.0, and what it answers.
TEST(Versions, HellosOf010AreTheSameBytes) {
    Hello hello{.run = 0x1111,
                .token = 0x2222,
                .group = 1,
                .from = 0,
                .from_incarnation = 1,
                .to = 2,
                .to_incarnation = 1,
                .max_posted = 16,
                .greeting_bytes = 0};
    hello.streams = 1;
    constexpr std::array<std::uint64_t, 8> golden{0x3150435453414349,    0x0000'0001'0000'0001, 0x1111, 0x2222, 1,
                                                  0x0000'0001'0000'0000, 0x0000'0001'0000'0002, 16};
    EXPECT_EQ((std::bit_cast<std::array<std::uint64_t, 8>>(hello)), golden);
    const Expected expected{
        .run = 0x1111, .token = 0x2222, .self = 2, .self_incarnation = 1, .max_peers = 8, .streams = 1};
    EXPECT_EQ(judge(std::bit_cast<Hello>(golden), expected), Verdict::accepted);
    const Answer answer = answer_of(hello, Verdict::accepted, framed::frame_versions, 1024);
    EXPECT_EQ((std::bit_cast<std::array<std::uint64_t, 2>>(answer)),
              (std::array<std::uint64_t, 2>{0x3141435453414349, std::uint64_t{1024} << 32}));
    EXPECT_TRUE(makes_sense(answer, framed::frame_versions));
    EXPECT_FALSE(makes_sense(answer, {1, 2})) << "0.1.0 lets nobody in who speaks two";
}

TEST(Versions, TheHighestCommonOneIsChosen) {
    const Expected expected{
        .run = 5, .token = 6, .self = 2, .self_incarnation = 1, .max_peers = 8, .streams = 1, .versions = {2, 3}};
    Hello hello{
        .streams = 1, .run = 5, .token = 6, .program = 1, .from = 1, .to = 2, .to_incarnation = 1, .max_posted = 1};
    const auto chosen = [&](base::Versions theirs) {
        hello.versions = theirs.packed();
        const Verdict verdict = judge(hello, expected);
        const Answer answer = answer_of(hello, verdict, expected.versions, 16);
        EXPECT_EQ(makes_sense(answer, theirs), true);
        return verdict == Verdict::accepted ? answer.versions : std::uint16_t{0};
    };
    EXPECT_EQ(chosen({1, 2}), 2);
    EXPECT_EQ(chosen({2, 2}), 2);
    EXPECT_EQ(chosen({2, 3}), 3);
    EXPECT_EQ(chosen({3, 4}), 3);
    EXPECT_EQ(chosen({1, 9}), 3);
    EXPECT_EQ(chosen({1, 1}), 0);
    EXPECT_EQ(chosen({4, 5}), 0);
    hello.versions = base::Versions{2, 3}.packed();
    EXPECT_FALSE(makes_sense(answer_of(hello, Verdict::accepted, {3, 4}, 16), {1, 2})) << "one that was not offered";
}

}  // namespace
}  // namespace incast::transport::tcp

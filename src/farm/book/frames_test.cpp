#include "farm/book/frames.h"

#include <algorithm>
#include <vector>

#include <gtest/gtest.h>

namespace incast::farm {
namespace {

TEST(Frames, OfAnotherVersionAreNotUnderstood) {
    EXPECT_TRUE(is_sane(Hello{}));
    EXPECT_FALSE(is_sane(Hello{.version = frame_version + 1}));
    EXPECT_TRUE(is_sane(Welcome{.n_sources = 1}));
    EXPECT_FALSE(is_sane(Welcome{.n_sources = 0}));
    EXPECT_FALSE(is_sane(Welcome{.n_sources = most_sources + 1}));
    EXPECT_FALSE(is_sane(Welcome{.magic = 1, .n_sources = 1}));
    EXPECT_FALSE(is_sane(Welcome{.n_sources = 1, .mep_bytes = most_mep_bytes + 1}));
}

TEST(Frames, RoomIsOfWholeLinesAndDoesNotOverflow) {
    const std::vector<SourceFrame> table{{.bytes = 1}, {.bytes = 0}, {.bytes = 64}, {.bytes = 65}};
    EXPECT_EQ(room_for(table, 4096), 64U + 64U + 128U);
    EXPECT_EQ(room_for(table, 255), 256U) << "more than there is";
    const std::vector<SourceFrame> large(most_sources, SourceFrame{.bytes = ~std::uint32_t{0}});
    EXPECT_EQ(room_for(large, 1U << 20U), (1U << 20U) + 1);
}

TEST(Frames, ANameIsPrintableWhateverItSays) {
    Hello hello;
    std::ranges::fill(hello.name, '\x1b');
    hello.name[3] = 'a';
    hello.name[47] = 'b';
    std::array<char, 48> text;
    EXPECT_EQ(name_of(hello, text), "ab");
}

}  // namespace
}  // namespace incast::farm

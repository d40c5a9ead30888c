#include "runtime/sources/content.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace incast::sources {
namespace {

constexpr std::size_t line_bytes = 64;

std::vector<std::byte> made(const ContentKey& key, std::size_t size) {
    std::vector<std::byte> bytes(size);
    fill_content(key, bytes);
    return bytes;
}

ContentKey key_of(std::uint64_t run, std::uint16_t source, std::uint64_t event) {
    return {content_stream(run, source), event};
}

TEST(Content, AgreesWithItselfByteByByteAtEverySize) {
    const ContentKey key = key_of(7, 3, 1234567);
    for (std::size_t size = 0; size < 700; ++size) {
        const auto bytes = made(key, size);
        EXPECT_FALSE(find_difference(key, bytes)) << size;
        for (std::size_t offset = 0; offset < size; ++offset) {
            ASSERT_EQ(bytes[offset], content_byte(key, offset)) << size << " at " << offset;
        }
    }
}

TEST(Content, IsTheSameOnUnalignedMemory) {
    const ContentKey key = key_of(7, 3, 5);
    std::vector<std::byte> room(600);
    for (std::size_t shift = 0; shift < 9; ++shift) {
        const std::span<std::byte> fragment(room.data() + shift, 513);
        fill_content(key, fragment);
        EXPECT_EQ(made(key, 513), std::vector<std::byte>(fragment.begin(), fragment.end()));
        EXPECT_FALSE(find_difference(key, fragment));
    }
}

TEST(Content, FindsTheFirstOfAnyFlippedBits) {
    const ContentKey key = key_of(1, 65535, ~std::uint64_t{0});
    for (const std::size_t size : {1U, 7U, 8U, 63U, 64U, 65U, 255U, 256U, 257U, 1000U}) {
        for (std::size_t offset = 0; offset < size; ++offset) {
            auto bytes = made(key, size);
            bytes[offset] ^= std::byte{0x10};
            bytes[size - 1] ^= std::byte{0x01};
            EXPECT_EQ(find_difference(key, bytes), offset) << size;
        }
    }
}

TEST(Content, WritesNothingBehindTheFragment) {
    std::array<std::byte, 200> room{};
    fill_content(key_of(1, 2, 3), std::span(room).first(133));
    for (std::size_t offset = 133; offset < room.size(); ++offset) {
        EXPECT_EQ(room[offset], std::byte{0});
    }
}

TEST(Content, EB_M4_ALineOfAnotherRunSourceOrEventDoesNotVerify) {
    const ContentKey key = key_of(1, 2, 3);
    for (const ContentKey& other : {key_of(2, 2, 3), key_of(1, 3, 3), key_of(1, 2, 4), key_of(3, 2, 1)}) {
        const auto stale = made(other, 4 * line_bytes);
        for (std::size_t line = 0; line < 4; ++line) {
            auto bytes = made(key, 4 * line_bytes);
            std::copy_n(stale.begin() + static_cast<std::ptrdiff_t>(line * line_bytes), line_bytes,
                        bytes.begin() + static_cast<std::ptrdiff_t>(line * line_bytes));
            const auto found = find_difference(key, bytes);
            ASSERT_TRUE(found);
            EXPECT_EQ(*found / line_bytes, line);
        }
    }
}

TEST(Content, AShiftedLineDoesNotVerify) {
    const ContentKey key = key_of(1, 2, 3);
    for (const std::size_t shift : {1U, 4U, 8U, 64U, 128U}) {
        const auto bytes = made(key, 1024);
        EXPECT_EQ(find_difference(key, Bytes(bytes).subspan(shift)), 0U) << shift;
    }
}

TEST(Content, EB_M4_NoLineOccursTwiceInARun) {
    std::set<std::string> lines;
    std::size_t made_lines = 0;
    for (std::uint16_t source = 0; source < 4; ++source) {
        for (std::uint64_t event = 0; event < 50; ++event) {
            const auto bytes = made(key_of(1, source, event), 20 * line_bytes);
            for (std::size_t line = 0; line < 20; ++line, ++made_lines) {
                lines.emplace(reinterpret_cast<const char*>(bytes.data()) + line * line_bytes, line_bytes);
            }
        }
    }
    EXPECT_EQ(lines.size(), made_lines);
}

TEST(Content, IsTheSameInEveryBuild) {
    const auto bytes = made(key_of(1, 2, 3), 8);
    std::uint64_t word = 0;
    std::memcpy(&word, bytes.data(), 8);
    EXPECT_EQ(word, 7702586659592502839U);
}

}  // namespace
}  // namespace incast::sources

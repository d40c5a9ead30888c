#include "ingest/stream.h"

#include <algorithm>
#include <cstdint>
#include <vector>

#include <gtest/gtest.h>

namespace incast::ingest {
namespace {

using Octets = std::vector<std::byte>;

Octets mfp_of(std::uint64_t first, std::uint32_t events, std::size_t fragment = 20) {
    Octets packet(64 + events * (fragment + 16));
    wire::MfpWriter writer =
        wire::MfpWriter::begin(packet, {.first_event = first, .n_fragments = events, .source = 5}).value();
    for (std::uint32_t index = 0; index < events; ++index) {
        writer.add(1, Octets(fragment, std::byte(first + index)));
    }
    packet.resize(writer.finish().value());
    return packet;
}

void put(Stream& stream, Bytes bytes) {
    while (!bytes.empty()) {
        const wire::MutableBytes room = stream.room();
        ASSERT_FALSE(room.empty());
        const std::size_t some = std::min(room.size(), bytes.size());
        std::ranges::copy(bytes.first(some), room.begin());
        stream.took(some);
        bytes = bytes.subspan(some);
    }
}

TEST(Stream, PacketsComeWholeHoweverTheBytesWereCut) {
    Octets all;
    for (std::uint64_t first = 0; first < 200; first += 2) {
        const Octets packet = mfp_of(first, 2, first % 40);
        all.insert(all.end(), packet.begin(), packet.end());
    }
    for (const std::size_t step : {1U, 7U, 31U, 1000U, 100'000U}) {
        Stream stream(1000);
        std::uint64_t next = 0;
        for (std::size_t at = 0; at < all.size(); at += step) {
            put(stream, Bytes(all).subspan(at, std::min(step, all.size() - at)));
            for (auto packet = stream.peek(); packet && *packet; packet = stream.peek()) {
                ASSERT_EQ((*packet)->header().first_event, next);
                next += 2;
                stream.pop(**packet);
            }
        }
        EXPECT_EQ(next, 200U);
        EXPECT_TRUE(stream.is_empty());
    }
}

TEST(Stream, APacketStaysUntilItIsTaken) {
    Stream stream(1000);
    put(stream, mfp_of(4, 1));
    for (int round = 0; round < 2; ++round) {
        const auto packet = stream.peek();
        ASSERT_TRUE(packet && *packet);
        EXPECT_EQ((*packet)->header().first_event, 4U);
    }
}

TEST(Stream, HalfAPacketIsNone) {
    Stream stream(1000);
    const Octets packet = mfp_of(0, 3);
    put(stream, Bytes(packet).first(packet.size() - 1));
    const auto none = stream.peek();
    ASSERT_TRUE(none);
    EXPECT_FALSE(*none);
    EXPECT_FALSE(stream.is_empty());
}

TEST(Stream, LargePacketsGetRoom) {
    Stream stream(std::size_t{1} << 20U);
    const Octets packet = mfp_of(0, 60, 10'000);
    put(stream, mfp_of(0, 2));
    put(stream, packet);
    auto first = stream.peek();
    ASSERT_TRUE(first && *first);
    stream.pop(**first);
    const auto second = stream.peek();
    ASSERT_TRUE(second && *second);
    EXPECT_TRUE(std::ranges::equal((*second)->bytes(), packet));
}

TEST(Stream, WhatIsNoPacketIsAnError) {
    Stream garbage(1000);
    put(garbage, Octets(40, std::byte{0x47}));
    EXPECT_FALSE(garbage.peek());
    Stream large(100);
    put(large, Bytes(mfp_of(0, 40)).first(32));  // said by its header
    const auto refused = large.peek();
    ASSERT_FALSE(refused);
    EXPECT_NE(refused.error().message.find("100 are the most"), std::string::npos);
    Stream wrong_sizes(1000);
    Octets packet = mfp_of(0, 4);
    packet[24] ^= std::byte{0x40};  // a size
    put(wrong_sizes, packet);
    EXPECT_FALSE(wrong_sizes.peek());
}

TEST(Stream, TheEndOfAFileIsLeftOut) {
    Octets end(wire::mfp_header_bytes);
    wire::store<std::uint16_t>(end, 0, wire::mfp_magic);
    wire::store<std::uint32_t>(end, 4, wire::mfp_header_bytes);
    wire::store<std::uint64_t>(end, 8, ~std::uint64_t{0});
    Stream stream(1000);
    put(stream, end);
    put(stream, mfp_of(7, 1));
    const auto packet = stream.peek();
    ASSERT_TRUE(packet && *packet);
    EXPECT_EQ((*packet)->header().first_event, 7U);
}

}  // namespace
}  // namespace incast::ingest

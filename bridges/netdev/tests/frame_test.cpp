// What a peer may send, whose frames they are, and marks of congestion.
#include "frame.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "greeting.h"

namespace incast::netdev {
namespace {

using Message = std::vector<std::byte>;

void put(Message& message, std::size_t at, std::initializer_list<unsigned> bytes) {
    for (const unsigned each : bytes)
        message[at++] = static_cast<std::byte>(each);
}

/// A frame of so many bytes from device 7 to device 0x0102, of that type, with zeroes behind it.
Message message_of(std::size_t frame_bytes, unsigned type = 0x0800) {
    Message made(offload_bytes + frame_bytes);
    put(made, offload_bytes, {0xC2, 0, 0, 0, 1, 2, 0xC2, 0, 0, 0, 0, 7, type >> 8U, type & 0xFFU});
    return made;
}

Bytes frame_of(const Message& message) {
    return Bytes(message).subspan(offload_bytes);
}

/// RFC 1071, over an IPv4 header: 0 if its checksum is right.
std::uint16_t checksum(Bytes header) {
    std::uint32_t sum = 0;
    for (std::size_t at = 0; at < header.size(); at += 2)
        sum += std::to_integer<std::uint32_t>(header[at]) << 8U | std::to_integer<std::uint32_t>(header[at + 1]);
    while (sum > 0xFFFF)
        sum = (sum & 0xFFFFU) + (sum >> 16U);
    return static_cast<std::uint16_t>(~sum);
}

TEST(Frame, AnAddressNamesADevice) {
    const Message message = message_of(60);
    EXPECT_EQ(target_of(frame_of(message)).kind, Target::Kind::one);
    EXPECT_EQ(target_of(frame_of(message)).destid, 0x0102);
    EXPECT_EQ(source_of(frame_of(message)), 7);
    const Mac mac = mac_of(0x0102);
    EXPECT_TRUE(std::equal(mac.begin(), mac.end(), reinterpret_cast<const std::uint8_t*>(frame_of(message).data())));
}

TEST(Frame, GroupsAreForAllAndStrangersForNobody) {
    Message message = message_of(60);
    put(message, offload_bytes, {0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF});
    EXPECT_EQ(target_of(frame_of(message)).kind, Target::Kind::all);
    put(message, offload_bytes, {0x33, 0x33, 0, 0, 0, 1});
    EXPECT_EQ(target_of(frame_of(message)).kind, Target::Kind::all);
    put(message, offload_bytes, {0x02, 0x42, 0, 0, 0, 1});
    EXPECT_EQ(target_of(frame_of(message)).kind, Target::Kind::nobody);
    EXPECT_EQ(target_of(frame_of(message).first(13)).kind, Target::Kind::nobody);
    EXPECT_EQ(source_of(frame_of(message).first(13)), std::nullopt);
}

TEST(Frame, WhatTheKernelMakesIsTaken) {
    Message message = message_of(1514);
    EXPECT_EQ(fault_of(message, 7), std::nullopt);
    put(message, 0, {1, 1, 54, 0, 0xA8, 0x05, 34, 0, 16, 0});  // a checksum to be made, segments of TCP
    EXPECT_EQ(fault_of(message, 7), std::nullopt);
    put(message, 1, {0x81});  // with ECN
    EXPECT_EQ(fault_of(message, 7), std::nullopt);
    EXPECT_EQ(fault_of(message_of(most_frame_bytes), 7), std::nullopt);
}

TEST(Frame, WhatItMayNotBeGivenIsNot) {
    const Message good = message_of(1514);
    const auto with = [&good](std::size_t at, std::initializer_list<unsigned> bytes) {
        Message made = good;
        put(made, at, bytes);
        return made;
    };
    EXPECT_TRUE(fault_of(Bytes(good).first(offload_bytes + ethernet_bytes - 1), 7));
    EXPECT_TRUE(fault_of(Bytes(good).first(0), 7));
    EXPECT_TRUE(fault_of(message_of(most_frame_bytes + 1), 7));
    EXPECT_TRUE(fault_of(good, 8)) << "of another sender";
    EXPECT_TRUE(fault_of(with(0, {4}), 7)) << "flags";
    EXPECT_TRUE(fault_of(with(1, {2, 54, 0, 0xA8, 0x05}), 7)) << "kind of segments";
    EXPECT_TRUE(fault_of(with(1, {0x80}), 7)) << "ECN of no segments";
    EXPECT_TRUE(fault_of(with(1, {1, 54, 0, 0, 0}), 7)) << "segments of no bytes";
    EXPECT_TRUE(fault_of(with(1, {1, 0xFF, 0xFF, 0xA8, 0x05}), 7)) << "headers outside";
    EXPECT_TRUE(fault_of(with(0, {1, 0, 0, 0, 0, 0, 0xE9, 0x05, 0, 0}), 7)) << "a checksum that ends one byte behind";
}

TEST(Frame, AChecksumThatEndsWithTheFrameIsTaken) {
    Message message = message_of(1514);
    put(message, 0, {1, 0, 0, 0, 0, 0, 0xE0, 0x05, 8, 0});  // 1504 + 8 + 2
    EXPECT_EQ(fault_of(message, 7), std::nullopt);
    put(message, 8, {9});
    EXPECT_TRUE(fault_of(message, 7));
}

class Marks : public testing::TestWithParam<unsigned> {};

TEST_P(Marks, AMarkOfIpv4KeepsTheChecksumRight) {
    const unsigned tos = GetParam();
    std::mt19937 random(tos + 1);
    for (int each = 0; each < 500; ++each) {
        Message message = message_of(64);
        const std::span<std::byte> frame = std::span(message).subspan(offload_bytes);
        const std::span<std::byte> header = frame.subspan(ethernet_bytes, 20);
        for (std::byte& byte : header)
            byte = static_cast<std::byte>(random());
        header[0] = std::byte{0x45};
        header[1] = static_cast<std::byte>(tos);
        header[10] = header[11] = std::byte{0};
        const std::uint16_t right = checksum(header);
        header[10] = static_cast<std::byte>(right >> 8U);
        header[11] = static_cast<std::byte>(right & 0xFFU);
        ASSERT_EQ(checksum(header), 0);
        ASSERT_EQ(try_mark(frame), (tos & 3U) != 0);
        ASSERT_EQ(std::to_integer<unsigned>(header[1]), (tos & 3U) != 0 ? tos | 3U : tos);
        ASSERT_EQ(checksum(header), 0);
    }
}

TEST_P(Marks, AMarkOfIpv6IsInTheTrafficClass) {
    const unsigned traffic_class = GetParam();
    Message message = message_of(64, 0x86DD);
    const std::span<std::byte> frame = std::span(message).subspan(offload_bytes);
    put(message, offload_bytes + ethernet_bytes, {0x60 | traffic_class >> 4U, (traffic_class & 15U) << 4U | 9});
    EXPECT_EQ(try_mark(frame), (traffic_class & 3U) != 0);
    const unsigned after = (traffic_class & 3U) != 0 ? traffic_class | 3U : traffic_class;
    EXPECT_EQ(std::to_integer<unsigned>(frame[14]), 0x60 | after >> 4U);
    EXPECT_EQ(std::to_integer<unsigned>(frame[15]), (after & 15U) << 4U | 9) << "the label of the flow stays";
}

INSTANTIATE_TEST_SUITE_P(All, Marks, testing::Values(0, 1, 2, 3, 0xB8, 0xB9, 0xFE, 0xFF));

TEST(Frame, WhatIsNotIpOrIsCutShortIsNotMarked) {
    Message message = message_of(64, 0x0806);
    EXPECT_FALSE(try_mark(std::span(message).subspan(offload_bytes)));
    for (const unsigned type : {0x0800U, 0x86DDU, 0x8100U})
        for (std::size_t bytes = 0; bytes < 34; ++bytes) {
            Message cut = message_of(64, type);
            put(cut, offload_bytes + ethernet_bytes, {0x41, 1});
            EXPECT_FALSE(try_mark(std::span(cut).subspan(offload_bytes, bytes)));
        }
}

TEST(Frame, ATagOfAVlanIsLookedThrough) {
    Message message = message_of(64, 0x8100);
    put(message, offload_bytes + ethernet_bytes, {0, 5, 0x08, 0x00, 0x45, 1});
    EXPECT_TRUE(try_mark(std::span(message).subspan(offload_bytes)));
}

TEST(Greeting, ComesBackAsItWasSaid) {
    const auto bytes = encode({.id = 513, .queue = 3, .queues = 4, .mtu = 65520});
    const auto said = decode_greeting(bytes);
    ASSERT_TRUE(said);
    EXPECT_EQ(said->id, 513);
    EXPECT_EQ(said->queue, 3);
    EXPECT_EQ(said->queues, 4);
    EXPECT_EQ(said->mtu, 65520U);
}

TEST(Greeting, NothingElseIsOne) {
    const auto good = encode({.id = 1, .queue = 0, .queues = 1, .mtu = 1500});
    EXPECT_FALSE(decode_greeting(std::span(good).first(15)));
    EXPECT_FALSE(decode_greeting({}));
    for (std::size_t at = 0; at < 6; ++at) {
        auto bad = good;
        bad[at] ^= std::byte{1};
        EXPECT_FALSE(decode_greeting(bad)) << at;
    }
    EXPECT_FALSE(decode_greeting(encode({.id = 1, .queue = 1, .queues = 1, .mtu = 1500})));
    EXPECT_FALSE(decode_greeting(encode({.id = 1, .queue = 0, .queues = 0, .mtu = 1500})));
    EXPECT_FALSE(decode_greeting(encode({.id = 1, .queue = 0, .queues = 1, .mtu = 100})));
    EXPECT_FALSE(decode_greeting(encode({.id = 1, .queue = 0, .queues = 1, .mtu = 65521})));
}

}  // namespace
}  // namespace incast::netdev

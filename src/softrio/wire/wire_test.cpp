#include <algorithm>
#include <numeric>
#include <optional>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

#include "base/prng.h"
#include "softrio/wire/crc16.h"
#include "softrio/wire/packet.h"

namespace incast::softrio::wire {
namespace {

using Bytes = std::vector<std::byte>;

Bytes some(std::size_t size, std::uint64_t seed) {
    base::Prng random(seed);
    Bytes bytes(size);
    std::ranges::generate(bytes, [&] { return static_cast<std::byte>(random.next()); });
    return bytes;
}

/// Bit by bit, as the specification draws it.
std::uint16_t reference(std::span<const std::byte> bytes) {
    std::uint16_t crc = 0xFFFF;
    for (const std::byte byte : bytes) {
        crc = static_cast<std::uint16_t>(crc ^ static_cast<unsigned>(byte) << 8);
        for (int bit = 0; bit < 8; ++bit)
            crc = static_cast<std::uint16_t>((crc & 0x8000) != 0 ? crc << 1 ^ 0x1021 : crc << 1);
    }
    return crc;
}

TEST(Crc16, IsTheOneOfTheStandard) {
    const std::string_view check = "123456789";
    EXPECT_EQ(crc16(std::as_bytes(std::span(check))), 0x29B1) << "the published check value of this CRC";
    for (std::size_t size = 0; size < 400; ++size) {
        const Bytes bytes = some(size, size);
        ASSERT_EQ(crc16(bytes), reference(bytes)) << size;
        ASSERT_EQ(crc16_by_table(bytes), reference(bytes)) << size;
    }
}

std::optional<Packet> decoded(std::span<const std::byte> bytes) {
    Packet packet;
    return decode(bytes, packet) ? std::optional(packet) : std::nullopt;
}

Packet round_trip(const Packet& packet, Bytes& bytes) {
    bytes.resize(max_packet);
    bytes.resize(encode(packet, bytes.data()));
    Packet got;
    EXPECT_TRUE(decode(bytes, got));
    EXPECT_EQ(got.operation, packet.operation);
    EXPECT_EQ(got.destination, packet.destination);
    EXPECT_EQ(got.source, packet.source);
    EXPECT_EQ(got.has_small_ids, packet.has_small_ids);
    return got;
}

TEST(Packet, LayoutOfAnNwrite) {
    const Bytes data = some(8, 1);
    Bytes bytes(max_packet);
    const Packet packet{.operation = Operation::nwrite_r,
                        .destination = 0x1234,
                        .source = 0xABCD,
                        .transaction = 7,
                        .address = 0x11'2233'4450,
                        .bytes = 8,
                        .data = data};
    bytes.resize(encode(packet, bytes.data()));
    // Physical and transport layer, NWRITE_R of 8 bytes, address in double words: part 1, figure 4-5.
    const std::vector<unsigned> expected = {0x00, 0x15, 0x12, 0x34, 0xAB, 0xCD, 0x5B, 0x07,
                                            0x00, 0x00, 0x00, 0x11, 0x22, 0x33, 0x44, 0x50};
    ASSERT_EQ(bytes.size(), expected.size() + 8 + 2);
    for (std::size_t index = 0; index < expected.size(); ++index)
        EXPECT_EQ(static_cast<unsigned>(bytes[index]), expected[index]) << index;
}

TEST(Packet, EveryRangeIsMovedInLegalPieces) {
    for (const bool small : {false, true}) {
        for (std::uint64_t address = 0x7FFF'FFF0; address < 0x7FFF'FFF8; ++address) {
            for (std::size_t size = 1; size < 600; size += size < 40 ? 1 : 37) {
                const Bytes data = some(size, size);
                Bytes bytes;
                for (const bool is_read : {false, true}) {
                    std::size_t moved = 0;
                    while (moved < size) {
                        const std::size_t one = piece(address + moved, size - moved, is_read);
                        ASSERT_GE(one, 1U);
                        ASSERT_LE(one, std::min(size - moved, max_payload));
                        Packet packet{.operation = is_read ? Operation::nread : Operation::nwrite,
                                      .has_small_ids = small,
                                      .destination = 1,
                                      .source = 2,
                                      .transaction = 3,
                                      .address = address + moved,
                                      .bytes = static_cast<std::uint16_t>(one),
                                      .data = {}};
                        if (!is_read) packet.data = std::span(data).subspan(moved, one);
                        const Packet got = round_trip(packet, bytes);
                        ASSERT_EQ(got.address, packet.address);
                        ASSERT_EQ(got.bytes, one);
                        ASSERT_TRUE(std::ranges::equal(got.data, packet.data));
                        moved += one;
                    }
                }
            }
        }
    }
}

TEST(Packet, OtherKindsComeBack) {
    Bytes bytes;
    const Bytes data = some(256, 5);
    Packet packet{
        .operation = Operation::doorbell, .destination = 9, .source = 8, .transaction = 4, .info = 0xBEEF, .data = {}};
    EXPECT_EQ(round_trip(packet, bytes).info, 0xBEEF);
    packet = {.operation = Operation::message, .segment = 2, .last_segment = 3, .data = data};
    EXPECT_TRUE(std::ranges::equal(round_trip(packet, bytes).data, data));
    packet = {.operation = Operation::response, .transaction = 200, .status = Status::retry, .data = {}};
    EXPECT_EQ(round_trip(packet, bytes).status, Status::retry);
    packet = {.operation = Operation::response_with_data, .transaction = 200, .data = data};
    EXPECT_EQ(round_trip(packet, bytes).data.size(), 256U);
    packet = {.operation = Operation::swrite, .address = 64, .data = data};
    EXPECT_EQ(round_trip(packet, bytes).address, 64U);
    for (const std::uint64_t offset : {0x60U, 0x6CU}) {
        packet = {.operation = Operation::maintenance_read,
                  .transaction = 5,
                  .address = offset,
                  .hop_count = 0xFF,
                  .data = {}};
        EXPECT_EQ(round_trip(packet, bytes).address, offset);
        packet = {.operation = Operation::maintenance_write, .address = offset, .data = std::span(data).first(4)};
        EXPECT_TRUE(std::ranges::equal(round_trip(packet, bytes).data, packet.data));
        packet = {
            .operation = Operation::maintenance_read_response, .address = offset, .data = std::span(data).first(4)};
        EXPECT_TRUE(std::ranges::equal(round_trip(packet, bytes).data.subspan(offset % 8, 4), packet.data));
        packet = {.operation = Operation::maintenance_write_response, .status = Status::error, .data = {}};
        EXPECT_EQ(round_trip(packet, bytes).status, Status::error);
    }
}

TEST(Packet, DamageIsSeen) {
    const Bytes data = some(64, 1);
    Bytes bytes(max_packet);
    bytes.resize(encode({.operation = Operation::nwrite, .address = 8, .bytes = 64, .data = data}, bytes.data()));
    ASSERT_TRUE(decoded(bytes).has_value());
    for (std::size_t index = 0; index < bytes.size(); ++index) {
        for (int bit = 0; bit < 8; ++bit) {
            bytes[index] ^= static_cast<std::byte>(1 << bit);
            EXPECT_FALSE(decoded(bytes).has_value()) << index << " " << bit;
            bytes[index] ^= static_cast<std::byte>(1 << bit);
        }
        EXPECT_FALSE(decoded(std::span(bytes).first(index)).has_value());
    }
}

}  // namespace
}  // namespace incast::softrio::wire

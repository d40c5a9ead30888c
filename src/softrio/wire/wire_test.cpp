#include <algorithm>
#include <array>
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
    for (const Crc16Method& method : crc16_methods()) {
        EXPECT_EQ(method.compute(std::as_bytes(std::span(check))), 0x29B1) << method.name;
        for (std::size_t size = 0; size < 600; ++size) {
            const Bytes bytes = some(size, size);
            ASSERT_EQ(method.compute(bytes), reference(bytes)) << method.name << ", " << size;
            // The same behind a head of 12, 14 or 16 bytes, copied on the way.
            for (const std::size_t head_bytes : {12U, 14U, 16U}) {
                const Bytes head = some(head_bytes, size + head_bytes);
                std::array<std::uint64_t, 2> begin{};
                for (std::size_t at = 0; at < head_bytes; ++at) {
                    auto& half = begin[at + 16 - head_bytes < 8 ? 0 : 1];
                    half = half << 8 | (static_cast<std::uint64_t>(head[at]) ^ (at < 2 ? 0xFF : 0));
                }
                Bytes whole = head;
                whole.insert(whole.end(), bytes.begin(), bytes.end());
                Bytes copy(size);
                ASSERT_EQ(method.copy(begin[0], begin[1], bytes, copy.data()), reference(whole)) << method.name;
                ASSERT_EQ(copy, bytes);
                Bytes taken(size);
                const std::uint16_t crc = reference(whole);
                ASSERT_TRUE(method.take(begin[0], begin[1], bytes, crc, nullptr)) << method.name;
                ASSERT_FALSE(method.take(begin[0], begin[1], bytes, crc ^ 1, taken.data())) << method.name;
                ASSERT_EQ(taken, Bytes(size)) << "nothing is copied";
                ASSERT_TRUE(method.take(begin[0], begin[1], bytes, crc, taken.data())) << method.name;
                ASSERT_EQ(taken, bytes);
            }
        }
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
    packet = {.operation = Operation::message, .mailbox = 3, .segment = 2, .last_segment = 3, .data = data};
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

TEST(Packet, ARunIsWhatItsPacketsAre) {
    const Bytes data = some(3 * max_payload, 7);
    for (const bool small : {false, true}) {
        for (const Operation operation : {Operation::nwrite, Operation::swrite}) {
            Packet packet{.operation = operation,
                          .has_small_ids = small,
                          .destination = 0x12,
                          .source = 0x34,
                          .transaction = 77,
                          .bytes = max_payload,
                          .data = {}};
            const WriteRun run(packet);
            std::array<Bytes, 3> packets;
            for (std::size_t index = 0; index < packets.size(); ++index) {
                packet.address = 0xFFFF'FFFF'0000'0F00 + index * max_payload;
                packet.data = std::span(data).subspan(index * max_payload, max_payload);
                Bytes alone(max_packet);
                alone.resize(encode(packet, alone.data()));
                packets[index].resize(run.packet_bytes());
                run.encode(packet.address, packet.data.data(), packets[index].data());
                ASSERT_EQ(packets[index], alone);
            }
            const Bytes nothing(max_payload);
            const auto continues = [&](const Bytes& next) {
                Packet first;
                EXPECT_TRUE(decode(packets[0], first));
                RunReader reader;
                reader.begin(packets[0], first);
                EXPECT_EQ(reader.packet_bytes(), next.size());
                EXPECT_EQ(reader.next_address(), 0xFFFF'FFFF'0000'1000);
                Bytes copied(max_payload);
                const bool is_taken = reader.take(next.data(), copied.data());
                const auto sent = std::span(next).subspan(reader.head_bytes(), max_payload);
                EXPECT_TRUE(std::ranges::equal(copied, is_taken ? sent : std::span<const std::byte>(nothing)));
                return is_taken;
            };
            EXPECT_TRUE(continues(packets[1]));
            EXPECT_FALSE(continues(packets[2])) << "not what follows";
            for (std::size_t index = 0; index < packets[1].size(); ++index) {
                packets[1][index] ^= std::byte{4};
                EXPECT_FALSE(continues(packets[1])) << index;
                packets[1][index] ^= std::byte{4};
            }
            packet.destination = 0x13;
            packet.address = 0xFFFF'FFFF'0000'1000;
            (void)encode(packet, packets[2].data());
            EXPECT_FALSE(continues(packets[2])) << "whole, but to another destination";
        }
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

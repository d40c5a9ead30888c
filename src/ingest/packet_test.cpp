#include "ingest/packet.h"

#include <gtest/gtest.h>

namespace incast::ingest {
namespace {

constexpr std::uint64_t turn = std::uint64_t{1} << 32U;

TEST(ExtendId, EB_C9_GoesOnBeyond32Bits) {
    EXPECT_EQ(extend_id(5, 0), 5U);
    EXPECT_EQ(extend_id(5, turn - 3), turn + 5);
    EXPECT_EQ(extend_id(static_cast<std::uint32_t>(turn - 3), turn + 5), turn - 3);
    EXPECT_EQ(extend_id(7, 3 * turn + 100), 3 * turn + 7);
    EXPECT_EQ(extend_id(static_cast<std::uint32_t>(turn - 1), 0), turn - 1);  // there is nothing before 0
}

std::vector<std::byte> mef_of(std::uint32_t first, std::uint32_t events, bool has_banks = true) {
    std::vector<std::byte> packet(4096);
    std::vector<std::byte> banks(256);
    wire::MefWriter writer = wire::MefWriter::begin(packet, first, 1).value();
    const std::vector<std::byte> body(9, std::byte{5});
    for (std::uint32_t index = 0; index < events; ++index) {
        const std::size_t bytes =
            has_banks ? wire::write_raw_bank(banks, {.type = 3, .version = 1, .source = 12, .body = body}).value() : 0;
        writer.add(static_cast<std::uint16_t>(first + index), Bytes(banks).first(bytes));
    }
    packet.resize(writer.finish());
    return packet;
}

TEST(PacketReader, EB_C9_MultiEventFragmentsBecomeMfps) {
    PacketReader reader(Format::mef);
    std::uint16_t asked = 0;
    const auto near = [&](std::uint16_t source) {
        asked = source;
        return 2 * turn + 10;
    };
    const auto view = reader.read(mef_of(20, 3), near);
    ASSERT_TRUE(view) << view.error().message;
    EXPECT_EQ(asked, 12U);
    EXPECT_EQ(view->header().source, 12U);
    EXPECT_EQ(view->header().first_event, 2 * turn + 20);
    EXPECT_EQ(view->size(), 3U);
    EXPECT_EQ(view->fragment_bytes(0), wire::raw_bank_bytes(9));
}

TEST(PacketReader, EB_C9_WhatIsNoPacketIsRefused) {
    const auto near = [](std::uint16_t) { return std::uint64_t{0}; };
    PacketReader mef(Format::mef);
    EXPECT_FALSE(mef.read(mef_of(20, 3, false), near));  // nobody says whose it is
    std::vector<std::byte> longer = mef_of(20, 3);
    longer.push_back({});
    EXPECT_FALSE(mef.read(longer, near));
    EXPECT_FALSE(mef.read({}, near));
    PacketReader mfp(Format::mfp);
    EXPECT_FALSE(mfp.read(mef_of(20, 3), near));
    EXPECT_FALSE(mfp.read({}, near));
    std::vector<std::byte> packet(wire::phantom_bytes(2));
    ASSERT_TRUE(wire::write_phantom(packet, 4, 2, 1, wire::SourceFlag::late));
    EXPECT_TRUE(mfp.read(packet, near));
    packet.push_back({});
    EXPECT_FALSE(mfp.read(packet, near));
}

}  // namespace
}  // namespace incast::ingest

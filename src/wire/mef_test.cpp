#include "wire/mef.h"

#include <algorithm>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/prng.h"
#include "support/wire_walk.h"

namespace incast::wire {
namespace {

using ::testing::HasSubstr;

std::vector<std::byte> bank_of(std::uint8_t type, std::size_t body_bytes) {
    const std::vector<std::byte> body(body_bytes, static_cast<std::byte>(type));
    std::vector<std::byte> out(raw_bank_bytes(body_bytes));
    EXPECT_TRUE(write_raw_bank(out, {.type = type, .version = 2, .source = -3, .body = body}).ok());
    return out;
}

std::vector<std::byte> mef_of(std::uint32_t first_event, const std::vector<std::vector<std::byte>>& events) {
    std::vector<std::byte> out(mef_max_bytes);
    Result<MefWriter> writer = MefWriter::begin(out, first_event, 0xDDCCBBAA);
    EXPECT_TRUE(writer.ok());
    std::uint32_t event = first_event;
    for (const auto& banks : events) {
        EXPECT_TRUE(writer->add(static_cast<std::uint16_t>(event++), banks));
    }
    out.resize(writer->finish());
    return out;
}

// By hand from the published layout (docs/formats.md): two events, one bank with a body of 5 bytes and none.
TEST(Mef, has_the_published_layout) {
    std::vector<std::byte> expected;
    for (const int value :
         {0xFF, 0x01, 0x03, 0x02, 0x02, 0x00, 0x24, 0x00, 0xAA, 0xBB, 0xCC, 0xDD,  // id, 2 events, 36 B, partition
          0xFF, 0x01, 0x10, 0x00,                                                  // low id, 16 B of banks
          0xCB, 0xCB, 0x0D, 0x00, 0x07, 0x02, 0xFD, 0xFF,                          // 13 B, type, version, source -3
          0x07, 0x07, 0x07, 0x07, 0x07, 0x00, 0x00, 0x00,                          // body and padding to 4
          0x00, 0x02, 0x00, 0x00}) {                                               // low id, no banks
        expected.push_back(static_cast<std::byte>(value));
    }
    EXPECT_EQ(mef_of(0x020301FF, {bank_of(7, 5), {}}), expected);
}

TEST(Mef, reads_events_and_banks) {
    std::vector<std::byte> banks = bank_of(7, 5);
    const std::vector<std::byte> second = bank_of(9, 0);
    banks.insert(banks.end(), second.begin(), second.end());
    const std::vector<std::byte> bytes = mef_of(100, {{}, banks});
    const Result<MefView> view = MefView::parse(bytes);
    ASSERT_TRUE(view.ok()) << view.error().message;
    EXPECT_EQ(view->first_event(), 100U);
    EXPECT_EQ(view->n_events(), 2);
    EXPECT_EQ(view->partition(), 0xDDCCBBAAU);
    std::size_t cursor = 0;
    EXPECT_TRUE(view->next(cursor)->banks.empty());
    const auto event = view->next(cursor);
    ASSERT_TRUE(event.has_value());
    EXPECT_EQ(event->low_event, 101);
    const auto first_bank = take_raw_bank(event->banks);
    ASSERT_TRUE(first_bank.ok());
    EXPECT_EQ(first_bank->bank.type, 7);
    EXPECT_EQ(first_bank->bank.version, 2);
    EXPECT_EQ(first_bank->bank.source, -3);
    EXPECT_EQ(first_bank->bank.body.size(), 5U);
    const auto second_bank = take_raw_bank(first_bank->rest);
    ASSERT_TRUE(second_bank.ok());
    EXPECT_EQ(second_bank->bank.type, 9);
    EXPECT_TRUE(second_bank->rest.empty());
    EXPECT_FALSE(view->next(cursor).has_value());
}

TEST(Mef, writer_stops_at_the_u16_total) {
    std::vector<std::byte> out(200'000);
    Result<MefWriter> writer = MefWriter::begin(out, 0, 0);
    ASSERT_TRUE(writer.ok());
    const std::vector<std::byte> banks(60'000);
    EXPECT_TRUE(writer->add(0, banks));
    EXPECT_FALSE(writer->add(1, banks));
    EXPECT_FALSE(writer->add(1, std::span(banks).first(5516)));
    EXPECT_TRUE(writer->add(1, std::span(banks).first(5515)));
    EXPECT_EQ(writer->finish(), 65535U);
    EXPECT_TRUE(MefView::parse(out).ok());
    EXPECT_FALSE(MefWriter::begin(std::span(out).first(11), 0, 0).ok());
}

TEST(Mef, errors_name_what_is_wrong) {
    const std::vector<std::byte> good = mef_of(1, {bank_of(7, 8), bank_of(7, 8)});
    struct Case {
        std::size_t offset;
        unsigned value;
        const char* message;
    };
    for (const Case& c :
         {Case{6, 11, "total length 11"}, Case{6, 0xFF, "total length 255"}, Case{4, 3, "before the header of event 2"},
          Case{4, 1, "events end at 32"}, Case{14, 200, "event 0 has 200 bytes"}}) {
        std::vector<std::byte> bytes = good;
        bytes[c.offset] = static_cast<std::byte>(c.value);
        const Result<MefView> view = MefView::parse(bytes);
        ASSERT_FALSE(view.ok()) << c.message;
        EXPECT_THAT(view.error().message, HasSubstr(c.message));
    }
    std::vector<std::byte> bank = bank_of(7, 8);
    bank[0] = std::byte{0};
    EXPECT_THAT(take_raw_bank(bank).error().message, HasSubstr("magic"));
    bank = bank_of(7, 8);
    bank[2] = std::byte{7};
    EXPECT_THAT(take_raw_bank(bank).error().message, HasSubstr("length 7"));
    bank[2] = std::byte{17};
    EXPECT_THAT(take_raw_bank(bank).error().message, HasSubstr("length 17, expected 8 .. 16"));
    std::vector<std::byte> large(70'000);
    EXPECT_FALSE(
        write_raw_bank(large, {.type = 0, .version = 0, .source = 0, .body = std::span(large).first(65528)}).ok());
    EXPECT_TRUE(write_raw_bank(large, {.type = 0, .version = 0, .source = 0, .body = std::span(large).first(0)}).ok());
    EXPECT_FALSE(write_raw_bank(std::span(large).first(8),
                                {.type = 0, .version = 0, .source = 0, .body = std::span(large).last(1)})
                     .ok());
}

TEST(Mef, converts_to_an_mfp_without_loss) {
    std::vector<std::byte> banks = bank_of(7, 5);
    const std::vector<std::byte> second = bank_of(9, 0);
    banks.insert(banks.end(), second.begin(), second.end());
    const std::vector<std::byte> bytes = mef_of(0x1FFFF, {banks, {}, bank_of(3, 1)});
    const Result<MefView> mef = MefView::parse(bytes);
    ASSERT_TRUE(mef.ok());
    std::vector<std::byte> out(500);
    const Result<std::uint64_t> written = mef_to_mfp(*mef, {.event_id_high = 2, .source = 0x55, .align_log2 = 3}, out);
    ASSERT_TRUE(written.ok()) << written.error().message;
    const Result<MfpView> mfp = MfpView::parse(Bytes(out).first(*written));
    ASSERT_TRUE(mfp.ok()) << mfp.error().message;
    EXPECT_EQ(mfp->header().first_event, 0x20001FFFFU);
    EXPECT_EQ(mfp->header().source, 0x55);
    const std::vector<Fragment> fragments(mfp->begin(), mfp->end());
    ASSERT_EQ(fragments.size(), 3U);
    EXPECT_TRUE(std::ranges::equal(fragments[0].data, banks));
    EXPECT_EQ(fragments[0].type, 7);
    EXPECT_EQ(fragments[1].type, 0);
    EXPECT_TRUE(fragments[1].data.empty());
    EXPECT_EQ(fragments[2].type, 3);
}

TEST(Mef, conversion_refuses_what_an_mfp_cannot_say) {
    std::vector<std::byte> out(500);
    const auto convert = [&out](std::vector<std::byte> bytes) {
        const Result<MefView> mef = MefView::parse(bytes);
        EXPECT_TRUE(mef.ok());
        return mef_to_mfp(*mef, {}, out);
    };
    EXPECT_THAT(convert(mef_of(5, {})).error().message, HasSubstr("n_fragments 0"));
    EXPECT_THAT(convert(mef_of(5, {bank_of(0xF2, 0)})).error().message, HasSubstr("reserved"));
    std::vector<std::byte> gap = mef_of(5, {{}, {}});
    gap[16] = std::byte{7};
    EXPECT_THAT(convert(gap).error().message, HasSubstr("low event id 7, expected 6"));
    std::vector<std::byte> damaged = mef_of(5, {bank_of(1, 4)});
    damaged[16] = std::byte{0};
    EXPECT_THAT(convert(damaged).error().message, HasSubstr("event 5: raw bank: magic"));
    EXPECT_THAT(convert(mef_of(5, {bank_of(1, 600)})).error().message, HasSubstr("does not fit"));
}

TEST(Mef, random_packets_survive_the_round_trip_and_damage) {
    base::Prng prng(20240603);
    for (int round = 0; round < 60; ++round) {
        std::vector<std::vector<std::byte>> events(1 + prng.below(6));
        for (auto& banks : events) {
            for (std::uint64_t n = prng.below(3); n > 0; --n) {
                const auto bank = bank_of(static_cast<std::uint8_t>(prng.below(0xF0)), prng.below(20));
                banks.insert(banks.end(), bank.begin(), bank.end());
            }
        }
        const std::vector<std::byte> bytes = mef_of(static_cast<std::uint32_t>(prng.next()), events);
        EXPECT_TRUE(testing::walk_mef(bytes));
        testing::torture(bytes, prng.next(), 300, testing::walk_mef);
    }
}

}  // namespace
}  // namespace incast::wire

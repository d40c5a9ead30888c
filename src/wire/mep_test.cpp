#include "wire/mep.h"

#include <algorithm>
#include <initializer_list>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/prng.h"
#include "support/wire_walk.h"

namespace incast::wire {
namespace {

using ::testing::HasSubstr;

std::vector<std::byte> mfp_of(std::uint16_t source, std::uint64_t first_event, const std::vector<std::uint32_t>& sizes,
                              std::uint8_t align_log2 = 2, bool wide = false) {
    std::vector<std::byte> bytes(mfp_prefix_bytes(static_cast<std::uint32_t>(sizes.size()), true) +
                                 mfp_bytes(sizes, align_log2).packet_bytes);
    Result<MfpWriter> writer = MfpWriter::begin(bytes, {.first_event = first_event,
                                                        .packet_bytes = 0,
                                                        .n_fragments = static_cast<std::uint32_t>(sizes.size()),
                                                        .source = source,
                                                        .align_log2 = align_log2,
                                                        .fragment_version = 0,
                                                        .wide = wide});
    EXPECT_TRUE(writer.ok());
    for (const std::uint32_t size : sizes) {
        const auto room = writer->reserve(1, size);
        EXPECT_TRUE(room.has_value());
        std::ranges::fill(*room, static_cast<std::byte>(source));
    }
    bytes.resize(*writer->finish());
    return bytes;
}

Result<std::vector<std::byte>> gather(const std::vector<std::vector<std::byte>>& mfps) {
    const std::vector<Bytes> pieces(mfps.begin(), mfps.end());
    std::vector<std::byte> header(mep_header_bytes(static_cast<std::uint32_t>(mfps.size())), std::byte{0xAA});
    std::vector<Bytes> segments(mep_max_segments(mfps.size()));
    const Result<GatheredMep> gathered = gather_mep(pieces, header, segments);
    if (!gathered) {
        return gathered.error();
    }
    std::vector<std::byte> mep;
    for (const Bytes segment : std::span(segments).first(gathered->n_segments)) {
        mep.insert(mep.end(), segment.begin(), segment.end());
    }
    EXPECT_EQ(mep.size(), gathered->packet_bytes);
    return mep;
}

// By hand from the published layout (docs/formats.md): sources 3, 5 and 0x0102, one fragment each, of 4, 0 and 4 bytes.
TEST(Mep, has_the_published_layout) {
    const auto gathered = gather({mfp_of(3, 9, {4}), mfp_of(5, 9, {0}), mfp_of(0x0102, 9, {4})});
    ASSERT_TRUE(gathered.ok()) << gathered.error().message;
    std::vector<std::byte> expected;
    for (const int value : {0xFA, 0xCE, 0x03, 0x00, 0x20, 0x00, 0x00, 0x00,  // magic, n = 3, 32 words
                            0x03, 0x00, 0x05, 0x00, 0x02, 0x01, 0x00, 0x00,  // source ids, rounded up to 4
                            0x08, 0x00, 0x00, 0x00, 0x10, 0x00, 0x00, 0x00,  // offsets of 8, 16
                            0x18, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,  // and 24 words; padding to 8
                            0xCE, 0x40, 0x01, 0x00, 0x20, 0x00, 0x00, 0x00,  // MFP of source 3, 32 bytes
                            0x09, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,  // first event 9
                            0x03, 0x00, 0x02, 0x00, 0x01, 0x00, 0x00, 0x00,  // source, align, version; type
                            0x04, 0x00, 0x00, 0x00, 0x03, 0x03, 0x03, 0x03,  // size; fragment
                            0xCE, 0x40, 0x01, 0x00, 0x1C, 0x00, 0x00, 0x00,  // MFP of source 5, 28 bytes
                            0x09, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,  //
                            0x05, 0x00, 0x02, 0x00, 0x01, 0x00, 0x00, 0x00,  //
                            0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,  // size; padding to 8
                            0xCE, 0x40, 0x01, 0x00, 0x20, 0x00, 0x00, 0x00,  // MFP of source 0x0102, 32 bytes
                            0x09, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,  //
                            0x02, 0x01, 0x02, 0x00, 0x01, 0x00, 0x00, 0x00,  //
                            0x04, 0x00, 0x00, 0x00, 0x02, 0x02, 0x02, 0x02}) {
        expected.push_back(static_cast<std::byte>(value));
    }
    EXPECT_EQ(*gathered, expected);
}

TEST(Mep, reads_what_was_gathered) {
    const auto mep = gather({mfp_of(3, 9, {4, 7}), mfp_of(5, 9, {0, 1}, 0), mfp_of(6, 9, {4, 70'000}, 3, true)});
    ASSERT_TRUE(mep.ok()) << mep.error().message;
    const Result<MepView> view = MepView::parse(*mep);
    ASSERT_TRUE(view.ok()) << view.error().message;
    ASSERT_EQ(view->size(), 3U);
    EXPECT_EQ(view->first_event(), 9U);
    EXPECT_EQ(view->n_events(), 2U);
    EXPECT_EQ(view->source(1), 5);
    EXPECT_TRUE(view->mfp(2).header().wide);
    EXPECT_EQ(view->mfp(2).fragment_bytes(1), 70'000U);
    EXPECT_TRUE(testing::walk_mep(*mep));
}

TEST(Mep, reads_ids_in_any_order_and_more_than_once) {
    for (const std::uint16_t second : {std::uint16_t{3}, std::uint16_t{1}}) {
        auto mep = gather({mfp_of(3, 9, {4, 7}), mfp_of(5, 9, {0, 1})});
        ASSERT_TRUE(mep.ok());
        store(MutableBytes(*mep), mep_fixed_bytes + 2, second);  // in the directory, and in the MFP itself
        const std::uint64_t at = MepView::parse(*gather({mfp_of(3, 9, {4, 7}), mfp_of(5, 9, {0, 1})}))->offset(1);
        store(MutableBytes(*mep), at + 16, second);
        const Result<MepView> view = MepView::parse(*mep);
        ASSERT_TRUE(view.ok()) << view.error().message;
        EXPECT_EQ(view->source(0), 3);
        EXPECT_EQ(view->source(1), second);
        EXPECT_EQ(view->mfp(1).header().source, second);
        EXPECT_TRUE(testing::walk_mep(*mep));
    }
}

TEST(Mep, EB_S3_gathering_copies_no_payload) {
    const std::vector<std::byte> first = mfp_of(1, 0, {104});
    const std::vector<std::byte> second = mfp_of(2, 0, {101}, 0);
    const std::vector<Bytes> pieces = {first, second};
    std::vector<std::byte> header(mep_header_bytes(2));
    std::vector<Bytes> segments(mep_max_segments(2));
    const Result<GatheredMep> gathered = gather_mep(pieces, header, segments);
    ASSERT_TRUE(gathered.ok());
    ASSERT_EQ(gathered->n_segments, 5U);  // both packets need padding to 8
    EXPECT_EQ(segments[0].data(), header.data());
    EXPECT_EQ(segments[1].data(), first.data());
    EXPECT_EQ(segments[3].data(), second.data());
    EXPECT_EQ(gathered->n_events, 1U);
}

TEST(Mep, gathering_refuses_what_is_no_mep) {
    EXPECT_THAT(gather({}).error().message, HasSubstr("n_mfps 0"));
    EXPECT_THAT(gather({mfp_of(5, 9, {4}), mfp_of(3, 9, {4})}).error().message,
                HasSubstr("source 3: follows source 5"));
    EXPECT_THAT(gather({mfp_of(5, 9, {4}), mfp_of(5, 9, {4})}).error().message, HasSubstr("ascending"));
    EXPECT_THAT(gather({mfp_of(5, 9, {4}), mfp_of(6, 10, {4})}).error().message,
                HasSubstr("events 10 + 1, expected 9 + 1"));
    EXPECT_THAT(gather({mfp_of(5, 9, {4}), mfp_of(6, 9, {4, 4})}).error().message, HasSubstr("events 9 + 2"));
    std::vector<std::byte> cut = mfp_of(6, 9, {4});
    cut.pop_back();
    EXPECT_THAT(gather({mfp_of(5, 9, {4}), cut}).error().message, HasSubstr("only 31 are there"));

    const std::vector<std::byte> mfp = mfp_of(1, 0, {1});
    const std::vector<Bytes> pieces = {mfp};
    std::vector<std::byte> header(mep_header_bytes(1));
    std::vector<Bytes> segments(mep_max_segments(1));
    EXPECT_FALSE(gather_mep(pieces, std::span(header).first(header.size() - 1), segments).ok());
    EXPECT_FALSE(gather_mep(pieces, header, std::span(segments).first(2)).ok());
}

TEST(Mep, more_than_16_gib_is_an_error) {
    // Headers alone are read, so the packets need not exist: five that claim 4 GiB each.
    std::vector<std::vector<std::byte>> mfps;
    std::vector<Bytes> pieces;
    for (std::uint16_t source = 0; source < 5; ++source) {
        mfps.push_back(mfp_of(source, 0, {1}));
        store(MutableBytes(mfps.back()), 4, std::uint32_t{0xFFFFFFF0});
    }
    for (const auto& mfp : mfps) {
        pieces.emplace_back(mfp.data(), std::size_t{0xFFFFFFF0});
    }
    std::vector<std::byte> header(mep_header_bytes(5));
    std::vector<Bytes> segments(mep_max_segments(5));
    const Result<GatheredMep> gathered = gather_mep(pieces, header, segments);
    ASSERT_FALSE(gathered.ok());
    EXPECT_THAT(gathered.error().message, HasSubstr("16 GiB"));
    EXPECT_TRUE(gather_mep(std::span(pieces).first(3), header, segments).ok());
}

TEST(Mep, a_phantom_takes_the_place_of_a_missing_source) {
    std::vector<std::byte> phantom(phantom_bytes(2));
    ASSERT_TRUE(write_phantom(phantom, 9, 2, 4, SourceFlag::missing_dead).ok());
    const auto mep = gather({mfp_of(3, 9, {4, 7}), phantom, mfp_of(5, 9, {0, 1})});
    ASSERT_TRUE(mep.ok()) << mep.error().message;
    const Result<MepView> view = MepView::parse(*mep);
    ASSERT_TRUE(view.ok());
    EXPECT_EQ(view->mfp(0).flag(), SourceFlag::ok);
    EXPECT_EQ(view->mfp(1).flag(), SourceFlag::missing_dead);
}

TEST(Mep, errors_name_what_is_wrong) {
    struct Case {
        std::size_t offset;
        unsigned value;
        const char* message;
    };
    const auto mep = gather({mfp_of(3, 9, {4}), mfp_of(5, 9, {4})});
    ASSERT_TRUE(mep.ok());
    const auto mfps_at = static_cast<std::size_t>(mep_header_bytes(2));
    for (const Case& c : {Case{0, 0, "magic"}, Case{2, 0, "n_mfps 0"}, Case{4, 0xFF, "are there"},
                          Case{4, 4, "expected at least 20"}, Case{10, 3, "source 3: holds the MFP of source 5"},
                          Case{8, 4, "source 4: holds the MFP of source 3"}, Case{12, 4, "source 3: offset 16"},
                          Case{16, 10, "source 5: offset 40"}, Case{16, 0xF0, "source 5: offset 960"},
                          Case{mfps_at, 0, "source 3: MFP: magic"}, Case{mfps_at + 8, 8, "expected 8 + 1"}}) {
        std::vector<std::byte> bytes = *mep;
        bytes[c.offset] = static_cast<std::byte>(c.value);
        const Result<MepView> view = MepView::parse(bytes);
        ASSERT_FALSE(view.ok()) << c.message;
        EXPECT_THAT(view.error().message, HasSubstr(c.message));
    }
}

TEST(Mep, random_packets_survive_the_round_trip_and_damage) {
    base::Prng prng(20240602);
    for (int round = 0; round < 40; ++round) {
        const std::uint64_t n_events = 1 + prng.below(4);
        std::vector<std::vector<std::byte>> mfps;
        std::uint16_t source = 0;
        for (std::uint64_t index = 1 + prng.below(6); index > 0; --index) {
            source = static_cast<std::uint16_t>(source + 1 + prng.below(300));
            std::vector<std::uint32_t> sizes(n_events);
            std::ranges::generate(sizes, [&prng] { return static_cast<std::uint32_t>(prng.below(20)); });
            mfps.push_back(mfp_of(source, 77, sizes, static_cast<std::uint8_t>(prng.below(5)), prng.chance(300'000)));
        }
        const auto mep = gather(mfps);
        ASSERT_TRUE(mep.ok()) << mep.error().message;
        const Result<MepView> view = MepView::parse(*mep);
        ASSERT_TRUE(view.ok()) << view.error().message;
        for (std::uint32_t index = 0; index < view->size(); ++index) {
            EXPECT_TRUE(std::ranges::equal(view->mfp(index).bytes(), mfps[index]));
        }
        testing::torture(*mep, prng.next(), 300, testing::walk_mep);
    }
}

}  // namespace
}  // namespace incast::wire

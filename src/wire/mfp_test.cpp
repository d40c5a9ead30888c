#include "wire/mfp.h"

#include <algorithm>
#include <initializer_list>
#include <limits>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/prng.h"
#include "support/wire_walk.h"

namespace incast::wire {
namespace {

using ::testing::HasSubstr;

std::vector<std::byte> bytes_of(std::initializer_list<unsigned> values) {
    std::vector<std::byte> bytes;
    for (const unsigned value : values) {
        bytes.push_back(static_cast<std::byte>(value));
    }
    return bytes;
}

std::vector<std::byte> filled(std::size_t size, unsigned value) {
    return std::vector<std::byte>(size, static_cast<std::byte>(value));
}

struct Spec {
    MfpHeader header;
    std::vector<std::uint8_t> types;
    std::vector<std::vector<std::byte>> fragments;
};

std::vector<std::byte> write(const Spec& spec) {
    std::vector<std::uint32_t> sizes;
    for (const auto& fragment : spec.fragments) {
        sizes.push_back(static_cast<std::uint32_t>(fragment.size()));
    }
    const MfpSize size = mfp_bytes(sizes, spec.header.align_log2);
    MfpHeader header = spec.header;
    header.n_fragments = static_cast<std::uint32_t>(sizes.size());
    header.wide = header.wide || size.wide;
    std::vector<std::byte> out(size.packet_bytes + 1024 * (header.wide ? 1 : 0), std::byte{0xAA});
    Result<MfpWriter> writer = MfpWriter::begin(out, header);
    EXPECT_TRUE(writer.ok()) << writer.error().message;
    for (std::size_t index = 0; index < sizes.size(); ++index) {
        EXPECT_TRUE(writer->add(spec.types[index], spec.fragments[index])) << index;
    }
    const Result<std::uint64_t> written = writer->finish();
    EXPECT_TRUE(written.ok());
    out.resize(*written);
    return out;
}

// By hand from the published layout (docs/formats.md): three fragments of 5, 0 and 4 bytes, aligned to 8.
std::vector<std::byte> golden() {
    return bytes_of({0xCE, 0x40, 0x03, 0x00, 0x30, 0x00, 0x00, 0x00,  // magic, n = 3, packet bytes 48
                     0x08, 0x07, 0x06, 0x05, 0x04, 0x03, 0x02, 0x01,  // first event id
                     0x22, 0x11, 0x03, 0x09,                          // source, align 2^3, fragment version
                     0x4D, 0x4E, 0x4F, 0x00,                          // types and padding to 4
                     0x05, 0x00, 0x00, 0x00, 0x04, 0x00, 0x00, 0x00,  // sizes and padding to 4
                     0xA0, 0xA1, 0xA2, 0xA3, 0xA4, 0x00, 0x00, 0x00,  // fragment 0 and padding to 8
                     0xB0, 0xB1, 0xB2, 0xB3, 0x00, 0x00, 0x00, 0x00});
}

Spec golden_spec() {
    return {.header = {.first_event = 0x0102030405060708,
                       .packet_bytes = 0,
                       .n_fragments = 3,
                       .source = 0x1122,
                       .align_log2 = 3,
                       .fragment_version = 9},
            .types = {0x4D, 0x4E, 0x4F},
            .fragments = {bytes_of({0xA0, 0xA1, 0xA2, 0xA3, 0xA4}), {}, bytes_of({0xB0, 0xB1, 0xB2, 0xB3})}};
}

TEST(Mfp, writes_the_published_layout) {
    EXPECT_EQ(write(golden_spec()), golden());
}

TEST(Mfp, reads_the_published_layout) {
    const std::vector<std::byte> bytes = golden();
    const Result<MfpView> view = MfpView::parse(bytes);
    ASSERT_TRUE(view.ok()) << view.error().message;
    EXPECT_EQ(view->header().first_event, 0x0102030405060708U);
    EXPECT_EQ(view->header().packet_bytes, 48U);
    EXPECT_EQ(view->header().source, 0x1122);
    EXPECT_EQ(view->header().align_log2, 3);
    EXPECT_EQ(view->header().fragment_version, 9);
    EXPECT_FALSE(view->header().wide);
    EXPECT_EQ(view->payload_bytes(), 9U);
    EXPECT_EQ(view->flag(), SourceFlag::ok);
    std::vector<Fragment> fragments(view->begin(), view->end());
    ASSERT_EQ(fragments.size(), 3U);
    EXPECT_TRUE(std::ranges::equal(fragments[0].data, bytes_of({0xA0, 0xA1, 0xA2, 0xA3, 0xA4})));
    EXPECT_TRUE(fragments[1].data.empty());
    EXPECT_FALSE(fragments[1].missing().has_value());
    EXPECT_TRUE(std::ranges::equal(fragments[2].data, bytes_of({0xB0, 0xB1, 0xB2, 0xB3})));
    EXPECT_EQ(fragments[2].event, 0x010203040506070AU);
    EXPECT_EQ(fragments[2].type, 0x4F);
}

TEST(Mfp, lays_the_same_bytes_out_when_sizes_come_first) {
    const std::vector<std::uint32_t> sizes = {5, 0, 4};
    std::vector<std::byte> out(mfp_bytes(sizes, 3).packet_bytes, std::byte{0xAA});
    Spec spec = golden_spec();
    spec.types = {0x4D, 0x4D, 0x4D};
    const Result<MfpSize> size = lay_out_mfp(out, spec.header, 0x4D, sizes);
    ASSERT_TRUE(size.ok()) << size.error().message;
    EXPECT_EQ(size->packet_bytes, 48U);
    EXPECT_EQ(size->payload_bytes, 9U);
    std::uint64_t offset = mfp_prefix_bytes(3, false);
    for (const auto& fragment : spec.fragments) {
        std::ranges::copy(fragment, out.begin() + static_cast<std::ptrdiff_t>(offset));
        offset += round_up(fragment.size(), 8);
    }
    EXPECT_EQ(out, write(spec));
}

TEST(Mfp, wide_variant_has_its_documented_layout) {
    Spec spec = golden_spec();
    spec.header.wide = true;
    const auto expected =
        bytes_of({0xCE, 0x57, 0x03, 0x00, 0x01, 0x03, 0x09, 0x00,  // magic, n, version 1, align, fragment version, 0
                  0x08, 0x07, 0x06, 0x05, 0x04, 0x03, 0x02, 0x01,  // first event id
                  0x40, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,  // packet bytes 64
                  0x22, 0x11, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,  // source, reserved
                  0x4D, 0x4E, 0x4F, 0x00,                          // types
                  0x05, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x04, 0x00, 0x00, 0x00,  // sizes
                  0xA0, 0xA1, 0xA2, 0xA3, 0xA4, 0x00, 0x00, 0x00, 0xB0, 0xB1, 0xB2, 0xB3, 0x00, 0x00, 0x00, 0x00});
    EXPECT_EQ(write(spec), expected);
    EXPECT_TRUE(testing::walk_mfp(expected));
}

TEST(Mfp, EB_S1_is_wide_exactly_when_the_lhcb_layout_cannot_hold_it) {
    EXPECT_FALSE(mfp_bytes(std::vector<std::uint32_t>{65535}, 3).wide);
    EXPECT_TRUE(mfp_bytes(std::vector<std::uint32_t>{1, 65536}, 3).wide);
    EXPECT_FALSE(mfp_bytes(65535, 65000, 0).wide);
    // 65535 fragments of 65535 B, padded to 8, pass the u32 packet size though each fragment fits.
    EXPECT_TRUE(mfp_bytes(65535, 65535, 3).wide);

    Spec spec{.header = {.first_event = 1, .packet_bytes = 0, .n_fragments = 2, .source = 5},
              .types = {1, 2},
              .fragments = {filled(70'000, 0x11), filled(3, 0x22)}};
    const std::vector<std::byte> bytes = write(spec);
    const Result<MfpView> view = MfpView::parse(bytes);
    ASSERT_TRUE(view.ok()) << view.error().message;
    EXPECT_TRUE(view->header().wide);
    EXPECT_EQ(view->fragment_bytes(0), 70'000U);
    EXPECT_TRUE(testing::walk_mfp(bytes));

    std::vector<std::byte> out(100'000);
    Result<MfpWriter> narrow =
        MfpWriter::begin(out, {.first_event = 1, .packet_bytes = 0, .n_fragments = 2, .source = 5});
    ASSERT_TRUE(narrow.ok());
    EXPECT_FALSE(narrow->add(1, spec.fragments[0]));
}

TEST(Mfp, header_can_be_read_without_the_packet) {
    const std::vector<std::byte> bytes = golden();
    const Result<MfpHeader> header = peek_mfp(Bytes(bytes).first(mfp_header_bytes));
    ASSERT_TRUE(header.ok()) << header.error().message;
    EXPECT_EQ(header->packet_bytes, 48U);
    EXPECT_EQ(header->n_fragments, 3U);
}

TEST(Mfp, view_ends_with_the_packet) {
    std::vector<std::byte> bytes = golden();
    bytes.push_back(std::byte{0xFF});
    const Result<MfpView> view = MfpView::parse(bytes);
    ASSERT_TRUE(view.ok());
    EXPECT_EQ(view->bytes().size(), 48U);
}

TEST(Mfp, padding_of_the_last_fragment_may_be_left_out) {
    std::vector<std::byte> bytes = golden();
    bytes.resize(44);
    bytes[4] = std::byte{44};
    EXPECT_TRUE(testing::walk_mfp(bytes));
    bytes.resize(43);
    bytes[4] = std::byte{43};
    EXPECT_FALSE(testing::walk_mfp(bytes));
}

TEST(Mfp, errors_name_what_is_wrong) {
    struct Case {
        std::size_t offset;
        unsigned value;
        const char* message;
    };
    for (const Case& c : {Case{0, 0xCF, "magic 0x40cf"}, Case{2, 0, "n_fragments 0"}, Case{4, 0x31, "packet bytes 49"},
                          Case{4, 0x10, "packet bytes 16"}, Case{4, 0x2B, "packet bytes 43"},
                          Case{18, 13, "align 2^13"}, Case{24, 0x0D, "add up to 56"}, Case{25, 0x01, "add up to"}}) {
        std::vector<std::byte> bytes = golden();
        bytes[c.offset] = static_cast<std::byte>(c.value);
        const Result<MfpView> view = MfpView::parse(bytes);
        ASSERT_FALSE(view.ok()) << c.message;
        EXPECT_THAT(view.error().message, HasSubstr(c.message));
    }
    std::vector<std::byte> bytes = golden();
    std::fill(bytes.begin() + 8, bytes.begin() + 16, std::byte{0xFF});
    EXPECT_THAT(MfpView::parse(bytes).error().message, HasSubstr("wraps"));
}

TEST(Mfp, wide_header_refuses_other_versions_and_reserved_bits) {
    Spec spec = golden_spec();
    spec.header.wide = true;
    const std::vector<std::byte> good = write(spec);
    for (const std::size_t offset : {4U, 7U, 26U, 31U}) {
        std::vector<std::byte> bytes = good;
        bytes[offset] = std::byte{2};
        EXPECT_FALSE(MfpView::parse(bytes).ok()) << offset;
    }
}

TEST(Mfp, phantom_stands_for_a_missing_source) {
    for (const SourceFlag flag : {SourceFlag::missing_dead, SourceFlag::missing_unreachable, SourceFlag::late,
                                  SourceFlag::truncated, SourceFlag::bad_checksum, SourceFlag::desync}) {
        std::vector<std::byte> bytes(phantom_bytes(5));
        const Result<std::uint64_t> written = write_phantom(bytes, 1000, 5, 42, flag);
        ASSERT_TRUE(written.ok()) << written.error().message;
        EXPECT_EQ(*written, bytes.size());
        const Result<MfpView> view = MfpView::parse(bytes);
        ASSERT_TRUE(view.ok()) << view.error().message;
        EXPECT_TRUE(view->phantom());
        EXPECT_EQ(view->flag(), flag);
        EXPECT_EQ(view->header().first_event, 1000U);
        EXPECT_EQ(view->header().source, 42);
        EXPECT_EQ(view->size(), 5U);
        EXPECT_EQ(view->type(4), 0xF0U | static_cast<unsigned>(flag));
    }
    std::vector<std::byte> bytes(phantom_bytes(5));
    EXPECT_FALSE(write_phantom(bytes, 1000, 5, 42, SourceFlag::ok).ok());
    EXPECT_FALSE(write_phantom(bytes, 1000, 5, 42, SourceFlag::empty).ok());
    EXPECT_FALSE(write_phantom(std::span(bytes).first(39), 1000, 5, 42, SourceFlag::late).ok());
}

TEST(Mfp, empty_is_not_missing) {
    const Spec spec{.header = {.first_event = 3}, .types = {1, 1}, .fragments = {{}, {}}};
    const std::vector<std::byte> bytes = write(spec);
    const Result<MfpView> view = MfpView::parse(bytes);
    ASSERT_TRUE(view.ok());
    EXPECT_EQ(view->flag(), SourceFlag::empty);
    EXPECT_FALSE(view->phantom());
}

TEST(Mfp, reserved_types_are_never_written_with_data) {
    std::vector<std::byte> out(200);
    Result<MfpWriter> writer = MfpWriter::begin(out, {.first_event = 0, .packet_bytes = 0, .n_fragments = 1});
    ASSERT_TRUE(writer.ok());
    EXPECT_FALSE(writer->add(flag_type(SourceFlag::late), filled(4, 1)));
    EXPECT_TRUE(writer->add(0xF1, filled(4, 1)));
    EXPECT_FALSE(lay_out_mfp(out, {}, flag_type(SourceFlag::late), std::vector<std::uint32_t>{4}).ok());
}

TEST(Mfp, EB_S4_truncation_keeps_whole_fragments_and_flags_the_rest) {
    const Spec spec{.header = {.first_event = 3},
                    .types = {1, 2, 3, 4},
                    .fragments = {filled(10, 0x10), filled(5, 0x20), filled(8, 0x30), {}}};
    const std::vector<std::byte> whole = write(spec);
    const std::size_t prefix = mfp_prefix_bytes(4, false);
    for (std::size_t length = 0; length < whole.size(); ++length) {
        std::vector<std::byte> cut(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(length));
        const Result<std::uint64_t> mended = truncate_mfp(cut);
        ASSERT_EQ(mended.ok(), length >= prefix) << length;
        if (!mended) {
            continue;
        }
        const Result<MfpView> view = MfpView::parse(Bytes(cut).first(*mended));
        ASSERT_TRUE(view.ok()) << length << ": " << view.error().message;
        EXPECT_EQ(view->flag(), SourceFlag::truncated);
        EXPECT_EQ(view->size(), 4U);
        const std::size_t kept = length < prefix + 16 ? 0 : length < prefix + 24 ? 1 : 2;
        std::uint32_t index = 0;
        for (const Fragment fragment : *view) {
            if (index < kept) {
                EXPECT_TRUE(std::ranges::equal(fragment.data, spec.fragments[index]));
            } else {
                EXPECT_EQ(fragment.missing(), SourceFlag::truncated) << length << " " << index;
            }
            ++index;
        }
    }
    std::vector<std::byte> untouched = whole;
    EXPECT_EQ(*truncate_mfp(untouched), whole.size());
    EXPECT_EQ(untouched, whole);
}

TEST(Mfp, writer_refuses_what_does_not_fit) {
    std::vector<std::byte> out(mfp_prefix_bytes(2, false) + 8);
    EXPECT_FALSE(
        MfpWriter::begin(std::span(out).first(27), {.first_event = 0, .packet_bytes = 0, .n_fragments = 2}).ok());
    EXPECT_FALSE(MfpWriter::begin(out, {.first_event = 0, .packet_bytes = 0, .n_fragments = 0}).ok());
    EXPECT_FALSE(MfpWriter::begin(out, {.first_event = 0, .packet_bytes = 0, .n_fragments = 65536}).ok());
    Result<MfpWriter> writer = MfpWriter::begin(out, {.first_event = 0, .packet_bytes = 0, .n_fragments = 2});
    ASSERT_TRUE(writer.ok());
    EXPECT_FALSE(writer->add(1, filled(9, 1)));
    EXPECT_TRUE(writer->add(1, filled(3, 1)));
    EXPECT_FALSE(writer->add(1, filled(1, 1)));
    EXPECT_FALSE(writer->finish().ok());
    EXPECT_TRUE(writer->add(1, {}));
    EXPECT_FALSE(writer->add(1, {}));
    EXPECT_EQ(*writer->finish(), out.size());
    EXPECT_FALSE(lay_out_mfp(out, {}, 1, std::vector<std::uint32_t>{8, 1}).ok());
}

TEST(Mfp, random_packets_survive_the_round_trip_and_damage) {
    base::Prng prng(20240601);
    for (int round = 0; round < 60; ++round) {
        Spec spec{.header = {.first_event = prng.next() >> 8,
                             .packet_bytes = 0,
                             .n_fragments = 0,
                             .source = static_cast<std::uint16_t>(prng.next()),
                             .align_log2 = static_cast<std::uint8_t>(prng.below(6)),
                             .fragment_version = static_cast<std::uint8_t>(prng.next()),
                             .wide = prng.chance(500'000)},
                  .types = {},
                  .fragments = {}};
        const std::uint64_t n = 1 + prng.below(12);
        for (std::uint64_t index = 0; index < n; ++index) {
            spec.types.push_back(static_cast<std::uint8_t>(prng.below(0xF0)));
            spec.fragments.push_back(
                filled(prng.chance(300'000) ? 0 : prng.below(40), static_cast<unsigned>(prng.below(256))));
        }
        const std::vector<std::byte> bytes = write(spec);
        const Result<MfpView> view = MfpView::parse(bytes);
        ASSERT_TRUE(view.ok()) << view.error().message;
        EXPECT_EQ(view->header().first_event, spec.header.first_event);
        EXPECT_EQ(view->header().source, spec.header.source);
        EXPECT_EQ(view->header().wide, spec.header.wide);
        std::size_t index = 0;
        for (const Fragment fragment : *view) {
            EXPECT_EQ(fragment.type, spec.types[index]);
            EXPECT_TRUE(std::ranges::equal(fragment.data, spec.fragments[index]));
            ++index;
        }
        EXPECT_EQ(index, n);
        testing::torture(bytes, prng.next(), 200, testing::walk_mfp);
    }
}

}  // namespace
}  // namespace incast::wire

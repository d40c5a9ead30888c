#include "ingest/emit/frames.h"

#include <algorithm>
#include <string_view>

#include <gtest/gtest.h>

namespace incast::ingest {
namespace {

using Frame = std::vector<std::byte>;

void add(Frame& frame, std::initializer_list<int> bytes) {
    for (const int byte : bytes) {
        frame.push_back(static_cast<std::byte>(byte));
    }
}

void add_16(Frame& frame, std::size_t value) {
    add(frame, {static_cast<int>(value >> 8U), static_cast<int>(value & 0xFFU)});
}

Frame udp(std::uint16_t port, const Frame& payload) {
    Frame made;
    add_16(made, 40'000);
    add_16(made, port);
    add_16(made, 8 + payload.size());
    add_16(made, 0);
    made.insert(made.end(), payload.begin(), payload.end());
    return made;
}

Frame v4(const Frame& body, std::uint16_t id = 7, std::size_t offset = 0, bool has_more = false) {
    Frame made;
    add(made, {0x45, 0});
    add_16(made, 20 + body.size());
    add_16(made, id);
    add_16(made, (has_more ? 0x2000U : 0U) | offset / 8);
    add(made, {64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2});
    made.insert(made.end(), body.begin(), body.end());
    return made;
}

Frame v6(const Frame& body) {
    Frame made;
    add(made, {0x60, 0, 0, 0});
    add_16(made, body.size());
    add(made, {17, 64});
    for (int index = 0; index < 32; ++index) {
        add(made, {index});
    }
    made.insert(made.end(), body.begin(), body.end());
    return made;
}

Frame behind(std::initializer_list<int> header, const Frame& packet) {
    Frame made;
    add(made, header);
    made.insert(made.end(), packet.begin(), packet.end());
    return made;
}

Frame payload_of(std::size_t bytes) {
    Frame made(bytes);
    std::ranges::generate(made, [next = 0]() mutable { return static_cast<std::byte>(next++); });
    return made;
}

TEST(Frames, TakesDatagramsOfEveryKnownLink) {
    const Frame payload = payload_of(100);
    const Frame packet = v4(udp(4711, payload));
    const struct {
        LinkType link;
        Frame frame;
    } cases[]{
        {LinkType::ethernet, behind({1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 8, 0}, packet)},
        {LinkType::ethernet, behind({1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 0x81, 0, 0, 5, 8, 0}, packet)},
        {LinkType::cooked, behind({0, 0, 0, 1, 0, 6, 1, 2, 3, 4, 5, 6, 0, 0, 8, 0}, packet)},
        {LinkType::cooked_2, behind({8, 0, 0, 0, 0, 0, 0, 1, 0, 1, 0, 6, 1, 2, 3, 4, 5, 6, 0, 0}, packet)},
        {LinkType::raw_ip, packet},
        {LinkType::loopback, behind({2, 0, 0, 0}, packet)},
    };
    for (const auto& [link, frame] : cases) {
        Frames frames = Frames::of(static_cast<int>(link)).value();
        const auto taken = frames.take(frame, frame.size());
        ASSERT_TRUE(taken) << static_cast<int>(link);
        EXPECT_TRUE(std::ranges::equal(taken->bytes, payload));
        EXPECT_EQ(datagram::to_string(taken->to), "10.0.0.2:4711");
    }
    EXPECT_FALSE(Frames::of(105));  // 802.11
}

TEST(Frames, TakesIpv6) {
    Frames frames = Frames::of(static_cast<int>(LinkType::raw_ip)).value();
    const Frame packet = v6(udp(9, payload_of(3)));
    const auto taken = frames.take(packet, packet.size());
    ASSERT_TRUE(taken);
    EXPECT_TRUE(taken->to.is_v6);
    EXPECT_EQ(taken->bytes.size(), 3U);
}

TEST(Frames, PutsPiecesTogetherInAnyOrder) {
    const Frame payload = payload_of(4000);
    const Frame whole = udp(4711, payload);
    const auto piece = [&](std::size_t from, std::size_t to, std::uint16_t id) {
        return v4(
            Frame(whole.begin() + static_cast<std::ptrdiff_t>(from), whole.begin() + static_cast<std::ptrdiff_t>(to)),
            id, from, to < whole.size());
    };
    Frames frames = Frames::of(static_cast<int>(LinkType::raw_ip)).value();
    const std::vector<Frame> order{piece(1480, 2960, 1), piece(2960, whole.size(), 1), piece(0, 1480, 2),
                                   piece(0, 1480, 1)};
    for (const Frame& frame : order) {
        const auto taken = frames.take(frame, frame.size());
        EXPECT_EQ(taken.has_value(), &frame == &order.back());
        if (taken) {
            EXPECT_TRUE(std::ranges::equal(taken->bytes, payload));
        }
    }
    EXPECT_EQ(frames.skipped().pieces, 1U) << "the one of which others did not come";

    const Frame twice = piece(0, 1480, 3);  // overlaps itself: spoils its datagram
    frames.take(twice, twice.size());
    frames.take(twice, twice.size());
    const Frame last = piece(2960, whole.size(), 3);
    EXPECT_FALSE(frames.take(last, last.size()));
}

TEST(Frames, ForgetsTheOldestOfWhichPiecesAreMissing) {
    Frames frames = Frames::of(static_cast<int>(LinkType::raw_ip)).value();
    const Frame whole = udp(4711, payload_of(1600));
    const Frame first(whole.begin(), whole.begin() + 800);
    const Frame second(whole.begin() + 800, whole.end());
    for (std::uint16_t id = 0; id < 1000; ++id) {
        const Frame frame = v4(first, id, 0, true);
        EXPECT_FALSE(frames.take(frame, frame.size()));
    }
    EXPECT_EQ(frames.skipped().pieces, 1000U);
    const Frame newest = v4(second, 999, 800);
    EXPECT_TRUE(frames.take(newest, newest.size()));
    EXPECT_EQ(frames.skipped().pieces, 999U);
}

TEST(Frames, CountsWhatGivesNoDatagram) {
    const Frame packet = v4(udp(4711, payload_of(100)));
    Frames frames = Frames::of(static_cast<int>(LinkType::raw_ip)).value();
    for (std::size_t bytes = 0; bytes < packet.size(); ++bytes) {
        EXPECT_FALSE(frames.take(std::span(packet).first(bytes), packet.size()));
    }
    EXPECT_EQ(frames.skipped().cut, packet.size());
    Frame tcp = packet;
    tcp[9] = std::byte{6};
    EXPECT_FALSE(frames.take(tcp, tcp.size()));
    Frame long_udp = packet;
    long_udp[24] = std::byte{0xFF};
    EXPECT_FALSE(frames.take(long_udp, long_udp.size()));
    EXPECT_EQ(frames.skipped().others, 2U);
}

}  // namespace
}  // namespace incast::ingest

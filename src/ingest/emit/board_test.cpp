#include "ingest/emit/board.h"

#include <algorithm>
#include <map>

#include <gtest/gtest.h>

#include "ingest/emit/emit.h"

namespace incast::ingest {
namespace {

/// Everything that a board sends, by event: how often, checked byte by byte.
std::map<std::uint64_t, int> sent_by(Board& board, const BoardSettings& settings) {
    std::map<std::uint64_t, int> sent;
    PacketReader reader(settings.format);
    const auto send = [&](std::span<const std::byte> bytes) {
        const auto view = reader.read(bytes, [](std::uint16_t) { return std::uint64_t{0}; });
        ASSERT_TRUE(view) << view.error().message;
        EXPECT_EQ(view->header().source, board.source());
        for (const wire::Fragment& fragment : *view) {
            ++sent[fragment.event];
            std::vector<std::byte> expected(fragment_bytes(settings, board.source(), fragment.event));
            fill_fragment(board.source(), fragment.event, expected);
            const Bytes data =
                settings.format == Format::mef ? wire::take_raw_bank(fragment.data).value().bank.body : fragment.data;
            EXPECT_TRUE(std::ranges::equal(data, expected));
        }
    };
    while (!board.is_done()) {
        board.next(send);
    }
    board.finish(send);
    return sent;
}

TEST(Board, SaysWhatItSent) {
    for (const Format format : {Format::mfp, Format::mef}) {
        const BoardSettings settings{.format = format,
                                     .events = 10'001,
                                     .packet_events = 3,
                                     .fragment_bytes = 60,
                                     .spread = 0.5,
                                     .lost_per_million = 50'000,
                                     .twice_per_million = 30'000,
                                     .late_per_million = 20'000};
        Board board = Board::make(settings, 9).value();
        const std::map<std::uint64_t, int> sent = sent_by(board, settings);
        const Board::Sums& sums = board.sums();
        std::uint64_t copies = 0;
        for (const auto& [event, times] : sent) {
            copies += static_cast<std::uint64_t>(times);
        }
        EXPECT_EQ(sums.events, 10'001U);
        EXPECT_EQ(sent.size(), sums.events - sums.lost_events);
        EXPECT_EQ(copies, sent.size() + sums.twice_events);
        EXPECT_NEAR(static_cast<double>(sums.lost_packets), 0.05 * 3334, 60);
        EXPECT_GT(sums.late_packets, 30U);
    }
}

TEST(Board, RestartsFallsSilentAndRepacks) {
    const BoardSettings settings{.events = 100,
                                 .packet_events = 5,
                                 .restarts = {{.source = 1, .at = 60}},
                                 .silences = {{.source = 2, .at = 30}},
                                 .sizes = {{.source = 3, .at = 50, .events = 10}}};
    Board restarting = Board::make(settings, 1).value();
    EXPECT_EQ(sent_by(restarting, settings).size(), 60U);
    EXPECT_EQ(restarting.sums().restarts, 1U);
    Board silent = Board::make(settings, 2).value();
    EXPECT_EQ(sent_by(silent, settings).size(), 30U);
    EXPECT_TRUE(silent.sums().is_silent);
    Board repacking = Board::make(settings, 3).value();
    EXPECT_EQ(sent_by(repacking, settings).size(), 100U);
    EXPECT_EQ(repacking.sums().packets, 15U);
}

TEST(Board, RefusesWhatNoDatagramHolds) {
    EXPECT_FALSE(Board::make({.packet_events = 100, .fragment_bytes = 1000}, 0));
    EXPECT_FALSE(Board::make({.format = Format::mef, .packet_events = 100, .fragment_bytes = 1000}, 0));
    EXPECT_TRUE(Board::make({.packet_events = 60, .fragment_bytes = 1000}, 0));
}

TEST(Emit, SharesBoardsOutAsSources) {
    EXPECT_EQ(address_of_board(0, 32, 8), 0U);
    EXPECT_EQ(address_of_board(3, 32, 8), 0U);
    EXPECT_EQ(address_of_board(4, 32, 8), 1U);
    EXPECT_EQ(address_of_board(31, 32, 8), 7U);
}

}  // namespace
}  // namespace incast::ingest

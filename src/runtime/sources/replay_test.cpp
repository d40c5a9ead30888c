#include "runtime/sources/replay.h"

#include <gtest/gtest.h>

#include "runtime/sources/recorded_files.h"
#include "support/fake_transport.h"

namespace incast::sources {
namespace {

using protocol::MepId;

constexpr std::uint32_t packing = 8;

protocol::Config config_of(std::uint32_t cap_bytes = 4'000) {
    protocol::Config config;
    config.nodes = {{protocol::role_em | protocol::role_ru | protocol::role_bu}};
    config.sources = {{3, Peer{0}, cap_bytes}, {17, Peer{0}, cap_bytes}};
    config.retention_meps = 4;
    return config;
}

struct ReplayTest : testing::Test {
    Result<Ok> attach(std::uint64_t repeat = 1, std::uint32_t cap_bytes = 4'000) {
        replay.emplace(ReplayOptions{folder.path().string(), repeat, {}, {}});
        auto attached = replay->attach(transport, config_of(cap_bytes), 0, 2);
        if (attached) {
            replay->start(0, 0, 0);
        }
        return attached;
    }
    std::string attach_error() {
        const auto attached = attach();
        return attached ? "" : attached.error().message;
    }
    std::vector<std::byte> delivered(MepId mep, std::uint32_t index) {
        const Bytes bytes = transport.local(replay->piece(mep, index).body);
        return {bytes.begin(), bytes.end()};
    }

    TemporaryFolder folder;
    FakeTransport transport;
    std::optional<Replay> replay;
};

TEST_F(ReplayTest, SendsTheRecordingByteForByte) {
    record(folder.path(), 3, 1000, 60, packing);
    record(folder.path(), 17, 1000, 60, packing);
    ASSERT_EQ(attach_error(), "");
    EXPECT_EQ(replay->total_meps(), 8U);
    for (MepId mep = 0; mep < 8; ++mep) {
        ASSERT_TRUE(replay->produce(5, mep));
        const std::uint32_t n_events = mep < 7 ? packing : 4;
        for (std::uint32_t index = 0; index < 2; ++index) {
            const std::uint16_t source = index == 0 ? 3 : 17;
            const auto recorded = recorded_mfp(source, 1000 + mep * packing, n_events);
            EXPECT_EQ(delivered(mep, index), recorded);
            const protocol::Piece piece = replay->piece(mep, index);
            EXPECT_EQ(piece.first_event, 1000 + mep * packing);
            EXPECT_EQ(piece.n_events, n_events);
            EXPECT_EQ(piece.goodput_bytes, wire::MfpView::parse(recorded)->payload_bytes());
            EXPECT_EQ(piece.flag, wire::SourceFlag::ok);
            EXPECT_EQ(piece.trigger, 5);
        }
        replay->release(mep);
    }
    EXPECT_FALSE(replay->produce(5, 8));
    EXPECT_EQ(replay->next_ready(), time_never);
    EXPECT_EQ(replay->stats(5).accepted_events, 60U);
}

TEST_F(ReplayTest, RepeatsWithEventIdsThatGoOn) {
    record(folder.path(), 3, 0, 20, packing);
    record(folder.path(), 17, 0, 20, packing);
    ASSERT_TRUE(attach(3));
    EXPECT_EQ(replay->total_meps(), 9U);
    std::uint64_t next_event = 0;
    for (MepId mep = 0; mep < 9; ++mep) {
        ASSERT_TRUE(replay->produce(0, mep));
        const protocol::Piece piece = replay->piece(mep, 1);
        EXPECT_EQ(piece.first_event, next_event);
        next_event += piece.n_events;
        auto recorded = recorded_mfp(17, mep % 3 * packing, piece.n_events);
        wire::store(std::span(recorded), mfp_first_event_offset, piece.first_event);
        EXPECT_EQ(delivered(mep, 1), recorded);
        replay->release(mep);
    }
    EXPECT_EQ(next_event, 60U);
}

TEST_F(ReplayTest, RepeatsWithoutEnd) {
    record(folder.path(), 3, 0, 20, packing);
    record(folder.path(), 17, 0, 20, packing);
    ASSERT_TRUE(attach(0));
    EXPECT_EQ(replay->total_meps(), 0U);
    for (MepId mep = 0; mep < 100; ++mep) {
        ASSERT_TRUE(replay->produce(0, mep));
        replay->release(mep);
    }
    EXPECT_EQ(replay->piece(99, 0).first_event, 33U * 20);
}

// EB-S5: where a source has a gap, the run gets a phantom that says so, and goes on.
TEST_F(ReplayTest, EB_S5_AGapBecomesAFlaggedPhantom) {
    record(folder.path(), 3, 0, 40, packing);
    append(source_file(folder.path(), 17), recorded_mfp(17, 0, packing));
    append(source_file(folder.path(), 17), recorded_mfp(17, std::uint64_t{3} * packing, packing));
    ASSERT_EQ(attach_error(), "");
    for (MepId mep = 0; mep < 5; ++mep) {
        ASSERT_TRUE(replay->produce(0, mep));
        const protocol::Piece piece = replay->piece(mep, 1);
        const bool gap = mep == 1 || mep == 2 || mep == 4;  // the other source ends later
        EXPECT_EQ(piece.flag, gap ? wire::SourceFlag::desync : wire::SourceFlag::ok) << mep;
        const auto bytes = delivered(mep, 1);
        const auto mfp = wire::MfpView::parse(bytes).value();
        EXPECT_EQ(mfp.phantom(), gap);
        EXPECT_EQ(mfp.header().first_event, mep * packing);
        EXPECT_EQ(mfp.size(), packing);
        EXPECT_EQ(mfp.header().source, 17);
        EXPECT_EQ(replay->piece(mep, 0).flag, wire::SourceFlag::ok);
        replay->release(mep);
    }
    EXPECT_EQ(replay->stats(0).desync_mfps, 3U);
}

TEST_F(ReplayTest, MisnumberedPacketsAreLeftOutAndCounted) {
    record(folder.path(), 3, 0, 40, packing);
    const auto file = source_file(folder.path(), 17);
    append(file, recorded_mfp(17, 0, packing));
    append(file, recorded_mfp(17, 0, packing));                               // again
    append(file, recorded_mfp(17, packing + 3, packing));                     // between two MEPs
    append(file, recorded_mfp(17, std::uint64_t{2} * packing, packing - 1));  // short, yet not the last
    append(file, recorded_mfp(17, std::uint64_t{4} * packing, packing));
    ASSERT_EQ(attach_error(), "");
    for (MepId mep = 0; mep < 5; ++mep) {
        ASSERT_TRUE(replay->produce(0, mep));
        EXPECT_EQ(replay->piece(mep, 1).flag, mep == 0 || mep == 4 ? wire::SourceFlag::ok : wire::SourceFlag::desync);
        replay->release(mep);
    }
    const auto recording = Recording::open(folder.path().string());
    ASSERT_TRUE(recording);
    EXPECT_TRUE(recording->find(3)->input.whole());
    const InputFile& input = recording->find(17)->input;
    EXPECT_EQ(input.mfps, 5U);
    EXPECT_EQ(input.events, 5 * packing - 1);
    EXPECT_EQ(input.left_out_mfps, 3U);
    EXPECT_EQ(input.left_out_events, 3 * packing - 1);
    EXPECT_EQ(input.left_out_at, recorded_mfp(17, 0, packing).size());
    EXPECT_EQ(input.absent_events, 3 * packing);
}

// A short last MFP in the middle of the run has no place, and its events are counted with those that are left out.
TEST_F(ReplayTest, AShortEndBeforeThatOfTheRunIsLeftOut) {
    record(folder.path(), 3, 0, 40, packing);
    record(folder.path(), 17, 0, 20, packing);
    ASSERT_EQ(attach_error(), "");
    const auto recording = Recording::open(folder.path().string());
    const InputFile& input = recording->find(17)->input;
    EXPECT_EQ(input.left_out_mfps, 1U);
    EXPECT_EQ(input.left_out_events, 4U);
    EXPECT_EQ(input.absent_events, 24U);
}

TEST_F(ReplayTest, MostFilesDecideTheNumbering) {
    record(folder.path(), 3, 1, 40, packing);
    record(folder.path(), 5, 8, 40, packing);
    record(folder.path(), 17, 16, 40, packing);
    const auto recording = Recording::open(folder.path().string());
    ASSERT_TRUE(recording);
    EXPECT_EQ(recording->first_event, 8U);
    EXPECT_EQ(recording->total_events, 48U);
    EXPECT_EQ(recording->find(3)->input.left_out_events, 40U);
    EXPECT_EQ(recording->find(5)->input.absent_events, 8U);
}

// Files of a node that joins from elsewhere: the run's numbering was laid down without them.
TEST_F(ReplayTest, AGivenNumberingDecidesWhateverTheFilesAre) {
    record(folder.path(), 3, 1, 40, packing);
    record(folder.path(), 5, 8, 40, packing);
    record(folder.path(), 7, 0, packing - 1, packing);
    const Numbering given{packing, 0, 40};
    const auto recording = Recording::open(folder.path().string(), given);
    ASSERT_TRUE(recording);
    EXPECT_EQ(recording->first_event, 0U);
    EXPECT_EQ(recording->total_events, 40U);
    EXPECT_EQ(recording->total_meps, 5U);
    EXPECT_EQ(recording->find(3)->input.left_out_events, 40U) << "between two MEPs";
    EXPECT_EQ(recording->find(5)->input.left_out_events, 8U) << "behind the end of the run";
    EXPECT_EQ(recording->find(5)->input.absent_events, 8U);
    EXPECT_EQ(recording->find(7)->input.absent_events, 40U) << "shorter than its MEP";
    EXPECT_FALSE(Recording::open(folder.path().string(), Numbering{packing - 1, 0, 40}));
}

TEST_F(ReplayTest, IdsThatGoBackAreLeftOut) {
    for (const std::uint16_t source : {std::uint16_t{3}, std::uint16_t{17}}) {
        record(folder.path(), source, 100, 16, packing);
        record(folder.path(), source, 0, 24, packing);
    }
    ASSERT_EQ(attach_error(), "");
    EXPECT_EQ(replay->total_meps(), 2U);
    EXPECT_EQ(Recording::open(folder.path().string())->find(3)->input.left_out_events, 24U);
}

TEST_F(ReplayTest, AFileWithoutEventsIsAllPhantoms) {
    record(folder.path(), 3, 0, 40, packing);
    append(source_file(folder.path(), 17), Bytes());
    ASSERT_EQ(attach_error(), "");
    const auto recording = Recording::open(folder.path().string());
    EXPECT_EQ(recording->find(17)->largest_bytes, wire::phantom_bytes(packing));
    EXPECT_EQ(recording->find(17)->input.absent_events, 40U);
    ASSERT_TRUE(replay->produce(0, 0));
    EXPECT_EQ(replay->piece(0, 1).flag, wire::SourceFlag::desync);
}

// LHCb ends a run with a header that holds no events.
TEST_F(ReplayTest, AnEndOfRunPacketIsPassedOver) {
    for (const std::uint16_t source : {std::uint16_t{3}, std::uint16_t{17}}) {
        record(folder.path(), source, 0, 16, packing);
        auto end = recorded_mfp(source, 0, packing, 0);
        wire::store(std::span(end), mfp_first_event_offset, ~std::uint64_t{0});
        append(source_file(folder.path(), source), end);
    }
    ASSERT_EQ(attach_error(), "");
    EXPECT_EQ(replay->total_meps(), 2U);
    EXPECT_TRUE(Recording::open(folder.path().string())->find(3)->input.whole());
}

// What an earlier run recorded as missing is desync in this one, in the head as in the bytes.
TEST_F(ReplayTest, FragmentsThatWereMissingBeforeAreDesync) {
    record(folder.path(), 3, 0, packing, packing);
    std::vector<std::byte> phantom(wire::phantom_bytes(packing));
    ASSERT_TRUE(wire::write_phantom(phantom, 0, packing, 17, wire::SourceFlag::missing_dead));
    append(source_file(folder.path(), 17), phantom);
    ASSERT_EQ(attach_error(), "");
    ASSERT_TRUE(replay->produce(0, 0));
    EXPECT_EQ(replay->piece(0, 1).flag, wire::SourceFlag::desync);
    const auto bytes = delivered(0, 1);
    EXPECT_EQ(wire::MfpView::parse(bytes)->flag(), wire::SourceFlag::desync);
}

TEST_F(ReplayTest, EB_S4_TruncatesWhatDoesNotFit) {
    record(folder.path(), 3, 0, 40, packing);
    record(folder.path(), 17, 0, 40, packing);
    ASSERT_TRUE(attach(1, 700));
    std::uint64_t truncated = 0;
    for (MepId mep = 0; mep < 5; ++mep) {
        ASSERT_TRUE(replay->produce(0, mep));
        for (std::uint32_t index = 0; index < 2; ++index) {
            const protocol::Piece piece = replay->piece(mep, index);
            EXPECT_LE(piece.body.length, 700U);
            const auto bytes = delivered(mep, index);
            const auto mfp = wire::MfpView::parse(bytes).value();
            EXPECT_EQ(mfp.header().first_event, mep * packing);
            EXPECT_EQ(mfp.payload_bytes(), piece.goodput_bytes);
            EXPECT_EQ(mfp.flag(), piece.flag);
            truncated += piece.flag == wire::SourceFlag::truncated ? 1 : 0;
        }
        replay->release(mep);
    }
    EXPECT_GT(truncated, 5U);
    EXPECT_EQ(replay->stats(0).truncated_mfps, truncated);
}

TEST_F(ReplayTest, ErrorsNameFileAndOffset) {
    EXPECT_NE(attach_error().find("no MFPs in it"), std::string::npos) << attach_error();

    record(folder.path(), 3, 0, 40, packing);
    EXPECT_NE(attach_error().find("nothing of source 17 in it"), std::string::npos) << attach_error();

    const auto file = source_file(folder.path(), 17);
    record(folder.path(), 17, 0, 16, packing);
    const auto good = std::filesystem::file_size(file);
    std::filesystem::resize_file(file, good - 5);
    const auto second = recorded_mfp(17, 0, packing).size();
    const std::string place = "source-17.mfp at byte " + std::to_string(second) + ": ";
    EXPECT_NE(attach_error().find(place), std::string::npos) << attach_error();

    std::filesystem::remove(file);
    append(file, recorded_mfp(17, 0, packing));
    append(file, recorded_mfp(18, packing, packing));
    EXPECT_NE(attach_error().find(place + "an MFP of source 18"), std::string::npos) << attach_error();

    std::filesystem::remove(file);
    record(folder.path(), 17, 0, 40, packing / 2);
    EXPECT_NE(attach_error().find("4 events in an MFP, but another source has 8"), std::string::npos) << attach_error();

    std::filesystem::remove(file);
    append(file, recorded_mfp(17, 0, packing));
    append(file, recorded_mfp(17, std::uint64_t{1} << 60, packing));
    EXPECT_NE(attach_error().find(place + "event id "), std::string::npos) << attach_error();

    std::filesystem::remove(file);
    std::filesystem::create_directory(file);
    EXPECT_NE(attach_error().find("source-17.mfp: cannot map"), std::string::npos) << attach_error();

    replay.emplace(ReplayOptions{(folder.path() / "nowhere").string(), 1, {}, {}});
    const auto nowhere = replay->attach(transport, config_of(), 0, 2);
    ASSERT_FALSE(nowhere);
    EXPECT_NE(nowhere.error().message.find("nowhere: cannot read the folder"), std::string::npos);
}

TEST_F(ReplayTest, IgnoresOtherFiles) {
    record(folder.path(), 3, 0, 16, packing);
    record(folder.path(), 17, 0, 16, packing);
    for (const char* name : {"README", "source-.mfp", "source-1a.mfp", "source-4.mfp.bak"}) {
        append(folder.path() / name, Bytes());
    }
    EXPECT_EQ(attach_error(), "");
    EXPECT_EQ(Recording::open(folder.path().string())->sources.size(), 2U);
}

TEST_F(ReplayTest, RefusesASecondSpellingOfASource) {
    record(folder.path(), 3, 0, 16, packing);
    append(folder.path() / "source-03.mfp", Bytes());
    const Result<Recording> opened = Recording::open(folder.path().string());
    ASSERT_FALSE(opened);
    EXPECT_NE(opened.error().message.find("source-03.mfp: an id has no leading zeros; expected the name source-3.mfp"),
              std::string::npos)
        << opened.error().message;
}

}  // namespace
}  // namespace incast::sources

#include "runtime/sources/recorded_packets.h"

#include <gtest/gtest.h>

#include "runtime/sources/recorded_files.h"
#include "runtime/sources/replay_files.h"
#include "wire/mep.h"

namespace incast::sources {
namespace {

constexpr std::uint32_t events_in_mep = 4;

/// The MFPs of these sources for `events_in_mep` events.
std::vector<std::byte> recorded_mep(std::uint64_t first_event, const std::vector<std::uint16_t>& sources = {3, 17}) {
    std::vector<std::vector<std::byte>> packets;
    packets.reserve(sources.size());
    for (const std::uint16_t source : sources) {
        packets.push_back(recorded_mfp(source, first_event, events_in_mep));
    }
    const std::vector<Bytes> views(packets.begin(), packets.end());
    std::vector<std::byte> header(wire::mep_header_bytes(static_cast<std::uint32_t>(views.size())));
    std::vector<Bytes> segments(wire::mep_max_segments(views.size()));
    const wire::GatheredMep gathered = wire::gather_mep(views, header, segments).value();
    std::vector<std::byte> out;
    for (const Bytes segment : std::span(segments).first(gathered.n_segments)) {
        out.insert(out.end(), segment.begin(), segment.end());
    }
    return out;
}

std::string packets_error(const std::filesystem::path& path) {
    const Result<RecordedPackets> read = RecordedPackets::read(path.string());
    return read ? "" : read.error().message;
}

TEST(RecordedPackets, AFileOfMepsHoldsTheMfpsOfAllSources) {
    const TemporaryFolder folder;
    const auto file = folder.path() / "all.mep";
    append(file, recorded_mep(8));
    append(file, recorded_mep(12));
    const Recording recording = Recording::open(file.string()).value();
    EXPECT_EQ(recording.packing, events_in_mep);
    EXPECT_EQ(recording.first_event, 8U);
    EXPECT_EQ(recording.total_events, 8U);
    ASSERT_EQ(recording.sources.size(), 2U);
    for (const RecordedSource& source : recording.sources) {
        EXPECT_TRUE(source.input.whole());
        ASSERT_EQ(source.mfps.size(), 2U);
        for (const RecordedMfp& mfp : source.mfps) {
            const Bytes packet = recording.packet(mfp);
            const auto expected = recorded_mfp(source.id, 8 + mfp.mep * events_in_mep, events_in_mep);
            EXPECT_TRUE(std::ranges::equal(packet, expected));
        }
    }
    EXPECT_EQ(recording.find(17)->input.name, "all.mep source 17");
}

// Builder units write side by side; others write a file for each MEP.
TEST(RecordedPackets, MepsOfManyFilesAreInTheOrderOfTheirEvents) {
    const TemporaryFolder folder;
    append(folder.path() / "a.mep", recorded_mep(4));
    append(folder.path() / "b.mep", recorded_mep(0));
    append(folder.path() / "b.mep", recorded_mep(8));
    append(folder.path() / "README", {});
    const Recording recording = Recording::open(folder.path().string()).value();
    EXPECT_EQ(recording.total_meps, 3U);
    ASSERT_NE(recording.find(3), nullptr);
    EXPECT_EQ(recording.find(3)->mfps.size(), 3U);
    EXPECT_TRUE(recording.find(3)->input.whole());
}

TEST(RecordedPackets, WhatIsThereTwiceIsLeftOutAndItsFileNamed) {
    const TemporaryFolder folder;
    append(folder.path() / "a.mep", recorded_mep(0));
    append(folder.path() / "a.mep", recorded_mep(4));
    append(folder.path() / "b.mep", recorded_mep(4, {17}));
    const Recording recording = Recording::open(folder.path().string()).value();
    EXPECT_TRUE(recording.find(3)->input.whole());
    const InputFile& input = recording.find(17)->input;
    EXPECT_EQ(input.left_out_mfps, 1U);
    EXPECT_EQ(input.left_out_id, 4U);
    EXPECT_EQ(input.name, "b.mep source 17");
    EXPECT_EQ(input.absent_events, 0U);
}

TEST(RecordedPackets, MfpFilesComeFirstAndManifestsAreForReadersOfManifests) {
    const TemporaryFolder folder;
    append(folder.path() / "0-0-0.mep", recorded_mep(0));
    append(folder.path() / "manifest-0-0.jsonl", {});
    const std::string refused = packets_error(folder.path());
    EXPECT_NE(refused.find("manifest-0-0.jsonl: a manifest says which of the MEPs"), std::string::npos) << refused;
    EXPECT_NE(refused.find("incast mep merge " + folder.path().string()), std::string::npos) << refused;
    EXPECT_EQ(packets_error(folder.path() / "0-0-0.mep"), "");
    record(folder.path(), 5, 0, 8, events_in_mep);
    const RecordedPackets read = RecordedPackets::read(folder.path().string()).value();
    ASSERT_EQ(read.sources.size(), 1U);
    EXPECT_EQ(read.name(5, 0), "source-5.mfp");
}

// Its files may end where an MFP does, so that nothing else shows that events or sources are missing.
TEST(RecordedPackets, AnImportThatWasNotFinishedIsRefused) {
    const TemporaryFolder folder;
    append(folder.path() / "source-3.mfp", recorded_mfp(3, 0, events_in_mep));
    append(folder.path() / "import-unfinished", {});
    EXPECT_EQ(
        packets_error(folder.path()),
        folder.path().string() + ": its import is not finished; expected what a whole 'incast import-root' wrote");
    append(folder.path() / "sources.json", {});
    EXPECT_EQ(packets_error(folder.path()), "");
}

TEST(RecordedPackets, ErrorsNameFileAndOffset) {
    const TemporaryFolder folder;
    const auto file = folder.path() / "all.mep";
    append(file, {});
    EXPECT_EQ(Recording::open(file.string()).error().message,
              file.string() + ": no MFPs in it, expected files source-<id>.mfp, or a file of MEPs");
    append(file, recorded_mep(0));
    const std::string second = file.string() + " at byte " + std::to_string(recorded_mep(0).size());
    const auto next = recorded_mep(4);
    append(file, std::span(next).first(next.size() - 4));
    EXPECT_TRUE(packets_error(file).starts_with(second + ": MEP: packet of ")) << packets_error(file);
    std::filesystem::remove(file);
    append(file, recorded_mep(0));
    append(file, recorded_mfp(3, 0, events_in_mep));
    EXPECT_TRUE(packets_error(file).starts_with(second + ": MEP: magic ")) << packets_error(file);
}

}  // namespace
}  // namespace incast::sources

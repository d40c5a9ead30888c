#include "runtime/sources/replay_files.h"

#include <algorithm>
#include <limits>
#include <map>
#include <utility>

#include <fmt/format.h>

#include "wire/mfp.h"

namespace incast::sources {

namespace {

/// Where the run's events begin. Most files decide how events fall into MEPs; of those that agree, the one that begins
/// first.
std::uint64_t first_event_of(const std::vector<RecordedPackets::Source>& opened, std::uint32_t packing) {
    struct Phase {
        std::size_t files = 0;
        std::uint64_t first_event = std::numeric_limits<std::uint64_t>::max();
    };
    std::map<std::uint64_t, Phase> phases;
    for (const RecordedPackets::Source& source : opened) {
        if (!source.packets.empty()) {
            const std::uint64_t first = source.packets.front().header.first_event;
            Phase& phase = phases[first % packing];
            ++phase.files;
            phase.first_event = std::min(phase.first_event, first);
        }
    }
    const auto best = std::ranges::max_element(phases, [](const auto& one, const auto& other) {
        return one.second.files != other.second.files ? one.second.files < other.second.files
                                                      : one.second.first_event > other.second.first_event;
    });
    return best->second.first_event;
}

void leave_out(InputFile& input, const RecordedMfp& mfp, const RecordedPackets& read, std::uint64_t first_event) {
    std::string name = read.name(input.source, mfp.file);
    if (input.left_out_mfps == 0 || (name == input.name && mfp.offset < input.left_out_at)) {
        input.name = std::move(name);
        input.left_out_at = mfp.offset;
        input.left_out_id = first_event;
    }
    ++input.left_out_mfps;
    input.left_out_events += mfp.n_events;
}

// Gives each packet its MEP. A jump much longer than the file is no gap but a broken id, and would make a run of
// nothing but gaps.
Result<RecordedSource> number(const RecordedPackets::Source& opened, const RecordedPackets& read,
                              const Recording& recording, protocol::MepId most_meps) {
    const std::uint64_t longest_gap = opened.packets.size() + 1'000'000;
    RecordedSource source{opened.id, {}, {}, 0};
    InputFile& input = source.input;
    input.name = read.name(opened.id, opened.file);
    input.source = opened.id;
    input.mfps = opened.packets.size();
    input.first_event = opened.packets.empty() ? 0 : opened.packets.front().header.first_event;
    for (const RecordedPacket& packet : opened.packets) {
        const wire::MfpHeader& header = packet.header;
        input.events += header.n_fragments;
        const bool last = &packet == &opened.packets.back();
        const protocol::MepId expected = source.mfps.empty() ? 0 : source.mfps.back().mep + 1;
        const std::uint64_t distance = header.first_event - recording.first_event;
        const RecordedMfp mfp{distance / recording.packing,
                              packet.offset,
                              packet.file,
                              static_cast<std::uint32_t>(header.packet_bytes),
                              packet.goodput_bytes,
                              header.n_fragments,
                              packet.flag,
                              packet.relabel};
        if (header.first_event < recording.first_event || distance % recording.packing != 0 || mfp.mep < expected ||
            mfp.mep >= most_meps || (header.n_fragments < recording.packing && !last)) {
            leave_out(input, mfp, read, header.first_event);
            continue;
        }
        if (mfp.mep - expected > longest_gap) {
            return Error{fmt::format("{} at byte {}: event id {} jumps {} events ahead",
                                     read.files[packet.file].path().string(), packet.offset, header.first_event,
                                     (mfp.mep - expected) * recording.packing)};
        }
        source.mfps.push_back(mfp);
        source.largest_bytes = std::max(source.largest_bytes, mfp.packet_bytes);
    }
    return source;
}

/// The run's end is known: a last MFP that is shorter than its MEP has no place, and whatever has none is absent.
void settle(RecordedSource& source, const RecordedPackets& read, const Recording& recording) {
    InputFile& input = source.input;
    if (!source.mfps.empty() && source.mfps.back().n_events != recording.n_events(source.mfps.back().mep)) {
        const RecordedMfp& mfp = source.mfps.back();
        leave_out(input, mfp, read, recording.first_event + mfp.mep * recording.packing);
        source.mfps.pop_back();
    }
    // Phantoms take the place of what is absent.
    const auto phantom_bytes = static_cast<std::uint32_t>(wire::phantom_bytes(recording.packing));
    source.largest_bytes = std::max(source.largest_bytes, phantom_bytes);
    input.absent_events = recording.total_events - (input.events - input.left_out_events);
}

}  // namespace

const RecordedMfp* RecordedSource::find(protocol::MepId mep) const {
    // Without gaps, the usual case, a MEP stands at its own index.
    if (mep < mfps.size() && mfps[mep].mep == mep) {
        return &mfps[mep];
    }
    const auto found = std::ranges::lower_bound(mfps, mep, {}, &RecordedMfp::mep);
    return found != mfps.end() && found->mep == mep ? &*found : nullptr;
}

Result<Recording> Recording::open(const std::string& path, const std::optional<Numbering>& given) {
    auto packets = RecordedPackets::read(path);
    if (!packets) {
        return packets.error();
    }
    RecordedPackets& read = *packets;
    Recording recording;
    for (const RecordedPackets::Source& source : read.sources) {
        for (const RecordedPacket& packet : source.packets) {
            recording.packing = std::max(recording.packing, packet.header.n_fragments);
        }
    }
    protocol::MepId most_meps = std::numeric_limits<protocol::MepId>::max();
    if (given) {
        if (recording.packing > given->packing) {
            return Error{fmt::format("{}: {} events in an MFP, but those of the run have {}", path, recording.packing,
                                     given->packing)};
        }
        recording.packing = given->packing;
        recording.first_event = given->first_event;
        recording.total_events = given->total_events;
        recording.total_meps = most_meps = (given->total_events + given->packing - 1) / given->packing;
    } else if (recording.packing == 0) {
        return Error{fmt::format("{}: no MFPs in it, expected files source-<id>.mfp, or a file of MEPs", path)};
    } else {
        recording.first_event = first_event_of(read.sources, recording.packing);
    }
    for (const RecordedPackets::Source& source : read.sources) {
        // One packet alone may be a short last one.
        if (source.packets.size() > 1 && source.packets.front().header.n_fragments != recording.packing) {
            return Error{
                fmt::format("{}: {} events in an MFP, but another source has {}",
                            (read.files[source.file].path().parent_path() / read.name(source.id, source.file)).string(),
                            source.packets.front().header.n_fragments, recording.packing)};
        }
        auto numbered = number(source, read, recording, most_meps);
        if (!numbered) {
            return numbered.error();
        }
        recording.sources.push_back(std::move(numbered).value());
        const auto& mfps = recording.sources.back().mfps;
        if (!given && !mfps.empty()) {
            recording.total_meps = std::max(recording.total_meps, mfps.back().mep + 1);
            recording.total_events =
                std::max(recording.total_events, mfps.back().mep * recording.packing + mfps.back().n_events);
        }
    }
    for (RecordedSource& source : recording.sources) {
        settle(source, read, recording);
    }
    recording.files = std::move(read.files);
    return recording;
}

const RecordedSource* Recording::find(std::uint16_t id) const {
    const auto found = std::ranges::lower_bound(sources, id, {}, &RecordedSource::id);
    return found != sources.end() && found->id == id ? &*found : nullptr;
}

}  // namespace incast::sources

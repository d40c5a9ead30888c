#include "runtime/sources/replay_files.h"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <limits>
#include <map>
#include <string_view>
#include <system_error>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "wire/mfp.h"

namespace incast::sources {

namespace {

Error os_error(const std::filesystem::path& path, std::string_view what) {
    return Error{fmt::format("{}: {}: {}", path.string(), what, std::system_category().message(errno))};
}

// The id in "source-<id>.mfp"; nothing if the name is of another kind.
std::optional<std::uint64_t> source_in(std::string_view name) {
    constexpr std::string_view begin = "source-";
    constexpr std::string_view end = ".mfp";
    if (!name.starts_with(begin) || !name.ends_with(end) || name.size() <= begin.size() + end.size()) {
        return std::nullopt;
    }
    const std::string_view digits = name.substr(begin.size(), name.size() - begin.size() - end.size());
    std::uint64_t id = 0;
    const auto [stop, error] = std::from_chars(digits.data(), digits.data() + digits.size(), id);
    if (error != std::errc{} || stop != digits.data() + digits.size()) {
        return std::nullopt;
    }
    return id;
}

struct Packet {
    std::uint64_t offset;
    wire::MfpHeader header;
    std::uint32_t goodput_bytes;
    wire::SourceFlag flag;
    bool relabel;
};

struct OpenedSource {
    std::filesystem::path path;
    std::uint16_t id;
    MappedFile file;
    std::vector<Packet> packets;
};

Result<OpenedSource> open_source(const std::filesystem::path& path, std::uint16_t id) {
    auto mapped = MappedFile::open(path);
    if (!mapped) {
        return mapped.error();
    }
    OpenedSource source{path, id, std::move(mapped).value(), {}};
    const Bytes bytes = source.file.bytes();
    const auto damaged = [&](std::uint64_t offset, std::string_view why) {
        return Error{fmt::format("{} at byte {}: {}", path.string(), offset, why)};
    };
    for (std::uint64_t offset = 0; offset < bytes.size();) {
        if (const std::optional<std::uint64_t> end = wire::end_of_run_bytes(bytes.subspan(offset))) {
            offset += *end;
            continue;
        }
        const Result<wire::MfpView> mfp = wire::MfpView::parse(bytes.subspan(offset));
        if (!mfp) {
            return damaged(offset, mfp.error().message);
        }
        if (mfp->header().source != id) {
            return damaged(offset, fmt::format("an MFP of source {}", mfp->header().source));
        }
        if (mfp->header().packet_bytes > max_write_bytes) {
            return damaged(offset, fmt::format("an MFP of {} bytes, at most {} can be sent", mfp->header().packet_bytes,
                                               max_write_bytes));
        }
        // What an earlier run recorded as missing is, for this one, a source that does not deliver what its numbering
        // promises.
        const bool relabel = wire::is_missing(mfp->flag());
        const wire::SourceFlag flag = relabel ? wire::SourceFlag::desync : mfp->flag();
        source.packets.push_back(
            {offset, mfp->header(), static_cast<std::uint32_t>(mfp->payload_bytes()), flag, relabel});
        offset += mfp->header().packet_bytes;
    }
    return source;
}

/// Where the run's events begin. Most files decide how events fall into MEPs; of those that agree, the one that begins
/// first.
std::uint64_t first_event_of(const std::vector<OpenedSource>& opened, std::uint32_t packing) {
    struct Phase {
        std::size_t files = 0;
        std::uint64_t first_event = std::numeric_limits<std::uint64_t>::max();
    };
    std::map<std::uint64_t, Phase> phases;
    for (const OpenedSource& source : opened) {
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

void leave_out(InputFile& input, const RecordedMfp& mfp, std::uint64_t first_event) {
    if (input.left_out_mfps == 0 || mfp.offset < input.left_out_at) {
        input.left_out_at = mfp.offset;
        input.left_out_id = first_event;
    }
    ++input.left_out_mfps;
    input.left_out_events += mfp.n_events;
}

// Gives each packet its MEP. A jump much longer than the file is no gap but a broken id, and would make a run of
// nothing but gaps.
Result<RecordedSource> number(OpenedSource opened, const Recording& recording, protocol::MepId most_meps) {
    const std::uint64_t longest_gap = opened.packets.size() + 1'000'000;
    RecordedSource source{opened.id, std::move(opened.file), {}, {}, 0};
    InputFile& input = source.input;
    input.name = opened.path.filename().string();
    input.source = opened.id;
    input.mfps = opened.packets.size();
    input.first_event = opened.packets.empty() ? 0 : opened.packets.front().header.first_event;
    for (const Packet& packet : opened.packets) {
        const wire::MfpHeader& header = packet.header;
        input.events += header.n_fragments;
        const bool last = &packet == &opened.packets.back();
        const protocol::MepId expected = source.mfps.empty() ? 0 : source.mfps.back().mep + 1;
        const std::uint64_t distance = header.first_event - recording.first_event;
        const RecordedMfp mfp{distance / recording.packing,
                              packet.offset,
                              static_cast<std::uint32_t>(header.packet_bytes),
                              packet.goodput_bytes,
                              header.n_fragments,
                              packet.flag,
                              packet.relabel};
        if (header.first_event < recording.first_event || distance % recording.packing != 0 || mfp.mep < expected ||
            mfp.mep >= most_meps || (header.n_fragments < recording.packing && !last)) {
            leave_out(input, mfp, header.first_event);
            continue;
        }
        if (mfp.mep - expected > longest_gap) {
            return Error{fmt::format("{} at byte {}: event id {} jumps {} events ahead", opened.path.string(),
                                     packet.offset, header.first_event, (mfp.mep - expected) * recording.packing)};
        }
        source.mfps.push_back(mfp);
        source.largest_bytes = std::max(source.largest_bytes, mfp.packet_bytes);
    }
    return source;
}

/// The run's end is known: a last MFP that is shorter than its MEP has no place, and whatever has none is absent.
void settle(RecordedSource& source, const Recording& recording) {
    InputFile& input = source.input;
    if (!source.mfps.empty() && source.mfps.back().n_events != recording.n_events(source.mfps.back().mep)) {
        const RecordedMfp& mfp = source.mfps.back();
        leave_out(input, mfp, recording.first_event + mfp.mep * recording.packing);
        source.mfps.pop_back();
    }
    // Phantoms take the place of what is absent.
    const auto phantom_bytes = static_cast<std::uint32_t>(wire::phantom_bytes(recording.packing));
    source.largest_bytes = std::max(source.largest_bytes, phantom_bytes);
    input.absent_events = recording.total_events - (input.events - input.left_out_events);
}

}  // namespace

Result<MappedFile> MappedFile::open(const std::filesystem::path& path) {
    const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (descriptor < 0) {
        return os_error(path, "cannot open");
    }
    struct stat status{};
    void* memory = nullptr;
    std::size_t size = 0;
    bool ok = ::fstat(descriptor, &status) == 0;
    if (ok && status.st_size > 0) {  // nothing cannot be mapped
        size = static_cast<std::size_t>(status.st_size);
        memory = ::mmap(nullptr, size, PROT_READ, MAP_SHARED, descriptor, 0);
        ok = memory != MAP_FAILED;
    }
    const Error error = ok ? Error{} : os_error(path, "cannot map");
    ::close(descriptor);
    if (!ok) {
        return error;
    }
    return MappedFile({static_cast<const std::byte*>(memory), size});
}

MappedFile::~MappedFile() {
    if (!bytes_.empty()) {
        ::munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
    }
}

const RecordedMfp* RecordedSource::find(protocol::MepId mep) const {
    // Without gaps, the usual case, a MEP stands at its own index.
    if (mep < mfps.size() && mfps[mep].mep == mep) {
        return &mfps[mep];
    }
    const auto found = std::ranges::lower_bound(mfps, mep, {}, &RecordedMfp::mep);
    return found != mfps.end() && found->mep == mep ? &*found : nullptr;
}

Result<Recording> Recording::open(const std::string& folder, const std::optional<Numbering>& given) {
    std::vector<OpenedSource> opened;
    std::error_code error;
    for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
        const std::string name = entry.path().filename().string();
        const auto id = source_in(name);
        if (!id) {
            continue;
        }
        if (*id > std::numeric_limits<std::uint16_t>::max()) {
            return Error{fmt::format("{}: source id {}, expected 0 .. 65535", entry.path().string(), *id)};
        }
        // "source-07.mfp" beside "source-7.mfp" would be two files of one source.
        if (const std::string expected = fmt::format("source-{}.mfp", *id); name != expected) {
            return Error{
                fmt::format("{}: an id has no leading zeros; expected the name {}", entry.path().string(), expected)};
        }
        auto source = open_source(entry.path(), static_cast<std::uint16_t>(*id));
        if (!source) {
            return source.error();
        }
        opened.push_back(std::move(source).value());
    }
    if (error) {
        return Error{fmt::format("{}: cannot read the folder: {}", folder, error.message())};
    }
    std::ranges::sort(opened, {}, &OpenedSource::id);

    Recording recording;
    for (const OpenedSource& source : opened) {
        for (const Packet& packet : source.packets) {
            recording.packing = std::max(recording.packing, packet.header.n_fragments);
        }
    }
    protocol::MepId most_meps = std::numeric_limits<protocol::MepId>::max();
    if (given) {
        if (recording.packing > given->packing) {
            return Error{fmt::format("{}: {} events in an MFP, but those of the run have {}", folder, recording.packing,
                                     given->packing)};
        }
        recording.packing = given->packing;
        recording.first_event = given->first_event;
        recording.total_events = given->total_events;
        recording.total_meps = most_meps = (given->total_events + given->packing - 1) / given->packing;
    } else if (recording.packing == 0) {
        return Error{fmt::format("{}: no MFPs in it, expected files source-<id>.mfp", folder)};
    } else {
        recording.first_event = first_event_of(opened, recording.packing);
    }
    for (OpenedSource& source : opened) {
        // One packet alone may be a short last one.
        if (source.packets.size() > 1 && source.packets.front().header.n_fragments != recording.packing) {
            return Error{fmt::format("{}: {} events in an MFP, but another source has {}", source.path.string(),
                                     source.packets.front().header.n_fragments, recording.packing)};
        }
        auto numbered = number(std::move(source), recording, most_meps);
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
        settle(source, recording);
    }
    return recording;
}

const RecordedSource* Recording::find(std::uint16_t id) const {
    const auto found = std::ranges::lower_bound(sources, id, {}, &RecordedSource::id);
    return found != sources.end() && found->id == id ? &*found : nullptr;
}

}  // namespace incast::sources

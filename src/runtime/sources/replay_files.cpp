#include "runtime/sources/replay_files.h"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <limits>
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
    // One spelling per id: "source-07.mfp" beside "source-7.mfp" would be two files of one source.
    if (error != std::errc{} || stop != digits.data() + digits.size() || (digits.size() > 1 && digits.front() == '0')) {
        return std::nullopt;
    }
    return id;
}

struct Packet {
    std::uint64_t offset;
    wire::MfpHeader header;
    std::uint32_t goodput_bytes;
    wire::SourceFlag flag;
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
        const wire::SourceFlag flag =
            mfp->flag() == wire::SourceFlag::missing_dead || mfp->flag() == wire::SourceFlag::missing_unreachable
                ? wire::SourceFlag::desync
                : mfp->flag();
        source.packets.push_back({offset, mfp->header(), static_cast<std::uint32_t>(mfp->payload_bytes()), flag});
        offset += mfp->header().packet_bytes;
    }
    return source;
}

// Gives each packet its MEP. A jump much longer than the file is no gap but a broken id, and would make a run of
// nothing but gaps.
Result<RecordedSource> number(OpenedSource opened, const Recording& recording) {
    const std::uint64_t longest_gap = opened.packets.size() + 1'000'000;
    RecordedSource source{opened.id, std::move(opened.file), {}, 0, 0};
    for (const Packet& packet : opened.packets) {
        const std::uint64_t distance = packet.header.first_event - recording.first_event;
        const protocol::MepId mep = distance / recording.packing;
        const bool last = &packet == &opened.packets.back();
        const protocol::MepId expected = source.mfps.empty() ? 0 : source.mfps.back().mep + 1;
        if (distance % recording.packing != 0 || mep < expected || packet.header.n_fragments > recording.packing ||
            (packet.header.n_fragments < recording.packing && !last)) {
            ++source.misnumbered;
            continue;
        }
        if (mep - expected > longest_gap) {
            return Error{fmt::format("{} at byte {}: event id {} jumps {} events ahead", opened.path.string(),
                                     packet.offset, packet.header.first_event, (mep - expected) * recording.packing)};
        }
        const auto bytes = static_cast<std::uint32_t>(packet.header.packet_bytes);
        source.mfps.push_back(
            {mep, packet.offset, bytes, packet.goodput_bytes, packet.header.n_fragments, packet.flag});
        source.largest_bytes = std::max(source.largest_bytes, bytes);
    }
    return source;
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

Result<Recording> Recording::open(const std::string& folder) {
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
    recording.first_event = std::numeric_limits<std::uint64_t>::max();
    for (const OpenedSource& source : opened) {
        for (const Packet& packet : source.packets) {
            recording.packing = std::max(recording.packing, packet.header.n_fragments);
        }
        if (!source.packets.empty()) {
            recording.first_event = std::min(recording.first_event, source.packets.front().header.first_event);
        }
    }
    if (recording.packing == 0) {
        return Error{fmt::format("{}: no MFPs in it, expected files source-<id>.mfp", folder)};
    }
    for (OpenedSource& source : opened) {
        // One packet alone may be a short last one.
        if (source.packets.size() > 1 && source.packets.front().header.n_fragments != recording.packing) {
            return Error{fmt::format("{}: {} events in an MFP, but another source has {}", source.path.string(),
                                     source.packets.front().header.n_fragments, recording.packing)};
        }
        auto numbered = number(std::move(source), recording);
        if (!numbered) {
            return numbered.error();
        }
        recording.sources.push_back(std::move(numbered).value());
        const auto& mfps = recording.sources.back().mfps;
        if (!mfps.empty()) {
            recording.total_meps = std::max(recording.total_meps, mfps.back().mep + 1);
            recording.total_events =
                std::max(recording.total_events, mfps.back().mep * recording.packing + mfps.back().n_events);
        }
    }
    return recording;
}

const RecordedSource* Recording::find(std::uint16_t id) const {
    const auto found = std::ranges::lower_bound(sources, id, {}, &RecordedSource::id);
    return found != sources.end() && found->id == id ? &*found : nullptr;
}

}  // namespace incast::sources

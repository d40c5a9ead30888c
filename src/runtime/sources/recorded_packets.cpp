#include "runtime/sources/recorded_packets.h"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <limits>
#include <map>
#include <optional>
#include <string_view>
#include <system_error>
#include <tuple>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "wire/mep.h"

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

Error damaged(const MappedFile& file, std::uint64_t offset, std::string_view why) {
    return Error{fmt::format("{} at byte {}: {}", file.path().string(), offset, why)};
}

Result<RecordedPacket> packet_of(const MappedFile& file, std::uint32_t index, std::uint64_t offset,
                                 const wire::MfpView& mfp) {
    if (mfp.header().packet_bytes > max_write_bytes) {
        return damaged(
            file, offset,
            fmt::format("an MFP of {} bytes, at most {} can be sent", mfp.header().packet_bytes, max_write_bytes));
    }
    // What an earlier run recorded as missing is, for this one, a source that does not deliver what its numbering
    // promises.
    const bool relabel = wire::is_missing(mfp.flag());
    return RecordedPacket{index,
                          offset,
                          mfp.header(),
                          static_cast<std::uint32_t>(mfp.payload_bytes()),
                          relabel ? wire::SourceFlag::desync : mfp.flag(),
                          relabel};
}

Result<Ok> read_mfps(const MappedFile& file, std::uint32_t index, RecordedPackets::Source& source) {
    const Bytes bytes = file.bytes();
    for (std::uint64_t offset = 0; offset < bytes.size();) {
        if (const std::optional<std::uint64_t> end = wire::end_of_run_bytes(bytes.subspan(offset))) {
            offset += *end;
            continue;
        }
        const Result<wire::MfpView> mfp = wire::MfpView::parse(bytes.subspan(offset));
        if (!mfp) {
            return damaged(file, offset, mfp.error().message);
        }
        if (mfp->header().source != source.id) {
            return damaged(file, offset, fmt::format("an MFP of source {}", mfp->header().source));
        }
        auto packet = packet_of(file, index, offset, *mfp);
        if (!packet) {
            return packet.error();
        }
        source.packets.push_back(*packet);
        offset += mfp->header().packet_bytes;
    }
    return Ok{};
}

using ById = std::map<std::uint16_t, RecordedPackets::Source>;

Result<Ok> read_meps(const MappedFile& file, std::uint32_t index, ById& sources) {
    const Bytes bytes = file.bytes();
    for (std::uint64_t offset = 0; offset < bytes.size();) {
        const Result<wire::MepView> mep = wire::MepView::parse(bytes.subspan(offset));
        if (!mep) {
            return damaged(file, offset, mep.error().message);
        }
        for (std::uint32_t k = 0; k < mep->size(); ++k) {
            auto packet = packet_of(file, index, offset + mep->offset(k), mep->mfp(k));
            if (!packet) {
                return packet.error();
            }
            const std::uint16_t id = mep->source(k);
            sources.try_emplace(id, RecordedPackets::Source{id, index, {}}).first->second.packets.push_back(*packet);
        }
        offset += mep->bytes().size();
    }
    return Ok{};
}

/// The files of a folder, by what they are.
struct Folder {
    std::map<std::uint16_t, std::filesystem::path> mfps;  // by source
    std::vector<std::filesystem::path> meps;              // in the order of their names
    std::filesystem::path manifest;                       // one of them, if there are any
    bool unfinished = false;                              // `incast import-root` is writing, or was cut short
    bool described = false;                               // ... and here it had come to its end
};

Result<Folder> list(const std::string& path) {
    Folder folder;
    std::error_code error;
    for (const auto& entry : std::filesystem::directory_iterator(path, error)) {
        const std::string name = entry.path().filename().string();
        if (name.ends_with(".mep")) {
            folder.meps.push_back(entry.path());
        } else if (name.starts_with("manifest-") && name.ends_with(".jsonl")) {
            folder.manifest = entry.path();
        }
        folder.unfinished |= name == "import-unfinished";
        folder.described |= name == "sources.json";
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
        folder.mfps.emplace(static_cast<std::uint16_t>(*id), entry.path());
    }
    if (error) {
        return Error{fmt::format("{}: cannot read the folder: {}", path, error.message())};
    }
    if (folder.unfinished && !folder.described) {
        return Error{
            fmt::format("{}: its import is not finished; expected what a whole 'incast import-root' wrote", path)};
    }
    std::ranges::sort(folder.meps);
    return folder;
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
    return MappedFile(path, {static_cast<const std::byte*>(memory), size});
}

MappedFile::~MappedFile() {
    if (!bytes_.empty()) {
        ::munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
    }
}

Result<RecordedPackets> RecordedPackets::read(const std::string& path) {
    Folder folder;
    std::error_code ignored;
    if (std::filesystem::is_regular_file(path, ignored)) {
        folder.meps.emplace_back(path);
    } else {
        auto listed = list(path);
        if (!listed) {
            return listed.error();
        }
        folder = std::move(listed).value();
    }
    RecordedPackets read;
    const auto open = [&read](const std::filesystem::path& name) -> Result<std::uint32_t> {
        auto file = MappedFile::open(name);
        if (!file) {
            return file.error();
        }
        read.files.push_back(std::move(file).value());
        return static_cast<std::uint32_t>(read.files.size() - 1);
    };
    for (const auto& [id, name] : folder.mfps) {
        const auto index = open(name);
        if (!index) {
            return index.error();
        }
        read.sources.push_back({id, *index, {}});
        if (const auto done = read_mfps(read.files[*index], *index, read.sources.back()); !done) {
            return done.error();
        }
    }
    if (!read.sources.empty()) {
        return read;
    }
    if (!folder.manifest.empty() && !folder.meps.empty()) {
        return Error{
            fmt::format("{}: a manifest says which of the MEPs beside it count; expected one file of them, by "
                        "'incast mep merge {} --output FILE'",
                        folder.manifest.string(), path)};
    }
    read.meps = true;
    ById sources;
    for (const std::filesystem::path& name : folder.meps) {
        const auto index = open(name);
        if (!index) {
            return index.error();
        }
        if (const auto done = read_meps(read.files[*index], *index, sources); !done) {
            return done.error();
        }
    }
    for (auto& [id, source] : sources) {
        // Builder units write side by side, each some of the events.
        std::ranges::sort(source.packets, {}, [](const RecordedPacket& packet) {
            return std::tuple(packet.header.first_event, packet.file, packet.offset);
        });
        read.sources.push_back(std::move(source));
    }
    return read;
}

std::string RecordedPackets::name(std::uint16_t source, std::uint32_t file) const {
    const std::string file_name = files[file].path().filename().string();
    return meps ? fmt::format("{} source {}", file_name, source) : file_name;
}

}  // namespace incast::sources

// What the files of a source path hold, before it is numbered: a folder of MFP files, a file of MEPs, or a folder of
// such files (docs/formats.md).
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include <incast/result.h>
#include <incast/transport.h>

#include "wire/mfp.h"

namespace incast::sources {

/// A file's bytes, read only, while the object lives.
class MappedFile {
public:
    /// Error: cannot be opened or mapped, and why.
    static Result<MappedFile> open(const std::filesystem::path& path);
    MappedFile(MappedFile&& other) noexcept : path_(std::move(other.path_)), bytes_(std::exchange(other.bytes_, {})) {}
    MappedFile& operator=(MappedFile&& other) noexcept {
        std::swap(path_, other.path_);
        std::swap(bytes_, other.bytes_);
        return *this;
    }
    ~MappedFile();
    [[nodiscard]] const std::filesystem::path& path() const { return path_; }
    [[nodiscard]] Bytes bytes() const { return bytes_; }

private:
    MappedFile(std::filesystem::path path, Bytes bytes) : path_(std::move(path)), bytes_(bytes) {}
    std::filesystem::path path_;
    Bytes bytes_;
};

/// One MFP where it lies.
struct RecordedPacket {
    std::uint32_t file = 0;    // index in RecordedPackets::files
    std::uint64_t offset = 0;  // in it
    wire::MfpHeader header;
    std::uint32_t goodput_bytes = 0;
    wire::SourceFlag flag = wire::SourceFlag::ok;
    bool relabel = false;  // an earlier run wrote that it is missing
};

struct RecordedPackets {
    struct Source {
        std::uint16_t id = 0;
        std::uint32_t file = 0;  // its first one
        std::vector<RecordedPacket> packets;
    };

    std::vector<MappedFile> files;
    std::vector<Source> sources;  // ascending by id
    bool meps = false;            // built events: every file may hold packets of all sources

    /// Reads every packet's header and tables. Packets are in the order of the file; of MEPs, in that of their events.
    /// Errors: nothing of the kind is there, what is damaged (with the offset of the first bad packet).
    static Result<RecordedPackets> read(const std::string& path);

    /// For messages, of the source's files alone: "source-7.mfp", "all.mep source 7".
    [[nodiscard]] std::string name(std::uint16_t source, std::uint32_t file) const;
};

}  // namespace incast::sources

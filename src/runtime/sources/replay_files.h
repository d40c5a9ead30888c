// A folder of recorded sources: source-<id>.mfp, the MFPs of one source one behind the other (docs/formats.md), mapped
// and indexed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <incast/result.h>
#include <incast/transport.h>

#include "protocol/config.h"
#include "wire/source_flag.h"

namespace incast::sources {

/// A file's bytes, read only, while the object lives.
class MappedFile {
public:
    /// Error: cannot be opened or mapped, and why.
    static Result<MappedFile> open(const std::filesystem::path& path);
    MappedFile(MappedFile&& other) noexcept : bytes_(std::exchange(other.bytes_, {})) {}
    MappedFile& operator=(MappedFile&& other) noexcept {
        std::swap(bytes_, other.bytes_);
        return *this;
    }
    ~MappedFile();
    [[nodiscard]] Bytes bytes() const { return bytes_; }

private:
    explicit MappedFile(Bytes bytes) : bytes_(bytes) {}
    Bytes bytes_;
};

struct RecordedMfp {
    protocol::MepId mep = 0;
    std::uint64_t offset = 0;  // in the file
    std::uint32_t packet_bytes = 0;
    std::uint32_t goodput_bytes = 0;
    std::uint32_t n_events = 0;
    wire::SourceFlag flag = wire::SourceFlag::ok;
};

/// The MFPs of one source that have their place in the run's numbering, by MEP.
struct RecordedSource {
    std::uint16_t id = 0;
    MappedFile file;
    std::vector<RecordedMfp> mfps;    // ascending by MEP, without repeats
    std::uint64_t misnumbered = 0;    // MFPs left out: their ids fit to no MEP, or came out of order (PROTOCOL S5)
    std::uint32_t largest_bytes = 0;  // of a packet

    [[nodiscard]] const RecordedMfp* find(protocol::MepId mep) const;
};

/// MEP m of the recording holds events first_event + [m * packing, (m + 1) * packing), the last one total_events at
/// most.
struct Recording {
    std::vector<RecordedSource> sources;  // ascending by id
    std::uint32_t packing = 0;
    std::uint64_t first_event = 0;
    std::uint64_t total_meps = 0;
    std::uint64_t total_events = 0;

    /// Reads every packet's header and tables. Errors: no such folder, no sources in it, a damaged file (with the
    /// offset of the first bad packet), sources that do not agree on the packing factor.
    static Result<Recording> open(const std::string& folder);

    [[nodiscard]] const RecordedSource* find(std::uint16_t id) const;
    [[nodiscard]] std::uint32_t n_events(protocol::MepId mep) const {
        return mep + 1 < total_meps ? packing : static_cast<std::uint32_t>(total_events - mep * packing);
    }
};

}  // namespace incast::sources

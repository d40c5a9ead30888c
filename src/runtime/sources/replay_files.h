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
    wire::SourceFlag flag = wire::SourceFlag::ok;  // as it says itself: never missing_dead or missing_unreachable ...
    bool relabel = false;                          // ... which an earlier run wrote into it, and are desync in this one
};

/// Which events a run has: what its files have in common, wherever they are.
struct Numbering {
    std::uint32_t packing = 0;
    std::uint64_t first_event = 0;
    std::uint64_t total_events = 0;
};

/// What one file brings to a run (docs/formats.md, "MFP files").
struct InputFile {
    std::string host;  // empty: the one that conducts the run
    std::string name;  // source-<id>.mfp
    std::uint16_t source = 0;
    std::uint64_t mfps = 0;             // in the file
    std::uint64_t events = 0;           // in these
    std::uint64_t first_event = 0;      // of the first one
    std::uint64_t left_out_mfps = 0;    // that have no place in the run's numbering
    std::uint64_t left_out_events = 0;  // in these
    std::uint64_t left_out_at = 0;      // where the first of them begins
    std::uint64_t left_out_id = 0;      // its first event
    std::uint64_t absent_events = 0;    // of the run, for which it has no MFP with a place

    [[nodiscard]] bool whole() const { return left_out_mfps == 0 && absent_events == 0; }
};

/// The MFPs of one source that have their place in the run's numbering, by MEP.
struct RecordedSource {
    std::uint16_t id = 0;
    MappedFile file;
    std::vector<RecordedMfp> mfps;  // ascending by MEP, without repeats
    InputFile input;
    std::uint32_t largest_bytes = 0;  // of a packet, or of the phantom of a whole MEP

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

    /// Finds the numbering that fits most files, unless one is given, and reads every packet's header and tables.
    /// Errors: no such folder, no sources in it, a damaged file (with the offset of the first bad packet), sources that
    /// do not agree on the packing factor.
    static Result<Recording> open(const std::string& folder, const std::optional<Numbering>& given = {});

    [[nodiscard]] const RecordedSource* find(std::uint16_t id) const;
    [[nodiscard]] Numbering numbering() const { return {packing, first_event, total_events}; }
    [[nodiscard]] std::uint32_t n_events(protocol::MepId mep) const {
        return mep + 1 < total_meps ? packing : static_cast<std::uint32_t>(total_events - mep * packing);
    }
};

}  // namespace incast::sources

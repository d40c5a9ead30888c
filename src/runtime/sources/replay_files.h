// Recorded sources, in MFP or MEP files (docs/formats.md), mapped and numbered.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <incast/result.h>
#include <incast/transport.h>

#include "protocol/config.h"
#include "runtime/sources/recorded_packets.h"
#include "wire/source_flag.h"

namespace incast::sources {

struct RecordedMfp {
    protocol::MepId mep = 0;
    std::uint64_t offset = 0;  // in its file
    std::uint32_t file = 0;    // of the recording's
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
    std::string name;  // source-<id>.mfp; FILE.mep source <id>: where the first is that was left out
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
    std::vector<RecordedMfp> mfps;  // ascending by MEP, without repeats
    InputFile input;
    std::uint32_t largest_bytes = 0;  // of a packet, or of the phantom of a whole MEP

    [[nodiscard]] const RecordedMfp* find(protocol::MepId mep) const;
};

/// MEP m of the recording holds events first_event + [m * packing, (m + 1) * packing), the last one total_events at
/// most.
struct Recording {
    std::vector<MappedFile> files;
    std::vector<RecordedSource> sources;  // ascending by id
    std::uint32_t packing = 0;
    std::uint64_t first_event = 0;
    std::uint64_t total_meps = 0;
    std::uint64_t total_events = 0;

    /// Finds the numbering that fits most files, unless one is given, and reads every packet's header and tables.
    /// `path`: a folder of MFP files, a file of MEPs, or a folder of such files without manifests.
    /// Errors: no such path, no sources in it, a damaged file (with the offset of the first bad packet), sources that
    /// do not agree on the packing factor.
    static Result<Recording> open(const std::string& path, const std::optional<Numbering>& given = {});

    [[nodiscard]] const RecordedSource* find(std::uint16_t id) const;
    [[nodiscard]] Bytes packet(const RecordedMfp& mfp) const {
        return files[mfp.file].bytes().subspan(mfp.offset, mfp.packet_bytes);
    }
    [[nodiscard]] Numbering numbering() const { return {packing, first_event, total_events}; }
    [[nodiscard]] std::uint32_t n_events(protocol::MepId mep) const {
        return mep + 1 < total_meps ? packing : static_cast<std::uint32_t>(total_events - mep * packing);
    }
};

}  // namespace incast::sources

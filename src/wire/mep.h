// Multi-event packet (MEP): the MFPs of all sources for the same N events, the unit that is built.
//
// Layout: LHCb Run-3's (docs/formats.md gives it byte by byte with its source), little-endian:
//   u16 magic 0xCEFA | u16 n_mfps | u32 packet size in 32-bit words
//   u16 source_ids[n], n rounded up to even | u32 offsets[n] in 32-bit words from the start of the MEP
//   MFPs in ascending order of source id, each 8-byte aligned (others may order ids as they like, or repeat one)
// All MFPs agree on the first event id and on the number of fragments. The MFPs inside may be of either variant.
// There is no wide MEP: source ids are u16, so n_mfps never overflows; a MEP above 16 GiB is an error of gather_mep.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include <incast/result.h>

#include "wire/bytes.h"
#include "wire/mfp.h"

namespace incast::wire {

inline constexpr std::uint16_t mep_magic = 0xCEFA;
inline constexpr std::size_t mep_fixed_bytes = 8;
inline constexpr std::uint64_t mep_alignment = 8;
inline constexpr std::uint32_t mep_max_mfps = 65535;

/// Offset of the first MFP of a compact MEP: fixed part, ids, offsets, padding.
constexpr std::uint64_t mep_header_bytes(std::uint32_t n_mfps) {
    return round_up(mep_fixed_bytes + 2 * round_up(n_mfps, 2) + 4 * std::uint64_t{n_mfps}, mep_alignment);
}

struct MepHeader {
    std::uint64_t packet_bytes = 0;
    std::uint32_t n_mfps = 0;  // 1 .. 65535
};

/// Reads and checks the first 8 bytes alone, e.g. to walk a file. Errors: too short, magic, no MFPs, size below the
/// header's.
Result<MepHeader> peek_mep(Bytes bytes);

/// A checked MEP in the caller's memory, which must outlive the view.
class MepView {
public:
    /// Checks everything, MFPs included, in O(fragments). `bytes` may continue behind the packet; the view ends with
    /// it. Gaps between MFPs are allowed (a slot may be sparse, EB-S3), overlaps are not. Errors name the MFP
    /// by its source id.
    static Result<MepView> parse(Bytes bytes);

    [[nodiscard]] Bytes bytes() const { return bytes_; }
    [[nodiscard]] std::uint32_t size() const { return n_mfps_; }
    [[nodiscard]] std::uint64_t first_event() const { return first_event_; }
    [[nodiscard]] std::uint32_t n_events() const { return n_events_; }
    [[nodiscard]] std::uint16_t source(std::uint32_t index) const;  // index < size()
    [[nodiscard]] std::uint64_t offset(std::uint32_t index) const;  // bytes from the start; index < size()
    [[nodiscard]] MfpView mfp(std::uint32_t index) const;           // index < size()

private:
    MepView(Bytes bytes, std::uint32_t n_mfps) : bytes_(bytes), n_mfps_(n_mfps) {}
    Bytes bytes_;
    std::uint32_t n_mfps_;
    std::uint64_t first_event_ = 0;
    std::uint32_t n_events_ = 0;
};

struct GatheredMep {
    std::uint64_t packet_bytes = 0;  // sum of all segments
    std::size_t n_segments = 0;      // of `segments`, in file order
    std::uint64_t first_event = 0;
    std::uint32_t n_events = 0;
};

/// Segments that gather_mep may need: the header, and each MFP with padding behind it.
constexpr std::size_t mep_max_segments(std::size_t n_mfps) {
    return 1 + 2 * n_mfps;
}

/// Lays out a compact MEP without touching payload, for a vectored write (EB-S3). `mfps` holds one complete
/// MFP each, in strictly ascending order of source id; bytes behind its end are left out. Writes the MEP header into
/// `header`, at least mep_header_bytes(n) long, and into `segments`, at least mep_max_segments(n) long, the pieces
/// whose concatenation is the MEP: they point into `header`, `mfps` and static zeroes. Reads MFP headers only, so it
/// costs O(n_mfps). Errors: no or too many MFPs, a bad MFP header, order, disagreement on events, more than 16 GiB, too
/// little room.
Result<GatheredMep> gather_mep(std::span<const Bytes> mfps, MutableBytes header, std::span<Bytes> segments);

}  // namespace incast::wire

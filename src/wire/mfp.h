// Multi-fragment packet (MFP): the fragments of one source for N consecutive events, the unit that travels.
//
// Layout: LHCb Run-3's (docs/formats.md gives it byte by byte with its source), little-endian, packed:
//   u16 magic 0x40CE | u16 n_fragments | u32 packet bytes | u64 first event id | u16 source id | u8 align (log2) | u8
//   fragment version u8 types[n] padded to 4 B | u16 sizes[n] padded to 4 B | fragments, each padded to 2^align bytes
// Fragments above 65535 B, or packets above 4 GiB, need Incast's wide variant (same idea, own magic, version byte, u32
// sizes). All sizes are bytes. Nothing here allocates, except the message of an error.
#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <optional>
#include <span>

#include <incast/result.h>

#include "wire/bytes.h"
#include "wire/source_flag.h"

namespace incast::wire {

inline constexpr std::uint16_t mfp_magic = 0x40CE;
inline constexpr std::uint16_t mfp_wide_magic = 0x57CE;
inline constexpr std::uint8_t mfp_wide_version = 1;
inline constexpr std::size_t mfp_header_bytes = 20;
inline constexpr std::size_t mfp_wide_header_bytes = 32;
inline constexpr std::uint32_t mfp_max_fragments = 65535;       // EB-S1, in both variants
inline constexpr std::uint32_t mfp_max_fragment_bytes = 65535;  // of the LHCb layout; beyond it: wide
inline constexpr std::uint8_t mfp_max_align_log2 = 12;

/// The fixed part of an MFP, either variant.
struct MfpHeader {
    std::uint64_t first_event = 0;   // id of fragment 0; fragment k belongs to event first_event + k
    std::uint64_t packet_bytes = 0;  // header, tables, fragments and padding; writers fill it in
    std::uint32_t n_fragments = 0;   // 1 .. 65535
    std::uint16_t source = 0;
    std::uint8_t align_log2 = 3;  // 0 .. 12
    std::uint8_t fragment_version = 0;
    bool wide = false;
};

/// Offset of the first fragment: header and both tables with their padding.
constexpr std::uint64_t mfp_prefix_bytes(std::uint32_t n_fragments, bool wide) {
    const std::uint64_t n = n_fragments;
    return wide ? mfp_wide_header_bytes + round_up(n, 4) + 4 * n
                : mfp_header_bytes + round_up(n, 4) + round_up(2 * n, 4);
}

struct MfpSize {
    std::uint64_t packet_bytes = 0;
    std::uint64_t payload_bytes = 0;  // fragment bytes alone, what goodput counts (EB-M5)
    bool wide = false;                // the LHCb layout cannot hold it
};

/// Size of an MFP with these fragment sizes, in the LHCb layout where it fits and else in the wide one.
MfpSize mfp_bytes(std::span<const std::uint32_t> sizes, std::uint8_t align_log2);

/// The same for n fragments of at most `fragment_bytes` each: an upper bound to reserve (EB-S3).
MfpSize mfp_bytes(std::uint32_t n_fragments, std::uint32_t fragment_bytes, std::uint8_t align_log2);

/// Reads and checks the header alone, which may be all there is at hand (the head of a write): `bytes` need not hold
/// the whole packet. Errors: shorter than a header, unknown magic or version, a count, alignment or packet size out of
/// range, event ids that wrap.
Result<MfpHeader> peek_mfp(Bytes bytes);

struct Fragment {
    std::uint64_t event = 0;
    Bytes data;
    std::uint8_t type = 0;

    /// Why the fragment is missing, if it is.
    [[nodiscard]] std::optional<SourceFlag> missing() const { return data.empty() ? flag_of_type(type) : std::nullopt; }
};

/// A checked MFP in the caller's memory, which must outlive the view. Iteration yields the fragments in event order.
class MfpView {
public:
    /// Checks everything, in O(n). `bytes` may continue behind the packet (concatenated files); the view ends with the
    /// packet. The padding of the last fragment may be left out by a writer: packet_bytes decides.
    static Result<MfpView> parse(Bytes bytes);

    [[nodiscard]] const MfpHeader& header() const { return header_; }
    [[nodiscard]] Bytes bytes() const { return bytes_; }
    [[nodiscard]] std::uint32_t size() const { return header_.n_fragments; }
    [[nodiscard]] std::uint8_t type(std::uint32_t index) const;             // index < size()
    [[nodiscard]] std::uint32_t fragment_bytes(std::uint32_t index) const;  // index < size()
    [[nodiscard]] std::uint64_t payload_bytes() const;                      // O(n)

    /// The source's state as the packet itself tells it, O(n): why the first missing fragment is missing, else `empty`
    /// if there is no payload at all, else `ok`.
    [[nodiscard]] SourceFlag flag() const;
    /// True if every fragment is missing (a packet made by write_phantom).
    [[nodiscard]] bool phantom() const;

    class Iterator {
    public:
        using iterator_category = std::input_iterator_tag;
        using value_type = Fragment;
        using difference_type = std::ptrdiff_t;
        using pointer = const Fragment*;
        using reference = Fragment;

        Iterator() = default;
        Fragment operator*() const;
        Iterator& operator++();
        Iterator operator++(int) {
            Iterator before = *this;
            ++*this;
            return before;
        }
        bool operator==(const Iterator& other) const { return index_ == other.index_; }

    private:
        friend class MfpView;
        Iterator(const MfpView* view, std::uint32_t index, std::uint64_t offset)
            : view_(view), offset_(offset), index_(index) {}
        const MfpView* view_ = nullptr;
        std::uint64_t offset_ = 0;
        std::uint32_t index_ = 0;
    };
    [[nodiscard]] Iterator begin() const { return {this, 0, mfp_prefix_bytes(size(), header_.wide)}; }
    [[nodiscard]] Iterator end() const { return {this, size(), 0}; }

private:
    friend class MepView;  // hands out views of packets it has checked before
    MfpView(Bytes bytes, const MfpHeader& header) : bytes_(bytes), header_(header) {}
    Bytes bytes_;
    MfpHeader header_;
};

/// Writes one MFP into the caller's memory, fragment by fragment. The number of fragments is fixed at the start,
/// because the tables stand before the fragments.
class MfpWriter {
public:
    /// Writes the header; `header.packet_bytes` is ignored. Errors: a field out of range, or `out` too small for header
    /// and tables.
    static Result<MfpWriter> begin(MutableBytes out, const MfpHeader& header);

    /// Room for the next fragment, to be filled by the caller; its padding is written here. Nothing if all n fragments
    /// are there, if it does not fit into `out`, if the variant cannot express the size, or if a reserved type comes
    /// with data.
    std::optional<MutableBytes> reserve(std::uint8_t type, std::uint32_t bytes);

    /// reserve() and copy. False where reserve() gives nothing.
    bool add(std::uint8_t type, Bytes data);

    /// Completes the header and returns the packet's bytes. Error: not all fragments were added.
    Result<std::uint64_t> finish();

private:
    MfpWriter(MutableBytes out, const MfpHeader& header);
    MutableBytes out_;
    MfpHeader header_;
    std::uint64_t offset_;
    std::uint32_t added_ = 0;
};

/// Sizes first: writes header, tables and all padding for fragments of one type, so that a generator only fills the
/// fragments in place: fragment k starts at mfp_prefix_bytes() plus the sum of the earlier sizes rounded up to 2^align.
/// `header.n_fragments`, `packet_bytes` and `wide` are taken from `sizes`. Returns what mfp_bytes(sizes) returns.
/// Errors: as MfpWriter::begin, or `out` too small.
Result<MfpSize> lay_out_mfp(MutableBytes out, const MfpHeader& header, std::uint8_t type,
                            std::span<const std::uint32_t> sizes);

/// Bytes of the phantom that stands for a missing source.
constexpr std::uint64_t phantom_bytes(std::uint32_t n_fragments) {
    return mfp_prefix_bytes(n_fragments, false);
}

/// Writes a phantom (EB-F5): same first id and count, every size zero, every type flag_type(flag); flag >=
/// missing_dead.
Result<std::uint64_t> write_phantom(MutableBytes out, std::uint64_t first_event, std::uint32_t n_fragments,
                                    std::uint16_t source, SourceFlag flag);

/// Makes a valid MFP of one that was cut to `received` (EB-S4): fragments that are not wholly there become
/// missing with flag `truncated`, the packet ends behind the last whole one. Returns the new packet bytes. Error: not
/// even the tables are there; then a phantom is all that can be had.
Result<std::uint64_t> truncate_mfp(MutableBytes received);

/// The size of the packet that ends a run in LHCb's files, an MFP header with event id 2^64 - 1; nothing if it is
/// something else. It holds no events. The header alone need be there.
std::optional<std::uint64_t> announced_end_of_run(Bytes bytes);
/// The same, if all of it is there.
std::optional<std::uint64_t> end_of_run_bytes(Bytes bytes);

/// Of a checked MFP: fragments that are missing because their readout unit was gone are missing with that flag instead.
void relabel_missing(MutableBytes mfp, SourceFlag flag);

/// Of a checked MFP: missing fragments get the types of LHCb's error banks that say the same. Nothing else changes.
void missing_to_error_banks(MutableBytes mfp);

}  // namespace incast::wire

// Multi-event fragment (MEF): the packet of LHCb's Runs 1 and 2 (EDMS 499933), and the raw banks inside it (EDMS
// 565851).
//
// Layout (docs/formats.md), little-endian, packed:
//   u32 id of the first event | u16 number of events | u16 total bytes, these 12 included | u32 partition id
//   per event: u16 low 16 bits of the event id | u16 bytes of its banks | raw banks
//   raw bank: u16 magic 0xCBCB | u16 bytes, these 8 included, padding not | u8 type | u8 version | i16 source id | body
//   padded to 4 B
// The u16 total caps a packet at 65535 bytes. Nothing here allocates, except the message of an error.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include <incast/result.h>

#include "wire/bytes.h"
#include "wire/mfp.h"

namespace incast::wire {

inline constexpr std::size_t mef_header_bytes = 12;
inline constexpr std::size_t mef_event_header_bytes = 4;
inline constexpr std::size_t mef_max_bytes = 65535;
inline constexpr std::uint16_t raw_bank_magic = 0xCBCB;
inline constexpr std::size_t raw_bank_header_bytes = 8;

struct RawBank {
    std::uint8_t type = 0;
    std::uint8_t version = 0;
    std::int16_t source = 0;
    Bytes body;  // without the padding
};

/// The bank at the start of `banks`, and what follows it and its padding; the padding of the last bank may be absent.
/// Errors: too short, magic, length out of range.
struct RawBankAndRest {
    RawBank bank;
    Bytes rest;
};
Result<RawBankAndRest> take_raw_bank(Bytes banks);

constexpr std::uint64_t raw_bank_bytes(std::size_t body_bytes) {
    return round_up(raw_bank_header_bytes + body_bytes, 4);
}

/// Writes one bank with its padding and returns the bytes used. Error: body above 65527 bytes, or `out` too small.
Result<std::size_t> write_raw_bank(MutableBytes out, const RawBank& bank);

/// A checked multi-event fragment in the caller's memory, which must outlive the view.
class MefView {
public:
    struct Event {
        std::uint16_t low_event = 0;
        Bytes banks;
    };

    /// Checks header and event lengths; `bytes` may continue behind the packet. The raw banks are not looked into:
    /// take_raw_bank does.
    static Result<MefView> parse(Bytes bytes);

    [[nodiscard]] Bytes bytes() const { return bytes_; }
    [[nodiscard]] std::uint32_t first_event() const { return load<std::uint32_t>(bytes_, 0); }
    [[nodiscard]] std::uint16_t n_events() const { return load<std::uint16_t>(bytes_, 4); }
    [[nodiscard]] std::uint32_t partition() const { return load<std::uint32_t>(bytes_, 8); }

    /// Walks the events: `cursor` starts at 0 and is moved on; nothing at the end.
    std::optional<Event> next(std::size_t& cursor) const;

private:
    explicit MefView(Bytes bytes) : bytes_(bytes) {}
    Bytes bytes_;
};

class MefWriter {
public:
    /// Error: `out` smaller than a header.
    static Result<MefWriter> begin(MutableBytes out, std::uint32_t first_event, std::uint32_t partition);
    /// Appends the banks of the next event. False if they do not fit into `out` or into 65535 bytes.
    bool add(std::uint16_t low_event, Bytes banks);
    /// Completes the header and returns the packet's bytes.
    std::size_t finish();

private:
    MefWriter(MutableBytes out, std::uint32_t first_event, std::uint32_t partition);
    MutableBytes out_;
    std::size_t offset_ = mef_header_bytes;
    std::uint32_t first_event_;
    std::uint32_t partition_;
    std::uint16_t n_events_ = 0;
};

/// What an MFP carries and a multi-event fragment does not.
struct MefToMfp {
    std::uint32_t event_id_high = 0;  // upper half of the u64 event ids
    std::uint16_t source = 0;
    std::uint8_t align_log2 = 3;
};

/// Rewrites a multi-event fragment as an MFP, without loss: each event's raw banks, headers included, become one
/// fragment whose type is that of its first bank (0 without a bank). Returns the MFP's bytes. Errors: no events,
/// damaged banks, a reserved type (0xF2 .. 0xF8), event ids that are not consecutive (an MFP cannot express that),
/// `out` too small.
Result<std::uint64_t> mef_to_mfp(const MefView& mef, const MefToMfp& parameters, MutableBytes out);

}  // namespace incast::wire

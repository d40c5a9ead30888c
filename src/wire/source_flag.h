// What became of one source's contribution to an event (EB-F5). Carried in manifests by name and, for what is
// missing, in MFPs as a reserved fragment type (docs/formats.md).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace incast::wire {

/// The values are part of the format: they are the low bits of the reserved fragment types.
enum class SourceFlag : std::uint8_t {
    ok = 0,                   // data arrived as sent
    empty = 1,                // arrived, and the source had no data in any event of the packet
    missing_dead = 2,         // the readout unit is confirmed dead
    missing_unreachable = 3,  // alive as far as is known, yet the event manager confirmed that its data cannot be had
    late = 4,                 // given up on at the deadline
    truncated = 5,            // larger than its place in the slot; what did not fit is gone (EB-S4 oversize)
    bad_checksum = 6,         // arrived damaged
    desync = 7,               // event ids did not agree with what was asked for
    dropped = 8,              // the readout unit had no room for it when it was due (open loop, policy drop)
};

inline constexpr std::array<std::string_view, 9> source_flag_names = {
    "ok", "empty", "missing-dead", "missing-unreachable", "late", "truncated", "bad-checksum", "desync", "dropped"};

constexpr std::string_view to_string(SourceFlag flag) {
    const auto value = static_cast<std::size_t>(flag);
    return value < source_flag_names.size() ? source_flag_names[value] : "unknown";
}

/// The sources an event is delivered without, as the event manager has confirmed.
[[nodiscard]] constexpr bool is_missing(SourceFlag flag) {
    return flag == SourceFlag::missing_dead || flag == SourceFlag::missing_unreachable;
}

/// An event with such a source is incomplete (docs/formats.md).
[[nodiscard]] constexpr bool is_defect(SourceFlag flag) {
    return flag >= SourceFlag::missing_dead;
}

/// Fragment types 0xF0 .. 0xF8 are Incast's own: type 0xF0 | flag with size 0 marks a fragment that is missing for that
/// reason. Only the flags from missing_dead on are ever written.
constexpr std::uint8_t flag_type(SourceFlag flag) {
    return static_cast<std::uint8_t>(0xF0U | static_cast<unsigned>(flag));
}

/// The flag a missing fragment carries; nothing for an ordinary fragment type.
constexpr std::optional<SourceFlag> flag_of_type(std::uint8_t type) {
    if (type < flag_type(SourceFlag::missing_dead) || type > flag_type(SourceFlag::dropped)) {
        return std::nullopt;
    }
    return static_cast<SourceFlag>(type & 0x0FU);
}

/// The type of LHCb's error bank that says the same of a missing fragment; flag >= missing_dead.
constexpr std::uint8_t error_bank_type(SourceFlag flag) {
    switch (flag) {
        case SourceFlag::truncated:
            return 93;
        case SourceFlag::bad_checksum:
            return 95;
        case SourceFlag::desync:
            return 96;
        case SourceFlag::dropped:
            return 89;
        default:
            return 92;
    }
}

}  // namespace incast::wire

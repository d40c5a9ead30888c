// The checksum that a head carries of the MFP behind it: CRC-32C, against accidents and not against forgers.
//
// Of all bytes, those from the 16th on first: what lies before is the part of an MFP's header (docs/formats.md) that a
// prefilled MFP is given anew each time it is sent, so the rest has to be looked at once.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/crc.h"

namespace incast::wire {

inline constexpr std::size_t renewed_bytes = 16;

inline std::uint32_t checksum_of_rest(std::span<const std::byte> body) {
    return base::crc32c(body.subspan(std::min(body.size(), renewed_bytes)));
}
/// `rest`: checksum_of_rest of the same body.
inline std::uint32_t body_checksum(std::span<const std::byte> body, std::uint32_t rest) {
    return base::crc32c(body.first(std::min(body.size(), renewed_bytes)), rest);
}
inline std::uint32_t body_checksum(std::span<const std::byte> body) {
    return body_checksum(body, checksum_of_rest(body));
}

}  // namespace incast::wire

// CRC-32C (Castagnoli, reflected polynomial 0x82f63b78, RFC 3720 appendix B.4), by ISA-L, which uses the instructions
// that the CPU has.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace incast::base {

/// Continue with the previous result to checksum in pieces; start with 0.
std::uint32_t crc32c(std::span<const std::byte> bytes, std::uint32_t previous = 0);

}  // namespace incast::base

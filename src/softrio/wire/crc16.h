// The CRC of RapidIO packets (part 6, 2.4: "CCITT" polynomial x^16 + x^12 + x^5 + 1, most significant bit first, all
// ones at the beginning), by carry-less multiplication where the CPU has it (folding after V. Gopal et al., "Fast CRC
// computation for generic polynomials using PCLMULQDQ", Intel, 2009), else by tables for 16 bytes at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace incast::softrio::wire {

std::uint16_t crc16(std::span<const std::byte> bytes);
/// The same without special instructions.
std::uint16_t crc16_by_table(std::span<const std::byte> bytes);

}  // namespace incast::softrio::wire

// The CRC of RapidIO packets (part 6, 2.4: "CCITT" polynomial x^16 + x^12 + x^5 + 1, most significant bit first, all
// ones at the beginning), by carry-less multiplication of 128 or 4 x 128 bits where the CPU has it (folding and
// reduction after V. Gopal et al., "Fast CRC computation for generic polynomials using PCLMULQDQ", Intel, 2009), else
// by tables for 16 bytes at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace incast::softrio::wire {

std::uint16_t crc16(std::span<const std::byte> bytes);
inline constexpr std::uint16_t crc16_begin = 0xFFFF;

/// A way to compute it.
struct Crc16Method {
    const char* name;
    std::uint16_t (*compute)(std::span<const std::byte>);
    /// Of 16 bytes, given as two numbers (most significant byte first) with crc16_begin in the first two bytes that
    /// count, and of `from`, which is copied to `to` on the way. Zeros before those first two count for nothing.
    std::uint16_t (*copy)(std::uint64_t high, std::uint64_t low, std::span<const std::byte> from, std::byte* to);
    /// The other end: false: it is not `crc`, and nothing is copied. `to`: nullptr: nothing is anyway.
    bool (*take)(std::uint64_t high, std::uint64_t low, std::span<const std::byte> from, std::uint16_t crc,
                 std::byte* to);
};
/// Those that this CPU has, the fastest last.
std::span<const Crc16Method> crc16_methods();

}  // namespace incast::softrio::wire

// Memory set aside by name (librsvdmem): what the boot parameter memmap= and a configuration file are on real hosts.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <incast/result.h>

namespace incast::softrio {

/// Local ("physical") addresses of this endpoint. Reserved memory comes first, then whatever is allocated.
inline constexpr std::uint64_t reserved_base = std::uint64_t{1} << 32;
inline constexpr std::uint64_t allocated_base = std::uint64_t{1} << 42;
inline constexpr std::uint64_t outbound_base = std::uint64_t{1} << 52;

struct Reserved {
    std::string name;
    std::uint64_t start = 0;  // where none was asked for: a multiple of the size rounded up to a power of two
    std::uint64_t bytes = 0;
};

/// `NAME=SIZE,...` with sizes like 64M or 1G, or `NAME=SIZE@ADDRESS`, or `none`. Pages nobody writes to cost nothing.
Result<std::vector<Reserved>> parse_reserved(std::string_view text);
/// The variable RIO_RSVDMEM; unset: 256 MiB PHYS_MEM at 0x50000000, and 16 MiB each for RSKTD, RDMAD, FXFR and DMATUN.
Result<std::vector<Reserved>> reserved_of_environment();

}  // namespace incast::softrio

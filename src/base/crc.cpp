#include "base/crc.h"

#include <algorithm>
#include <limits>

#include <isa-l/crc.h>

namespace incast::base {

std::uint32_t crc32c(std::span<const std::byte> bytes, std::uint32_t previous) {
    constexpr std::size_t at_once = std::numeric_limits<int>::max();
    std::uint32_t state = ~previous;
    while (!bytes.empty()) {
        const std::size_t size = std::min(bytes.size(), at_once);
        auto* const data = reinterpret_cast<unsigned char*>(const_cast<std::byte*>(bytes.data()));  // it only reads
        state = ::crc32_iscsi(data, static_cast<int>(size), state);
        bytes = bytes.subspan(size);
    }
    return ~state;
}

}  // namespace incast::base

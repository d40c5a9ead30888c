// The cache that slots may fill before stores into them had better go past it.
#pragma once

#include <algorithm>
#include <cstdint>

#include <unistd.h>

#include "base/cache.h"

namespace incast::transport {

inline std::uint64_t usable_cache_bytes() {
    const long reported = std::max(::sysconf(_SC_LEVEL3_CACHE_SIZE), ::sysconf(_SC_LEVEL2_CACHE_SIZE));
    const long cores = ::sysconf(_SC_NPROCESSORS_ONLN);
    return base::usable_cache_bytes(static_cast<std::uint64_t>(std::max(0L, reported)),
                                    static_cast<std::uint64_t>(std::max(1L, cores)));
}

}  // namespace incast::transport

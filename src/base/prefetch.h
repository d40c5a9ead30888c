// Memory that is soon read from its begin to its end: asked for in advance, all of it, as what the CPU fetches by
// itself begins late and ends with each page.
#pragma once

#include <cstddef>

namespace incast::base {

/// `at` may lie anywhere, behind the end of what there is, too.
inline void prefetch(const void* at, std::size_t bytes) {
    constexpr std::size_t line = 64;
    for (std::size_t index = 0; index < bytes; index += line)
        __builtin_prefetch(static_cast<const char*>(at) + index);
}

}  // namespace incast::base

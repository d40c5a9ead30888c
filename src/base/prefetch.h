// Memory that will be read soon, and was last touched long ago: what the CPU fetches by itself begins late, and ends
// with each page.
#pragma once

#include <cstddef>

namespace incast::base {

/// All cache lines of so many bytes, at least one; a hint, so any address will do, behind the end of what there is,
/// too.
inline void prefetch(const void* address, std::size_t bytes) {
    constexpr std::size_t line_bytes = 64;
    const auto* const first = static_cast<const std::byte*>(address);
    for (std::size_t offset = 0; offset + 1 < bytes; offset += line_bytes)
        __builtin_prefetch(first + offset);
    __builtin_prefetch(first + bytes - 1);  // where the first is not the beginning of a line, there may be one more
}
template <class T>
void prefetch(const T& object) {
    prefetch(&object, sizeof object);
}

}  // namespace incast::base

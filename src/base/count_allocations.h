// For tests: replaces operator new of the program it is included in, in exactly one of its source files, and counts.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <new>

namespace incast::base {

inline std::atomic<std::uint64_t> allocations{0};

inline void* count_allocation(std::size_t bytes) {
    allocations.fetch_add(1, std::memory_order_relaxed);
    if (void* memory = std::malloc(bytes)) {
        return memory;
    }
    throw std::bad_alloc();
}

}  // namespace incast::base

// A replacement must not be inline. Not inlined either: gcc would see free() meet what it takes for another allocator's
// memory, and warn.
// NOLINTBEGIN(misc-definitions-in-headers)
[[gnu::noinline]] void* operator new(std::size_t bytes) {
    return incast::base::count_allocation(bytes);
}
[[gnu::noinline]] void* operator new[](std::size_t bytes) {
    return incast::base::count_allocation(bytes);
}
[[gnu::noinline]] void operator delete(void* memory) noexcept {
    std::free(memory);
}
[[gnu::noinline]] void operator delete[](void* memory) noexcept {
    std::free(memory);
}
[[gnu::noinline]] void operator delete(void* memory, std::size_t /*bytes*/) noexcept {
    std::free(memory);
}
[[gnu::noinline]] void operator delete[](void* memory, std::size_t /*bytes*/) noexcept {
    std::free(memory);
}
// NOLINTEND(misc-definitions-in-headers)

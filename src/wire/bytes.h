// Little-endian loads and stores at unaligned places. All formats of src/wire are little-endian; so are all hosts we
// build for.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <type_traits>

#include <incast/transport.h>

namespace incast::wire {

static_assert(std::endian::native == std::endian::little,
              "the formats are read in place: a big-endian host needs swaps here");

using MutableBytes = std::span<std::byte>;

/// The caller has checked that offset + sizeof(T) <= bytes.size().
template <class T>
    requires std::is_trivially_copyable_v<T>
T load(Bytes bytes, std::size_t offset) {
    T value;
    std::memcpy(&value, bytes.data() + offset, sizeof(T));
    return value;
}

/// The caller has checked that offset + sizeof(T) <= bytes.size().
template <class T>
    requires std::is_trivially_copyable_v<T>
void store(MutableBytes bytes, std::size_t offset, T value) {
    std::memcpy(bytes.data() + offset, &value, sizeof(T));
}

/// `alignment` is a power of two; the result does not wrap for values below 2^63.
constexpr std::uint64_t round_up(std::uint64_t value, std::uint64_t alignment) {
    return (value + alignment - 1) & ~(alignment - 1);
}

}  // namespace incast::wire

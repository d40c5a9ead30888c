// Which way of copying this processor is better at.
#pragma once

#include <cstdint>

namespace incast::runtime {

/// How fast that many cores at once copy from memory into `cached_bytes` each (at most 16 MiB) with plain stores, over
/// how fast they copy past the cache: with 4 MiB each AMD's Zen 4 1.3 to 1.4, Intel's Sapphire Rapids 0.8 to 0.9
/// (one core). Measured, in 40 to 200 ms, or up to a second while others take turns on the cores; by fewer cores if no
/// more threads can be started.
[[nodiscard]] double plain_over_streaming(std::uint64_t cached_bytes, unsigned cores);

}  // namespace incast::runtime

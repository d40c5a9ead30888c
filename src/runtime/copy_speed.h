// Which way of copying this processor is better at.
#pragma once

#include <cstdint>

namespace incast::runtime {

/// How fast one thread copies from memory into `cached_bytes` of memory with plain stores, over how fast it copies past
/// the cache: AMD's Zen 4 1.3 to 1.4, Intel's Sapphire Rapids 0.8 to 0.9 (docs/measuring.md). Measured, in 30 ms, or
/// 200 where memory is slow to come by.
[[nodiscard]] double plain_over_streaming(std::uint64_t cached_bytes);

}  // namespace incast::runtime

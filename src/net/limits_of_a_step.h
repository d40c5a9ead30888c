// A step posts so much at most: no peer waits long for its credits.
#pragma once

#include <cstdint>

namespace incast::net {

inline constexpr std::uint32_t posts_per_step = 64;
inline constexpr std::uint64_t bytes_per_step = std::uint64_t{1} << 20;

}  // namespace incast::net

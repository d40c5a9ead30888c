// How much cache the nodes of a host can count on.
#pragma once

#include <algorithm>
#include <cstdint>

namespace incast::base {

/// A virtual machine of a few cores is told of all of its host's last-level cache and gets its share of it at best: no
/// core is counted with more than this. Server processors have 1.25 to 4 MiB of it per core, with stacked cache 12.
inline constexpr std::uint64_t most_cache_per_core_bytes = std::uint64_t{8} << 20;

/// `reported_bytes`: of one instance of the last-level cache; 0 where the machine does not say.
constexpr std::uint64_t usable_cache_bytes(std::uint64_t reported_bytes, std::uint64_t cores) {
    const std::uint64_t most = most_cache_per_core_bytes * std::max<std::uint64_t>(1, cores);
    return reported_bytes == 0 ? most : std::min(reported_bytes, most);
}

/// Whether slots of this size had better be stored to past the cache. Half as much again as `usable_bytes` is still
/// better off in it (docs/experiments.md): what is evicted first has been read.
constexpr bool slots_exceed(std::uint64_t slots_bytes, std::uint64_t usable_bytes) {
    return slots_bytes > usable_bytes + usable_bytes / 2;
}

}  // namespace incast::base

// What a result says about where and by what it was made.
#pragma once

#include <cstdint>
#include <string>

#include <incast/transport.h>

namespace incast::runtime {

struct Machine {
    std::string host;
    std::string cpu_model;
    std::string kernel;
    std::uint32_t cores = 0;                       // this process may run on
    std::uint64_t last_level_cache_bytes = 0;      // one instance; 0 = not known
    std::uint64_t memory_bytes = 0;                // that a run may use
    std::string memory_what = "this machine has";  // who says so
    /// As in copy_speed.h, which takes a while, so only where it matters; null: not known.
    double (*plain_over_streaming)(std::uint64_t cached_bytes, unsigned cores) = nullptr;
};
[[nodiscard]] Machine read_machine();

struct Versions {
    std::string incast;
    std::string git;  // git describe, or "unknown" outside a repository
    std::string compiler;
    std::string build_type;
};
[[nodiscard]] Versions versions();

/// Of this process, now.
struct Usage {
    std::uint64_t cpu_ns = 0;   // user and system
    std::uint64_t wall_ns = 0;  // the time at which it was read: what shares of CPU time are shares of
    std::uint64_t peak_rss_bytes = 0;
};
[[nodiscard]] Usage process_usage();
[[nodiscard]] std::uint64_t process_rss_bytes();

/// The same for all processes whose CLOCK_MONOTONIC is the same: of a start of a host, and a time namespace of it.
[[nodiscard]] std::string monotonic_clock_id();
/// CPU time of the calling thread.
[[nodiscard]] std::uint64_t thread_cpu_ns();

}  // namespace incast::runtime

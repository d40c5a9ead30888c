// What a session is set up with, and what it has counted.
#pragma once

#include <cstdint>
#include <limits>

namespace incast::reliable {

inline constexpr std::int64_t never_ns = std::numeric_limits<std::int64_t>::max();
inline constexpr std::int64_t ms_ns = 1'000'000;

struct Settings {
    std::uint32_t datagram_bytes = 1472;  // header included; what one Ethernet frame holds
    /// Kept until acknowledged, and out of order: each direction that many; made a power of two.
    std::uint32_t window_packets = 512;
    std::int64_t min_timeout_ns = 5 * ms_ns;
    std::int64_t max_timeout_ns = 500 * ms_ns;
    std::int64_t first_timeout_ns = 50 * ms_ns;  // before a round trip was measured
    std::int64_t open_ns = 1000 * ms_ns;         // a session that is not there by then is given up
    std::int64_t deadline_ns = 3000 * ms_ns;     // without a sign of life the peer is dead
    std::uint64_t pace_bytes_per_s = 0;          // 0: as the congestion window allows
};

struct SendCounters {
    std::uint64_t sent = 0;  // packets, each time
    std::uint64_t repeated = 0;
    std::uint64_t lost = 0;  // held for lost, each time
    std::uint64_t timeouts = 0;
};

struct ReceiveCounters {
    std::uint64_t delivered = 0;
    std::uint64_t duplicates = 0;  // replays among them
    std::uint64_t outside = 0;     // ahead of the window
    std::uint64_t bad = 0;         // makes no sense
};

}  // namespace incast::reliable

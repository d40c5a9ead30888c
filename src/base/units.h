// Sizes, times and rates as people write them in configs ("64KiB", "10s", "40MHz"), and back.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include <incast/transport.h>

namespace incast::base {

/// "1048576", "64KiB", "1.5 MiB", "10GB" (decimal prefixes are powers of 1000, binary ones of 1024). Error names the
/// text.
Result<std::uint64_t> parse_bytes(std::string_view text);
/// "10s", "500ms", "20us", "100 ns", "3h", "2min"; a bare number is seconds.
Result<Time> parse_duration(std::string_view text);
/// "40MHz", "1kHz", "100" (Hz).
Result<double> parse_frequency_hz(std::string_view text);
/// "10Gb/s", "25 Gbit/s", "1GB/s": bytes per second.
Result<double> parse_bytes_per_s(std::string_view text);

inline double seconds(Time time) {
    return static_cast<double>(time) / static_cast<double>(ps_per_s);
}

std::string format_bytes(double bytes);      // "64.0 KiB"
std::string format_duration(Time duration);  // "1.50 ms"

}  // namespace incast::base

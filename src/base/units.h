// Sizes, times and rates as people write them in configs ("64KiB", "10s", "40MHz"), and back.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include <incast/transport.h>

namespace incast::base {

/// What may stand behind a number, the empty word among them, and how many base units it is: bytes, seconds, hertz,
/// bytes per second.
struct Unit {
    std::string_view name;
    double factor;
};
std::span<const Unit> byte_units();
std::span<const Unit> time_units();
std::span<const Unit> frequency_units();
std::span<const Unit> rate_units();

/// "1048576", "64KiB", "64K" (the same), "1.5 MiB", "10GB" (powers of 1000). Error names the text.
Result<std::uint64_t> parse_bytes(std::string_view text);
/// "10s", "500ms", "20us", "100 ns", "3h", "2m", "2min"; a bare number is seconds.
Result<Time> parse_duration(std::string_view text);
/// "40MHz", "1kHz", "100" (Hz).
Result<double> parse_frequency_hz(std::string_view text);
/// "10Gb/s", "25 Gbit/s", "100Gbps", "1GB/s": bytes per second.
Result<double> parse_bytes_per_s(std::string_view text);

inline double seconds(Time time) {
    return static_cast<double>(time) / static_cast<double>(ps_per_s);
}

std::string format_bytes(double bytes);       // "64.0 KiB"
std::string format_rate(double bytes_per_s);  // "12.5 GB/s"
std::string format_number(double number);     // "1e+10", "0.25"
std::string format_duration(Time duration);   // "1.50 ms"
std::string duration_text(Time duration);     // "1500us": exact, in the largest unit of which it is a whole number

}  // namespace incast::base

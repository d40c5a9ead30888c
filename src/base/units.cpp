#include "base/units.h"

#include <array>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <utility>

namespace incast::base {
namespace {

std::string_view trim(std::string_view text) {
    while (!text.empty() && text.front() == ' ') {
        text.remove_prefix(1);
    }
    while (!text.empty() && text.back() == ' ') {
        text.remove_suffix(1);
    }
    return text;
}

/// number [space] [unit]
Result<double> parse_with_unit(std::string_view text, std::span<const Unit> units, std::string_view what,
                               std::string_view example) {
    const std::string_view trimmed = trim(text);
    double number = 0;
    const auto [end, error] = std::from_chars(trimmed.data(), trimmed.data() + trimmed.size(), number);
    if (error == std::errc{} && std::isfinite(number) && !std::signbit(number)) {
        const std::string_view unit = trim(trimmed.substr(static_cast<std::size_t>(end - trimmed.data())));
        for (const Unit& candidate : units) {
            if (unit == candidate.name) {
                return number * candidate.factor;
            }
        }
    }
    return Error{"'" + std::string(text) + "' is not " + std::string(what) + " (for example " + std::string(example) +
                 ")"};
}

constexpr double kibi = 1024.0;

// A bare K is 1024, as most tools have it; with a B behind it the prefixes are those of the SI.
constexpr std::array bytes_list = std::to_array<Unit>({{"", 1},
                                                       {"B", 1},
                                                       {"kB", 1e3},
                                                       {"KB", 1e3},
                                                       {"MB", 1e6},
                                                       {"GB", 1e9},
                                                       {"TB", 1e12},
                                                       {"K", kibi},
                                                       {"M", kibi* kibi},
                                                       {"G", kibi* kibi* kibi},
                                                       {"T", kibi* kibi* kibi* kibi},
                                                       {"KiB", kibi},
                                                       {"MiB", kibi* kibi},
                                                       {"GiB", kibi* kibi* kibi},
                                                       {"TiB", kibi* kibi* kibi* kibi}});
constexpr std::array time_list = std::to_array<Unit>(
    {{"", 1}, {"s", 1}, {"ms", 1e-3}, {"us", 1e-6}, {"ns", 1e-9}, {"ps", 1e-12}, {"m", 60}, {"min", 60}, {"h", 3600}});
constexpr std::array frequency_list =
    std::to_array<Unit>({{"", 1}, {"Hz", 1}, {"kHz", 1e3}, {"MHz", 1e6}, {"GHz", 1e9}});
constexpr std::array rate_list = std::to_array<Unit>({{"", 1},
                                                      {"B/s", 1},
                                                      {"kB/s", 1e3},
                                                      {"MB/s", 1e6},
                                                      {"GB/s", 1e9},
                                                      {"TB/s", 1e12},
                                                      {"kb/s", 1e3 / 8},
                                                      {"Mb/s", 1e6 / 8},
                                                      {"Gb/s", 1e9 / 8},
                                                      {"Tb/s", 1e12 / 8},
                                                      {"kbit/s", 1e3 / 8},
                                                      {"Mbit/s", 1e6 / 8},
                                                      {"Gbit/s", 1e9 / 8},
                                                      {"Tbit/s", 1e12 / 8},
                                                      {"kbps", 1e3 / 8},
                                                      {"Mbps", 1e6 / 8},
                                                      {"Gbps", 1e9 / 8},
                                                      {"Tbps", 1e12 / 8}});

std::string print(const char* format, double number, const char* unit) {
    std::array<char, 48> text{};
    const int size = std::snprintf(text.data(), text.size(), format, number, unit);
    return {text.data(), static_cast<std::size_t>(size)};
}

}  // namespace

std::span<const Unit> byte_units() {
    return bytes_list;
}
std::span<const Unit> time_units() {
    return time_list;
}
std::span<const Unit> frequency_units() {
    return frequency_list;
}
std::span<const Unit> rate_units() {
    return rate_list;
}

Result<std::uint64_t> parse_bytes(std::string_view text) {
    const Result<double> bytes = parse_with_unit(text, bytes_list, "a size", "64KiB");
    if (!bytes) {
        return bytes.error();
    }
    if (*bytes > 9e18) {
        return Error{"'" + std::string(text) + "' is too large a size"};
    }
    return static_cast<std::uint64_t>(std::llround(*bytes));
}

Result<Time> parse_duration(std::string_view text) {
    const Result<double> seconds = parse_with_unit(text, time_list, "a duration", "500ms");
    if (!seconds) {
        return seconds.error();
    }
    if (*seconds > 9e6) {
        return Error{"'" + std::string(text) +
                     "' is too long a duration (the clock counts picoseconds, at most 104 days)"};
    }
    return static_cast<Time>(std::llround(*seconds * 1e12));
}

Result<double> parse_frequency_hz(std::string_view text) {
    return parse_with_unit(text, frequency_list, "a frequency", "40kHz");
}

Result<double> parse_bytes_per_s(std::string_view text) {
    return parse_with_unit(text, rate_list, "a rate", "10Gb/s");
}

std::string format_bytes(double bytes) {
    constexpr std::array<const char*, 5> names{"B", "KiB", "MiB", "GiB", "TiB"};
    std::size_t index = 0;
    while (bytes >= kibi && index + 1 < names.size()) {
        bytes /= kibi;
        ++index;
    }
    return print(index == 0 ? "%.0f %s" : "%.1f %s", bytes, names[index]);
}

std::string format_rate(double bytes_per_s) {
    constexpr std::array<const char*, 5> names{"B/s", "kB/s", "MB/s", "GB/s", "TB/s"};
    std::size_t index = 0;
    while (bytes_per_s >= 1000 && index + 1 < names.size()) {
        bytes_per_s /= 1000;
        ++index;
    }
    return print("%g %s", bytes_per_s, names[index]);
}

std::string format_number(double number) {
    return print("%g%s", number, "");
}

std::string duration_text(Time duration) {
    constexpr std::array<std::pair<Time, const char*>, 5> scales{
        {{3600 * ps_per_s, "h"}, {ps_per_s, "s"}, {ps_per_ms, "ms"}, {ps_per_us, "us"}, {ps_per_ns, "ns"}}};
    for (const auto& [unit, name] : scales) {
        if (duration != 0 && duration % unit == 0) return std::to_string(duration / unit) + name;
    }
    return std::to_string(duration) + (duration == 0 ? "" : "ps");
}

std::string format_duration(Time duration) {
    const auto ps = static_cast<double>(duration);
    constexpr std::array<std::pair<double, const char*>, 4> scales{{{static_cast<double>(ps_per_s), "s"},
                                                                    {static_cast<double>(ps_per_ms), "ms"},
                                                                    {static_cast<double>(ps_per_us), "us"},
                                                                    {static_cast<double>(ps_per_ns), "ns"}}};
    for (const auto& [factor, name] : scales) {
        if (std::fabs(ps) >= factor) {
            return print("%.2f %s", ps / factor, name);
        }
    }
    return print("%.0f %s", ps, "ps");
}

}  // namespace incast::base

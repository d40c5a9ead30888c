#include "runtime/machine/machine.h"

#include <algorithm>
#include <array>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <string_view>

#include <fmt/format.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "base/units.h"
#include "runtime/machine/copy_speed.h"
#include "runtime/machine/limits.h"
#include "runtime/machine/run_clock.h"

namespace incast::runtime {
namespace {

std::string first_line(const std::filesystem::path& file) {
    std::ifstream input(file);
    std::string line;
    std::getline(input, line);
    return line;
}

std::string cpu_model() {
    std::ifstream input("/proc/cpuinfo");
    for (std::string line; std::getline(input, line);) {
        if (line.starts_with("model name")) {
            const std::size_t colon = line.find(": ");
            return colon == std::string::npos ? line : line.substr(colon + 2);
        }
    }
    return "unknown";
}

/// The kernel writes "32768K".
std::uint64_t cache_bytes() {
    std::uint64_t largest = 0;
    for (int index = 0; index < 8; ++index) {
        const std::string text = first_line(fmt::format("/sys/devices/system/cpu/cpu0/cache/index{}/size", index));
        if (text.empty()) {
            continue;
        }
        const std::string with_unit = text.back() == 'K' || text.back() == 'M' ? text + "iB" : text;
        if (const Result<std::uint64_t> bytes = base::parse_bytes(with_unit); bytes) {
            largest = std::max(largest, *bytes);
        }
    }
    if (largest == 0) {
        const long reported = sysconf(_SC_LEVEL3_CACHE_SIZE);
        largest = reported > 0 ? static_cast<std::uint64_t>(reported) : 0;
    }
    return largest;
}

std::uint32_t usable_cores() {
    cpu_set_t set;
    CPU_ZERO(&set);
    return sched_getaffinity(0, sizeof set, &set) == 0 ? static_cast<std::uint32_t>(CPU_COUNT(&set)) : 1;
}

std::uint64_t nanoseconds(const timeval& time) {
    return static_cast<std::uint64_t>(time.tv_sec) * 1'000'000'000 + static_cast<std::uint64_t>(time.tv_usec) * 1000;
}

}  // namespace

Machine read_machine() {
    Machine machine;
    utsname names{};
    if (uname(&names) == 0) {
        machine.host = names.nodename;
        machine.kernel = fmt::format("{} {} {}", names.sysname, names.release, names.machine);
    }
    machine.cpu_model = cpu_model();
    machine.cores = usable_cores();
    machine.last_level_cache_bytes = cache_bytes();
    MemoryLimit memory = memory_limit();
    machine.memory_bytes = memory.bytes;
    machine.memory_what = std::move(memory.what);
    machine.plain_over_streaming = plain_over_streaming;
    return machine;
}

Versions versions() {
    return {INCAST_VERSION, INCAST_GIT_DESCRIBE, INCAST_COMPILER, INCAST_BUILD_TYPE};
}

Usage process_usage() {
    rusage usage{};
    getrusage(RUSAGE_SELF, &usage);
    return {nanoseconds(usage.ru_utime) + nanoseconds(usage.ru_stime), static_cast<std::uint64_t>(monotonic_ns()),
            static_cast<std::uint64_t>(usage.ru_maxrss) * 1024};
}

std::uint64_t process_rss_bytes() {
    std::ifstream input("/proc/self/statm");
    std::uint64_t total = 0;
    std::uint64_t resident = 0;
    input >> total >> resident;
    return resident * static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
}

std::string monotonic_clock_id() {
    std::error_code none;  // a kernel without time namespaces has one clock
    return first_line("/proc/sys/kernel/random/boot_id") + " " +
           std::filesystem::read_symlink("/proc/self/ns/time", none).string();
}

std::uint64_t thread_cpu_ns() {
    timespec time{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return static_cast<std::uint64_t>(time.tv_sec) * 1'000'000'000 + static_cast<std::uint64_t>(time.tv_nsec);
}

}  // namespace incast::runtime

#include "runtime/machine/limits.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <fstream>
#include <new>
#include <system_error>

#include <fmt/format.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/units.h"
#include "os/shortage.h"
#include "runtime/machine/exit_status.h"

namespace incast::runtime {
namespace {

constexpr std::uint64_t own_files = 40;  // libraries, log, listener, a few strangers

std::uint64_t limit_of(int resource) {
    rlimit limit{};
    return getrlimit(static_cast<__rlimit_resource_t>(resource), &limit) == 0 ? limit.rlim_cur : RLIM_INFINITY;
}

std::string limit_text(std::uint64_t limit) {
    return limit == RLIM_INFINITY ? "unlimited" : std::to_string(limit);
}

/// Of this process's cgroup and those above it, in both versions; 0: none.
std::uint64_t cgroup_memory() {
    std::uint64_t least = 0;
    std::ifstream groups("/proc/self/cgroup");
    for (std::string line; std::getline(groups, line);) {
        const bool unified = line.starts_with("0::");
        const std::size_t memory = line.find(":memory:");
        if (!unified && memory == std::string::npos) {
            continue;
        }
        const std::string mount = unified ? "/sys/fs/cgroup" : "/sys/fs/cgroup/memory";
        std::filesystem::path group = line.substr(unified ? 3 : memory + 8);
        while (true) {
            std::ifstream file(mount + group.string() + (unified ? "/memory.max" : "/memory.limit_in_bytes"));
            if (std::uint64_t bytes = 0; file >> bytes && (least == 0 || bytes < least)) {
                least = bytes;
            }
            if (!group.has_relative_path()) {
                break;
            }
            group = group.parent_path();
        }
    }
    return least;
}

[[noreturn]] void leave() {
    std::fputs(("incast-node: " + shortage_now() + "\n").c_str(), stderr);
    std::_Exit(exit_failed);
}

}  // namespace

void raise_file_limit() {
    rlimit limit{};
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < limit.rlim_max) {
        limit.rlim_cur = limit.rlim_max;
        setrlimit(RLIMIT_NOFILE, &limit);
    }
}

MemoryLimit memory_limit() {
    MemoryLimit least{
        static_cast<std::uint64_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE)),
        "this machine has"};
    if (const std::uint64_t group = cgroup_memory(); group != 0 && group < least.bytes) {
        least = {group, "the memory cgroup of this process allows"};
    }
    if (const std::uint64_t space = limit_of(RLIMIT_AS); space < least.bytes) {
        least = {space, "the limit of address space (ulimit -v) allows"};
    }
    return least;
}

Result<Ok> check_file_limit(std::uint64_t files, const std::string& who) {
    const std::uint64_t most = limit_of(RLIMIT_NOFILE);
    const std::uint64_t needed = own_files + files;
    if (needed > most) {
        return Error{
            fmt::format("the limit of open files (ulimit -n) is {}; {} need {}", limit_text(most), who, needed)};
    }
    return Ok{};
}

Error with_memory_limit(Error error) {
    for (const char* words : {"out of memory", "Cannot allocate memory"}) {
        if (error.message.ends_with(words)) {
            const MemoryLimit memory = memory_limit();
            error.message += fmt::format("; {} {}", memory.what, base::format_bytes(static_cast<double>(memory.bytes)));
        }
    }
    return error;
}

std::string shortage_now() {
    try {
        throw;
    } catch (const std::bad_alloc&) {
        const MemoryLimit memory = memory_limit();
        return fmt::format("out of memory: {} {}; fewer nodes, protocol.credits or source.memory need less",
                           memory.what, base::format_bytes(static_cast<double>(memory.bytes)));
    } catch (const std::system_error& error) {
        return "cannot start a thread: " + os::process_shortage(error.code().value());
    } catch (const std::exception& error) {
        return fmt::format("cannot go on: {}", error.what());
    } catch (...) {
        return "cannot go on: an exception without a name";
    }
}

void say_so_at_the_end() {
    std::set_terminate(&leave);
}

}  // namespace incast::runtime

// The program `softrio`: the endpoints of a RapidIO fabric by hand (docs/rapidio.md, "Tools").
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "softrio/cpp/channel.h"
#include "softrio/cpp/memory.h"

namespace incast::softrio::tools {

namespace api = incast::rio;

/// `arguments` begin behind the name of the program. Returns the status to exit with.
int run(std::vector<std::string> arguments);

inline constexpr int exit_failed = 1;
inline constexpr int exit_bad_usage = 2;

inline constexpr std::uint16_t service_channel = 1000;
inline constexpr std::uint64_t ping_bytes = 64;  // at the end of a served window: the place of Ping

/// Written last word first by who wants a word back; `serve` looks for it.
struct Ping {
    std::uint64_t sequence = 0;
    std::uint64_t destid = 0;  // where `sequence` is to be written
    std::uint64_t address = 0;
};

/// What a message to `serve` begins with.
struct Note {
    enum class Kind : std::uint32_t { info, echo, sink };  // answered by Info, by itself, or not
    Kind kind = Kind::info;
    std::uint32_t zero = 0;
};
struct Info {
    std::uint64_t address = 0;
    std::uint64_t bytes = 0;
};

struct PerfOptions {
    api::Destid target = 0;
    std::uint64_t from_bytes = 0;
    std::uint64_t up_to_bytes = 0;
    double seconds = 0.2;  // for each figure
    bool json = false;
    std::string only;  // figures whose name contains it
};
int perf(const PerfOptions& options);

struct ServeOptions {
    std::uint64_t address = 0;
    std::uint64_t bytes = 0;
    double seconds = 0;  // 0: until interrupted
};
int serve(const ServeOptions& options);

struct HostOptions {
    std::string listen = "127.0.0.1:0";
    std::uint32_t first = 1;
    bool is_switch = false;
    std::string table;  // of the switch; empty: every id has its route
};
/// Gives ids to endpoints.
int host(const HostOptions& options);

struct LinkOptions {
    static constexpr std::uint32_t same = UINT32_MAX;
    std::uint32_t number = 0;
    std::uint32_t mport = same;
};
/// Makes a master port of the kernel an endpoint of a udp fabric.
int link(const LinkOptions& options);

/// Says so on standard error; the status to exit with.
int fail(const std::string& line);

inline double seconds_since(std::chrono::steady_clock::time_point start) {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace incast::softrio::tools

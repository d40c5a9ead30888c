#include "runtime/launch/member_group.h"

#include <array>
#include <cstdio>
#include <filesystem>
#include <optional>
#include <string>
#include <system_error>
#include <vector>

#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include "base/pause_watch.h"
#include "os/signals.h"
#include "os/socket.h"
#include "runtime/launch/spawner.h"
#include "runtime/machine/exit_status.h"
#include "runtime/machine/limits.h"
#include "runtime/machine/run_clock.h"

namespace incast::runtime {
namespace {

// A coordinator that lost its launcher, too, drains and says goodbye within that.
constexpr Time after_eof = 3 * ps_per_s;
constexpr int poll_ms = 1000;

int refuse(const std::string& coordinator, const std::string& why) {
    std::fputs(fmt::format("incast-node: nodes of {}: {}\n", coordinator, why).c_str(), stderr);
    return exit_refused;
}

/// Whether whoever wrote to standard input has ended. What it says is of no matter.
bool input_ended() {
    std::array<char, 4096> said{};
    return read(STDIN_FILENO, said.data(), said.size()) == 0;
}

}  // namespace

int join_all(const JoinOptions& options, std::uint32_t count, bool until_eof) {
    os::count_interrupts();
    JoinOptions one = options;
    one.output = options.output.empty() ? "." : options.output;
    std::error_code code;
    if (std::filesystem::create_directories(one.output, code); code) {
        return refuse(options.coordinator, fmt::format("--output {}: {}", one.output, code.message()));
    }
    Spawner spawner;
    for (std::uint32_t index = 0; index < count; ++index) {
        if (options.node) {
            one.node = *options.node + index;
        }
        if (const Result<pid_t> started = spawner.start(index, one); !started) {
            return refuse(options.coordinator, started.error().message);
        }
    }
    int status = exit_ok;
    const RunClock clock;
    base::PauseWatch pauses(clock.now(), 2 * ps_per_s);
    std::optional<Time> deadline;  // input has ended
    while (!spawner.children().empty()) {
        std::vector<pollfd> waiting;
        for (const Spawner::Child& child : spawner.children()) {
            waiting.push_back({child.watch.fd(), POLLIN, 0});
        }
        if (until_eof && !deadline) {
            waiting.push_back({STDIN_FILENO, POLLIN, 0});
        }
        poll(waiting.data(), waiting.size(), poll_ms);
        const Time now = clock.now();
        const Time pause = pauses.look(now);
        if (deadline) {
            *deadline += pause;
        } else if (until_eof && waiting.back().revents != 0 && input_ended()) {
            deadline = now + after_eof;
        }
        if (os::interrupts() > 0) {
            return refuse(options.coordinator, "interrupted");  // the spawner kills what is left
        }
        if (deadline && now >= *deadline) {
            return refuse(options.coordinator, "the program that launched them has ended");
        }
        for (const std::uint32_t index : spawner.ended()) {
            const std::optional<std::string> how = spawner.reap(index);
            if (how && how->starts_with("killed")) {
                status = refuse(options.coordinator, fmt::format("one was {}", *how));
            } else if (how && !how->ends_with("status 0")) {
                status = exit_refused;  // it has said why
            }
        }
    }
    return status;
}

}  // namespace incast::runtime

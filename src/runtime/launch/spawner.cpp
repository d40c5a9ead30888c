#include "runtime/launch/spawner.h"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <string_view>
#include <system_error>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/pause_watch.h"
#include "os/shortage.h"
#include "runtime/machine/machine.h"
#include "runtime/machine/run_clock.h"

namespace incast::runtime {
namespace {

constexpr int launcher_ends_ms = 5000;

os::Descriptor watch(pid_t pid) {
    // glibc has had a wrapper since 2.36 only. Its descriptor is close-on-exec.
    return os::Descriptor(static_cast<int>(syscall(SYS_pidfd_open, pid, 0U)));
}

std::string describe(int status) {
    if (WIFSIGNALED(status)) {
        const char* const name = sigdescr_np(WTERMSIG(status));
        return fmt::format("killed by signal {} ({})", WTERMSIG(status), name == nullptr ? "unknown" : name);
    }
    return fmt::format("its process ended with status {}", WEXITSTATUS(status));
}

/// The end that a process reads which is to know the token, and nothing behind it.
os::Descriptor token_to_read(std::string_view token) {
    int ends[2] = {-1, -1};
    if (pipe2(ends, O_CLOEXEC) != 0) {
        return {};
    }
    os::Descriptor reading(ends[0]);
    const os::Descriptor writing(ends[1]);
    const std::string line = fmt::format("{}\n", token);  // a pipe takes that at once
    const bool written = write(writing.fd(), line.data(), line.size()) == static_cast<ssize_t>(line.size());
    return written ? std::move(reading) : os::Descriptor();
}

}  // namespace

Spawner::~Spawner() {
    wait_or_kill(0);
}

Result<pid_t> Spawner::start(std::uint32_t node, const JoinOptions& options) {
    std::vector<std::string> arguments{
        "incast-node", "--join", options.coordinator, "--watched-by", std::to_string(getpid()), "--token-file", "-"};
    if (options.node) {
        arguments.insert(arguments.end(), {"--node", std::to_string(*options.node)});
    }
    if (!options.output.empty()) {
        arguments.insert(arguments.end(), {"--output", options.output});
    }
    arguments.insert(arguments.end(), {"--nodes-here", std::to_string(options.nodes_here)});
    std::vector<char*> argv;
    argv.reserve(arguments.size() + 1);
    for (std::string& argument : arguments) {
        argv.push_back(argument.data());
    }
    argv.push_back(nullptr);
    const os::Descriptor nowhere(open("/dev/null", O_RDWR | O_CLOEXEC));
    const os::Descriptor input = token_to_read(options.token);
    if (!input.is_open()) {
        return Error{fmt::format("cannot start node {}: {}", node, std::generic_category().message(errno))};
    }

    const pid_t pid = fork();
    if (pid < 0) {
        return Error{fmt::format("cannot start node {}: {}", node, os::process_shortage(errno))};
    }
    if (pid == 0) {
        // Standard output belongs to the coordinator's reports; standard error is shared.
        dup2(input.fd(), STDIN_FILENO);
        dup2(nowhere.fd(), STDOUT_FILENO);
        execv("/proc/self/exe", argv.data());
        _exit(127);
    }
    children_.push_back({node, pid, watch(pid)});
    return pid;
}

Result<pid_t> Spawner::launch(std::vector<std::string> words, const JoinOptions& options) {
    std::error_code failed;
    const std::string program = std::filesystem::read_symlink("/proc/self/exe", failed).string();
    words.insert(words.end(), {program, "--join", options.coordinator, "--by-rank", "--output", options.output,
                               "--nodes-here", std::to_string(options.nodes_here)});
    std::vector<char*> argv;
    argv.reserve(words.size() + 1);
    for (std::string& word : words) {
        argv.push_back(word.data());
    }
    argv.push_back(nullptr);
    const os::Descriptor nowhere(open("/dev/null", O_RDWR | O_CLOEXEC));
    const std::string token = "INCAST_TOKEN=" + options.token;
    std::vector<char*> environment{const_cast<char*>(token.c_str())};
    for (char** each = environ; *each != nullptr; ++each) {
        environment.push_back(*each);
    }
    environment.push_back(nullptr);
    const pid_t parent = getpid();
    const pid_t pid = fork();
    if (pid < 0) {
        return Error{fmt::format("cannot start {}: {}", words.front(), os::process_shortage(errno))};
    }
    if (pid == 0) {
        setpgid(0, 0);  // a terminal's Ctrl-C is this program's business
        prctl(PR_SET_PDEATHSIG, SIGTERM);
        if (getppid() != parent) {
            _exit(1);
        }
        // Launchers say much on standard output when a process dies.
        dup2(nowhere.fd(), STDIN_FILENO);
        dup2(nowhere.fd(), STDOUT_FILENO);
        execve(argv.front(), argv.data(), environment.data());
        _exit(127);
    }
    children_.push_back({launcher, pid, watch(pid)});
    return pid;
}

std::vector<std::uint32_t> Spawner::ended() const {
    std::vector<std::uint32_t> nodes;
    for (const Child& child : children_) {
        siginfo_t found{};
        const auto pid = static_cast<id_t>(child.pid);
        if (waitid(P_PID, pid, &found, WEXITED | WNOHANG | WNOWAIT) == 0 && found.si_pid == child.pid) {
            nodes.push_back(child.node);
        }
    }
    return nodes;
}

std::optional<std::string> Spawner::reap(std::uint32_t node) {
    const auto found = std::ranges::find(children_, node, &Child::node);
    int status = 0;
    if (found == children_.end() || waitpid(found->pid, &status, WNOHANG) != found->pid) {
        return std::nullopt;
    }
    children_.erase(found);
    return describe(status);
}

pid_t Spawner::pid_of(std::uint32_t node) const {
    const auto found = std::ranges::find(children_, node, &Child::node);
    return found == children_.end() ? 0 : found->pid;
}

void Spawner::kill_node(std::uint32_t node, int signal) {
    if (const pid_t pid = pid_of(node); pid > 0) {
        kill(pid, signal);
    }
}

void Spawner::wait_or_kill(int timeout_ms) {
    const RunClock since;
    base::PauseWatch pauses(since.now(), ps_per_s);
    Time deadline = timeout_ms * ps_per_ms;
    while (!children_.empty()) {
        const Time now = since.now();
        deadline += pauses.look(now);
        const Time left = deadline - now;
        if (left <= 0) {
            break;
        }
        pollfd waiting{children_.front().watch.fd(), POLLIN, 0};
        poll(&waiting, 1, std::min(100, static_cast<int>(left / ps_per_ms) + 1));
        for (const std::uint32_t node : ended()) {
            reap(node);
        }
    }
    for (const Child& child : children_) {
        if (child.node == launcher && kill(child.pid, SIGTERM) == 0) {
            // It ends what it started, on other hosts, too, stopped ones included.
            pollfd waiting{child.watch.fd(), POLLIN, 0};
            poll(&waiting, 1, launcher_ends_ms);
        }
        kill(child.pid, SIGKILL);
        waitpid(child.pid, nullptr, 0);
    }
    children_.clear();
}

}  // namespace incast::runtime

#include "runtime/sinks/child.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <memory>
#include <system_error>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <spawn.h>
#include <sys/eventfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "os/shortage.h"

extern char** environ;

namespace incast::sinks {
namespace {

constexpr int pipe_bytes = 1 << 20;  // as much as an unprivileged process may have
constexpr int last_words_ms = 500;   // between the end of a pipe and the end of its process

Error os_error(std::string_view what, int code) {
    return Error{fmt::format("{}: {}", what, std::system_category().message(code))};
}

std::string status_text(int status) {
    if (WIFSIGNALED(status)) {
        const char* const name = sigdescr_np(WTERMSIG(status));
        return fmt::format("was killed by signal {} ({})", WTERMSIG(status), name != nullptr ? name : "unknown");
    }
    return fmt::format("ended with status {}", WEXITSTATUS(status));
}

}  // namespace

Result<pid_t> spawn_shell(const std::string& command, int input, int output, std::vector<std::string> environment) {
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    posix_spawn_file_actions_init(&actions);
    posix_spawnattr_init(&attributes);
    posix_spawn_file_actions_adddup2(&actions, input, STDIN_FILENO);
    posix_spawn_file_actions_adddup2(&actions, output, STDOUT_FILENO);
    sigset_t none;
    sigset_t all;
    sigemptyset(&none);
    sigfillset(&all);
    posix_spawnattr_setsigmask(&attributes, &none);
    posix_spawnattr_setsigdefault(&attributes, &all);
    posix_spawnattr_setpgroup(&attributes, 0);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETPGROUP);
    std::vector<char*> variables;
    for (char** each = environ; *each != nullptr; ++each) {
        variables.push_back(*each);
    }
    for (std::string& each : environment) {
        variables.push_back(each.data());
    }
    variables.push_back(nullptr);
    std::array<char*, 4> arguments{const_cast<char*>("sh"), const_cast<char*>("-c"), const_cast<char*>(command.c_str()),
                                   nullptr};
    pid_t pid = 0;
    const int failed = posix_spawn(&pid, "/bin/sh", &actions, &attributes, arguments.data(), variables.data());
    posix_spawn_file_actions_destroy(&actions);
    posix_spawnattr_destroy(&attributes);
    return failed != 0 ? Result<pid_t>(Error{"cannot start /bin/sh: " + os::process_shortage(failed)})
                       : Result<pid_t>(pid);
}

Result<std::unique_ptr<Child>> Child::start(const std::string& command, std::uint32_t node, std::uint32_t incarnation) {
    std::array<int, 2> ends{};
    if (::pipe2(ends.data(), O_CLOEXEC) != 0) {
        return os_error("cannot make a pipe", errno);
    }
    const int wake = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (wake < 0) {
        const int code = errno;
        ::close(ends[0]);
        ::close(ends[1]);
        return os_error("cannot make an eventfd", code);
    }
    (void)::fcntl(ends[1], F_SETPIPE_SZ, pipe_bytes);  // a smaller one works too
    (void)::fcntl(ends[1], F_SETFL, O_NONBLOCK);
    const Result<pid_t> pid =
        spawn_shell(command, ends[0], STDERR_FILENO,
                    {fmt::format("INCAST_SINK_NODE={}", node), fmt::format("INCAST_SINK_INCARNATION={}", incarnation)});
    ::close(ends[0]);
    if (!pid) {
        ::close(ends[1]);
        ::close(wake);
        return pid.error();
    }
    return std::unique_ptr<Child>(new Child(*pid, ends[1], wake));
}

Child::Child(pid_t pid, int pipe, int wake) : pid_(pid), pipe_(pipe), wake_(wake), thread_([this] { run(); }) {}

Child::~Child() {
    stop();
    (void)reap(0);
    ::close(wake_);
}

/// What is queued and not yet written is lost: close() is for the orderly end.
void Child::stop() {
    if (!thread_.joinable()) {
        return;
    }
    {
        const std::lock_guard lock(mutex_);
        stop_ = true;
    }
    const std::uint64_t one = 1;
    (void)!::write(wake_, &one, sizeof one);
    thread_.join();
    ::close(pipe_);
}

std::vector<std::byte> Child::buffer() {
    const std::lock_guard lock(mutex_);
    if (spare_.empty()) {
        return {};
    }
    std::vector<std::byte> buffer = std::move(spare_.back());
    spare_.pop_back();
    buffer.clear();
    return buffer;
}

void Child::submit(std::vector<std::byte> bytes) {
    bool first = false;
    {
        const std::lock_guard lock(mutex_);
        first = queue_.empty();
        queue_.push_back(std::move(bytes));
    }
    if (first) {  // otherwise it is awake
        const std::uint64_t one = 1;
        (void)!::write(wake_, &one, sizeof one);
    }
}

Child::State Child::state() {
    const std::lock_guard lock(mutex_);
    return state_;
}

void Child::run() {
    // A broken pipe is an error of write(); and the node's signals are for its own thread.
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, nullptr);
    while (wait_for_work()) {
        std::unique_lock lock(mutex_);
        while (!queue_.empty() && !stop_) {
            // Stays in the queue while it is written: submit() then knows that nobody has to be woken.
            const std::vector<std::byte>& next = queue_.front();
            lock.unlock();
            const bool written = write(next);
            lock.lock();
            if (!written) {
                state_.broken = !stop_;
                return;
            }
            ++state_.written;
            spare_.push_back(std::move(queue_.front()));
            queue_.pop_front();
        }
    }
}

bool Child::wait_for_work() {
    for (;;) {
        std::uint64_t told = 0;
        (void)!::read(wake_, &told, sizeof told);
        {
            const std::lock_guard lock(mutex_);
            if (stop_) {
                return false;
            }
            if (!queue_.empty()) {
                return true;
            }
        }
        std::array<pollfd, 2> waiting{pollfd{wake_, POLLIN, 0}, pollfd{pipe_, 0, 0}};
        (void)::poll(waiting.data(), waiting.size(), -1);
        if ((waiting[1].revents & (POLLERR | POLLHUP)) != 0) {
            const std::lock_guard lock(mutex_);
            state_.broken = true;
            return false;
        }
    }
}

bool Child::write(const std::vector<std::byte>& bytes) {
    std::size_t done = 0;
    while (done < bytes.size()) {
        const ssize_t written = ::write(pipe_, bytes.data() + done, bytes.size() - done);
        if (written >= 0) {
            done += static_cast<std::size_t>(written);
            continue;
        }
        if (errno == EPIPE || (errno != EAGAIN && errno != EINTR)) {
            return false;
        }
        std::array<pollfd, 2> waiting{pollfd{pipe_, POLLOUT, 0}, pollfd{wake_, POLLIN, 0}};
        (void)::poll(waiting.data(), waiting.size(), -1);
        if ((waiting[1].revents & POLLIN) != 0) {
            std::uint64_t told = 0;
            // It does not block, and run() unlocked. NOLINTNEXTLINE(clang-analyzer-unix.BlockInCriticalSection)
            (void)!::read(wake_, &told, sizeof told);
            const std::lock_guard lock(mutex_);
            if (stop_) {
                return false;
            }
        }
    }
    return true;
}

std::optional<int> Child::reap(int patience_ms) {
    constexpr int look_every_ms = 5;
    for (int waited = 0; !reaped_; waited += look_every_ms) {
        const pid_t ended = ::waitpid(pid_, &status_, WNOHANG);
        reaped_ = ended == pid_ || (ended < 0 && errno != EINTR);
        if (!reaped_ && waited >= patience_ms) {
            return std::nullopt;
        }
        if (!reaped_) {
            (void)::poll(nullptr, 0, look_every_ms);
        }
    }
    return status_;
}

std::string Child::how_it_ended() {
    const std::optional<int> status = reap(last_words_ms);
    return status ? status_text(*status) : "closed its standard input";
}

std::optional<std::string> Child::close(int patience_ms) {
    if (!thread_.joinable() || reaped_) {
        return std::nullopt;
    }
    stop();
    const std::optional<int> status = reap(patience_ms);
    if (!status) {
        return std::nullopt;
    }
    return *status == 0 ? std::string() : status_text(*status);
}

}  // namespace incast::sinks

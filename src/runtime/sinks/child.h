// A command with a pipe to its standard input, and the thread that writes into it: whoever builds events never waits
// for the command.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <sys/types.h>

#include <incast/result.h>

namespace incast::sinks {

/// Starts `command` by /bin/sh, with default signals, in a process group of its own; `environment` is added to this
/// process's, as "NAME=value". `input`, `output`: descriptors that become its standard input and output.
Result<pid_t> spawn_shell(const std::string& command, int input, int output, std::vector<std::string> environment);

class Child {
public:
    /// Starts `command` by /bin/sh in a process group of its own, so that Ctrl-C reaches it only through the end of its
    /// input. What it prints on standard output appears on standard error: the former is the engine's. Error: no pipe
    /// or process can be had.
    static Result<std::unique_ptr<Child>> start(const std::string& command, std::uint32_t node,
                                                std::uint32_t incarnation);
    /// Ends the input if close() did not, without waiting for the command.
    ~Child();
    Child(const Child&) = delete;
    Child& operator=(const Child&) = delete;

    /// An empty buffer to fill and submit; one that was used before, if there is one.
    std::vector<std::byte> buffer();
    /// Never blocks; the caller sees to it that not too much waits.
    void submit(std::vector<std::byte> bytes);

    struct State {
        std::uint64_t written = 0;  // of the buffers submitted, in order: wholly in the pipe
        bool broken = false;        // nothing more will be written
    };
    State state();
    /// Once broken: "ended with status 1", "was killed by signal 9 (Killed)", "closed its standard input". Waits for
    /// half a second at most.
    std::string how_it_ended();

    /// After everything was written: ends the input and waits for the command, at most for `patience_ms`. Nothing if it
    /// is still running then, or if it had ended before; else how it ended, empty if well.
    std::optional<std::string> close(int patience_ms);

private:
    Child(pid_t pid, int pipe, int wake);
    void run();
    bool write(const std::vector<std::byte>& bytes);
    /// Until there is work (true), or the pipe broke or the end has come (false).
    bool wait_for_work();
    void stop();
    [[nodiscard]] std::optional<int> reap(int patience_ms);

    pid_t pid_;
    int pipe_;
    int wake_;  // eventfd: work, or the end
    std::mutex mutex_;
    std::deque<std::vector<std::byte>> queue_;
    std::vector<std::vector<std::byte>> spare_;
    State state_;
    bool stop_ = false;
    bool reaped_ = false;
    int status_ = 0;
    std::thread thread_;  // last: it uses the others
};

}  // namespace incast::sinks

// Where an agent lives: in the test's thread, in a thread of its own, or in a process of its own.
#pragma once

#include <memory>
#include <optional>
#include <span>

#include "agent.h"

namespace incast::conformance {

enum class Mode : std::uint8_t { one_thread, two_threads, two_processes };

class Runner {
public:
    Runner() = default;
    Runner(const Runner&) = delete;
    Runner& operator=(const Runner&) = delete;
    virtual ~Runner() = default;

    /// Starts a command; one at a time. In the test's own thread it is carried out by finish().
    virtual void start(const Command& command) = 0;
    virtual Reply finish() = 0;
    Reply execute(const Command& command) {
        start(command);
        return finish();
    }
    /// kill -9 of the agent's process; false where it has none of its own.
    virtual bool kill() { return false; }
};

/// `medium` is shared by the agents of this process, and may be null: then the agent makes its own.
std::unique_ptr<Runner> run_here(const Recipe& recipe, std::shared_ptr<transport::Medium> medium);
std::unique_ptr<Runner> run_in_thread(const Recipe& recipe, std::shared_ptr<transport::Medium> medium);
/// Forks: to be called before this process has other threads. An agent that starts anew is this program again.
std::unique_ptr<Runner> run_in_process(const Recipe& recipe);
/// In another process of the launcher's, which has nothing else to do now: see serve_as_rank().
std::unique_ptr<Runner> run_in_rank(const Recipe& recipe);
/// The status of this program, if a launcher started it and it is not the first of its processes: that one runs the
/// suite, and others are its agents, one after the other. They meet in the folder INCAST_CONFORMANCE_RANKS.
std::optional<int> serve_as_rank();
/// At the end of the first one: they end, too.
void dismiss_ranks();
/// The status of this program, if it was started to be an agent: main() asks first.
std::optional<int> serve_as_agent(std::span<const char* const> arguments);

}  // namespace incast::conformance

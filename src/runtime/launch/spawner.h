// Node processes started here: one child each, watched, and never left behind.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <sys/types.h>

#include <incast/result.h>

#include "os/socket.h"
#include "runtime/launch/member.h"

namespace incast::runtime {

class Spawner {
public:
    Spawner() = default;
    /// Kills what is left.
    ~Spawner();
    Spawner(const Spawner&) = delete;
    Spawner& operator=(const Spawner&) = delete;

    /// Starts this program again as a node of a run, here known as `node`; it ends with this process. The token goes
    /// over its standard input, which nobody else can read, unlike the command line.
    Result<pid_t> start(std::uint32_t node, const JoinOptions& options);

    /// Of the launcher among the children.
    static constexpr std::uint32_t launcher = ~std::uint32_t{0};
    /// Starts all nodes by a launcher: `words`, then this program by rank. The token goes through its environment,
    /// which no other user can read.
    Result<pid_t> launch(std::vector<std::string> words, const JoinOptions& options);

    struct Child {
        std::uint32_t node = 0;
        pid_t pid = 0;
        os::Descriptor watch;  // readable once the process ended
    };
    [[nodiscard]] const std::vector<Child>& children() const { return children_; }

    /// The nodes whose processes have ended and were not reaped.
    [[nodiscard]] std::vector<std::uint32_t> ended() const;
    /// How the node's process ended, if it has: "killed by signal 9 (Killed)". It is no longer in children().
    std::optional<std::string> reap(std::uint32_t node);
    /// The node's process, if it was started here and has not ended.
    [[nodiscard]] pid_t pid_of(std::uint32_t node) const;
    void kill_node(std::uint32_t node, int signal);
    /// Waits for all to end; those that have not by then are killed, stopped ones too.
    void wait_or_kill(int timeout_ms);

private:
    std::vector<Child> children_;
};

}  // namespace incast::runtime

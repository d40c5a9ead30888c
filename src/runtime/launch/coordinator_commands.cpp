// Nodes that are taken out of a run by command, and let in again, while the others go on.
#include <csignal>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "runtime/launch/coordinator_nodes.h"

namespace incast::runtime {
namespace {

constexpr Time leaves_within = 2 * ps_per_s;  // a node that is asked to

}  // namespace

void Coordinator::Nodes::open_commands() {
    Result<CommandSocket> opened = CommandSocket::open(reporter_.directory());
    if (!opened) {
        // Some file systems have no sockets. Runs that measure messages take no commands anyway.
        const std::string text = "this run takes no commands (incast node): " + opened.error().message;
        if (!plan_.is_net()) reporter_.notice(Level::info, text);
        return;
    }
    commands_ = std::move(*opened);
}

void Coordinator::Nodes::take_commands(Time now) {
    for (CommandSocket::Request& request : commands_.receive()) {
        const std::optional<std::string> command = text_in(request.message, "command");
        const std::optional<std::uint64_t> node = number_in(request.message, "node");
        if (!command || !node || (*command != "out" && *command != "in" && *command != "restart")) {
            CommandSocket::answer(request.from, false, "a command is out, in or restart, and names a node");
        } else if (*node >= members_.size()) {
            CommandSocket::answer(request.from, false,
                                  fmt::format("there is no node {}; allowed: 0..{}", *node, members_.size() - 1));
        } else {
            take_command(static_cast<std::uint32_t>(*node), *command, std::move(request.from), now);
        }
    }
    look_for_stragglers(now);
}

std::string Coordinator::Nodes::refuses(std::uint32_t node, const std::string& command) const {
    const Member& member = members_[node];
    if (plan_.is_net()) {
        return "nodes of raw traffic cannot be taken out: the pattern would be another one";
    }
    if (control_.phase() != Phase::warm_up && control_.phase() != Phase::measuring) {
        return control_.phase() == Phase::joining ? "not all nodes have joined yet" : "the run is ending";
    }
    if (member.asker.is_open()) {
        return fmt::format("node {}: a command is under way", name_of(node));
    }
    if (command == "in") {
        return member.is_out ? "" : fmt::format("node {} is not out", name_of(node));
    }
    if (member.is_out) {
        return command == "restart" ? "" : fmt::format("node {} is out already", name_of(node));
    }
    return control_.why_needed(node);
}

void Coordinator::Nodes::take_command(std::uint32_t node, const std::string& command, os::Descriptor from, Time now) {
    Member& member = members_[node];
    if (const std::string why = refuses(node, command); !why.empty()) {
        return CommandSocket::answer(from, false, why);
    }
    member.asker = std::move(from);
    if (member.is_out) {
        return let_in(node);
    }
    member.is_out = true;
    member.comes_back = command == "restart";
    if (!member.present) {
        return spawner_.pid_of(node) == 0 ? left(node) : spawner_.kill_node(node, SIGKILL);  // it was lost before
    }
    tell(node, {{"type", "quit"}, {"ledger", false}});
    member.leaves_by = now + leaves_within;
}

void Coordinator::Nodes::left(std::uint32_t node) {
    Member& member = members_[node];
    if (spawner_.pid_of(node) != 0) {
        return;  // its process ends
    }
    member.leaves_by = time_never;
    if (std::exchange(member.comes_back, false)) {
        return let_in(node);
    }
    answer(node, true, fmt::format("node {} is out", name_of(node)));
}

void Coordinator::Nodes::let_in(std::uint32_t node) {
    Member& member = members_[node];
    member.is_out = false;
    if (member.spawned == 0) {  // it is somebody else's process, who starts another one
        return answer(node, true, fmt::format("node {} may join again", name_of(node)));
    }
    member.awaited = true;
    if (const Result<pid_t> started = spawner_.start(node, {lobby_.address(), node, token_, {}, 0, nodes_here_});
        !started) {
        member.awaited = false;
        member.is_out = true;
        answer(node, false, fmt::format("node {}: {}", name_of(node), started.error().message));
    }
}

void Coordinator::Nodes::look_for_stragglers(Time now) {
    for (std::uint32_t node = 0; node < members_.size(); ++node) {
        Member& member = members_[node];
        if (now < member.leaves_by) {
            continue;
        }
        member.leaves_by = time_never;
        if (spawner_.pid_of(node) != 0) {
            spawner_.kill_node(node, SIGKILL);
        } else if (member.present) {
            drop(node, "it does not leave", now);
        }
    }
}

void Coordinator::Nodes::is_back(const ViewChange& change) {
    if (change.cause == protocol::Cause::joined && change.node < members_.size() && !members_[change.node].is_out &&
        change.incarnation == members_[change.node].incarnation) {
        answer(change.node, true,
               fmt::format("node {} is back (incarnation {})", name_of(change.node), change.incarnation));
    }
}

}  // namespace incast::runtime

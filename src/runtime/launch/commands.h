// Commands to a running coordinator: a socket named "control" in the run's directory, for programs of this host and of
// this user (or root). One packet asks, in JSON: {"command": "restart", "node": 1}. One packet answers when that is
// done: {"ok": true, "text": "node 1 (RU) is back (incarnation 2)"}. Who hangs up does not take a command back.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include <poll.h>

#include <incast/result.h>

#include "os/descriptor.h"
#include "runtime/launch/rendezvous.h"

namespace incast::runtime {

class CommandSocket {
public:
    static constexpr const char* file_name = "control";

    CommandSocket() = default;  // hears nothing
    CommandSocket(CommandSocket&&) noexcept = default;
    CommandSocket& operator=(CommandSocket&&) noexcept = default;
    /// The file goes with it.
    ~CommandSocket();

    /// Error: the directory's file system has no sockets, say.
    static Result<CommandSocket> open(const std::filesystem::path& directory);

    struct Request {
        os::Descriptor from;
        Json message;  // null: it was no JSON
    };
    void watch(std::vector<pollfd>& waiting) const;
    /// What was asked since the last call.
    std::vector<Request> receive();
    static void answer(os::Descriptor& to, bool ok, const std::string& text);

private:
    static constexpr std::size_t max_waiting = 16;  // that have not asked yet; of more, those that came first go
    static constexpr std::size_t max_bytes = 4096;  // of a request

    os::Descriptor directory_;
    os::Descriptor listener_;
    std::vector<os::Descriptor> waiting_;
};

}  // namespace incast::runtime

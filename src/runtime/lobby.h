// Where nodes of a run knock: listens, lets those in that know the run's token, and refuses everybody else with one
// line each. Strangers cannot disturb the run: they are few at a time, have little time, and may say little.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <poll.h>

#include <incast/result.h>
#include <incast/transport.h>

#include "runtime/rendezvous.h"
#include "runtime/report.h"

namespace incast::runtime {

class Lobby {
public:
    Lobby(std::string token, Reporter& reporter) : token_(std::move(token)), reporter_(reporter) {}

    Result<Ok> open(const std::string& host_port);
    /// "127.0.0.1:4711"
    [[nodiscard]] std::string address() const { return local_address(listener_.fd()); }

    struct Guest {
        Channel channel;
        std::string from;
        std::optional<std::uint32_t> wanted_node;
    };
    /// Adds what to wait for.
    void watch(std::vector<pollfd>& waiting) const;
    /// Accepts, reads and refuses; returns those that are let in. They still have to be given a node, or be refused.
    std::vector<Guest> receive(Time now);
    /// When receive() must be called even if nothing arrives.
    [[nodiscard]] Time next_deadline() const;

    void refuse(Channel& channel, const std::string& from, const std::string& reason);

private:
    struct Stranger {
        Channel channel;
        std::string from;
        Time deadline;
    };
    void accept_all(Time now);
    /// Nothing: not decided yet. Text: refused for that reason. Empty text: let in.
    std::optional<std::string> judge(Stranger& stranger, Time now, std::optional<std::uint32_t>& wanted_node) const;

    static constexpr std::size_t max_strangers = 64;
    static constexpr Time handshake_deadline = 5 * ps_per_s;

    std::string token_;
    Reporter& reporter_;
    Descriptor listener_;
    std::vector<Stranger> strangers_;
};

}  // namespace incast::runtime

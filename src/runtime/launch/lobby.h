// Where nodes of a run knock: listens, lets those in that know the run's token, and refuses everybody else with one
// line each, or a count if they are many. Strangers cannot disturb the run: they are few at a time, have little time,
// may say little, and make room for others.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <poll.h>

#include <incast/result.h>
#include <incast/transport.h>

#include "runtime/launch/rendezvous.h"
#include "runtime/report/audit.h"

namespace incast::runtime {

class Lobby {
public:
    /// `audit` is borrowed. Those that are let in may send frames within `limits`.
    Lobby(std::string token, Audit& audit, FrameLimits limits)
        : token_(std::move(token)), audit_(audit), limits_(limits) {}

    /// Empty: on loopback, whichever kind of address this host has there.
    Result<Ok> open(const std::string& host_port);
    /// "127.0.0.1:4711"
    [[nodiscard]] std::string address() const { return os::local_address(listener_.fd()); }

    struct Joiner {
        [[nodiscard]] std::string no_place() const {
            return wanted_node ? "node " + std::to_string(*wanted_node) + " is taken, or there is none"
                               : "all nodes are there";
        }
        Channel channel;
        std::string from;
        std::optional<std::uint32_t> wanted_node;
        std::optional<base::Versions> control;  // of control messages that it speaks; nothing: it said nonsense
        std::string program;                    // "0.1.0"; empty: it did not say
    };
    /// Adds what to wait for.
    void watch(std::vector<pollfd>& waiting, Time now) const;
    /// Accepts, reads and refuses; returns those that are let in. They still have to be given a node, or be refused.
    std::vector<Joiner> receive(Time now);
    /// Nobody could be heard for so long: deadlines are later by that.
    void forgive(Time pause);
    /// When receive() must be called even if nothing arrives.
    [[nodiscard]] Time next_deadline() const;

    /// `again`: it may be a node of the run that was slow, and should come again.
    void refuse(Time now, Channel& channel, const std::string& from, const std::string& reason, bool again = false);
    /// A node of the run that joins when the run is ending is told so, and nobody else: what ended it was said.
    void refuse_late(Time now, Channel& channel, const std::string& from);

private:
    /// An empty `line` is not said; audit.jsonl has it in any case.
    void turn_away(Time now, Channel& channel, const std::string& from, const std::string& reason, bool again,
                   const std::string& line);

    struct Stranger {
        Channel channel;
        std::string from;
        std::string host;
        Time deadline;
    };
    void accept_all(Time now, std::vector<Joiner>& joiners);
    void make_room(Time now);
    /// False: it is undecided, and stays.
    bool decide(Stranger& stranger, Time now, std::vector<Joiner>& joiners);
    /// Nothing: not decided yet. Text: refused for that reason. Empty text: let in.
    std::optional<std::string> judge(Stranger& stranger, Time now, Joiner& joiner) const;

    static constexpr std::size_t max_strangers = 64;
    static constexpr unsigned accepted_at_once = 32;
    static constexpr Time handshake_deadline = 3 * ps_per_s;
    static constexpr Time accept_pause = 100 * ps_per_ms;  // after a failure, as without descriptors

    std::string token_;
    Audit& audit_;
    FrameLimits limits_;
    Time accept_at_ = 0;  // no connection is taken before
    os::Descriptor listener_;
    std::vector<Stranger> strangers_;
};

}  // namespace incast::runtime

// The nodes of a run as its coordinator knows them: who is there, since when, and what each has said.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "base/allowance.h"
#include "runtime/launch/agreement.h"
#include "runtime/launch/commands.h"
#include "runtime/launch/coordinator.h"
#include "runtime/launch/lobby.h"
#include "runtime/launch/pinning.h"
#include "runtime/launch/spawner.h"
#include "runtime/launch/whereabouts.h"
#include "runtime/machine/placement.h"
#include "runtime/machine/run_clock.h"
#include "runtime/plan/inputs.h"

namespace incast::runtime {

inline constexpr unsigned message_burst = 256;
inline constexpr Time slowest_message_gap = 50 * ps_per_ms;
inline constexpr unsigned messages_per_sample = 10;  // a node sends one per interval, and a few when something happens

/// The nodes as the coordinator knows them.
class Coordinator::Nodes final : public RunNodes {
public:
    Nodes(const Plan& plan, const RunOptions& options, Reporter& reporter)
        : plan_(plan),
          options_(options),
          reporter_(reporter),
          token_(options.token.empty() ? make_token() : options.token),
          run_token_(random_word()),
          inputs_(plan.inputs),
          members_(plan.n_nodes),
          places_(plan.n_nodes),
          nodes_here_(options.spawn.value_or(plan.n_nodes)),
          placement_(may_pin(plan) ? nodes_here_ : 0),
          control_(plan, *this, reporter, clock_.now()),
          lobby_(token_, control_.audit(), {max_sample_frame(plan.n_nodes), max_small_frame}) {
        for (Member& member : members_) {
            member.allowance = base::Allowance(
                message_burst, std::min(slowest_message_gap, plan.sample_interval / messages_per_sample));
        }
    }

    Result<bool> run();
    [[nodiscard]] const RunControl& control() const { return control_; }
    [[nodiscard]] const Inputs& inputs() const { return inputs_; }
    [[nodiscard]] const std::vector<nlohmann::ordered_json>& places() const { return places_; }

    void take_samples(Mark mark) override { tell_all({{"type", "sample"}, {"mark", static_cast<unsigned>(mark)}}); }
    void stop_admission() override {
        for (std::uint32_t node = 0; node < plan_.n_nodes; ++node) {
            if (plan_.is_vital(node)) {
                tell(node, {{"type", "stop"}});
            }
        }
    }
    void start_triggers(Time origin) override {
        triggers_ = {{"type", "triggers"}, {"origin_ns", origin / ps_per_ns}};
        tell_all(triggers_);
    }

private:
    struct Member {
        Channel channel;
        std::string from;
        std::uint32_t incarnation = 0;
        std::uint32_t spawned = 0;  // how often a process was started for it
        bool awaited = false;       // a process was started that has not come in yet
        bool present = false;
        bool silent = false;
        bool told_inputs = false;
        std::string address;  // of the present incarnation; empty: not yet known
        std::string metrics;  // HOST:PORT; empty: none
        Time last_heard = 0;
        base::Allowance allowance{message_burst, slowest_message_gap};  // beyond it, what it says waits in its socket
        bool has_more = false;                                          // that was not read yet
        Time read_at = 0;                                               // no sooner
        bool is_out = false;                                            // by command, or about to be
        bool comes_back = false;                                        // as soon as it is out
        Time leaves_by = time_never;                                    // or it is made to
        os::Descriptor asker;                                           // who waits for the outcome of a command
    };

    Result<Ok> start();
    void announce_join(std::uint32_t spawned);
    /// Returns how long it meant to sleep at most.
    Time wait();
    void forgive(Time pause);
    void admit(Lobby::Joiner joiner, Time now);
    [[nodiscard]] std::optional<std::uint32_t> place_for(const Lobby::Joiner& joiner) const;
    enum class Share : std::uint8_t { fair, all };
    void receive_from(std::uint32_t node, Time now, Share share = Share::fair);
    /// False: the message makes no sense.
    bool handle(std::uint32_t node, const Json& message, Time now);
    void learn_address(std::uint32_t node, std::string address, Time now);
    void learn_metrics(std::uint32_t node, std::string address, Time now);
    void learn_inputs(std::uint32_t node);
    [[nodiscard]] std::string name_of(std::uint32_t node) const {
        return node_name(node, plan_.protocol.nodes[node].roles);
    }
    [[nodiscard]] Json peer_entry(std::uint32_t node) const {
        return {node, members_[node].incarnation, members_[node].address};
    }
    /// `last_words`: the node itself said why, which is better than how its process ended.
    void drop(std::uint32_t node, const std::string& why, Time now, bool last_words = false);
    void reap(Time now);
    void place(Time now);
    void look_for_silence(Time now);
    void tell_ended(std::uint32_t node);
    void respawn(std::uint32_t node, Time now);
    // Commands (coordinator_commands.cpp).
    void open_commands();
    void take_commands(Time now);
    void take_command(std::uint32_t node, const std::string& command, os::Descriptor from, Time now);
    /// Why not; empty: it may.
    [[nodiscard]] std::string refuses(std::uint32_t node, const std::string& command) const;
    /// A node that is out by command has no process any more.
    void left(std::uint32_t node);
    void let_in(std::uint32_t node);
    /// Those that do not leave by themselves are made to.
    void look_for_stragglers(Time now);
    /// The event manager has a node in its view.
    void is_back(const ViewChange& change);
    /// Ends a command that somebody waits for.
    void answer(std::uint32_t node, bool ok, const std::string& text) {
        CommandSocket::answer(members_[node].asker, ok, text);
    }
    void tell(std::uint32_t node, const Json& message);
    void tell_all(const Json& message);
    void say_goodbye();

    const Plan& plan_;
    const RunOptions& options_;
    Reporter& reporter_;
    RunClock clock_;  // the run's
    std::string token_;
    std::uint64_t run_token_;
    Inputs inputs_;
    std::vector<Member> members_;  // by node
    std::vector<nlohmann::ordered_json> places_;
    Spawner spawner_;
    std::uint32_t nodes_here_;  // that are started here
    Placement placement_;
    RunControl control_;
    Lobby lobby_;
    CommandSocket commands_;
    Agreement agreement_;
    std::string launcher_;     // that starts the nodes, if their transport has one
    bool introduced_ = false;  // everybody has heard of everybody
    Json triggers_;            // null: they have not started
};

}  // namespace incast::runtime

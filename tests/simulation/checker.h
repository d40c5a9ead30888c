// What must hold whatever happens (docs/protocol.md), checked from outside the protocol: from the control messages on
// the wire, from what lands in the memory of builder units, and from what sources, sinks and the ledger are told.
//
// What a node says to itself does not pass the wire. So a BU on the EM's node is judged by its deliveries alone, and a
// contribution of an RU to the BU of its own node by its head alone.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "judge.h"
#include "plan.h"
#include "protocol/interfaces.h"
#include "sim/world.h"
#include "wire/control.h"

namespace incast::adversary {

/// What source `source` has for MEP `mep`: a function of the two and the seed, so that a mix-up shows.
struct Contribution {
    std::uint32_t bytes = 0;
    std::uint32_t n_events = 0;
    std::uint64_t first_event = 0;
    wire::SourceFlag flag = wire::SourceFlag::ok;
};
Contribution contribution_of(const Plan& plan, protocol::MepId mep, std::uint32_t source);

class Checker final : public sim::Observer, public protocol::Ledger {
public:
    Checker(const Plan& plan, sim::World& world, Judge& judge);

    void node_started(std::uint32_t node, std::uint32_t incarnation, sim::EndpointId endpoint);
    /// The run is over: what the EM admitted is the first `admitted` MEPs, and nothing of them is lost.
    void finish(std::uint64_t admitted);

    // --- from sources and sinks
    // --------------------------------------------------------------------------------------------------
    void produced(std::uint32_t node, protocol::MepId below) { produced_[node] = below; }
    [[nodiscard]] bool is_committed(protocol::MepId mep) const { return mep < meps_.size() && meps_[mep].committed; }
    [[nodiscard]] std::uint64_t committed_count() const { return committed_count_; }
    void taken(std::uint32_t node, std::uint32_t incarnation, const protocol::BuiltMep& mep);
    void decided(std::uint32_t node, std::uint32_t incarnation, const protocol::BuiltMep& first,
                 protocol::Filter::Verdict verdict);
    void durable(std::uint32_t node, std::uint32_t incarnation, protocol::MepId mep);
    template <class... Args>
    void misuse(fmt::format_string<Args...> format, Args&&... args) {
        judge_.violation("interface", format, std::forward<Args>(args)...);
    }
    template <class... Args>
    void violation(const char* rule, fmt::format_string<Args...> format, Args&&... args) {
        judge_.violation(rule, format, std::forward<Args>(args)...);
    }
    void mark(std::string_view name) { judge_.mark(name); }
    /// What is posted meanwhile is false: the rules are for what the node says itself.
    void lies(bool begins) {
        lying_ = begins;
        judge_.mark("lie", begins ? 1 : 0);
    }

    // --- from the EM
    // -------------------------------------------------------------------------------------------------------------
    void committed(const protocol::LedgerEntry& entry) override;
    void view_changed(Time now, std::uint32_t view, Peer node, std::uint32_t incarnation, wire::Change change,
                      protocol::Cause cause) override;

    // --- from the world
    // ----------------------------------------------------------------------------------------------------------
    void message_posted(Time now, sim::EndpointId from, sim::EndpointId to, Bytes message) override;
    void message_delivered(Time now, sim::EndpointId from, sim::EndpointId to, Bytes message) override;
    void write_posted(Time now, sim::EndpointId from, sim::EndpointId to, const sim::Transfer& write) override;
    void notice_delivered(Time now, sim::EndpointId from, sim::EndpointId to, const sim::Transfer& write) override;
    void landed(Time now, sim::EndpointId from, sim::EndpointId to, const sim::Transfer& write,
                std::uint8_t parts) override;
    void peer_down(Time now, sim::EndpointId at, sim::EndpointId peer) override;
    // checker_reads.cpp
    void read_posted(Time now, sim::EndpointId from, sim::EndpointId to, const sim::Transfer& read) override;
    void read_taken(Time now, sim::EndpointId from, sim::EndpointId to, const sim::Transfer& read,
                    std::uint8_t parts) override;
    void read_landed(Time now, sim::EndpointId from, sim::EndpointId to, const sim::Transfer& read,
                     std::uint8_t parts) override;
    void read_completed(Time now, sim::EndpointId from, sim::EndpointId to, const sim::Transfer& read,
                        Status status) override;
    /// Reads under way of that endpoint or from it: it is about to crash.
    void crashes(sim::EndpointId endpoint);

private:
    /// One incarnation of a node that was in the view.
    struct Membership {
        std::uint32_t incarnation = 0;
        std::optional<protocol::MepId> from;  // once it is on the wire
        bool lost = false;
    };
    /// One credit of a BU incarnation.
    struct Credit {
        std::uint16_t slot = wire::unknown_slot;  // until it is granted
        bool at_em = false;                       // the grant was delivered
        bool assigned = false;                    // an assign was posted
        bool bound = false;                       // to mep and attempt, by an assign or an announcement
        std::size_t views = 0;                    // published when the EM got it
        protocol::MepId mep = 0;
        std::uint16_t attempt = 0;
    };
    struct Verdict {
        protocol::MepId mep = 0;
        std::uint16_t attempt = 0;
        bool redelivered = false;
    };
    /// One incarnation of a BU.
    struct Builder {
        std::uint32_t node = 0;
        std::uint32_t incarnation = 0;
        std::vector<Credit> credits;      // [credit - 1]
        std::uint32_t granted = 0;        // the last credit
        std::uint32_t assigned = 0;       // the last credit
        std::size_t entered = 0;          // the view in which it came in
        std::vector<std::uint32_t> open;  // by slot: the credit it is granted or assigned for; 0: none
        std::vector<Verdict> verdicts;    // granted and delivered
        std::map<std::pair<protocol::MepId, std::uint32_t>, protocol::Filter::Verdict> decisions;  // by MEP and attempt
    };
    /// What one incarnation has asked for or sent and not seen the end of (EB-C2), by the peer's incarnation.
    struct Outstanding {
        std::map<sim::EndpointId, std::uint64_t> unplaced;                // RU: contributions
        std::map<sim::EndpointId, std::uint64_t> sent;                    // RU: over this connection
        std::map<sim::EndpointId, std::vector<std::uint32_t>> requested;  // BU: credits
    };
    /// Where an incarnation of an RU is in the schedule (EB-C6).
    struct Sender {
        std::uint64_t phase = 0;                     // it was told of
        std::uint64_t phase_posted = 0;              // the EM told it
        std::uint64_t done = 0;                      // that the EM heard of
        std::optional<std::uint32_t> last;           // in this phase or slot: the BU served last
        std::int64_t slot = -1;                      // of the last contribution
        std::optional<Time> begun;                   // the last contribution
        std::vector<sim::EndpointId> served;         // in this phase
        std::map<sim::EndpointId, bool> unfinished;  // begun, and not all of it is out
        // Source-credits: what it was granted, slots by BU and credit, and what it has not begun to send.
        struct Announced {
            std::uint32_t bu = 0;
            std::uint32_t credit = 0;
        };
        std::map<std::uint32_t, std::map<std::uint32_t, std::uint16_t>> credits;
        std::map<protocol::MepId, Announced> announced;
        Time clock_error = time_never / 4;  // what it may take the EM's clock to be off by, when taken
        Time clock_taken = 0;
        [[nodiscard]] Time clock_error_at(Time now) const { return clock_error + (now - clock_taken) / 5000; }
    };
    /// One read of a BU.
    struct Read {
        sim::EndpointId reader = 0;
        sim::EndpointId owner = 0;
        std::uint64_t slot = 0;
        std::uint32_t source = 0;
        std::uint32_t credit = 0;  // the slot was in service for; 0: not known
        bool over = false;
        std::optional<protocol::MepId> halves[2];  // whose bytes were read
    };
    struct Delivery {
        std::uint32_t node = 0;
        std::uint32_t incarnation = 0;
        std::uint16_t attempt = 0;
        bool redelivered = false;
        bool durable = false;
        std::uint32_t flagged_sources = 0;
    };
    struct Mep {
        bool admitted = false;
        bool committed = false;
        std::uint16_t latest_attempt = 0;   // seen assigned
        std::uint16_t granted_attempt = 0;  // seen granted
        std::uint32_t granted_node = 0;
        std::uint32_t granted_incarnation = 0;
        std::vector<Delivery> deliveries;
        std::uint64_t first_event = 0;
        std::uint32_t n_events = 0;  // as delivered, where they are counted; 0: not known
        std::uint32_t closed = 0;    // as the EM ordered; 0: it did not
    };

    [[nodiscard]] bool is_em(std::uint32_t node) const { return Peer{node} == plan_.config.em; }
    /// That node's RU writes what the EM announces.
    [[nodiscard]] bool pushes(std::uint32_t node) const {
        const protocol::Scheme scheme = plan_.config.scheme;
        return scheme == protocol::Scheme::push ||
               (scheme == protocol::Scheme::push_pull && ru_of_node_[node] < plan_.config.first_stage_rus);
    }
    [[nodiscard]] std::uint32_t node_of(sim::EndpointId id) const {
        return static_cast<std::uint32_t>(world_.options(id).self);
    }
    [[nodiscard]] std::uint32_t incarnation_of(sim::EndpointId id) const { return world_.options(id).incarnation; }
    [[nodiscard]] const Membership* in_view(std::uint32_t node) const;
    [[nodiscard]] Membership* membership(std::uint32_t node, std::uint32_t incarnation);
    /// The incarnation of an RU that took part in that MEP; nullptr if none did.
    [[nodiscard]] const Membership* holder(std::uint32_t node, protocol::MepId mep) const;
    [[nodiscard]] bool rejected(const Builder& builder, protocol::MepId mep, std::uint32_t attempt) const;
    Builder* builder(std::uint32_t node, std::uint32_t incarnation);
    Builder* builder_at(sim::EndpointId endpoint);

    // checker_credits.cpp
    void know_credit(Builder& unit, std::uint32_t credit) const;
    void check_grants(sim::EndpointId from, sim::EndpointId to, const wire::ControlView& message);
    void grants_delivered(sim::EndpointId from, sim::EndpointId to, const wire::ControlView& message);
    void announce_delivered(sim::EndpointId to, const wire::ControlView& message);
    void check_credit(sim::EndpointId from, sim::EndpointId to, const sim::Transfer& write);
    void check_static(const Builder& target, const Credit& credit, protocol::MepId mep);
    void bind(Builder& builder, std::uint32_t credit, std::uint16_t slot, protocol::MepId mep, std::uint16_t attempt);
    void admit(protocol::MepId mep, std::uint16_t attempt);
    void check_assigns(sim::EndpointId to, const wire::ControlView& message);
    void check_announce(std::uint32_t to, const wire::ControlView& message);
    void check_verdicts(sim::EndpointId to, const wire::ControlView& message);
    void check_requests(sim::EndpointId from, sim::EndpointId to, const wire::ControlView& message);
    // checker_schedule.cpp
    void check_turn(Time now, sim::EndpointId from, sim::EndpointId to, const sim::Transfer& write);
    void check_slot(Time now, sim::EndpointId from, std::uint32_t bu);
    void check_clock(Time now, sim::EndpointId at, const wire::ControlView& message);
    void check_phase_posted(sim::EndpointId to, const wire::ControlView& message);
    void check_phase_done(sim::EndpointId from, const wire::ControlView& message);
    void answered(sim::EndpointId at, sim::EndpointId by, std::uint32_t credit);
    struct Place {
        std::uint64_t slot = ~std::uint64_t{0};
        std::uint64_t offset = 0;  // within the source's part of it
    };
    [[nodiscard]] Place place_of(const sim::Transfer& write, std::uint32_t source) const;
    void learn_view(const wire::ControlView& message);
    // checker_reads.cpp
    void offer_delivered(sim::EndpointId from, sim::EndpointId to, const wire::ControlView& message);
    [[nodiscard]] std::optional<protocol::MepId> held_at(sim::EndpointId owner, const sim::Transfer& read) const;
    void check_read(const Builder& own, std::uint32_t node, const protocol::BuiltMep& mep, std::uint32_t source);
    void note_events(std::uint32_t node, const protocol::BuiltMep& mep);
    void check_closes(const wire::ControlView& message);
    std::string not_whole(const Builder& own, const protocol::BuiltMep& mep, std::uint32_t source);
    void check_source(Builder* builder, std::uint32_t node, const protocol::BuiltMep& mep, std::uint32_t source);
    /// The head that what a write carries belongs to: its own, or that of the write before it that had one.
    [[nodiscard]] const wire::Head* head_of(const sim::Transfer& write) const;
    void tell(sim::EndpointId from, sim::EndpointId to, const wire::ControlView& message);

    const Plan& plan_;
    sim::World& world_;
    Judge& judge_;
    protocol::SlotLayout layout_;
    std::uint32_t slots_;

    std::vector<std::vector<Membership>> views_;  // by node, oldest first
    std::vector<protocol::MepId> available_;      // by node: delivered to the EM from the incarnation in the view
    std::vector<protocol::MepId> produced_;
    std::vector<Builder> builders_;
    std::vector<Outstanding> outstanding_;                                         // by endpoint
    std::map<std::pair<sim::EndpointId, sim::EndpointId>, wire::Head> last_head_;  // posted, by sender and receiver
    std::map<std::uint64_t, wire::Head> heads_;                                    // by number of the write
    std::map<std::uint64_t, Read> reads_;                                          // by number of the read
    std::vector<std::uint32_t> builder_at_;                                        // by endpoint: index + 1
    std::vector<Sender> senders_;                                                  // by endpoint
    std::vector<std::uint32_t> ru_of_node_;                                        // index among the RUs of the config
    std::vector<std::uint32_t> bu_of_node_;
    std::vector<std::uint32_t> ru_first_source_;
    std::uint32_t bus_ = 0;
    std::uint32_t period_ = 0;                        // of the schedule
    std::uint64_t phase_ = 0;                         // the newest one
    std::uint64_t expired_ = 0;                       // barriers, as the EM says
    std::vector<std::vector<std::uint32_t>> bus_in_;  // by view: nodes of its BUs
    std::vector<Mep> meps_;
    protocol::MepId committed_below_ = 0;
    std::uint64_t committed_count_ = 0;
    bool lying_ = false;
};

}  // namespace incast::adversary

// The event manager: who is in the view, which BU builds which MEP, and the ledger of commits (EB-C1, EB-C3 to EB-C5,
// EB-F1 to EB-F6).
//
// A MEP lives in a window [watermark, next): waiting -> assigned -> granted -> committed. Ids are admitted in order,
// and only what every RU in the view holds. Handlers change state; flush() sends. Announcements and aborts to RUs are
// one log with a cursor per RU (EB-C4): an entry is built once, whatever the number of RUs. View changes are a second
// log, replayed whole to every newcomer.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/bitmap.h"
#include "base/fifo.h"
#include "protocol/barrier.h"
#include "protocol/claims.h"
#include "protocol/interfaces.h"
#include "protocol/port.h"
#include "protocol/shape.h"

namespace incast::protocol {

class EventManager {
public:
    EventManager(Port& port, const Shape& shape, Ledger* ledger);

    void start(Time now);
    void on_connection_lost(Time now, Peer peer, std::uint32_t incarnation);
    /// True if the message was one for the EM from a node whose hello was taken (or is one).
    bool on_message(Time now, Peer from, const wire::ControlView& message);
    void tick(Time now);
    /// Sends what is due. `idle`: also what waits for company.
    void flush(Time now, bool idle);

    [[nodiscard]] Time next_deadline() const;
    [[nodiscard]] bool formed() const { return formed_; }
    void stop_admission() { stopped_ = true; }

    /// Nodes that were evicted since the last call; the node drops their connections.
    std::vector<Peer>& evicted() { return evicted_; }

private:
    enum class Standing : std::uint8_t { absent, joining, in_view };
    enum class MepState : std::uint8_t { waiting, assigned, granted, committed };

    using Announcement = wire::ControlMessage<wire::ControlKind::announce>;

    struct Member {
        Standing standing = Standing::absent;
        std::uint32_t incarnation = 0;
        std::uint32_t roles = 0;
        Time last_heard = 0;
        std::uint32_t view_cursor = 0;
        bool told_end = false;
        bool owes_beat = false;
        MepId from_mep = 0;  // the first it takes part in
        // RU
        MepId available_below = 0;
        MepId told_released = 0;
        std::uint64_t log_cursor = 0;
        std::uint64_t total_meps = 0;
        std::uint64_t told_phase = 0;
        bool open = false;  // it holds `open_events` of MEP available_below, and waits to be told its end
        std::uint32_t open_events = 0;
        std::uint64_t told_close = 0;
        Time clock_asked = 0;  // what it said when it asked for the time
        Time clock_heard = 0;  // when that came
    };
    struct Credit {
        std::uint32_t credit = 0;
        std::uint16_t slot = 0;
    };
    struct Builder {
        std::uint32_t granted = 0;
        std::uint32_t assigned = 0;  // source-credits: the last credit that has a MEP
        base::Fifo<Credit> free;
        base::Fifo<wire::AttemptEntry> assigns;
        base::Fifo<wire::AttemptEntry> verdicts;
    };
    struct Mep {
        MepState state = MepState::waiting;
        bool redelivered = false;
        bool rejected = false;
        std::uint16_t attempt = 0;
        std::uint16_t slot = 0;
        std::uint32_t credit = 0;
        std::uint32_t bu = 0;  // index in shape.bus
        std::uint32_t missing_sources = 0;
        std::uint32_t defective_sources = 0;
        std::uint32_t late_before = 0;  // attempts
        Time assigned = 0;
        std::uint32_t n_events = 0;
    };
    struct LogRecord {
        wire::AttemptEntry attempt;  // .bu is the node
        std::uint32_t bu_incarnation = 0;
        bool abort = false;
    };
    /// Which incarnation of the other each side of an (RU, BU) pair reported to be connected with; 0: none.
    struct Link {
        std::uint32_t ru_incarnation = 0;  // reported by the BU
        std::uint32_t bu_incarnation = 0;  // reported by the RU
    };
    struct Suspicion {
        Peer reporter{};
        std::uint32_t reporter_incarnation = 0;
        Peer about{};
        std::uint32_t about_incarnation = 0;
        Time decide_at = 0;
        Time settle_at = 0;  // no later, whatever the other says by then
    };

    Member& member(Peer peer) { return members_[static_cast<std::size_t>(peer)]; }
    Mep& mep(MepId id) { return window_[id & (window_.size() - 1)]; }
    Link& link(std::size_t bu, std::size_t ru) { return links_[bu * shape_.rus.size() + ru]; }
    [[nodiscard]] const Member& member(Peer peer) const { return members_[static_cast<std::size_t>(peer)]; }

    void on_grant(Peer from, const wire::ControlView& message);
    void on_available(Time now, Peer from, MepId below);
    void on_commit_request(Time now, Peer from, const wire::ControlView& message);
    void on_committed(Peer from, const wire::ControlView& message);
    void on_late(Time now, Peer from, const wire::ControlView& message);
    bool blame(Time now, Peer from, const wire::ControlView& message);
    void refuse_claim(Time now, Peer from);
    void watch_oldest(Time now);
    [[nodiscard]] std::uint32_t most_missing(MepId id) const;
    void on_phase_done(Peer from, const wire::ControlView& message);

    // closing.cpp
    void on_open(Time now, Peer from, const wire::ControlView& message);
    void count_events(Mep& admitted);
    void close_open();
    [[nodiscard]] bool flush_close(Peer peer, Member& to);
    [[nodiscard]] std::uint32_t events_of(MepId id, std::uint64_t first_event) const;
    [[nodiscard]] std::uint64_t first_event_of(MepId id) const;

    // membership.cpp
    void on_hello(Time now, Peer from, const wire::ControlView& message);
    void on_connected(Peer from, const wire::ControlView& message);
    void on_peer_lost(Time now, Peer from, const wire::ControlView& message);
    void report(Peer from, wire::PeerEntry entry, bool up);
    void suspect(Time now, Peer reporter, wire::PeerEntry about);
    void decide_suspicions(Time now);
    void forgive(Time now, Time pause);
    [[nodiscard]] bool current(const Suspicion& suspicion) const;
    [[nodiscard]] bool confirmed(const Suspicion& suspicion) const;
    [[nodiscard]] bool carries_data(Peer one, Peer other) const;
    void forget_complaints(std::size_t node);
    /// Of the first about the second, both of the incarnations that are in.
    [[nodiscard]] std::size_t complaint(Peer reporter, Peer about) const {
        return static_cast<std::size_t>(reporter) * members_.size() + static_cast<std::size_t>(about);
    }
    [[nodiscard]] Peer culprit(const Suspicion& suspicion) const;
    void form(Time now);
    void admit_joining(Time now);
    [[nodiscard]] bool linked(std::size_t bu, std::size_t ru) const;
    [[nodiscard]] bool linked_with_view(Peer peer) const;
    void enter_view(Time now, Peer peer);
    void evict(Time now, Peer peer, Cause cause);
    [[nodiscard]] bool evictable(Peer peer) const { return peer != port_.self(); }

    void assign(Time now, MepId id, std::uint32_t bu);
    [[nodiscard]] Credit take_credit(std::uint32_t bu);
    void assign_all(Time now);
    void reassign(MepId id);
    [[nodiscard]] std::size_t builder_for(MepId id);
    void learn_builders();
    void turn_phase(Time now);
    void answer_clocks(Time now);
    void verdict(std::uint32_t bu, const wire::AttemptEntry& entry, std::uint16_t flags);
    [[nodiscard]] MepId admission_limit();
    [[nodiscard]] bool log_room();
    [[nodiscard]] bool is_void(const LogRecord& record) const;
    [[nodiscard]] bool ended() const {
        return formed_ && (stopped_ || (total_ > 0 && next_ >= total_)) && watermark_ == next_;
    }

    [[nodiscard]] MepId released_below();
    void find_due(Time now, bool idle, bool beat);
    void flush_views(Peer peer, Member& to);
    bool flush_ru(Peer peer, Member& to);
    [[nodiscard]] bool flush_log(Peer peer, Member& to, std::uint64_t end, MepId released);
    Announcement& announcement(std::uint64_t cursor, std::uint64_t end, MepId released);
    [[nodiscard]] bool flush_phase(Peer peer, Member& to, MepId released);
    bool flush_bu(Peer peer, Builder& builder);

    Port& port_;
    const Shape& shape_;
    Ledger* ledger_;

    std::vector<Member> members_;
    std::vector<Builder> builders_;
    std::vector<Link> links_;         // per (BU, RU)
    std::size_t first_unlinked_ = 0;  // where form() looks first
    std::vector<wire::ViewEntry> views_;
    std::vector<Suspicion> suspicions_;
    std::vector<Peer> evicted_;

    std::vector<Mep> window_;
    MepId watermark_ = 0;  // all below are committed
    MepId next_ = 0;       // first not admitted
    std::uint64_t waiting_ = 0;
    base::Bitmap bus_with_credit_;  // source-credits: those in the view
    std::size_t next_bu_ = 0;
    std::vector<std::uint32_t> bus_in_view_;  // where ids name BUs
    std::uint32_t bus_known_at_ = 0;          // the view that these are of

    // Where a MEP ends (EB-C8). One order at a time is enough: nobody asks for the next before it has the last one.
    std::vector<std::uint32_t> closed_events_;  // by MEP of the window; 0: it is full, or not decided
    std::uint64_t next_event_ = 0;              // first event of next_
    MepId closed_below_ = 0;                    // no MEP from here on was closed early ...
    MepId decided_below_ = 0;                   // ... and of those from here on the end is not decided
    std::uint64_t closes_ = 0;                  // orders so far; the last one:
    wire::CloseBody close_{};
    bool asked_ = false;         // some RU waits for one
    bool look_at_open_ = false;  // and what it depends on has changed

    Barrier barrier_;
    base::Bitmap complaints_;              // by complaint()
    std::vector<std::uint32_t> quarrels_;  // per node, of all its incarnations: lost connections that cost a node
    Claims claims_;
    struct {
        MepId mep = 0;
        std::uint16_t attempt = 0;
        Time since = 0;
    } oldest_;  // attempt that is not complete, as watch_oldest() saw it last
    base::Bitmap clock_asks_;
    Time clock_next_ = time_never;  // when the next answer may be sent

    std::vector<LogRecord> log_;
    std::uint64_t log_head_ = 0;
    std::uint64_t log_tail_ = 0;  // at most the oldest cursor
    // The announcement built last in this flush, of the log's records from `first` to `next`.
    struct {
        std::optional<Announcement> message;
        std::uint64_t first = 0;
        std::uint64_t next = 0;
        std::uint64_t end = 0;  // it was to reach
    } announced_;

    // What was last looked at by find_due(): members are visited only if something changed for them.
    base::Bitmap due_;  // members that may have something to be told
    std::size_t views_looked_ = 0;
    std::uint64_t log_looked_ = 0;
    std::uint64_t phase_looked_ = 0;
    MepId released_ = 0;  // what RUs may be told
    MepId release_looked_ = 0;
    MepId release_told_ = 0;   // of that, to every RU, whether much or little
    Time release_at_ = 0;      // little is told no earlier
    Time announce_at_ = 0;     // what is new in the log is told no earlier
    MepId held_below_ = 0;     // MEPs below are held by all RUs in the view
    bool held_known_ = false;  // and still are
    bool any_ru_ = false;      // in the view

    MepId total_ = 0;  // 0: not known
    bool stopped_ = false;
    bool formed_ = false;
    bool membership_changed_ = false;
    bool lazy_ = false;    // something waits for company
    bool forgot_ = false;  // Plant::forgotten_reassign happens once
    Time last_step_ = 0;
    Time next_check_ = 0;
    Time next_beat_ = 0;
};

}  // namespace incast::protocol

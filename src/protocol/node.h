// A node of the event builder: any of EM, RU and BU, on one transport endpoint, driven by one thread.
// Sans-IO: no clock, thread or socket; it acts only through the transport, the source, the sink and the ledger it was
// given. A Node lives as long as one incarnation. When the EM drops it (state evicted), the environment makes a new
// Node on a new endpoint with a higher incarnation; no unit has a reset path.
#pragma once

#include <array>
#include <cstdint>
#include <memory>

#include "protocol/config.h"
#include "protocol/interfaces.h"

namespace incast::protocol {

struct Shape;

enum class NodeState : std::uint8_t {
    joining,    // connecting, saying hello
    running,    // in the view
    finished,   // the EM ended the run: every admitted MEP is committed
    evicted,    // the EM dropped this incarnation, or the connection to it was lost
    em_silent,  // no sign of life from the EM for detection_deadline
};

/// Counted since start; plain numbers, read by the owner thread. What an RU counts all the time is one cache line.
struct CounterFields {
    // all
    std::uint64_t messages_sent = 0;
    std::uint64_t messages_received = 0;
    std::uint64_t bad_messages = 0;   // malformed or from the wrong run, view or incarnation: dropped (EB-T8)
    std::uint64_t back_pressure = 0;  // posts that answered `again`
    // RU
    std::uint64_t meps_produced = 0;
    std::uint64_t contributions_sent = 0;  // MEPs of this RU written, per attempt
    std::uint64_t mfps_sent = 0;
    std::uint64_t sent_goodput_bytes = 0;  // counted when posted
    std::uint64_t sent_self_bytes = 0;
    std::uint64_t aborts_acknowledged = 0;
    std::uint64_t slot_overruns = 0;    // contributions not placed, or handed over, by the end of their time slot
    std::uint64_t unguarded_slots = 0;  // contributions in time slots too short for twice the error of the clock
    // BU
    std::uint64_t meps_built = 0;  // delivered to the sink
    std::uint64_t events_built = 0;
    std::uint64_t mfps_received = 0;
    std::uint64_t built_goodput_bytes = 0;
    std::uint64_t built_self_bytes = 0;
    std::uint64_t incomplete_meps = 0;  // delivered with at least one source flagged
    std::uint64_t incomplete_events = 0;
    // Of these, by flag: MFPs, and events of MEPs with such an MFP. One event may have several flags.
    std::uint64_t flagged_missing_dead_mfps = 0;
    std::uint64_t flagged_missing_dead_events = 0;
    std::uint64_t flagged_missing_unreachable_mfps = 0;
    std::uint64_t flagged_missing_unreachable_events = 0;
    std::uint64_t flagged_late_mfps = 0;
    std::uint64_t flagged_late_events = 0;
    std::uint64_t flagged_truncated_mfps = 0;
    std::uint64_t flagged_truncated_events = 0;
    std::uint64_t flagged_bad_checksum_mfps = 0;
    std::uint64_t flagged_bad_checksum_events = 0;
    std::uint64_t flagged_desync_mfps = 0;
    std::uint64_t flagged_desync_events = 0;
    std::uint64_t flagged_dropped_mfps = 0;
    std::uint64_t flagged_dropped_events = 0;
    std::uint64_t redelivered_meps = 0;
    std::uint64_t redelivered_events = 0;
    std::uint64_t stale_contributions = 0;  // wrong credit, attempt, incarnation or run: dropped (EB-T8)
    std::uint64_t damaged_mfps = 0;         // their checksum is not that of their bytes: delivered flagged bad-checksum
    std::uint64_t torn_mfps = 0;            // bytes of them were lost on the way: delivered flagged bad-checksum
    std::uint64_t late_reports = 0;
    std::uint64_t quarantined_slots = 0;  // slots that ever went through quarantine
    std::uint64_t denied_commits = 0;
    std::uint64_t meps_filtered = 0;    // rejected by the filter
    std::uint64_t events_filtered = 0;  // in them
    std::uint64_t undecided_meps = 0;   // accepted because the filter did not decide in time, or ended
    // EM
    std::uint64_t meps_admitted = 0;
    std::uint64_t events_admitted = 0;  // 0: the EM does not count events (Config::packing)
    std::uint64_t meps_committed = 0;
    std::uint64_t meps_flagged = 0;   // of these, delivered incomplete
    std::uint64_t meps_rejected = 0;  // of these, not delivered because a filter rejected them
    std::uint64_t events_committed = 0;
    std::uint64_t reassignments = 0;
    std::uint64_t evictions = 0;
    std::uint64_t views = 0;
    std::uint64_t phases = 0;           // of the schedule
    std::uint64_t barrier_expired = 0;  // of these, ended without some RU
    // RU and BU of one node
    std::uint64_t copied_bytes = 0;  // bodies of self traffic; the transport knows of the rest
};
struct alignas(64) Counters : CounterFields {};

struct FlagCounters {
    wire::SourceFlag flag;
    std::uint64_t CounterFields::* mfps;
    std::uint64_t CounterFields::* events;
};
/// Of every flag that makes an event incomplete.
inline constexpr std::array flag_counters{
    FlagCounters{wire::SourceFlag::missing_dead, &CounterFields::flagged_missing_dead_mfps,
                 &CounterFields::flagged_missing_dead_events},
    FlagCounters{wire::SourceFlag::missing_unreachable, &CounterFields::flagged_missing_unreachable_mfps,
                 &CounterFields::flagged_missing_unreachable_events},
    FlagCounters{wire::SourceFlag::late, &CounterFields::flagged_late_mfps, &CounterFields::flagged_late_events},
    FlagCounters{wire::SourceFlag::truncated, &CounterFields::flagged_truncated_mfps,
                 &CounterFields::flagged_truncated_events},
    FlagCounters{wire::SourceFlag::bad_checksum, &CounterFields::flagged_bad_checksum_mfps,
                 &CounterFields::flagged_bad_checksum_events},
    FlagCounters{wire::SourceFlag::desync, &CounterFields::flagged_desync_mfps, &CounterFields::flagged_desync_events},
    FlagCounters{wire::SourceFlag::dropped, &CounterFields::flagged_dropped_mfps,
                 &CounterFields::flagged_dropped_events},
};

class Node {
public:
    /// Everything is borrowed and must outlive the node; `source` only for an RU, `sink` only for a BU, `ledger` only
    /// for the EM, `filter` only for a BU of a two-stage scheme (nullptr: it accepts everything). `shape`: of this
    /// config, if nodes of one process share it: with many of them, tables of their own would be cold each time.
    Node(const Config& config, Peer self, std::uint32_t incarnation, Transport& transport, Source* source, Sink* sink,
         Ledger* ledger, Filter* filter = nullptr, const Shape* shape = nullptr);
    ~Node();
    Node(const Node&) = delete;
    Node& operator=(const Node&) = delete;

    /// Allocates all memory of the units. After it, only update_peer may allocate (inside the transport).
    Result<Ok> start(Time now);
    /// From the rendezvous: that peer's newest incarnation and address. Connects if the roles need it, and retries
    /// until it is up.
    void update_peer(Time now, Peer peer, std::uint32_t incarnation, const Blob& address);

    /// Polls one batch of events, handles them, and sends what became due. True if anything happened: call again soon.
    bool step(Time now);
    /// When step must be called even if the transport is silent (<= now: at once).
    [[nodiscard]] Time next_deadline() const;

    /// A hint that step() is near; for level 0 to 3 in turn, see sim::Actor.
    void prefetch(unsigned level) const;

    /// EM: admits no more; the run ends when all admitted MEPs are committed.
    void stop_admission();

    [[nodiscard]] NodeState state() const;
    [[nodiscard]] const Counters& counters() const;
    /// EM: every RU and BU of the config is in the view and the first MEP may be admitted (or was).
    [[nodiscard]] bool all_joined() const;
    /// BU: time with free credits but nothing assigned (EB-M6), and time with something assigned, since start, in ps.
    [[nodiscard]] Time bu_waiting() const;

private:
    class Impl;
    std::unique_ptr<Impl> impl_;
};

}  // namespace incast::protocol

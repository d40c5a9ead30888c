// What a node tells about itself: cumulative numbers, taken every sample interval and at the marks of the measured
// window.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include <incast/result.h>
#include <incast/transport.h>

#include "base/histogram.h"
#include "ingest/window.h"
#include "protocol/node.h"
#include "runtime/machine/port_counters.h"

namespace incast::runtime {

/// What the runtime adds to a node's own counters.
struct RuntimeTotals {
    std::uint64_t bu_waiting_ns = 0;     // free credits, nothing assigned
    std::uint64_t offered_events = 0;    // open loop: meant to happen
    std::uint64_t accepted_events = 0;   // open loop: read out
    std::uint64_t dead_time_ns = 0;      // open loop: a due event found no room
    std::uint64_t inhibited_events = 0;  // open loop, throttle: they never happened
    std::uint64_t dropped_events = 0;    // open loop, drop: without this readout unit's fragments
    std::uint64_t dropped_mfps = 0;      // made empty because of that
    std::uint64_t held_mep_ns = 0;       // open loop: MEPs with data in memory, integrated over time
    std::uint64_t datagrams_sent = 0;    // each time
    std::uint64_t datagrams_lost = 0;    // held for lost
    std::uint64_t datagrams_repeated = 0;
    std::uint64_t undelivered_meps = 0;  // committed, though the sink's consumer was gone
    std::uint64_t delay_ns = 0;          // sum of the latencies of MEPs
    std::uint64_t timed_meps = 0;        // of how many
    std::uint64_t truncated_mfps = 0;    // did not fit into their place in the slot
    std::uint64_t desync_mfps = 0;       // the source's own numbering was wrong, or it ended early
    std::uint64_t board_datagrams = 0;   // source udp, see ingest::Counts
    std::uint64_t board_events = 0;
    std::uint64_t board_duplicate_events = 0;
    std::uint64_t board_late_events = 0;
    std::uint64_t board_stray_events = 0;
    std::uint64_t board_lost_events = 0;
    std::uint64_t board_restarts = 0;
    std::uint64_t board_refused_datagrams = 0;
    std::uint64_t board_overflow_datagrams = 0;
    std::uint64_t structure_checked_mfps = 0;
    std::uint64_t lines_checked_meps = 0;
    std::uint64_t verify_errors = 0;
    std::uint64_t sink_cpu_ns = 0;         // of cpu_ns: checking, touching or writing built events
    std::uint64_t consumers_attached = 0;  // sink consumer, see ConsumerStats
    std::uint64_t consumers_left = 0;
    std::uint64_t consumers_ejected = 0;
    std::uint64_t consumers_refused = 0;
    std::uint64_t consumer_taken_meps = 0;
    std::uint64_t consumer_done_meps = 0;
    std::uint64_t consumer_dropped_meps = 0;
    std::uint64_t consumer_abandoned_meps = 0;
    std::uint64_t consumer_repeated_meps = 0;
    std::uint64_t consumer_missed_meps = 0;
    std::uint64_t consumer_judged_meps = 0;
    std::uint64_t consumer_accepted_events = 0;
    std::uint64_t consumer_rejected_events = 0;
    std::uint64_t cpu_ns = 0;          // of the process; a process with several nodes counts it on its first
    std::uint64_t polling_cpu_ns = 0;  // of these, looking for work in vain (estimated, see driver.h)
    std::uint64_t steps = 0;
    std::uint64_t useful_steps = 0;
    std::uint64_t sleeps = 0;
};

/// Sums over all incarnations of the node in its process; they only grow.
struct NodeTotals : protocol::Counters, RuntimeTotals {};

struct TotalsField {
    std::string_view name;
    std::uint64_t NodeTotals::* member;
    std::string_view help;  // for whoever scrapes it, see exposition.h
};
/// Every number of NodeTotals by its name.
std::span<const TotalsField> totals_fields();
/// later - earlier, field by field; a field that went backwards (a process that was replaced) counts from 0.
NodeTotals difference(const NodeTotals& later, const NodeTotals& earlier);
void add(NodeTotals& to, const NodeTotals& more);

/// Why a sample was taken.
enum class Mark : std::uint8_t { interval, window_begin, window_end, last };

/// Raw traffic: with one partner, since the start; round trips since window_begin, or since the start.
struct PairSample {
    std::uint32_t peer = 0;
    std::uint64_t messages_sent = 0;
    std::uint64_t messages_received = 0;
    std::uint64_t round_trips = 0;
    std::uint64_t p50_ns = 0;
    std::uint64_t p99_ns = 0;
    std::uint64_t p999_ns = 0;
    std::uint64_t max_ns = 0;
    std::uint64_t min_ns = 0;
};
struct NetSample {
    Time began_at = 0;     // sending, by the node's clock; 0 = not yet
    Time finished_at = 0;  // all that it hears arrived; 0 = not yet
    std::vector<PairSample> pairs;
};

/// The event manager took a node in, or dropped it.
struct ViewChange {
    Time at = 0;
    std::uint32_t node = 0;
    std::uint32_t incarnation = 0;
    protocol::Cause cause{};
};
/// In one sample.
inline constexpr std::size_t most_view_changes = 256;
/// The first ones of a readout unit: the others are in its totals.
inline constexpr std::size_t most_boards_told = 256;

struct NodeSample {
    std::uint32_t node = 0;
    std::uint32_t incarnation = 0;
    protocol::NodeState state{};
    Mark mark{};
    Time at = 0;
    Time joined_at = 0;             // event manager: when all nodes were in the view; 0 = not yet
    std::uint64_t cpu_wall_ns = 0;  // time in which totals.cpu_ns was used, by the process's clock; 0: not counted here
    std::uint64_t rss_bytes = 0;
    std::uint64_t peak_rss_bytes = 0;
    std::uint64_t peak_held_meps = 0;     // RU in open loop: since window_begin
    std::uint64_t trigger_spread_ns = 0;  // BU, throttle: largest difference of intended times within a MEP
    std::uint64_t clock_error_ns = 0;  // since window_begin, the most its clock is off the coordinator's; 0: the same
    NodeTotals totals;
    std::optional<base::Histogram> latency_ns;  // at window_end and last: since window_begin, or since the start
    std::optional<NetSample> net;               // raw traffic, at every mark but interval
    std::vector<ingest::Counts> boards;         // source udp, at window_end and last: by source of this readout unit
    std::vector<ViewChange> changes;            // event manager: since the last sample
    std::string host;                           // where it runs; not empty if there are ports
    std::vector<PortChange> ports;              // at window_end and last: since window_begin, or since the start
    std::string failure;                        // not empty: the node cannot go on
    std::string note;                           // of the sink: the first event that did not verify
};

inline constexpr std::array all_states{protocol::NodeState::joining, protocol::NodeState::running,
                                       protocol::NodeState::finished, protocol::NodeState::evicted,
                                       protocol::NodeState::em_silent};
std::string_view to_text(protocol::NodeState state);

nlohmann::ordered_json to_json(const NodeTotals& totals);
nlohmann::ordered_json to_json(const ingest::Counts& counts);
nlohmann::ordered_json to_json(const NodeSample& sample);
/// From another process: every field is checked.
Result<NodeSample> sample_from_json(const nlohmann::json& json);

}  // namespace incast::runtime

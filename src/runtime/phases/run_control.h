// The phases of one run: joining, warm-up, measured window, draining. It is told what nodes report and what became of
// them, and tells the nodes what to do; it does no input or output of its own, so that nodes in this process and in
// others are conducted alike.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include <incast/transport.h>

#include "runtime/phases/troubles.h"
#include "runtime/plan/resolve.h"
#include "runtime/record/metrics.h"
#include "runtime/report/audit.h"
#include "runtime/report/report.h"

namespace incast::runtime {

/// All nodes of the run, wherever they are. It never calls run control back from within a call.
class RunNodes {
public:
    RunNodes() = default;
    RunNodes(const RunNodes&) = delete;
    RunNodes& operator=(const RunNodes&) = delete;
    virtual ~RunNodes() = default;
    /// Every node there is gives a sample with that mark, now or soon (RunControl::sample).
    virtual void take_samples(Mark mark) = 0;
    /// The event manager admits no more; nodes of raw traffic send no more.
    virtual void stop_admission() = 0;
    /// Open loop: all readout units, also those that come back later, count the triggers from `origin` (run control's
    /// clock). Raw traffic begins then.
    virtual void start_triggers(Time origin) = 0;
};

enum class Phase : std::uint8_t { joining, warm_up, measuring, draining, closing, done };

enum class Outcome : std::uint8_t {
    complete,
    interrupted,  // asked to stop; drained
    node_lost,    // run.on_loss = stop, raw traffic, or too few are left to read out or to build
    event_manager_lost,
    not_drained,  // admitted events were not built by the deadline
    not_joined,
    failed,  // a node cannot go on
};
std::string_view to_text(Outcome outcome);

struct NodeRecord {
    std::uint32_t roles = 0;
    bool lost = false;
    std::uint32_t losses = 0;
    std::string why_lost;
    std::optional<NodeSample> latest;
    std::optional<NodeSample> begin;  // of the measured window
    std::optional<NodeSample> end;
    std::optional<NodeSample> last;
    std::uint64_t carried_cpu_wall_ns = 0;
    NodeTotals carried;  // of processes that had this node before; part of every sample above
};

/// What one interval between reports saw, over all nodes.
struct Interval {
    Time end = 0;  // since the start
    Time length = 0;
    NodeTotals delta;
    std::uint64_t clock_error_ns = 0;  // as RunControl::clock_error_ns
    std::uint64_t waiting_events = 0;  // at its end: due and not read out, in the readout unit that has most of them
};

/// "EM+RU+BU"
std::string role_names(std::uint32_t roles);
/// "3 (BU)"
std::string node_name(std::uint32_t node, std::uint32_t roles);

/// Of one RU, open loop: events that are due and wait for room.
[[nodiscard]] std::uint64_t waiting_events(const NodeTotals& totals);
/// Whether a latency is worth showing: clocks of several hosts may be off by more than a tenth of it.
[[nodiscard]] constexpr bool is_latency_known(std::uint64_t latency_ns, std::uint64_t clock_error_ns) {
    return clock_error_ns <= latency_ns / 10;
}
/// The same numbers for a reader of progress and of result.json: rates per readout unit, in open loop.
[[nodiscard]] nlohmann::ordered_json trigger_json(const Plan& plan, const Interval& interval);

class RunControl {
public:
    RunControl(const Plan& plan, RunNodes& run_nodes, Reporter& reporter, Time now);

    void sample(Time now, NodeSample sample);
    /// The node's process ended, or cannot be reached any more.
    void lost(Time now, std::uint32_t node, const std::string& why);
    /// The node's process ended, as somebody asked for that.
    void taken_out(Time now, std::uint32_t node);
    /// Why the node cannot be taken out; empty: it can.
    [[nodiscard]] std::string why_needed(std::uint32_t node) const;
    /// A new process has taken the node's place.
    void replaced(std::uint32_t node);
    void interrupt(Time now);
    /// Nobody waits for the end any more: draining takes some seconds at most.
    void hurry() { drain_deadline_ = std::min(drain_deadline_, hurried_drain); }
    /// Nobody could be heard for so long, as this process was stopped: deadlines are later by that.
    void forgive(Time pause);
    /// Does what is due.
    void tick(Time now);
    /// When tick() must be called.
    [[nodiscard]] Time next_deadline() const;

    /// Where whoever else has something to say of this run says it.
    [[nodiscard]] Audit& audit() { return audit_; }
    [[nodiscard]] Phase phase() const { return phase_; }
    [[nodiscard]] Outcome outcome() const { return outcome_; }
    /// From the start until all nodes had joined; nothing if they did not.
    [[nodiscard]] std::optional<Time> set_up_time() const { return set_up_; }
    [[nodiscard]] const std::string& reason() const { return reason_; }  // if the outcome is not complete
    [[nodiscard]] const std::vector<NodeRecord>& nodes() const { return nodes_; }
    /// How much the clocks of two nodes may be apart, since the measured window began; 0: they are one clock.
    [[nodiscard]] std::uint64_t clock_error_ns() const;
    /// Those wholly within the measured time.
    [[nodiscard]] const std::vector<Interval>& intervals() const { return intervals_; }
    /// If it was measured whole: from when all had joined until every event was built, or until the last report if that
    /// never came.
    [[nodiscard]] Time whole_window() const;

private:
    static constexpr Time hurried_drain = 2 * ps_per_s;

    void enter(Phase phase, Time now);
    void end_with(Outcome outcome, const std::string& reason, Time now);
    void stop(Time now);
    void close(Time now);
    void report_interval(Time now);
    void look_at_disks(Time now);
    /// Says when builder units have none, and when all have one.
    void look_for_consumers();
    /// Until nothing more is measured, as far as that is known: by the clock, or by the events built so far.
    [[nodiscard]] std::optional<Time> time_left(Time now) const;
    [[nodiscard]] Troubles::Cost cost() const;
    void write_node_sample(const NodeRecord& record, const NodeSample& sample);
    /// Nodes with one of the roles that are there.
    [[nodiscard]] std::uint64_t left(std::uint32_t roles) const;
    /// Units of its kind are fewer without the node than the run goes on with, in words. Empty: enough are left.
    [[nodiscard]] std::string too_few_without(std::uint32_t node) const;
    /// As the event manager says, or as all nodes of raw traffic do.
    [[nodiscard]] bool joined() const;
    [[nodiscard]] bool finished() const;
    [[nodiscard]] const NodeRecord& event_manager() const {
        return nodes_[static_cast<std::size_t>(plan_.protocol.em)];
    }
    [[nodiscard]] NodeRecord& event_manager() { return nodes_[static_cast<std::size_t>(plan_.protocol.em)]; }

    const Plan& plan_;
    RunNodes& run_nodes_;
    Reporter& reporter_;
    Audit audit_;
    Troubles troubles_;
    std::vector<NodeRecord> nodes_;
    Phase phase_ = Phase::joining;
    Outcome outcome_ = Outcome::complete;
    std::string reason_;
    Time started_;
    Time phase_since_;
    Time joined_at_ = 0;  // by the event manager's clock
    std::optional<Time> set_up_;
    Time whole_end_ = 0;
    Time next_report_;
    Time last_report_;
    NodeTotals reported_;
    std::vector<Interval> intervals_;
    Time drain_deadline_;
    std::string without_consumer_;  // the builder units that have none, in words
};

}  // namespace incast::runtime

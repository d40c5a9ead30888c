#include "runtime/phases/run_control.h"

#include <algorithm>
#include <array>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/units.h"

namespace incast::runtime {
namespace {

using base::seconds;

constexpr std::array<std::string_view, 6> phase_names{"joining", "warm-up", "measuring", "draining", "closing", "done"};
constexpr std::array<std::string_view, 7> outcome_names{"complete",    "interrupted", "node lost", "event manager lost",
                                                        "not drained", "not joined",  "failed"};
constexpr std::uint64_t max_clock_error_ns = std::uint64_t{1} << 62U;  // a node may say anything
constexpr Time trigger_lead = 5 * ps_per_ms;                           // until every node has heard of it
constexpr Time longest_run = Time{100} * 86400 * ps_per_s;             // 64 bits of picoseconds are full after 106 days
constexpr Time closing_deadline = 3 * ps_per_s;  // for the last samples; a node that is stopped sends none

double per_second(std::uint64_t count, Time time) {
    return time > 0 ? static_cast<double>(count) / seconds(time) : 0.0;
}

/// null: no MEP was committed, or it is not known better than to 10 % of it.
nlohmann::ordered_json mean_latency_ns(const NodeTotals& delta, std::uint64_t error_ns) {
    const std::uint64_t mean = delta.timed_meps > 0 ? delta.delay_ns / delta.timed_meps : 0;
    return delta.timed_meps > 0 && is_latency_known(mean, error_ns) ? nlohmann::ordered_json(mean)
                                                                    : nlohmann::ordered_json(nullptr);
}

}  // namespace

std::uint64_t waiting_events(const NodeTotals& totals) {
    const std::uint64_t past = totals.accepted_events + totals.inhibited_events + totals.dropped_events;
    return totals.offered_events - std::min(totals.offered_events, past);
}

nlohmann::ordered_json trigger_json(const Plan& plan, const Interval& interval) {
    const double rus = plan.n_rus;
    const NodeTotals& delta = interval.delta;
    const double unit_ns = seconds(interval.length) * 1e9 * rus;
    // Nodes are asked one after the other, so that some saw a little more of the interval than it is long.
    const auto part = [](std::uint64_t ns, double of_ns) {
        return of_ns > 0 ? std::min(static_cast<double>(ns) / of_ns, 1.0) : 0.0;
    };
    nlohmann::ordered_json json{{"offered_hz", per_second(delta.offered_events, interval.length) / rus},
                                {"accepted_hz", per_second(delta.accepted_events, interval.length) / rus},
                                {"inhibited_hz", per_second(delta.inhibited_events, interval.length) / rus},
                                {"dropped_hz", per_second(delta.dropped_events, interval.length) / rus},
                                {"dead_time_fraction", part(delta.dead_time_ns, unit_ns)},
                                {"occupancy", part(delta.held_mep_ns, unit_ns * std::max(plan.memory_meps, 1U))},
                                {"waiting_events", interval.waiting_events}};
    json["latency_mean_ns"] = mean_latency_ns(delta, interval.clock_error_ns);
    return json;
}

std::string_view to_text(Outcome outcome) {
    return outcome_names[static_cast<std::size_t>(outcome)];
}

std::string role_names(std::uint32_t roles) {
    std::string names;
    for (const auto& [role, name] : {std::pair<std::uint32_t, std::string_view>{protocol::role_em, "EM"},
                                     {protocol::role_ru, "RU"},
                                     {protocol::role_bu, "BU"},
                                     {role_sender, "sends"},
                                     {role_receiver, "receives"}}) {
        if ((roles & role) != 0) {
            names += (names.empty() ? "" : "+") + std::string(name);
        }
    }
    return names;
}

std::string node_name(std::uint32_t node, std::uint32_t roles) {
    return fmt::format("{} ({})", node, role_names(roles));
}

RunControl::RunControl(const Plan& plan, RunNodes& run_nodes, Reporter& reporter, Time now)
    : plan_(plan),
      run_nodes_(run_nodes),
      reporter_(reporter),
      audit_(reporter, now),
      troubles_(plan, audit_),
      nodes_(plan.n_nodes),
      started_(now),
      phase_since_(now),
      next_report_(now + plan.sample_interval),
      last_report_(now),
      drain_deadline_(plan.config.drain_deadline) {
    for (std::size_t index = 0; index < nodes_.size(); ++index) {
        nodes_[index].roles = plan.protocol.nodes[index].roles;
    }
    reporter_.phase(phase_names[0]);
}

void RunControl::enter(Phase phase, Time now) {
    phase_ = phase;
    phase_since_ = now;
    if (phase != Phase::closing) {
        const Time length = phase == Phase::warm_up                              ? plan_.config.warm_up
                            : phase == Phase::measuring && !plan_.measured_whole ? plan_.duration
                                                                                 : 0;
        reporter_.phase(phase_names[static_cast<std::size_t>(phase)],
                        length > 0 ? std::optional(length) : std::nullopt);
    }
}

bool RunControl::joined() const {
    if (!plan_.is_net()) {
        const std::optional<NodeSample>& em = event_manager().latest;
        return em && em->joined_at != 0;
    }
    return std::ranges::all_of(nodes_, [](const NodeRecord& record) {
        return record.latest && record.latest->state != protocol::NodeState::joining;
    });
}

bool RunControl::finished() const {
    const auto done = [](const NodeRecord& record) {
        return record.latest && record.latest->state == protocol::NodeState::finished;
    };
    return plan_.is_net() ? std::ranges::all_of(nodes_, done) : done(event_manager());
}

void RunControl::sample(Time now, NodeSample sample) {
    if (sample.node >= nodes_.size() || phase_ == Phase::done) {
        return;
    }
    NodeRecord& record = nodes_[sample.node];
    add(sample.totals, record.carried);
    sample.cpu_wall_ns += record.carried_cpu_wall_ns;
    if (record.latest && sample.incarnation > record.latest->incarnation) {
        reporter_.notice(Level::info, fmt::format("node {} is back (incarnation {})",
                                                  node_name(sample.node, record.roles), sample.incarnation));
    }
    write_node_sample(record, sample);
    if (sample.mark == Mark::window_begin) {
        record.begin = sample;
    } else if (sample.mark == Mark::window_end) {
        record.end = sample;
    } else if (sample.mark == Mark::last) {
        record.last = sample;
    }
    const bool newly_failed = !sample.failure.empty() && (!record.latest || record.latest->failure.empty());
    const std::string failure = sample.failure;
    const bool is_em = &record == &event_manager();
    for (const ViewChange& change : sample.changes) {
        // What happens at the end is the end.
        if (is_em && change.node < nodes_.size() && phase_ < Phase::closing) {
            troubles_.changed(now, change, nodes_[change.node].lost, cost());
        }
    }
    sample.changes.clear();
    record.latest = std::move(sample);
    troubles_.counted(now, record.latest->node, record.latest->totals);
    if (newly_failed && phase_ == Phase::closing) {
        // Said at the very end: everything was built, and a sink could not finish what it had begun.
        const std::string what = fmt::format("node {}: {}", node_name(record.latest->node, record.roles), failure);
        reporter_.notice(Level::error, what);
        if (outcome_ == Outcome::complete) {
            outcome_ = Outcome::failed;
            reason_ = what;
        }
    } else if (newly_failed) {
        end_with(Outcome::failed,
                 fmt::format("node {} cannot go on: {}", node_name(record.latest->node, record.roles), failure), now);
        return;
    }
    if (phase_ == Phase::joining && joined()) {
        const std::optional<NodeSample>& em = event_manager().latest;
        joined_at_ = em ? em->joined_at : 0;
        set_up_ = now - started_;
        enter(plan_.measured_whole ? Phase::measuring : Phase::warm_up, now);
        if (plan_.config.trigger_rate > 0 || plan_.is_net()) {
            run_nodes_.start_triggers(now + trigger_lead);
        }
        if (plan_.is_net()) {
            phase_since_ = now + trigger_lead;  // before that nothing is sent
        }
    }
    if (is_em && record.latest->state == protocol::NodeState::finished && whole_end_ == 0) {
        whole_end_ = record.latest->at;
    }
    tick(now);
}

void RunControl::replaced(std::uint32_t node) {
    NodeRecord& record = nodes_[node];
    record.lost = false;
    if (record.latest) {
        record.carried = record.latest->totals;
        record.carried_cpu_wall_ns = record.latest->cpu_wall_ns;
    }
}

void RunControl::end_with(Outcome outcome, const std::string& reason, Time now) {
    if (phase_ == Phase::closing || phase_ == Phase::done) {
        return;
    }
    outcome_ = outcome;
    reason_ = reason;
    reporter_.notice(Level::error, reason);
    if (phase_ == Phase::measuring && !plan_.measured_whole) {
        run_nodes_.take_samples(Mark::window_end);
    }
    close(now);
}

void RunControl::close(Time now) {
    enter(Phase::closing, now);
    run_nodes_.take_samples(Mark::last);
    tick(now);
}

void RunControl::stop(Time now) {
    if (phase_ == Phase::closing || phase_ == Phase::done || phase_ == Phase::draining) {
        return;
    }
    if (phase_ == Phase::joining) {
        end_with(outcome_, "stopped before all nodes had joined", now);
        return;
    }
    const bool measured = phase_ == Phase::measuring;
    enter(Phase::draining, now);
    if (measured && !plan_.measured_whole) {
        run_nodes_.take_samples(Mark::window_end);
    }
    run_nodes_.stop_admission();
}

void RunControl::interrupt(Time now) {
    if (phase_ == Phase::closing || phase_ == Phase::done || phase_ == Phase::draining) {
        return;
    }
    outcome_ = Outcome::interrupted;
    reason_ = "interrupted";
    reporter_.notice(Level::info,
                     fmt::format("interrupted: what {}; once more to abort",
                                 plan_.is_net() ? "is under way still arrives" : "was admitted is still built"));
    stop(now);
}

std::uint64_t RunControl::clock_error_ns() const {
    std::uint64_t most = 0;
    std::uint64_t second = 0;
    for (const NodeRecord& record : nodes_) {
        const std::uint64_t error = record.latest ? std::min(record.latest->clock_error_ns, max_clock_error_ns) : 0;
        second = std::max(second, std::min(most, error));
        most = std::max(most, error);
    }
    return most + second;
}

void RunControl::forgive(Time pause) {
    phase_since_ += pause;
    if (pause >= ps_per_s && phase_ != Phase::done) {
        reporter_.notice(Level::warning, fmt::format("this process was stopped for {}: its deadlines are later by that",
                                                     base::format_duration(pause)));
    }
}

void RunControl::tick(Time now) {
    const Time elapsed = now - phase_since_;
    const bool over = finished();
    switch (phase_) {
        case Phase::joining:
            if (elapsed >= plan_.config.join_deadline) {
                std::string missing;
                for (std::size_t index = 0; index < nodes_.size(); ++index) {
                    if (!nodes_[index].latest) {
                        missing += fmt::format("{}{}", missing.empty() ? "" : ", ", index);
                    }
                }
                end_with(Outcome::not_joined,
                         fmt::format("not all nodes joined within {} (run.join_deadline){}",
                                     base::format_duration(plan_.config.join_deadline),
                                     missing.empty() ? "" : "; nothing was heard of nodes " + missing),
                         now);
            }
            break;
        case Phase::warm_up:
            if (elapsed >= plan_.config.warm_up) {
                enter(Phase::measuring, now);
                run_nodes_.take_samples(Mark::window_begin);
            } else if (over) {
                close(now);
            }
            break;
        case Phase::measuring:
            if (over) {
                if (!plan_.measured_whole) {
                    run_nodes_.take_samples(Mark::window_end);
                }
                close(now);
            } else if (!plan_.measured_whole && elapsed >= plan_.duration) {
                stop(now);
            } else if (now - started_ >= longest_run) {
                reporter_.notice(Level::warning, "the run ends here: its clock lasts for 100 days");
                stop(now);
            }
            break;
        case Phase::draining:
            if (over) {
                close(now);
            } else if (elapsed >= drain_deadline_) {
                end_with(Outcome::not_drained,
                         fmt::format("{} within {} of the end of {}{}",
                                     plan_.is_net() ? "what was under way did not all arrive"
                                                    : "events admitted were not all built",
                                     base::format_duration(drain_deadline_), plan_.is_net() ? "sending" : "admission",
                                     without_consumer_.empty()
                                         ? ""
                                         : fmt::format("; no consumer is attached to node {}", without_consumer_)),
                         now);
            }
            break;
        case Phase::closing: {
            const bool all =
                std::ranges::all_of(nodes_, [](const NodeRecord& record) { return record.last || record.lost; });
            if (all || elapsed >= closing_deadline) {
                enter(Phase::done, now);
            }
            break;
        }
        case Phase::done:
            break;
    }
    if (now >= next_report_ && phase_ != Phase::done) {
        report_interval(now);
    }
    if (phase_ == Phase::done) {
        troubles_.tick(now, cost(), true);
        audit_.finish(now);
        return;
    }
    if (now >= troubles_.next_deadline()) {
        troubles_.tick(now, cost(), false);
    }
    audit_.tick(now);
}

Time RunControl::next_deadline() const {
    Time next = std::min({next_report_, audit_.next_deadline(), troubles_.next_deadline()});
    switch (phase_) {
        case Phase::joining:
            return std::min(next, phase_since_ + plan_.config.join_deadline);
        case Phase::warm_up:
            return std::min(next, phase_since_ + plan_.config.warm_up);
        case Phase::measuring:
            return plan_.measured_whole ? next : std::min(next, phase_since_ + plan_.duration);
        case Phase::draining:
            return std::min(next, phase_since_ + drain_deadline_);
        case Phase::closing:
            return std::min(next, phase_since_ + closing_deadline);
        case Phase::done:
            return time_never;
    }
    return next;
}

Time RunControl::whole_window() const {
    if (joined_at_ == 0) {
        return 0;
    }
    Time end = whole_end_;
    if (end == 0) {
        for (const NodeRecord& record : nodes_) {
            end = std::max(end, record.latest ? record.latest->at : 0);
        }
    }
    return std::max<Time>(0, end - joined_at_);
}

Troubles::Cost RunControl::cost() const {
    Troubles::Cost sum;
    for (const NodeRecord& record : nodes_) {
        sum.incomplete_events += record.latest ? record.latest->totals.incomplete_events : 0;
        sum.reassigned_meps += record.latest ? record.latest->totals.reassignments : 0;
    }
    return sum;
}

void RunControl::report_interval(Time now) {
    NodeTotals sum;
    std::uint64_t waiting = 0;
    nlohmann::ordered_json nodes = nlohmann::ordered_json::array();
    for (std::size_t index = 0; index < nodes_.size(); ++index) {
        const NodeRecord& record = nodes_[index];
        if (!record.latest) {
            continue;
        }
        add(sum, record.latest->totals);
        waiting = std::max(waiting, waiting_events(record.latest->totals));
        nodes.push_back({{"node", index},
                         {"roles", node_name(static_cast<std::uint32_t>(index), record.roles)},
                         {"state", record.lost ? "lost" : to_text(record.latest->state)},
                         {"built_goodput_bytes", record.latest->totals.built_goodput_bytes},
                         {"sent_goodput_bytes", record.latest->totals.sent_goodput_bytes},
                         {"events", record.latest->totals.events_built},
                         {"rss_bytes", record.latest->rss_bytes}});
    }
    const NodeTotals delta = difference(sum, reported_);
    const Time time = now - last_report_;
    const Interval interval{now - started_, time, delta, plan_.config.trigger_rate > 0 ? clock_error_ns() : 0, waiting};
    if (phase_ == Phase::measuring && last_report_ >= phase_since_) {
        intervals_.push_back(interval);
    }
    nlohmann::ordered_json sample{{"type", "sample"},
                                  {"t", seconds(now - started_)},
                                  {"phase", phase_names[static_cast<std::size_t>(phase_)]},
                                  {"goodput_bytes_per_s", per_second(delta.built_goodput_bytes, time)},
                                  {"events_per_s", per_second(delta.events_built, time)},
                                  {"events", sum.events_built},
                                  {"incomplete_events", sum.incomplete_events},
                                  {"verify_errors", sum.verify_errors},
                                  {"dropped_events", sum.dropped_events},
                                  {"reassignments", sum.reassignments},
                                  {"evictions", sum.evictions},
                                  {"latency_mean_ns", mean_latency_ns(delta, interval.clock_error_ns)},
                                  {"left_s", nullptr},
                                  {"nodes", std::move(nodes)}};
    if (const std::optional<Time> left = time_left(now)) {
        sample["left_s"] = seconds(*left);
    }
    if (plan_.config.trigger_rate > 0) {
        sample["triggers"] = trigger_json(plan_, interval);
    }
    reporter_.interval(sample);
    look_at_disks(now);
    look_for_consumers();
    reported_ = sum;
    last_report_ = now;
    next_report_ = now + plan_.sample_interval;
}

std::optional<Time> RunControl::time_left(Time now) const {
    if (phase_ > Phase::measuring) {
        return 0;
    }
    std::optional<Time> left;
    if (!plan_.measured_whole) {
        const Time begun = phase_ == Phase::joining ? now : phase_since_;
        const Time length = plan_.duration + (phase_ == Phase::measuring ? 0 : plan_.config.warm_up);
        left = std::max<Time>(begun + length - now, 0);
    }
    if (plan_.total_events == 0 || phase_ == Phase::joining) {
        return left;
    }
    std::uint64_t built = 0;
    for (const NodeRecord& record : nodes_) {
        built += record.latest ? record.latest->totals.events_built + record.latest->totals.events_filtered : 0;
    }
    if (built > 0) {
        constexpr double longest = 1e18;  // ps, some 11 days
        const double times = static_cast<double>(plan_.total_events) / static_cast<double>(built) - 1;
        const double working = static_cast<double>(now - started_ - set_up_.value_or(0));
        const auto until_built = static_cast<Time>(std::clamp(times * working, 0.0, longest));
        left = std::min(left.value_or(until_built), until_built);
    }
    return left;
}

void RunControl::look_at_disks(Time now) {
    reporter_.look_at_disks(
        now, plan_.config.traits().simulated || phase_ > Phase::measuring ? std::nullopt : time_left(now));
}

void RunControl::look_for_consumers() {
    if (plan_.is_net() || plan_.config.sink_kind != SinkKind::consumer || phase_ == Phase::joining) {
        return;
    }
    std::string alone;
    for (std::size_t index = 0; index < nodes_.size(); ++index) {
        const NodeRecord& record = nodes_[index];
        if ((record.roles & protocol::role_bu) == 0 || record.lost || !record.latest) {
            continue;
        }
        const NodeTotals own = difference(record.latest->totals, record.carried);
        if (own.consumers_attached == own.consumers_left + own.consumers_ejected) {
            alone += fmt::format("{}{}", alone.empty() ? "" : ", ", index);
        }
    }
    const bool said = without_consumer_.empty() == alone.empty();
    without_consumer_ = std::move(alone);
    if (said) {
        return;
    }
    if (without_consumer_.empty()) {
        reporter_.notice(Level::info, "every builder unit has a consumer");
        return;
    }
    reporter_.notice(
        Level::warning,
        fmt::format("no consumer of '{}' is attached to node {}: its events {}", plan_.config.sink_name,
                    without_consumer_, plan_.config.consumer_policy == ConsumerPolicy::drop ? "are dropped" : "wait"));
}

void RunControl::write_node_sample(const NodeRecord& record, const NodeSample& sample) {
    const NodeTotals before = record.latest ? record.latest->totals : NodeTotals{};
    const Time since = record.latest ? record.latest->at : started_;
    const NodeTotals delta = difference(sample.totals, before);
    nlohmann::ordered_json json{{"t", seconds(sample.at - started_)},
                                {"node", sample.node},
                                {"incarnation", sample.incarnation},
                                {"phase", phase_names[static_cast<std::size_t>(phase_)]},
                                {"state", to_text(sample.state)},
                                {"interval_s", seconds(sample.at - since)},
                                {"left_s", nullptr},
                                {"built_goodput_bytes_per_s", per_second(delta.built_goodput_bytes, sample.at - since)},
                                {"sent_goodput_bytes_per_s", per_second(delta.sent_goodput_bytes, sample.at - since)},
                                {"events_per_s", per_second(delta.events_built, sample.at - since)},
                                {"rss_bytes", sample.rss_bytes},
                                {"delta", to_json(delta)}};
    if (const std::optional<Time> left = time_left(sample.at)) {
        json["left_s"] = seconds(*left);
    }
    reporter_.node_sample(json);
}

}  // namespace incast::runtime

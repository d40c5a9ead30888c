#include "runtime/results/results.h"

#include <algorithm>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/units.h"
#include "runtime/config/json.h"
#include "runtime/machine/exit_status.h"
#include "runtime/plan/inputs.h"
#include "runtime/results/cpu_use.h"
#include "runtime/results/min_mean_max.h"
#include "transport/builtin/bounds.h"

namespace incast::runtime {
namespace {

/// Who may write where in a builder unit's memory.
std::string_view bounds_text(const RunConfig& config) {
    const bool apart = config.scheme == protocol::Scheme::pull_read || config.layout == protocol::Layout::segmented ||
                       config.layout == protocol::Layout::per_source;
    switch (transport::bounds_of(config.transport, config.transport_settings)) {
        case Bounds::trusted:
            return "trusted";
        case Bounds::region:
            return apart ? "region" : "trusted";
        case Bounds::strided:
            return "strided";
    }
    return "";
}

using base::seconds;

/// One node's part of the measured time.
struct Window {
    NodeTotals delta;
    Time time = 0;
    std::uint64_t cpu_wall_ns = 0;  // in which delta.cpu_ns was used
};

const NodeSample* newest(const NodeRecord& record) {
    if (record.last) {
        return &*record.last;
    }
    return record.latest ? &*record.latest : nullptr;
}

/// All numbers that need more than one node.
class Tally {
public:
    explicit Tally(const RunFacts& facts)
        : facts_(facts), nodes_(facts.control.nodes()), em_(nodes_[static_cast<std::size_t>(facts.plan.protocol.em)]) {
        whole_ = facts.plan.measured_whole ||
                 std::ranges::none_of(nodes_, [](const NodeRecord& record) { return record.begin.has_value(); });
        for (const NodeRecord& record : nodes_) {
            windows_.push_back(window_of(record));
            add(window_, windows_.back().delta);
            cpu_.add(windows_.back().delta, windows_.back().cpu_wall_ns);
            if (const NodeSample* sample = newest(record)) {
                add(totals_, sample->totals);
                peak_rss_ = std::max(peak_rss_, sample->peak_rss_bytes);
            }
            const std::optional<NodeSample>& from = whole_ ? record.last : record.end;
            if (from && from->latency_ns) {
                latency_.merge(*from->latency_ns);
            }
        }
        // All windows are as long but for the time a command travels; that of a node that died is shorter.
        time_ = std::ranges::max(windows_, {}, &Window::time).time;
        count_lost();
    }

    OrderedJson json() const;
    std::string summary() const;
    int exit_status() const;

private:
    Window window_of(const NodeRecord& record) const {
        const NodeSample* last = newest(record);
        if (last == nullptr) {
            return {};
        }
        if (whole_) {
            return {last->totals, facts_.control.whole_window(), last->cpu_wall_ns};
        }
        if (!record.begin) {
            return {};
        }
        const NodeSample& end = record.end ? *record.end : *last;
        return {difference(end.totals, record.begin->totals), end.at - record.begin->at,
                end.cpu_wall_ns - std::min(end.cpu_wall_ns, record.begin->cpu_wall_ns)};
    }

    /// Admitted events that are neither committed complete nor flagged (EB-F4). Not known if the event manager's last
    /// word or a part of the ledger is missing.
    void count_lost() {
        const NodeSample* em = newest(em_);
        const bool ledger_lacks = facts_.ledger && facts_.ledger->missing > 0;
        if (em == nullptr || em_.lost || ledger_lacks) {
            return;
        }
        const MepEvents& sizes = facts_.plan.mep_events;
        // The event manager counts the events of MEPs that it may close early.
        const NodeTotals& totals = em->totals;
        const bool counted = totals.events_admitted > 0;
        const std::uint64_t admitted = counted ? totals.events_admitted : sizes.below(totals.meps_admitted);
        const std::uint64_t built = counted ? totals.events_committed : sizes.below(totals.meps_committed);
        const std::uint64_t committed = facts_.ledger ? facts_.ledger->events : built;
        lost_events_ = admitted - std::min(admitted, committed);
    }

    /// nullptr: there is none, or the disk was full.
    const LedgerSummary* whole_ledger() const {
        return facts_.ledger && facts_.ledger->missing == 0 ? &*facts_.ledger : nullptr;
    }

    /// Delivered with at least one source flagged.
    std::uint64_t incomplete_events() const {
        if (const LedgerSummary* ledger = whole_ledger()) {
            return ledger->flagged_events;
        }
        const NodeSample* em = newest(em_);
        const std::uint64_t flagged = em == nullptr ? 0 : em->totals.meps_flagged;
        // A builder unit that was killed took its count with it; the event manager knows the MEPs.
        const std::uint64_t untold = flagged - std::min(flagged, totals_.incomplete_meps);
        return totals_.incomplete_events + untold * facts_.plan.packing;
    }

    /// Committed ones. The event manager and its ledger know MEPs; builder units know their events, but a killed one
    /// took its count with it.
    std::uint64_t events() const {
        if (const LedgerSummary* ledger = whole_ledger()) {
            return ledger->events;
        }
        const NodeSample* em = newest(em_);
        const std::uint64_t committed = em != nullptr ? em->totals.meps_committed : 0;
        if (committed == totals_.meps_built + totals_.meps_filtered) {
            return totals_.events_built + totals_.events_filtered;
        }
        if (em != nullptr && em->totals.events_committed > 0) {
            return em->totals.events_committed;
        }
        return facts_.plan.mep_events.below(committed);
    }

    /// Rejected by filters. A killed builder unit took its count with it; the event manager knows the MEPs.
    std::uint64_t rejected_events() const {
        if (const LedgerSummary* ledger = whole_ledger()) {
            return ledger->rejected_events;
        }
        const NodeSample* em = newest(em_);
        const std::uint64_t rejected = em == nullptr ? 0 : em->totals.meps_rejected;
        const std::uint64_t untold = rejected - std::min(rejected, totals_.meps_filtered);
        return totals_.events_filtered + untold * facts_.plan.packing;
    }

    double rate(std::uint64_t count) const { return time_ > 0 ? static_cast<double>(count) / seconds(time_) : 0; }

    std::vector<double> rates(std::uint32_t role, std::uint64_t NodeTotals::* member) const {
        std::vector<double> values;
        for (std::size_t index = 0; index < nodes_.size(); ++index) {
            if ((nodes_[index].roles & role) != 0 && windows_[index].time > 0) {
                values.push_back(static_cast<double>(windows_[index].delta.*member) / seconds(windows_[index].time));
            }
        }
        return values;
    }

    /// By interval; null if none lies wholly within the window.
    OrderedJson over_time() const {
        std::vector<double> goodput;
        for (const Interval& interval : facts_.control.intervals()) {
            goodput.push_back(static_cast<double>(interval.delta.built_goodput_bytes) / seconds(interval.length));
        }
        return goodput.empty() ? OrderedJson(nullptr) : to_json(min_mean_max(goodput));
    }

    /// Of the time that all nodes of a role were measured, each `parts` times. What a node counted before the first and
    /// behind the last event of a run that is measured whole is not of that time.
    double fraction(std::uint32_t role, std::uint64_t NodeTotals::* nanoseconds, double parts = 1) const {
        double part = 0;
        double whole = 0;
        for (std::size_t index = 0; index < nodes_.size(); ++index) {
            if ((nodes_[index].roles & role) != 0) {
                const double most = parts * seconds(windows_[index].time);
                part += std::min(static_cast<double>(windows_[index].delta.*nanoseconds) * 1e-9, most);
                whole += most;
            }
        }
        return whole > 0 ? part / whole : 0;
    }

    const Inputs& inputs() const { return facts_.inputs != nullptr ? *facts_.inputs : facts_.plan.inputs; }
    /// Not empty: more events are incomplete, or more of an input left out, than run.fail_above_incomplete allows.
    std::string too_incomplete() const {
        const std::uint64_t delivered = events() - std::min(rejected_events(), events());
        const double most = facts_.plan.config.fail_above_incomplete;
        std::string why = too_much_left_out(inputs(), most);
        if (static_cast<double>(incomplete_events()) > most * static_cast<double>(delivered)) {
            why = fmt::format("{} of {} events are incomplete ({:.3g} %)", incomplete_events(), delivered,
                              100.0 * static_cast<double>(incomplete_events()) / static_cast<double>(delivered));
        }
        return why.empty() ? why : fmt::format("{}; run.fail_above_incomplete allows {:g} %", why, 100 * most);
    }
    /// Nothing is lost, wrong, or committed twice.
    bool is_accounted() const {
        const bool once = !facts_.ledger || facts_.ledger->commits == facts_.ledger->distinct_meps;
        return lost_events_ == 0 && totals_.verify_errors == 0 && once;
    }
    /// Of a run that went as it should but for that.
    bool is_incomplete() const {
        const Outcome outcome = facts_.control.outcome();
        const bool well = outcome == Outcome::complete || outcome == Outcome::interrupted;
        return well && is_accounted() && !too_incomplete().empty();
    }
    std::string_view status() const { return is_incomplete() ? "incomplete" : to_text(facts_.control.outcome()); }
    std::string reason() const {
        const std::string& early = facts_.control.reason();
        return is_incomplete() ? early + (early.empty() ? "" : "; ") + too_incomplete() : early;
    }

    OrderedJson flags_json() const;
    OrderedJson node_json(std::size_t index) const;
    OrderedJson window_json() const;
    std::uint64_t clock_error_ns() const;
    OrderedJson triggers_json() const;
    OrderedJson sink_json() const;
    OrderedJson accounting_json() const;
    OrderedJson cpu_json() const;
    OrderedJson consumers_json() const;

    const RunFacts& facts_;
    const std::vector<NodeRecord>& nodes_;
    const NodeRecord& em_;
    bool whole_ = false;
    std::vector<Window> windows_;  // by node
    NodeTotals window_;
    NodeTotals totals_;
    CpuUse cpu_;
    Time time_ = 0;
    base::Histogram latency_;
    std::uint64_t peak_rss_ = 0;
    std::optional<std::uint64_t> lost_events_;
};

OrderedJson Tally::node_json(std::size_t index) const {
    const NodeRecord& record = nodes_[index];
    OrderedJson json{{"node", index},
                     {"roles", node_name(static_cast<std::uint32_t>(index), record.roles)},
                     {"lost", record.lost},
                     {"losses", record.losses}};
    add_place(json, facts_, index);
    if (!record.why_lost.empty()) {
        json["why_lost"] = record.why_lost;
    }
    if (const NodeSample* sample = newest(record)) {
        const double time = seconds(windows_[index].time);
        const auto rate = [time](std::uint64_t bytes) { return time > 0 ? static_cast<double>(bytes) / time : 0; };
        json["state"] = to_text(sample->state);
        json["incarnation"] = sample->incarnation;
        json["built_goodput_bytes_per_s"] = rate(windows_[index].delta.built_goodput_bytes);
        json["sent_goodput_bytes_per_s"] = rate(windows_[index].delta.sent_goodput_bytes);
        json["peak_rss_bytes"] = sample->peak_rss_bytes;
        json["totals"] = runtime::to_json(sample->totals);
        add_boards(json, facts_.plan.protocol, index, *sample);
        if (!sample->failure.empty()) {
            json["failure"] = sample->failure;
        }
        if (!sample->note.empty()) {
            json["note"] = sample->note;
        }
    }
    return json;
}

/// Every flag that some source of a delivered event has. An event may have several.
OrderedJson Tally::flags_json() const {
    OrderedJson json = OrderedJson::object();
    for (const protocol::FlagCounters& flag : protocol::flag_counters) {
        if (totals_.*flag.mfps > 0) {
            json[std::string(wire::to_string(flag.flag))] = {{"events", totals_.*flag.events},
                                                             {"mfps", totals_.*flag.mfps}};
        }
    }
    return json;
}

OrderedJson Tally::window_json() const {
    return {{"rule", whole_ ? "from the moment all nodes had joined until every event was built"
                            : "after the warm-up, until admission was stopped"},
            {"seconds", seconds(time_)},
            {"warm_up_seconds", whole_ ? 0.0 : seconds(facts_.plan.config.warm_up)},
            {"events", window_.events_built},
            {"meps", window_.meps_built},
            {"goodput_bytes", window_.built_goodput_bytes},
            {"self_bytes", window_.built_self_bytes},
            {"copied_bytes", window_.copied_bytes}};
}

OrderedJson Tally::triggers_json() const {
    const double rus = facts_.plan.n_rus;
    const bool open = facts_.plan.config.trigger_rate > 0;
    OrderedJson json{{"loop", open ? "open" : "closed"},
                     {"requested_hz", facts_.plan.config.trigger_rate},
                     {"offered_hz", rate(window_.offered_events) / rus},
                     {"accepted_hz", rate(window_.accepted_events) / rus}};
    if (!open) {
        return json;
    }
    std::uint64_t waiting = 0;
    std::uint64_t peak = 0;
    std::uint64_t spread = 0;
    for (const NodeRecord& record : nodes_) {
        const std::optional<NodeSample>& end = whole_ ? record.last : record.end;
        if (end) {
            waiting = std::max(waiting, waiting_events(end->totals));
            peak = std::max(peak, end->peak_held_meps);
            spread = std::max(spread, end->trigger_spread_ns);
        }
    }
    const double places = std::max(facts_.plan.memory_meps, 1U);
    json["policy"] = facts_.plan.values.at("source.policy");
    json["inhibited_hz"] = rate(window_.inhibited_events) / rus;
    json["dropped_hz"] = rate(window_.dropped_events) / rus;
    json["waiting_events"] = waiting;
    json["events"] = {{"offered", totals_.offered_events},
                      {"accepted", totals_.accepted_events},
                      {"inhibited", totals_.inhibited_events},
                      {"dropped", totals_.dropped_events},
                      {"waiting", waiting_events(totals_)}};
    json["occupancy"] = {{"mean", fraction(protocol::role_ru, &NodeTotals::held_mep_ns, places)},
                         {"max", static_cast<double>(peak) / places},
                         {"memory_meps", facts_.plan.memory_meps}};
    json["events_with_drops"] = totals_.flagged_dropped_events;
    json["spread_ns"] = spread;
    json["over_time"] = triggers_over_time(facts_.plan, facts_.control.intervals());
    return json;
}

/// What was committed and where it went.
OrderedJson Tally::sink_json() const {
    const RunConfig& config = facts_.plan.config;
    OrderedJson json{{"kind", facts_.plan.values.at("sink.kind")}, {"undelivered_meps", totals_.undelivered_meps}};
    if (config.sink_kind == SinkKind::mep) {
        json["fsync"] = facts_.plan.values.at("sink.fsync");
        json["committed_means"] =
            config.fsync == sinks::Fsync::commit ? std::string("on the disk, with its line of the manifest")
            : config.fsync == sinks::Fsync::interval
                ? fmt::format("written, and on the disk {} later: a machine that fails loses at most what came since",
                              base::format_duration(config.fsync_interval))
                : std::string("written: a process that dies loses nothing, a machine that fails may lose all of it");
    } else {
        json["committed_means"] = sinks::traits_of(config.sink_kind).committed_means;
    }
    return json;
}

OrderedJson Tally::accounting_json() const {
    const NodeSample* em = newest(em_);
    const NodeTotals totals = em == nullptr ? NodeTotals{} : em->totals;
    OrderedJson json{{"meps_admitted", totals.meps_admitted},
                     {"meps_committed", totals.meps_committed},
                     {"meps_flagged", totals.meps_flagged},
                     {"meps_rejected", totals.meps_rejected},
                     {"reassignments", totals.reassignments},
                     {"evictions", totals.evictions},
                     {"views", totals.views},
                     {"schedule",
                      {{"phases", totals.phases},
                       {"barrier_expired", totals.barrier_expired},
                       {"slot_overruns", totals_.slot_overruns},
                       {"unguarded_slots", totals_.unguarded_slots}}}};
    if (facts_.ledger) {
        const LedgerSummary& ledger = *facts_.ledger;
        json["ledger"] = {{"commits", ledger.commits},
                          {"distinct_meps", ledger.distinct_meps},
                          {"committed_below", ledger.committed_below},
                          {"flagged", ledger.flagged},
                          {"redelivered", ledger.redelivered},
                          {"rejected", ledger.rejected},
                          {"losses", ledger.losses},
                          {"returns", ledger.returns},
                          {"missing_records", ledger.missing}};
    } else {
        json["ledger_error"] = facts_.ledger_error;
    }
    return json;
}

OrderedJson Tally::cpu_json() const {
    return {{"seconds", cpu_.seconds()},
            {"cores", cpu_.cores()},
            {"sink_seconds", cpu_.sink_seconds()},
            {"polling_seconds", cpu_.polling_seconds()},
            {"scope", fmt::format("user and system time of {} process{} with nodes, {}", facts_.processes,
                                  facts_.processes == 1 ? "" : "es",
                                  whole_ ? "since their memory was set up" : "in the measured window")}};
}

OrderedJson Tally::consumers_json() const {
    const std::uint64_t settled = totals_.consumer_done_meps + totals_.consumer_abandoned_meps;
    return {{"attached", totals_.consumers_attached},
            {"left", totals_.consumers_left},
            {"ejected", totals_.consumers_ejected},
            {"refused", totals_.consumers_refused},
            {"taken_meps", totals_.consumer_taken_meps},
            {"done_meps", totals_.consumer_done_meps},
            {"abandoned_meps", totals_.consumer_abandoned_meps},
            {"held_meps", totals_.consumer_taken_meps - std::min(settled, totals_.consumer_taken_meps)},
            {"dropped_meps", totals_.consumer_dropped_meps},
            {"repeated_meps", totals_.consumer_repeated_meps},
            {"missed_meps", totals_.consumer_missed_meps},
            {"judged_meps", totals_.consumer_judged_meps},
            {"accepted_events", totals_.consumer_accepted_events},
            {"rejected_events", totals_.consumer_rejected_events}};
}

/// From the trigger it is a difference of times of two hosts, if the run has several.
std::uint64_t Tally::clock_error_ns() const {
    return facts_.plan.config.trigger_rate > 0 ? facts_.control.clock_error_ns() : 0;
}

OrderedJson Tally::json() const {
    const RunConfig& config = facts_.plan.config;
    const double goodput_gb = static_cast<double>(window_.built_goodput_bytes) * 1e-9;
    OrderedJson json;
    json["schema"] = 1;
    json["status"] = status();
    if (const std::string why = reason(); !why.empty()) {
        json["reason"] = why;
    }
    json["time_domain"] = facts_.virtual_time ? "virtual" : "real";
    json["goodput_bytes_per_s"] = {
        {"total", rate(window_.built_goodput_bytes)},
        {"total_without_self",
         rate(window_.built_goodput_bytes - std::min(window_.built_self_bytes, window_.built_goodput_bytes))},
        {"per_ru", to_json(min_mean_max(rates(protocol::role_ru, &NodeTotals::sent_goodput_bytes)))},
        {"per_bu", to_json(min_mean_max(rates(protocol::role_bu, &NodeTotals::built_goodput_bytes)))},
        {"over_time", over_time()}};
    json["events"] = events();
    json["events_per_s"] = rate(window_.events_built);
    json["complete_events"] = events() - std::min(events(), incomplete_events() + rejected_events());
    json["incomplete_events"] = incomplete_events();
    json["flags"] = flags_json();
    json["lost_events"] = lost_events_ ? OrderedJson(*lost_events_) : OrderedJson(nullptr);
    json["rejected_events"] = rejected_events();
    json["redelivered_events"] = totals_.redelivered_events;
    json["verified"] = verified_text(config, facts_.virtual_time);
    json["verified_meps"] = totals_.lines_checked_meps;
    json["verify_errors"] = totals_.verify_errors;
    json["latency_ns"] = latency_json(latency_, config.trigger_rate > 0, clock_error_ns());
    json["dead_time_fraction"] = fraction(protocol::role_ru, &NodeTotals::dead_time_ns);
    json["bu_wait_fraction"] = fraction(protocol::role_bu, &NodeTotals::bu_waiting_ns);
    json["cpu_s_per_gb"] =
        goodput_gb > 0 ? OrderedJson(static_cast<double>(window_.cpu_ns) * 1e-9 / goodput_gb) : OrderedJson(nullptr);
    json["cpu"] = cpu_json();
    const std::optional<Time> set_up = facts_.control.set_up_time();
    json["set_up_ns"] = set_up ? OrderedJson(*set_up / ps_per_ns) : OrderedJson(nullptr);
    json["peak_rss_bytes"] = peak_rss_;
    json["copied_bytes"] = totals_.copied_bytes;
    json["datagrams"] = datagrams_json(totals_);
    json["bounds"] = bounds_text(config);
    json["self_traffic"] = facts_.plan.values.at("protocol.self_traffic");
    json["triggers"] = triggers_json();
    json["sink"] = sink_json();
    json["window"] = window_json();
    json["accounting"] = accounting_json();
    json["sizes"] = {{"packing", facts_.plan.packing},
                     {"mfp_bytes", facts_.plan.mfp_bytes},
                     {"mfp_cap_bytes", facts_.plan.cap_bytes},
                     {"slot_bytes", facts_.plan.slot_bytes},
                     {"credits", config.credits},
                     {"bu_memory_bytes", facts_.plan.bu_memory_bytes},
                     {"ru_memory_bytes", facts_.plan.ru_memory_bytes},
                     {"ru_memory_needed_bytes", facts_.plan.ru_memory_needed_bytes},
                     {"retention_meps", facts_.plan.protocol.retention_meps},
                     {"memory_meps", facts_.plan.memory_meps},
                     {"working_set_bytes", facts_.plan.working_set_bytes},
                     {"last_level_cache_bytes", facts_.machine.last_level_cache_bytes}};
    if (!inputs().files.empty()) {
        json["inputs"] = inputs_json(inputs());
    }
    json["seed"] = config.seed;
    if (facts_.trace_hash) {
        json["trace_hash"] = fmt::format("{:016x}", *facts_.trace_hash);
    }
    if (config.sink_kind == SinkKind::consumer) {
        json["consumers"] = consumers_json();
    }
    if (facts_.farm != nullptr) {
        json["farm"] = *facts_.farm;
    }
    if (facts_.network != nullptr) {
        json["network"] = *facts_.network;
    }
    json["nodes"] = OrderedJson::array();
    for (std::size_t index = 0; index < nodes_.size(); ++index) {
        json["nodes"].push_back(node_json(index));
    }
    if (facts_.incomplete_files != nullptr) {
        json["incomplete_files"] = *facts_.incomplete_files;
    }
    json["ports"] = ports_json(nodes_);
    json["config"] = config_json(facts_.plan.values);
    json["machine"] = machine_json(facts_.machine);
    json["versions"] = versions_json();
    return json;
}

std::string Tally::summary() const {
    const OrderedJson result = json();
    std::string text = fmt::format(
        "{}: {} events ({:.0f}/s in {} measured), {}/s goodput ({}/s without self), {} incomplete, {} lost, {} "
        "redelivered",
        status(), result["events"].get<std::uint64_t>(), rate(window_.events_built), base::format_duration(time_),
        base::format_bytes(rate(window_.built_goodput_bytes)),
        base::format_bytes(result["goodput_bytes_per_s"]["total_without_self"].get<double>()), incomplete_events(),
        lost_events_ ? std::to_string(*lost_events_) : "unknown", totals_.redelivered_events);
    text +=
        fmt::format("\nverified: {}, {} errors; {} latency ", verified_text(facts_.plan.config, facts_.virtual_time),
                    totals_.verify_errors, facts_.plan.config.trigger_rate > 0 ? "trigger" : "service");
    const auto duration = [](std::uint64_t ns) { return base::format_duration(static_cast<Time>(ns) * ps_per_ns); };
    if (const std::string why = why_no_latency(latency_, clock_error_ns()); !why.empty()) {
        text += "not shown: " + why;
    } else {
        text += fmt::format("p50 {}, p99 {}", duration(latency_.quantile(0.5)), duration(latency_.quantile(0.99)));
        text += clock_error_ns() > 0 ? fmt::format(" (clock_error {})", duration(clock_error_ns())) : "";
    }
    for (const auto& [flag, counts] : result["flags"].items()) {
        text += fmt::format("\n{}: {} events, {} MFPs", flag, counts["events"].get<std::uint64_t>(),
                            counts["mfps"].get<std::uint64_t>());
    }
    if (result.contains("inputs") && result["inputs"]["left_out_mfps"] > 0) {
        text += fmt::format("\nleft out: {} MFPs of the input, which do not fit the run's event ids",
                            result["inputs"]["left_out_mfps"].get<std::uint64_t>());
    }
    if (is_incomplete()) {
        text += "\n" + reason();
    }
    const OrderedJson& triggers = result["triggers"];
    if (triggers["loop"] == "open") {
        const double offered = triggers["offered_hz"].get<double>();
        text += fmt::format(
            "\ntriggers: offered {:.0f} Hz, accepted {:.0f} Hz, inhibited {:.0f} Hz, dropped {:.0f} Hz ({}), dead "
            "{:.1f} "
            "%, memory in use {:.0f} % (most {:.0f} %)",
            offered, triggers["accepted_hz"].get<double>(), triggers["inhibited_hz"].get<double>(),
            triggers["dropped_hz"].get<double>(), triggers["policy"].get<std::string>(),
            100 * result["dead_time_fraction"].get<double>(), 100 * triggers["occupancy"]["mean"].get<double>(),
            100 * triggers["occupancy"]["max"].get<double>());
    }
    if (totals_.board_datagrams > 0) {
        text += fmt::format(
            "\nboards: {} datagrams, {} fragments taken, {} lost, {} duplicate, {} late, {} stray, {} restarts, {} "
            "datagrams refused, {} without room",
            totals_.board_datagrams, totals_.board_events, totals_.board_lost_events, totals_.board_duplicate_events,
            totals_.board_late_events, totals_.board_stray_events, totals_.board_restarts,
            totals_.board_refused_datagrams, totals_.board_overflow_datagrams);
    }
    if (totals_.undelivered_meps > 0) {
        text += fmt::format("\nnot delivered: {} MEPs, after the sink's command had ended", totals_.undelivered_meps);
    }
    return text;
}

int Tally::exit_status() const {
    switch (facts_.control.outcome()) {
        case Outcome::complete:
        case Outcome::interrupted:
            break;
        case Outcome::event_manager_lost:
        case Outcome::node_lost:
            return exit_lost;
        default:
            return exit_failed;
    }
    return is_incomplete() ? exit_incomplete : is_accounted() ? exit_ok : exit_failed;
}

}  // namespace

RunResult make_result(const RunFacts& facts) {
    const Tally tally(facts);
    return {tally.json().dump(2) + "\n", tally.summary(), tally.exit_status()};
}

}  // namespace incast::runtime

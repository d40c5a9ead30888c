// result.json of raw traffic: who sent how much to whom. schema/net_result.schema.json.
#include <algorithm>
#include <map>
#include <optional>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/units.h"
#include "runtime/config/json.h"
#include "runtime/machine/exit_status.h"
#include "runtime/results/cpu_use.h"
#include "runtime/results/min_mean_max.h"
#include "runtime/results/results.h"

namespace incast::runtime {
namespace {

using base::seconds;

OrderedJson round_trip_json(const base::Histogram& trips, std::uint64_t min) {
    return {{"count", trips.count()},      {"min", min},
            {"p50", trips.quantile(0.5)},  {"p95", trips.quantile(0.95)},
            {"p99", trips.quantile(0.99)}, {"p999", trips.quantile(0.999)},
            {"max", trips.max()}};
}

OrderedJson round_trip_json(const PairSample& pair) {
    return {{"count", pair.round_trips}, {"min", pair.min_ns},   {"p50", pair.p50_ns},
            {"p99", pair.p99_ns},        {"p999", pair.p999_ns}, {"max", pair.max_ns}};
}

/// Of round trips: each of the values, halved.
OrderedJson one_way(const OrderedJson& round_trip) {
    OrderedJson half;
    for (const auto& [key, value] : round_trip.items()) {
        if (key != "count") {
            half[key] = value.get<double>() / 2;
        }
    }
    return half;
}

class NetTally {
public:
    explicit NetTally(const RunFacts& facts)
        : facts_(facts),
          plan_(facts.plan),
          nodes_(facts.control.nodes()),
          reads_(plan_.net.operation == net::Operation::read),
          trips_(plan_.net.measure != net::Measure::bandwidth) {
        whole_ = plan_.measured_whole ||
                 std::ranges::none_of(nodes_, [](const NodeRecord& record) { return record.begin.has_value(); });
        for (const NodeRecord& record : nodes_) {
            take(record);
        }
    }

    OrderedJson json() const;
    std::string summary() const;
    int exit_status() const;

private:
    struct Flow {
        std::uint64_t messages = 0;
        const PairSample* asked = nullptr;  // what who asked found
    };

    static const NodeSample* last_of(const NodeRecord& record) {
        return record.last ? &*record.last : record.latest ? &*record.latest : nullptr;
    }

    void take(const NodeRecord& record) {
        const NodeSample* last = last_of(record);
        if (last == nullptr) {
            return;
        }
        add(totals_, last->totals);
        peak_rss_ = std::max(peak_rss_, last->peak_rss_bytes);
        const NodeSample& end = whole_ || !record.end ? *last : *record.end;
        if (!end.net) {
            return;  // it did not live to tell
        }
        if (end.latency_ns) {
            latency_.merge(*end.latency_ns);
        }
        if (whole_) {
            cpu_.add(end.totals, end.cpu_wall_ns);
            const Time over = end.net->finished_at != 0 ? end.net->finished_at : end.at;
            time_ = std::max(time_, end.net->began_at != 0 ? over - end.net->began_at : 0);
            count_pairs(end.node, *end.net, {});
        } else if (record.begin && record.begin->net) {
            cpu_.add(difference(end.totals, record.begin->totals),
                     end.cpu_wall_ns - std::min(end.cpu_wall_ns, record.begin->cpu_wall_ns));
            time_ = std::max(time_, end.at - record.begin->at);
            count_pairs(end.node, *end.net, *record.begin->net);
        }
    }

    /// The receiver says what arrived; who wrote, or read, how long the answers took. Partners are the same at all
    /// times.
    void count_pairs(std::uint32_t node, const NetSample& end, const NetSample& begin) {
        for (std::size_t index = 0; index < end.pairs.size(); ++index) {
            const PairSample& pair = end.pairs[index];
            const std::uint64_t before = index < begin.pairs.size() ? begin.pairs[index].messages_received : 0;
            flows_[{pair.peer, node}].messages += pair.messages_received - std::min(before, pair.messages_received);
            flows_[reads_ ? net::Pair{pair.peer, node} : net::Pair{node, pair.peer}].asked = &pair;
        }
    }

    double rate(std::uint64_t count) const { return time_ > 0 ? static_cast<double>(count) / seconds(time_) : 0; }
    std::uint64_t bytes(std::uint64_t messages) const { return messages * plan_.net.message_bytes; }

    std::uint64_t messages() const {
        std::uint64_t sum = 0;
        for (const net::Pair& pair : plan_.net.pairs) {
            sum += flow(pair).messages;
        }
        return sum;
    }
    Flow flow(const net::Pair& pair) const {
        const auto found = flows_.find(pair);
        return found == flows_.end() ? Flow{} : found->second;
    }

    /// Of all pairs; histograms know it to a bucket alone.
    std::uint64_t shortest() const {
        std::optional<std::uint64_t> least;
        for (const net::Pair& pair : plan_.net.pairs) {
            if (const PairSample* asked = flow(pair).asked; asked != nullptr && asked->round_trips > 0) {
                least = std::min(least.value_or(asked->min_ns), asked->min_ns);
            }
        }
        return least.value_or(0);
    }

    /// Of the nodes that send or that receive, by `end`.
    OrderedJson side_json(std::uint32_t net::Pair::* end) const {
        std::map<std::uint32_t, std::uint64_t> messages;
        for (const net::Pair& pair : plan_.net.pairs) {
            messages[pair.*end] += flow(pair).messages;
        }
        OrderedJson json = OrderedJson::array();
        for (const auto& [node, count] : messages) {
            json.push_back({{"node", node}, {"bytes", bytes(count)}, {"bytes_per_s", rate(bytes(count))}});
        }
        return json;
    }
    static MinMeanMax spread_over(const OrderedJson& list) {
        std::vector<double> values;
        for (const OrderedJson& entry : list) {
            values.push_back(entry["bytes_per_s"].get<double>());
        }
        return min_mean_max(values);
    }

    OrderedJson pairs_json() const;
    OrderedJson nodes_json() const;
    OrderedJson cpu_json() const;
    OrderedJson sizes_json() const;
    std::string_view verified() const { return plan_.net.verify && !facts_.virtual_time ? "full" : "header"; }

    const RunFacts& facts_;
    const Plan& plan_;
    const std::vector<NodeRecord>& nodes_;
    const bool reads_;
    const bool trips_;  // round trips were measured
    bool whole_ = false;
    std::map<net::Pair, Flow> flows_;
    CpuUse cpu_;
    NodeTotals totals_;
    Time time_ = 0;  // of the node that was measured longest
    base::Histogram latency_;
    std::uint64_t peak_rss_ = 0;
};

OrderedJson NetTally::pairs_json() const {
    OrderedJson json = OrderedJson::array();
    for (const net::Pair& pair : plan_.net.pairs) {
        const Flow carried = flow(pair);
        OrderedJson entry{{"from", pair.from},
                          {"to", pair.to},
                          {"messages", carried.messages},
                          {"bytes", bytes(carried.messages)},
                          {"bytes_per_s", rate(bytes(carried.messages))}};
        if (trips_ && carried.asked != nullptr) {
            entry["round_trip_ns"] = round_trip_json(*carried.asked);
        }
        json.push_back(std::move(entry));
    }
    return json;
}

OrderedJson NetTally::nodes_json() const {
    OrderedJson json = OrderedJson::array();
    for (std::size_t index = 0; index < nodes_.size(); ++index) {
        const NodeRecord& record = nodes_[index];
        OrderedJson entry{{"node", index},
                          {"roles", node_name(static_cast<std::uint32_t>(index), record.roles)},
                          {"lost", record.lost}};
        add_place(entry, facts_, index);
        if (!record.why_lost.empty()) {
            entry["why_lost"] = record.why_lost;
        }
        if (const NodeSample* sample = last_of(record)) {
            entry["state"] = to_text(sample->state);
            entry["messages_sent"] = sample->totals.mfps_sent;
            entry["messages_received"] = sample->totals.mfps_received;
            entry["control_messages"] = sample->totals.messages_sent;
            entry["back_pressure"] = sample->totals.back_pressure;
            entry["bad_messages"] = sample->totals.bad_messages;
            entry["sleeps"] = sample->totals.sleeps;
            entry["cpu_seconds"] = static_cast<double>(sample->totals.cpu_ns) * 1e-9;
            entry["peak_rss_bytes"] = sample->peak_rss_bytes;
            if (!sample->failure.empty()) {
                entry["failure"] = sample->failure;
            }
            if (!sample->note.empty()) {
                entry["note"] = sample->note;
            }
        }
        json.push_back(std::move(entry));
    }
    return json;
}

OrderedJson NetTally::cpu_json() const {
    return {{"seconds", cpu_.seconds()},
            {"cores", cpu_.cores()},
            {"polling_seconds", cpu_.polling_seconds()},
            {"scope", fmt::format("user and system time of {} process{} with nodes, {}", facts_.processes,
                                  facts_.processes == 1 ? "" : "es",
                                  whole_ ? "since their memory was set up" : "in the measured window")}};
}

OrderedJson NetTally::sizes_json() const {
    return {{"slot_bytes", plan_.slot_bytes},
            {"slots", plan_.net.pairs.size() * net::all_queues(plan_.net) * plan_.net.outstanding},
            {"ring_bytes", plan_.ru_memory_bytes},
            {"largest_receiver_bytes", plan_.bu_memory_bytes},
            {"working_set_bytes", plan_.working_set_bytes},
            {"last_level_cache_bytes", facts_.machine.last_level_cache_bytes}};
}

OrderedJson NetTally::json() const {
    const std::uint64_t carried = messages();
    const double gb = static_cast<double>(bytes(carried)) * 1e-9;
    const auto per_gb = [gb](const OrderedJson& cpu_seconds) {
        return gb > 0 ? OrderedJson(cpu_seconds.get<double>() / gb) : OrderedJson(nullptr);
    };
    const OrderedJson pairs = pairs_json();
    const OrderedJson senders = side_json(&net::Pair::from);
    const OrderedJson receivers = side_json(&net::Pair::to);
    const OrderedJson cpu = cpu_json();
    std::vector<double> intervals;
    for (const Interval& interval : facts_.control.intervals()) {
        intervals.push_back(static_cast<double>(interval.delta.built_goodput_bytes) / seconds(interval.length));
    }
    OrderedJson json;
    json["schema"] = 1;
    json["kind"] = "net";
    json["status"] = to_text(facts_.control.outcome());
    if (!facts_.control.reason().empty()) {
        json["reason"] = facts_.control.reason();
    }
    json["time_domain"] = facts_.virtual_time ? "virtual" : "real";
    json["transport"] = plan_.config.transport;
    json["measure"] = plan_.values.at("net.measure");
    json["operation"] = plan_.values.at("net.operation");
    json["pattern"] = plan_.values.at("net.pattern");
    json["duplex"] = plan_.config.duplex;
    json["nodes_in_pattern"] = plan_.n_nodes;
    json["message_bytes"] = plan_.net.message_bytes;
    json["queues"] = plan_.net.queues;
    json["outstanding"] = plan_.net.outstanding;
    json["sends"] = plan_.net.sends == 0 ? plan_.net.outstanding : plan_.net.sends;
    json["buffers"] = plan_.values.at("net.buffers");
    json["ping_bytes"] = plan_.net.ping_bytes == 0 ? OrderedJson(nullptr) : OrderedJson(plan_.net.ping_bytes);
    json["bytes_per_s"] = {{"total", rate(bytes(carried))},
                           {"per_sender", to_json(spread_over(senders))},
                           {"per_receiver", to_json(spread_over(receivers))},
                           {"per_pair", to_json(spread_over(pairs))},
                           {"over_time", intervals.empty() ? OrderedJson(nullptr) : to_json(min_mean_max(intervals))}};
    json["messages"] = carried;
    json["messages_per_s"] = rate(carried);
    json["round_trip_ns"] = nullptr;
    json["one_way_ns"] = nullptr;
    if (trips_) {
        json["round_trip_ns"] = round_trip_json(latency_, shortest());
        json["one_way_ns"] = reads_ ? OrderedJson(nullptr) : one_way(json["round_trip_ns"]);
    }
    json["pairs"] = pairs;
    json["senders"] = senders;
    json["receivers"] = receivers;
    json["verified"] = verified();
    json["verified_messages"] = totals_.lines_checked_meps;
    json["verify_errors"] = totals_.verify_errors;
    json["cpu_s_per_gb"] = per_gb(cpu["seconds"]);
    json["useful_cpu_s_per_gb"] = per_gb(cpu["seconds"].get<double>() - cpu["polling_seconds"].get<double>());
    json["cpu"] = cpu;
    json["peak_rss_bytes"] = peak_rss_;
    json["window"] = {{"rule", whole_ ? "from the moment all nodes had joined until every message had arrived"
                                      : "after the warm-up, until sending was stopped"},
                      {"seconds", seconds(time_)},
                      {"warm_up_seconds", whole_ ? 0.0 : seconds(plan_.config.warm_up)},
                      {"bytes", bytes(carried)}};
    json["sizes"] = sizes_json();
    json["seed"] = plan_.config.seed;
    if (facts_.trace_hash) {
        json["trace_hash"] = fmt::format("{:016x}", *facts_.trace_hash);
    }
    if (facts_.network != nullptr) {
        json["network"] = *facts_.network;
    }
    json["nodes"] = nodes_json();
    if (facts_.incomplete_files != nullptr) {
        json["incomplete_files"] = *facts_.incomplete_files;
    }
    json["ports"] = ports_json(nodes_);
    json["config"] = config_json(plan_.values);
    json["machine"] = machine_json(facts_.machine);
    json["versions"] = versions_json();
    return json;
}

std::string NetTally::summary() const {
    const std::uint64_t carried = messages();
    std::string text = fmt::format(
        "{}: {} messages of {} ({:.0f}/s), {}/s over {} pairs, {} errors ({} verified)",
        to_text(facts_.control.outcome()), carried, base::format_bytes(plan_.net.message_bytes), rate(carried),
        base::format_bytes(rate(bytes(carried))), plan_.net.pairs.size(), totals_.verify_errors, verified());
    if (trips_) {
        const auto time = [this](double q) {
            return base::format_duration(static_cast<Time>(latency_.quantile(q)) * ps_per_ns);
        };
        text += fmt::format("\n{} p50 {}, p99 {}, p99.9 {}", reads_ ? "read" : "round trip", time(0.5), time(0.99),
                            time(0.999));
    }
    return text;
}

int NetTally::exit_status() const {
    switch (facts_.control.outcome()) {
        case Outcome::complete:
        case Outcome::interrupted:
            return totals_.verify_errors == 0 ? exit_ok : exit_failed;
        case Outcome::node_lost:
            return exit_lost;
        default:
            return exit_failed;
    }
}

}  // namespace

RunResult make_net_result(const RunFacts& facts) {
    const NetTally tally(facts);
    return {tally.json().dump(2) + "\n", tally.summary(), tally.exit_status()};
}

}  // namespace incast::runtime

#include "runtime/flows/flow_results.h"

#include <algorithm>
#include <cmath>
#include <cstdint>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "runtime/config/json.h"
#include "runtime/report/table_file.h"

namespace incast::runtime {
namespace {

using sim::flows::Flow;

std::string time_or_nothing(Time time) {
    return time == time_never ? std::string() : fmt::format("{}", time);
}

/// Nearest rank: the smallest value that is not exceeded by the share `quantile` of all. They are sorted, and some.
template <class Value>
Value quantile_of(const std::vector<Value>& sorted, double quantile) {
    const double rank = std::ceil(quantile * static_cast<double>(sorted.size()));
    return sorted[std::max<std::size_t>(1, static_cast<std::size_t>(rank)) - 1];
}

template <class Value>
OrderedJson quantiles(std::vector<Value>& values) {
    if (values.empty()) return nullptr;
    std::ranges::sort(values);
    double sum = 0;
    for (const Value value : values)
        sum += static_cast<double>(value);
    return {{"mean", sum / static_cast<double>(values.size())},
            {"p50", quantile_of(values, 0.5)},
            {"p95", quantile_of(values, 0.95)},
            {"p99", quantile_of(values, 0.99)},
            {"p999", quantile_of(values, 0.999)},
            {"max", values.back()}};
}

/// Flows of more than `above` and up to `up_to` bytes.
OrderedJson bin(const FlowFacts& facts, std::uint64_t above, std::uint64_t up_to) {
    std::uint64_t flows = 0;
    std::vector<Time> times;
    std::vector<double> slowdowns;
    for (std::size_t index = 0; index < facts.flows.size(); ++index) {
        const Flow& flow = facts.flows[index];
        if (flow.bytes <= above || flow.bytes > up_to) continue;
        ++flows;
        if (facts.records[index].delivered == time_never) continue;
        const Time time = facts.records[index].delivered - flow.start;
        times.push_back(time);
        if (facts.alone[index] != time_never)
            slowdowns.push_back(static_cast<double>(time) / static_cast<double>(facts.alone[index]));
    }
    OrderedJson json{{"above_bytes", above}, {"up_to_bytes", up_to}, {"flows", flows}, {"delivered", times.size()}};
    json["completion_ps"] = quantiles(times);
    json["slowdown"] = quantiles(slowdowns);
    return json;
}

}  // namespace

void write_flows(const FlowFacts& facts, Reporter& reporter) {
    std::vector<std::string_view> hosts;
    for (const auto& node : facts.fabric.topology.nodes)
        if (node.is_host) hosts.emplace_back(node.name);
    TableFile out(reporter, "flows.csv");
    out.add("flow,start_ps,source,destination,bytes,class,completion_ps,acknowledged_ps,alone_ps,slowdown,repeated\n");
    for (std::size_t index = 0; index < facts.flows.size(); ++index) {
        const Flow& flow = facts.flows[index];
        const sim::flows::FlowRecord& record = facts.records[index];
        const auto since_start = [&](Time time) { return time == time_never ? time_never : time - flow.start; };
        const Time completion = since_start(record.delivered);
        const Time alone = facts.alone[index];
        out.add(fmt::format("{},{},{},{},{},{},{},{},{},{},{}\n", index, flow.start, hosts[flow.source],
                            hosts[flow.destination], flow.bytes, flow.traffic_class, time_or_nothing(completion),
                            time_or_nothing(since_start(record.acknowledged)), time_or_nothing(alone),
                            completion == time_never || alone == time_never
                                ? std::string()
                                : fmt::format("{:.6f}", static_cast<double>(completion) / static_cast<double>(alone)),
                            record.repeated));
    }
}

nlohmann::ordered_json flows_by_size(const FlowFacts& facts) {
    std::uint64_t largest = 0;
    for (const Flow& flow : facts.flows)
        largest = std::max(largest, flow.bytes);
    OrderedJson bins = OrderedJson::array();
    std::uint64_t above = 0;
    for (std::uint64_t up_to = 10'000; above < largest; above = up_to, up_to *= 10) {
        OrderedJson one = bin(facts, above, up_to);
        if (one["flows"] != 0) bins.push_back(std::move(one));
    }
    bins.push_back(bin(facts, 0, largest));
    return bins;
}

}  // namespace incast::runtime

// What a result says of its run beside its totals: configuration, machine, versions, what was verified, triggers.
#include <algorithm>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/units.h"
#include "runtime/config/json.h"
#include "runtime/results/results.h"

namespace incast::runtime {

nlohmann::ordered_json config_json(const std::map<std::string, std::string>& values) {
    OrderedJson json;
    for (const auto& [key, value] : values) {
        OrderedJson* at = &json;
        std::size_t start = 0;
        for (std::size_t dot = key.find('.'); dot != std::string::npos; start = dot + 1, dot = key.find('.', start)) {
            at = &(*at)[key.substr(start, dot - start)];
        }
        (*at)[key.substr(start)] = typed_json(key, value);
    }
    return json;
}

nlohmann::ordered_json datagrams_json(const NodeTotals& totals) {
    return {{"sent", totals.datagrams_sent}, {"lost", totals.datagrams_lost}, {"repeated", totals.datagrams_repeated}};
}

nlohmann::ordered_json machine_json(const Machine& machine) {
    return {{"host", machine.host},
            {"cpu_model", machine.cpu_model},
            {"cores", machine.cores},
            {"last_level_cache_bytes", machine.last_level_cache_bytes},
            {"memory_bytes", machine.memory_bytes},
            {"kernel", machine.kernel}};
}

std::string why_no_latency(const base::Histogram& latency, std::uint64_t clock_error_ns) {
    if (latency.count() == 0 || is_latency_known(latency.quantile(0.5), clock_error_ns)) {
        return {};
    }
    return fmt::format("clocks of hosts may be {} apart, more than 10 % of the median",
                       base::format_duration(static_cast<Time>(clock_error_ns) * ps_per_ns));
}

nlohmann::ordered_json latency_json(const base::Histogram& latency, bool open_loop, std::uint64_t clock_error_ns) {
    OrderedJson json{{"kind", open_loop ? "trigger" : "service"},
                     {"count", latency.count()},
                     {"clock_error", clock_error_ns},
                     {"min", latency.min()},
                     {"p50", latency.quantile(0.50)},
                     {"p95", latency.quantile(0.95)},
                     {"p99", latency.quantile(0.99)},
                     {"p999", latency.quantile(0.999)},
                     {"max", latency.max()}};
    if (const std::string why = why_no_latency(latency, clock_error_ns); !why.empty()) {
        for (const char* const quantile : {"min", "p50", "p95", "p99", "p999", "max"}) {
            json[quantile] = nullptr;
        }
        json["reason"] = why;
    }
    return json;
}

nlohmann::ordered_json ports_json(const std::vector<NodeRecord>& nodes) {
    const auto or_null = [](const std::string& name) {
        return name.empty() ? OrderedJson(nullptr) : OrderedJson(name);
    };
    OrderedJson json = OrderedJson::array();
    std::set<std::tuple<std::string, std::string, std::uint32_t, std::string>> seen;  // nodes of a host share its ports
    for (const NodeRecord& record : nodes) {
        const std::optional<NodeSample>& sample = record.end ? record.end : record.last;
        if (!sample) {
            continue;
        }
        for (const PortChange& port : sample->ports) {
            if (seen.emplace(sample->host, port.device, port.port, port.interface).second) {
                json.push_back({{"host", sample->host},
                                {"device", or_null(port.device)},
                                {"port", port.device.empty() ? OrderedJson(nullptr) : OrderedJson(port.port)},
                                {"interface", or_null(port.interface)},
                                {"grown", port.grown}});
            }
        }
    }
    return json;
}

nlohmann::ordered_json versions_json() {
    const Versions built = versions();
    return {
        {"incast", built.incast}, {"git", built.git}, {"compiler", built.compiler}, {"build_type", built.build_type}};
}

void add_boards(nlohmann::ordered_json& entry, const protocol::Config& config, std::size_t node,
                const NodeSample& sample) {
    std::size_t index = 0;
    for (const protocol::SourceSpec& source : config.sources) {
        if (static_cast<std::size_t>(source.ru) != node || index == sample.boards.size()) {
            continue;
        }
        nlohmann::ordered_json& board = entry["boards"].emplace_back();
        board["source"] = source.id;
        board.update(to_json(sample.boards[index++]));
    }
}

void add_place(nlohmann::ordered_json& entry, const RunFacts& facts, std::size_t node) {
    if (facts.places == nullptr || facts.places->at(node).is_null()) {
        return;
    }
    entry["place"] = facts.places->at(node);
    entry["place"].erase("folder");
}

std::string_view verified_text(const RunConfig& config, bool virtual_time) {
    if (config.sink_kind != SinkKind::verify) {
        return "none";
    }
    if (virtual_time) {
        return "header";  // nothing else moves in a simulation (EB-T9)
    }
    constexpr std::string_view names[]{"full", "sampled", "header"};
    return names[static_cast<std::size_t>(config.verify)];
}

nlohmann::ordered_json triggers_over_time(const Plan& plan, const std::vector<Interval>& intervals) {
    constexpr std::size_t most = 1000;
    const std::size_t together = (intervals.size() + most - 1) / most;
    OrderedJson series = OrderedJson::array();
    for (std::size_t first = 0; first < intervals.size(); first += together) {
        Interval sum;
        for (std::size_t index = first; index < std::min(first + together, intervals.size()); ++index) {
            sum.end = intervals[index].end;
            sum.length += intervals[index].length;
            add(sum.delta, intervals[index].delta);
            sum.clock_error_ns = std::max(sum.clock_error_ns, intervals[index].clock_error_ns);
            sum.waiting_events = intervals[index].waiting_events;
        }
        OrderedJson one{{"t", base::seconds(sum.end)}};
        one.update(trigger_json(plan, sum));
        series.push_back(std::move(one));
    }
    return series;
}

}  // namespace incast::runtime

#include "runtime/monitor/exposition.h"

#include <iterator>

#include <fmt/format.h>

#include "base/units.h"
#include "runtime/machine/machine.h"

namespace incast::runtime {
namespace {

/// Of a label, by the format's rules.
std::string escaped(std::string_view value) {
    std::string text;
    for (const char letter : value) {
        if (letter == '\\' || letter == '"') {
            text += '\\';
            text += letter;
        } else if (letter == '\n') {
            text += "\\n";
        } else {
            text += letter;
        }
    }
    return text;
}

class Writer {
public:
    void begin(std::string_view name, std::string_view type, std::string_view help) {
        fmt::format_to(out(), "# HELP incast_{} {}.\n# TYPE incast_{} {}\n", name, help, name, type);
    }
    template <class Value>
    void line(std::string_view name, std::string_view labels, Value value) {
        fmt::format_to(out(), "incast_{}{{{}}} {}\n", name, labels, value);
    }
    /// `value_of` gives the value of a node.
    template <class ValueOf>
    void gauge(std::string_view name, std::string_view help, std::span<const ExposedNode> nodes, ValueOf value_of) {
        begin(name, "gauge", help);
        for (const ExposedNode& node : nodes) {
            line(name, node_label(node), value_of(node));
        }
    }
    void counter(const TotalsField& field, std::span<const ExposedNode> nodes) {
        const bool is_time = field.name.ends_with("_ns");
        const std::string name = fmt::format("{}{}_total", field.name.substr(0, field.name.size() - (is_time ? 3 : 0)),
                                             is_time ? "_seconds" : "");
        begin(name, "counter", field.help);
        for (const ExposedNode& node : nodes) {
            const std::uint64_t value = node.sample.totals.*field.member;
            if (is_time) {
                line(name, node_label(node), static_cast<double>(value) * 1e-9);
            } else {
                line(name, node_label(node), value);
            }
        }
    }
    static std::string node_label(const ExposedNode& node) { return fmt::format("node=\"{}\"", node.sample.node); }

    std::string text;

private:
    std::back_insert_iterator<std::string> out() { return std::back_inserter(text); }
};

void write_facts(Writer& writer, const RunLabels& run, std::span<const ExposedNode> nodes) {
    const Versions built = versions();
    writer.begin("build_info", "gauge", "Always 1; which engine this is");
    writer.line("build_info",
                fmt::format("version=\"{}\",git=\"{}\",compiler=\"{}\",build_type=\"{}\"", escaped(built.incast),
                            escaped(built.git), escaped(built.compiler), escaped(built.build_type)),
                1);
    writer.begin("run_info", "gauge", "Always 1; what is run");
    writer.line("run_info",
                fmt::format("task=\"{}\",transport=\"{}\",scheme=\"{}\"", escaped(run.task), escaped(run.transport),
                            escaped(run.scheme)),
                1);
    writer.begin("node_info", "gauge", "Always 1; the roles of the node");
    for (const ExposedNode& node : nodes) {
        writer.line("node_info", fmt::format("{},roles=\"{}\"", Writer::node_label(node), escaped(node.roles)), 1);
    }
    writer.begin("node_state", "gauge", "1 for the state that the node is in, 0 for the others");
    for (const ExposedNode& node : nodes) {
        for (const protocol::NodeState state : all_states) {
            writer.line("node_state", fmt::format("{},state=\"{}\"", Writer::node_label(node), to_text(state)),
                        node.sample.state == state ? 1 : 0);
        }
    }
}

}  // namespace

std::string exposition(const RunLabels& run, std::span<const ExposedNode> nodes) {
    Writer writer;
    write_facts(writer, run, nodes);
    writer.gauge("sample_timestamp_seconds", "Unix time at which the values of this node were taken", nodes,
                 [](const ExposedNode& node) { return fmt::format("{:.6f}", node.taken_at_s); });
    writer.gauge("run_time_seconds", "Time since the start of the run at which they were taken, by this node's clock",
                 nodes, [](const ExposedNode& node) { return fmt::format("{:.9f}", base::seconds(node.sample.at)); });
    writer.gauge("clock_error_seconds",
                 "The most that this node's clock was off the coordinator's since the measured window began", nodes,
                 [](const ExposedNode& node) { return static_cast<double>(node.sample.clock_error_ns) * 1e-9; });
    writer.gauge("incarnation", "How often the node has begun to take part", nodes,
                 [](const ExposedNode& node) { return node.sample.incarnation; });
    writer.gauge("resident_memory_bytes", "Resident memory of the process; of several nodes the first has it", nodes,
                 [](const ExposedNode& node) { return node.sample.rss_bytes; });
    writer.gauge("peak_resident_memory_bytes", "The most resident memory the process has had", nodes,
                 [](const ExposedNode& node) { return node.sample.peak_rss_bytes; });
    writer.gauge("peak_held_meps", "Open loop: the most MEPs with data in memory since the measured window began",
                 nodes, [](const ExposedNode& node) { return node.sample.peak_held_meps; });
    writer.gauge("trigger_spread_seconds", "Open loop, throttle: the largest difference of intended times within a MEP",
                 nodes,
                 [](const ExposedNode& node) { return static_cast<double>(node.sample.trigger_spread_ns) * 1e-9; });
    writer.begin("mep_latency_seconds", "summary",
                 "Latency of MEPs: from assignment, in open loop from the intended trigger time, to commit");
    for (const ExposedNode& node : nodes) {
        const NodeTotals& totals = node.sample.totals;
        writer.line("mep_latency_seconds_sum", Writer::node_label(node), static_cast<double>(totals.delay_ns) * 1e-9);
        writer.line("mep_latency_seconds_count", Writer::node_label(node), totals.timed_meps);
    }
    for (const TotalsField& field : totals_fields()) {
        if (field.member != &NodeTotals::delay_ns && field.member != &NodeTotals::timed_meps) {  // mep_latency_seconds
            writer.counter(field, nodes);
        }
    }
    return std::move(writer.text);
}

}  // namespace incast::runtime

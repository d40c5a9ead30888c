#include "runtime/plan/announcement.h"

#include <string_view>

#include <fmt/format.h>

#include "base/units.h"

namespace incast::runtime {
namespace {

using Rows = std::vector<std::pair<std::string, std::string>>;

std::string bytes(std::uint64_t value) {
    return base::format_bytes(static_cast<double>(value));
}

std::string counted(std::uint64_t number, std::string_view what) {
    return fmt::format("{} {}{}", number, what, number == 1 ? "" : "s");
}

/// Empty: it was asked for.
std::string why(const Plan& plan, std::string_view what) {
    for (const Choice& choice : plan.chosen) {
        if (choice.what == what) return choice.why;
    }
    return {};
}

std::string with_why(std::string text, const Plan& plan, std::string_view what) {
    const std::string reason = why(plan, what);
    return reason.empty() ? text : fmt::format("{}: {}", text, reason);
}

std::string roles_of(const Plan& plan) {
    std::string text = plan.config.roles == Roles::folded
                           ? std::string("each reads out and builds")
                           : fmt::format("{} read out, {} build", plan.n_rus, plan.n_bus);
    if (plan.config.em == EmPlace::own) text += ", one more is the event manager";
    return text;
}

std::string sink_of(const Plan& plan) {
    const RunConfig& config = plan.config;
    std::string kind = plan.values.at("sink.kind");
    switch (config.sink_kind) {
        case SinkKind::verify:
            return fmt::format("{} ({})", kind, plan.values.at("sink.verify"));
        case SinkKind::mep:
            return fmt::format("{} into {}", kind, config.sink_path);
        case SinkKind::consumer:
            return fmt::format("{} {} (until one attaches, events {})", kind, config.sink_name,
                               config.consumer_policy == ConsumerPolicy::drop ? "are dropped" : "wait");
        case SinkKind::farm:
            return fmt::format("{} of {}, {} network", kind, counted(config.farm_nodes, "node"),
                               config.farm_network == FarmNetwork::own ? "in its own" : "in the same");
        default:
            return kind;
    }
}

std::string data_of(const Plan& plan) {
    const std::size_t n = plan.protocol.sources.size();
    const std::string how = sink_of(plan);
    if (plan.config.source_kind == SourceKind::mfp) {
        return fmt::format("{} with {} from {}; sink: {}", counted(n, "source"), counted(plan.inputs.events, "event"),
                           plan.config.source_path, how);
    }
    if (plan.config.source_kind == SourceKind::udp) {
        return fmt::format("{} that boards send to {}; sink: {}", counted(n, "source"), plan.config.board_address, how);
    }
    if (plan.config.source_kind == SourceKind::tcp) {
        return fmt::format("{} that boards send to {} by TCP; sink: {}", counted(n, "source"),
                           plan.config.board_address, how);
    }
    if (plan.config.source_kind == SourceKind::program) {
        return fmt::format("{} that programs of this host hand over to {}; sink: {}", counted(n, "source"),
                           plan.config.source_name, how);
    }
    return fmt::format("{}, generated, {} a fragment; sink: {}", counted(n, "source"), bytes(plan.config.fragment_size),
                       how);
}

std::string time_of(const Plan& plan) {
    if (plan.measured_whole) {
        return plan.total_events == 0
                   ? std::string("until it is stopped; all of it is measured")
                   : fmt::format("until {} are built; all of it is measured", counted(plan.total_events, "event"));
    }
    const std::string measured = fmt::format("{} measured", base::duration_text(plan.duration));
    return plan.config.warm_up == 0
               ? measured
               : fmt::format("{} of warm-up, then {}", base::duration_text(plan.config.warm_up), measured);
}

Rows net_rows(const Plan& plan, const std::string& nodes) {
    const net::Config& net = plan.net;
    return {{"net", fmt::format("{}, {} ({}{})", nodes, counted(net.pairs.size(), "pair"),
                                plan.values.at("net.pattern"), plan.config.duplex ? ", duplex" : "")},
            {"messages", fmt::format("{} each, {} per pair, {} in flight in each", bytes(net.message_bytes),
                                     counted(net.queues, "queue"), net.outstanding)},
            {"memory",
             fmt::format("{} of slots per receiver, {} per sender ({}); working set {}", bytes(plan.bu_memory_bytes),
                         bytes(plan.ru_memory_bytes), net.buffers == net::Buffers::one ? "one buffer" : "a ring",
                         bytes(plan.working_set_bytes))},
            {"time", time_of(plan)}};
}

}  // namespace

Rows announcement(const Plan& plan, const std::string& because) {
    std::string nodes = counted(plan.n_nodes, "node");
    if (const std::string fewer = why(plan, "nodes"); !fewer.empty()) nodes += fmt::format(" ({})", fewer);
    nodes += " over " + plan.config.transport;
    if (!because.empty()) nodes += fmt::format(" ({})", because);
    if (plan.is_net()) return net_rows(plan, nodes);
    Rows rows{{"run", fmt::format("{}, {}; {}", nodes, plan.values.at("protocol.scheme"), roles_of(plan))},
              {"data", data_of(plan)},
              {"packets", with_why(fmt::format("{} each, {}", bytes(plan.mfp_bytes), counted(plan.packing, "event")),
                                   plan, "packets")},
              {"credits",
               with_why(fmt::format("{} per builder unit, slots of {}", plan.config.credits, bytes(plan.slot_bytes)),
                        plan, "credits")},
              {"memory", fmt::format("{} per builder unit, {} per readout unit (needed: {}); working set {}",
                                     bytes(plan.bu_memory_bytes), bytes(plan.ru_memory_bytes),
                                     bytes(plan.ru_memory_needed_bytes), bytes(plan.working_set_bytes))}};
    for (const std::string_view what : {"source", "stores", "consumers"}) {
        if (std::string reason = why(plan, what); !reason.empty()) rows.emplace_back(what, std::move(reason));
    }
    rows.emplace_back("time", time_of(plan));
    return rows;
}

}  // namespace incast::runtime

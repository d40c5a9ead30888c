// From [net] as written to the traffic of a run without event building.
#include <algorithm>

#include <fmt/format.h>

#include "base/units.h"
#include "runtime/plan/resolve.h"
#include "runtime/plan/resolve_parts.h"

namespace incast::runtime {
namespace {

/// The pattern may say how many nodes there are; if it does not, run.nodes does.
Result<Ok> count_nodes(RunConfig& config, bool nodes_given) {
    using net::Pattern;
    const auto wrong_nodes = [&config](std::string_view problem, std::string_view allowed) {
        return not_allowed("run.nodes", std::to_string(config.nodes), problem, allowed);
    };
    if (config.net_pattern != Pattern::bipartite && (config.producers != 0 || config.consumers != 0)) {
        return not_allowed(config.producers != 0 ? "net.producers" : "net.consumers",
                           std::to_string(config.producers != 0 ? config.producers : config.consumers),
                           "the pattern has none", "auto, or net.pattern = bipartite");
    }
    switch (config.net_pattern) {
        case Pattern::one_to_one:
            config.nodes = nodes_given ? config.nodes : 2;
            if (config.nodes != 2) {
                return wrong_nodes("one-to-one is between two nodes", "2");
            }
            break;
        case Pattern::pairs:
            if (config.nodes % 2 != 0) {
                return wrong_nodes("pairs need an even number of nodes", "2, 4, 6 ...");
            }
            break;
        case Pattern::bipartite:
            if (!nodes_given && config.producers != 0 && config.consumers != 0) {
                config.nodes = config.producers + config.consumers;
            }
            if (config.producers == 0) {
                config.producers =
                    config.consumers == 0 ? config.nodes / 2 : config.nodes - std::min(config.nodes, config.consumers);
            }
            if (config.consumers == 0) {
                config.consumers = config.nodes - std::min(config.nodes, config.producers);
            }
            if (config.producers == 0 || config.consumers == 0 || config.producers + config.consumers != config.nodes) {
                return not_allowed("net.producers + net.consumers",
                                   fmt::format("{} + {}", config.producers, config.consumers),
                                   fmt::format("run.nodes is {}", config.nodes),
                                   fmt::format("at least 1 each, {} together", config.nodes));
            }
            break;
        default:
            break;
    }
    if (config.nodes < 2 || config.nodes > 4096) {
        return wrong_nodes("traffic is between nodes", "a whole number in 2..4096");
    }
    return Ok{};
}

void set_roles(Plan& plan) {
    plan.n_nodes = static_cast<std::uint32_t>(plan.config.nodes);
    plan.protocol.em = Peer{0};
    plan.protocol.nodes.resize(plan.n_nodes);
    for (const net::Pair& pair : plan.net.pairs) {
        plan.protocol.nodes[pair.from].roles |= role_sender;
        plan.protocol.nodes[pair.to].roles |= role_receiver;
    }
    const auto count = [&plan](std::uint32_t role) {
        return static_cast<std::uint32_t>(std::ranges::count_if(
            plan.protocol.nodes, [role](const protocol::NodeSpec& node) { return (node.roles & role) != 0; }));
    };
    plan.n_rus = count(role_sender);
    plan.n_bus = count(role_receiver);
}

/// Pairs of the receiver that has most of them.
std::uint64_t most_heard(const net::Config& config) {
    std::vector<std::uint64_t> hears(config.n_nodes);
    for (const net::Pair& pair : config.pairs) {
        ++hears[pair.to];
    }
    return std::ranges::max(hears);
}

/// A limit as high as what is in flight is none.
Result<Ok> limit_sends(Plan& plan) {
    const RunConfig& config = plan.config;
    if (config.sends == 0) {
        return Ok{};
    }
    if (config.operation == net::Operation::read) {
        return not_allowed("net.sends", std::to_string(config.sends),
                           "nobody sends, reads are limited by net.outstanding", "auto, or net.operation = write");
    }
    if (config.sends > config.outstanding) {
        return not_allowed("net.sends", std::to_string(config.sends),
                           fmt::format("a queue has {} messages in flight", config.outstanding),
                           fmt::format("1..{}, or auto", config.outstanding));
    }
    plan.net.sends = config.sends == config.outstanding ? 0 : static_cast<std::uint32_t>(config.sends);
    return Ok{};
}

Result<Ok> count_slots(Plan& plan, const Machine&) {
    // More is slower: what arrives should stay in the cache of the core that reads it (docs/measuring.md).
    constexpr std::uint64_t receiver_slots_bytes = 512U << 10U;
    RunConfig& config = plan.config;
    const std::uint64_t queues = net::all_queues(plan.net);
    if (config.measure == net::Measure::latency) {
        if (config.outstanding > 1) {
            return not_allowed("net.outstanding", std::to_string(config.outstanding),
                               "a ping-pong has one message in flight", "1 or auto, or net.measure = bandwidth");
        }
        config.outstanding = 1;
    } else if (config.outstanding == 0) {
        const std::uint64_t one_of_each = net::slot_stride(plan.net) * most_heard(plan.net) * queues;
        config.outstanding = std::clamp<std::uint64_t>(receiver_slots_bytes / one_of_each, 2, 64);
    }
    if (queues * config.outstanding > net::max_slots_per_pair) {
        return not_allowed("net.outstanding", std::to_string(config.outstanding),
                           fmt::format("with {} queues more messages than a notice can name", queues),
                           fmt::format("1..{}, or auto", net::max_slots_per_pair / queues));
    }
    plan.net.outstanding = static_cast<std::uint32_t>(config.outstanding);
    return limit_sends(plan);
}

Result<Ok> check_operation(const RunConfig& config) {
    if (config.operation == net::Operation::read && config.measure == net::Measure::loaded) {
        return not_allowed("net.measure", "loaded", "reads are measured without a load",
                           "bandwidth | latency, or net.operation = write");
    }
    if (config.measure == net::Measure::loaded && config.ping_size > config.message_size) {
        return not_allowed("net.ping_size", std::to_string(config.ping_size),
                           fmt::format("a message of the load has {} bytes", config.message_size),
                           fmt::format("1..{}", config.message_size));
    }
    return Ok{};
}

/// With one buffer a sender has one message.
Result<Ok> check_buffers(const RunConfig& config) {
    if (config.buffers == net::Buffers::cycled) {
        return Ok{};
    }
    if (config.net_verify) {
        return not_allowed("net.verify", "true",
                           "with one buffer all messages have the same body, so one that did not come looks as if it "
                           "had",
                           "false, or net.buffers = cycled");
    }
    if (config.working_set > config.message_size) {
        return not_allowed("net.working_set", bytes_text(config.working_set),
                           "with net.buffers = one a sender has one message", "auto, or net.buffers = cycled");
    }
    return Ok{};
}

Result<Ok> size_memory(Plan& plan, const Machine& machine) {
    RunConfig& config = plan.config;
    // Answers are sent from a ring, too.
    const bool answers = config.operation == net::Operation::write && config.measure != net::Measure::bandwidth;
    const std::uint64_t rings = answers ? plan.n_nodes : plan.n_rus;
    if (config.buffers == net::Buffers::one) {
        config.working_set = config.message_size;
    } else if (config.working_set == 0) {
        config.working_set = std::max<std::uint64_t>(config.message_size, 4 * last_level_cache(machine) / rings);
    }
    plan.net.working_set_bytes = config.working_set;
    const std::uint64_t pair_slots = net::pair_slots_bytes(plan.net);
    plan.slot_bytes = net::slot_stride(plan.net);
    plan.ru_memory_bytes = net::ring_bytes(plan.net);
    plan.bu_memory_bytes = pair_slots * most_heard(plan.net);
    plan.working_set_bytes = rings * plan.ru_memory_bytes + plan.net.pairs.size() * pair_slots;
    // As for event building: nodes may be spread over hosts, and nothing is allocated in a simulation.
    const bool all_here = config.traits().in_process;
    const std::uint64_t here = all_here ? plan.working_set_bytes : std::max(plan.ru_memory_bytes, plan.bu_memory_bytes);
    if (!config.traits().simulated && machine.memory_bytes != 0 && here > machine.memory_bytes) {
        return not_allowed(
            "net.working_set", bytes_text(plan.ru_memory_bytes),
            fmt::format("with {} of slots more than {}", bytes_text(plan.bu_memory_bytes), machine.memory_what),
            fmt::format("at most {} for {}", bytes_text(machine.memory_bytes), all_here ? "all nodes" : "a node"));
    }
    return Ok{};
}

}  // namespace

Result<Ok> resolve_net(Plan& plan, const ConfigText& text, const Machine& machine) {
    RunConfig& config = plan.config;
    if (Result<Ok> done = count_nodes(config, text.given().contains("run.nodes")); !done) {
        return done;
    }
    for (Result<Ok> (*right)(const RunConfig&) : {&check_operation, &check_buffers}) {
        if (Result<Ok> done = right(config); !done) {
            return done;
        }
    }
    plan.net.run = config.seed;
    plan.net.n_nodes = static_cast<std::uint32_t>(config.nodes);
    plan.net.pairs =
        net::make_pairs({config.net_pattern, plan.net.n_nodes, static_cast<std::uint32_t>(config.producers),
                         static_cast<std::uint32_t>(config.consumers), config.duplex});
    plan.net.measure = config.measure;
    plan.net.operation = config.operation;
    plan.net.ping_bytes = config.measure == net::Measure::loaded ? static_cast<std::uint32_t>(config.ping_size) : 0;
    plan.net.queues = static_cast<std::uint32_t>(config.queues);
    plan.net.message_bytes = static_cast<std::uint32_t>(config.message_size);
    plan.net.messages = config.messages;
    plan.net.buffers = config.buffers;
    plan.net.verify = config.net_verify;
    plan.net.loss_grace = config.suspect_grace;
    set_roles(plan);
    for (Result<Ok> (*step)(Plan&, const Machine&) : {&count_slots, &size_memory}) {
        if (Result<Ok> done = step(plan, machine); !done) {
            return done;
        }
    }
    if (Result<Ok> valid = net::validate(plan.net); !valid) {
        return valid;
    }
    set_times(plan, config.messages != 0);
    plan.values = config_values(text);
    plan.values["transport.name"] = config.transport;
    plan.values["run.nodes"] = std::to_string(config.nodes);
    plan.values["net.outstanding"] = std::to_string(config.outstanding);
    plan.values["net.working_set"] = std::to_string(config.working_set);
    if (config.net_pattern == net::Pattern::bipartite) {
        plan.values["net.producers"] = std::to_string(config.producers);
        plan.values["net.consumers"] = std::to_string(config.consumers);
    }
    return Ok{};
}

}  // namespace incast::runtime

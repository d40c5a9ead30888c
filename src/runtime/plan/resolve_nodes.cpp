#include <algorithm>
#include <cmath>
#include <string>
#include <tuple>
#include <vector>

#include <fmt/format.h>

#include "runtime/plan/resolve_parts.h"

namespace incast::runtime {

Result<Ok> lay_out_nodes(Plan& plan) {
    RunConfig& config = plan.config;
    const std::uint64_t n = config.nodes;
    if (config.roles == Roles::folded) {
        if (config.rus != 0 || config.bus != 0) {
            return not_allowed(config.rus != 0 ? "run.readout_units" : "run.builder_units",
                               std::to_string(config.rus != 0 ? config.rus : config.bus),
                               "every node has both roles if run.roles = folded", "auto, or run.roles = split");
        }
        config.rus = config.bus = n;
    } else {
        if (n < 2) {
            return not_allowed("run.nodes", std::to_string(n), "split roles need a readout unit and a builder unit",
                               "a whole number in 2..4096");
        }
        if (config.rus == 0) {
            config.rus = config.bus == 0 ? n / 2 : n - std::min(n, config.bus);
        }
        if (config.bus == 0) {
            config.bus = n - std::min(n, config.rus);
        }
        if (config.rus == 0 || config.bus == 0 || config.rus + config.bus != n) {
            return not_allowed("run.readout_units + run.builder_units", fmt::format("{} + {}", config.rus, config.bus),
                               fmt::format("run.nodes is {}", n), fmt::format("at least 1 each, {} together", n));
        }
    }
    plan.n_rus = static_cast<std::uint32_t>(config.rus);
    plan.n_bus = static_cast<std::uint32_t>(config.bus);
    for (const auto& [key, least, count] : {std::tuple("run.least_readout_units", config.least_rus, plan.n_rus),
                                            {"run.least_builder_units", config.least_bus, plan.n_bus}}) {
        if (least > count) {
            return not_allowed(key, std::to_string(least), fmt::format("the run has {}", count),
                               fmt::format("1..{}", count));
        }
    }
    std::vector<protocol::NodeSpec>& nodes = plan.protocol.nodes;
    nodes.resize(n);
    for (std::uint64_t index = 0; index < n; ++index) {
        const bool reads = index < config.rus;
        const bool builds = index >= n - config.bus;
        nodes[index].roles = (reads ? protocol::role_ru : 0U) | (builds ? protocol::role_bu : 0U);
    }
    if (config.em == EmPlace::own) {
        nodes.push_back({});
    }
    const std::size_t em = config.em == EmPlace::own ? nodes.size() - 1 : 0;
    nodes[em].roles |= protocol::role_em;
    plan.protocol.em = Peer{static_cast<std::uint32_t>(em)};
    if (protocol::two_stages(config.scheme)) {
        const auto share = static_cast<std::uint32_t>(std::lround(config.first_stage * plan.n_rus));
        plan.protocol.first_stage_rus = std::clamp<std::uint32_t>(share, 1, plan.n_rus);
    }
    plan.n_nodes = static_cast<std::uint32_t>(nodes.size());
    return Ok{};
}

}  // namespace incast::runtime

#include "runtime/launch/launched.h"

#include <filesystem>
#include <optional>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "transport/builtin/builtin.h"

namespace incast::runtime {

Result<std::string> launch_nodes(Spawner& spawner, const Plan& plan, const JoinOptions& options) {
    const transport::Launch& launch = *transport::find_transport(plan.config.transport)->launch;
    Result<std::vector<std::string>> words = launch.words_for(options.nodes_here, plan.config.transport_settings);
    if (!words) {
        return words.error();
    }
    std::string name = std::filesystem::path(words->front()).filename();
    const Result<pid_t> started = spawner.launch(std::move(*words), options);
    return started ? Result<std::string>(std::move(name)) : started.error();
}

Result<Ok> check_rank(const Plan& plan, std::uint64_t node) {
    if (node >= plan.n_nodes) {
        return Error{"the coordinator's welcome names a node that the config does not have"};
    }
    const transport::Launch* const launch = transport::find_transport(plan.config.transport)->launch;
    if (launch == nullptr) {
        return Ok{};
    }
    const std::optional<transport::Rank> rank = launch->rank_here();
    if (!rank) {
        return Error{
            fmt::format("transport {}: no launcher started this process; allowed: mpirun -n {} incast-node --join "
                        "{} --by-rank",
                        plan.config.transport, plan.n_nodes, "HOST:PORT")};
    }
    if (rank->number != node || (rank->of != 0 && rank->of != plan.n_nodes)) {
        return Error{
            fmt::format("transport {}: this is rank {} of {}, and node {} of {}; allowed: as many processes as "
                        "nodes, each with the rank that is its node (--by-rank)",
                        plan.config.transport, rank->number, rank->of, node, plan.n_nodes)};
    }
    return Ok{};
}

}  // namespace incast::runtime

#include "runtime/results/farm_results.h"

#include <algorithm>
#include <numeric>
#include <vector>

#include <nlohmann/json.hpp>

namespace incast::runtime {

namespace {

nlohmann::ordered_json spread_json(const std::vector<double>& values) {
    const auto [least, most] = std::ranges::minmax(values);
    const double mean = std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
    return {{"min", least}, {"mean", mean}, {"max", most}};
}

}  // namespace

nlohmann::ordered_json farm_json(const farm::simulated::Farm& farm) {
    const farm::simulated::FarmCounts counts = farm.counts();
    const double seconds = std::max(static_cast<double>(counts.time) / static_cast<double>(ps_per_s), 1e-12);
    std::vector<double> rates = counts.goodput;
    for (double& rate : rates) {
        rate /= seconds;
    }
    return {{"nodes", farm.nodes()},
            {"dispatchers_of_each", farm.dispatchers_of_each()},
            {"meps", counts.nodes.meps},
            {"done_meps", counts.nodes.done_meps},
            {"events", counts.nodes.events},
            {"goodput_bytes_per_s",
             {{"total", static_cast<double>(counts.nodes.goodput_bytes) / seconds}, {"per_node", spread_json(rates)}}},
            {"idle_fraction", spread_json(counts.idle)},
            {"sent_meps", counts.dispatchers.sent_meps},
            {"sent_bytes", counts.dispatchers.sent_bytes},
            {"repeated_meps", counts.dispatchers.repeated_meps},
            {"joined_nodes", counts.dispatchers.joined_nodes},
            {"lost_nodes", counts.dispatchers.lost_nodes}};
}

}  // namespace incast::runtime

// The least, the mean and the most of some figures, as results give them.
#pragma once

#include <algorithm>
#include <vector>

#include <nlohmann/json.hpp>

namespace incast::runtime {

struct MinMeanMax {
    double min = 0;
    double mean = 0;
    double max = 0;
};

inline MinMeanMax min_mean_max(const std::vector<double>& values) {
    if (values.empty()) {
        return {};
    }
    double sum = 0;
    for (const double value : values) {
        sum += value;
    }
    const auto [low, high] = std::ranges::minmax(values);
    return {low, sum / static_cast<double>(values.size()), high};
}

inline nlohmann::ordered_json to_json(const MinMeanMax& spread) {
    return {{"min", spread.min}, {"mean", spread.mean}, {"max", spread.max}};
}

}  // namespace incast::runtime

// What a node tells Prometheus: its last sample as text, in the exposition format 0.0.4
// (https://prometheus.io/docs/instrumenting/exposition_formats/). docs/metrics.md lists every series.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "runtime/record/metrics.h"

namespace incast::runtime {

inline constexpr std::string_view exposition_type = "text/plain; version=0.0.4; charset=utf-8";

/// What is the same for all nodes of a run; labels of incast_run_info.
struct RunLabels {
    std::string task;
    std::string transport;
    std::string scheme;
};

struct ExposedNode {
    std::string roles;      // "EM+RU+BU"
    double taken_at_s = 0;  // Unix time of the sample
    NodeSample sample;
};

/// All series of all nodes, whatever their roles: what a node does not do stays 0. A total of NodeTotals becomes a
/// counter with its name and, by Prometheus's convention, its base unit and `_total` behind.
[[nodiscard]] std::string exposition(const RunLabels& run, std::span<const ExposedNode> nodes);

}  // namespace incast::runtime

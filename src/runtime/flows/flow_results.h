// What became of flows, for people and files: docs/flows.md, schema/flows_result.schema.json.
#pragma once

#include <span>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include <incast/transport.h>

#include "runtime/report/report.h"
#include "sim/fabric/fabric.h"
#include "sim/flows/simulation.h"

namespace incast::runtime {

struct FlowFacts {
    const sim::fabric::Fabric& fabric;
    std::span<const sim::flows::Flow> flows;
    std::span<const sim::flows::FlowRecord> records;
    std::span<const Time> alone;  // time_never: not known
};

/// flows.csv, a line for each flow, in the order of the file they came from.
void write_flows(const FlowFacts& facts, Reporter& reporter);
/// Completion times and slowdowns by size, in decades, and of all.
nlohmann::ordered_json flows_by_size(const FlowFacts& facts);

}  // namespace incast::runtime

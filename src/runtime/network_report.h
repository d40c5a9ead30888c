// What became of a simulated network in a run: a part of result.json, and tables beside it (docs/simulation.md,
// schema/network.schema.json).
#pragma once

#include <filesystem>

#include <nlohmann/json_fwd.hpp>

#include <incast/result.h>

#include "sim/models/packet.h"

namespace incast::runtime {

/// Writes DIR/network_ports.csv, network_queues.csv and network_series.csv, and answers the part of result.json. The
/// model records, and its window has ended. Error: a file cannot be written.
Result<nlohmann::ordered_json> report_network(sim::PacketModel& model, const std::filesystem::path& directory);

}  // namespace incast::runtime

// What became of a simulated network in a run: a part of result.json, and tables beside it (docs/simulation.md,
// schema/network.schema.json).
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "runtime/report/report.h"
#include "sim/models/packet.h"

namespace incast::runtime {

/// Writes network_ports.csv, network_queues.csv and network_series.csv, and answers the part of result.json. The model
/// records, and its window has ended. A table that cannot be written is left out, and the reporter is told.
nlohmann::ordered_json report_network(sim::PacketModel& model, Reporter& reporter);

}  // namespace incast::runtime

// What became of a simulated network in a run: a part of result.json, and tables beside it (docs/simulation.md,
// schema/network.schema.json).
#pragma once

#include <cstdint>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "runtime/report/report.h"
#include "sim/fabric/fabric.h"
#include "sim/models/packet.h"
#include "sim/packet/network.h"
#include "sim/packet/recorder.h"

namespace incast::runtime {

struct RecordedNetwork {
    const sim::fabric::Fabric& fabric;
    const sim::packet::Network& network;
    const sim::packet::Recorder& recorder;       // its window has ended
    const std::vector<std::uint64_t>& repeated;  // packets sent again in the window, by host that sent them
};

/// Writes network_ports.csv, network_queues.csv and network_series.csv, and answers the part of result.json. A table
/// that cannot be written is left out, and the reporter is told.
nlohmann::ordered_json report_network(const RecordedNetwork& recorded, Reporter& reporter);
/// Of a model that records.
nlohmann::ordered_json report_network(sim::PacketModel& model, Reporter& reporter);

}  // namespace incast::runtime

// Flows as files say them: who sends how much to whom, and from when on. docs/flows.md has both formats.
#pragma once

#include <cstdint>
#include <filesystem>
#include <istream>
#include <string>
#include <vector>

#include <incast/result.h>
#include <incast/transport.h>

#include "sim/fabric/fabric.h"

namespace incast::sim::flows {

struct Flow {
    Time start = 0;
    packet::HostIndex source = 0;
    packet::HostIndex destination = 0;
    std::uint64_t bytes = 0;
    std::uint8_t traffic_class = 0;
};

inline constexpr std::uint64_t most_flows = 20'000'000;
inline constexpr std::uint64_t most_bytes = 1ULL << 40U;      // of one flow
inline constexpr Time last_start = 1'000'000 * ps_per_s / 2;  // times are int64 picoseconds: docs/simulation.md

/// Either CSV, whose first line names columns: `start` (a time with its unit; a bare number is seconds) or `start_ps`,
/// `start_ns`, `start_us`, `start_ms`, `start_s` (numbers), `source`, `destination` (a name or number of a host of the
/// fabric), `bytes`, and `class` (0 to 7; without it that of the fabric's [flow]); others are passed over. Or a
/// connection matrix of htsim (.cm: "Nodes", "Connections", "0->5 start 0 size 2000000", times in picoseconds;
/// https://github.com/Broadcom/csg-htsim, sim/datacenter/connection_matrix.cpp), without triggers and failures. Which
/// of the two it is follows from the first line. The flows are in the order of the file. Error: one line, "FILE:LINE:
/// what is wrong; allowed: ...".
/// `name` is what errors call the file.
Result<std::vector<Flow>> read_flows(const std::filesystem::path& file, const std::string& name,
                                     const fabric::Fabric& fabric);
/// The same of a stream.
Result<std::vector<Flow>> parse_flows(std::istream& in, const std::string& name, const fabric::Fabric& fabric);

}  // namespace incast::sim::flows

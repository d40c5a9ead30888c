// A network described by a file (docs/fabrics.md): what the packet model needs, and what is said of it in results.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

#include <incast/result.h>

#include "sim/packet/settings.h"
#include "sim/packet/topology.h"

namespace incast::sim::fabric {

struct Fabric {
    std::string name;         // of the file's [fabric] table
    std::string description;  // one line
    packet::Topology topology;
    packet::NetworkSettings settings;
    bool fixes_seed = false;  // the file has network.seed: every run on it draws the same
    /// What every queue pair between two hosts is opened with; source and destination are filled in by the user.
    packet::FlowSettings flow;
};

/// Error: one line, "FILE:LINE: table.key = value: what is wrong; allowed: ...". What it returns makes a Network.
Result<Fabric> read(const std::filesystem::path& file);
/// The same for text; `file` names it in errors.
Result<Fabric> parse(std::string_view text, const std::string& file);

/// A file may describe hosts that cannot talk as its [flow] says: that shows with the first flow.
Result<Ok> can_talk(const Fabric& fabric);

}  // namespace incast::sim::fabric

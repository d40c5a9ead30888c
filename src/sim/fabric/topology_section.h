// The [topology] table: which hosts, switches and cables there are.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "sim/fabric/section.h"
#include "sim/packet/topology.h"

namespace incast::sim::fabric {

/// A kind of cable: a [links.NAME] table.
struct Link {
    packet::Rate rate;
    Time propagation = 0;
    bool repeats = false;  // what is not accepted, by itself
};

/// The kinds that a file names; a kind's number is its index in NetworkSettings.
struct Kinds {
    std::map<std::string, std::uint32_t> hosts;
    std::map<std::string, std::uint32_t> switches;
    std::map<std::string, Link> links;
};

/// Problems are left in the section's.
packet::Topology read_topology(Section& section, const Kinds& kinds);

}  // namespace incast::sim::fabric

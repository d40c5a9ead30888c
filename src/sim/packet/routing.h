// Shortest paths, and the choice among equal ones.
#pragma once

#include <cstdint>
#include <vector>

#include <incast/result.h>

#include "base/prng.h"
#include "sim/packet/topology.h"

namespace incast::sim::packet {

enum class Routing : std::uint8_t {
    /// Per flow, by ecmp_choice() below: the same at every packet.
    ecmp,
    /// Per packet, at random over the equal ports of a switch. Packets of a flow overtake each other. Not in turn: one
    /// turn for all that pass a switch keeps senders in step, and each of them then uses a part of the paths only.
    spray,
    /// D-mod-K (E. Zahavi, "D-Mod-K routing providing non-blocking traffic for shift permutations on real life fat
    /// trees", CCIT Report 776, Technion 2010): of n equal ports the one with the number (destination / shift_divisor)
    /// mod n. In a fat tree every shift then has each link to itself.
    shift_aware
};

/// One of `ports` by the upper half of a random number.
constexpr std::uint32_t spread_over(std::uint64_t random, std::uint32_t ports) {
    return static_cast<std::uint32_t>(((random >> 32) * ports) >> 32);
}

/// The static ECMP hash: mix64 (splitmix64's finaliser) over the flow's entropy and the number of the switch, spread
/// over `ports` by multiplication. Real switches use CRCs over the headers with vendor seeds; what matters is that the
/// choices of different switches are independent.
constexpr std::uint32_t ecmp_choice(std::uint32_t entropy, NodeIndex at, std::uint32_t ports) {
    return spread_over(base::mix64((std::uint64_t{at} << 32) | entropy), ports);
}

/// The ports over which a switch may reach a host: [first, first + count) of RouteTable::ports.
struct PortGroup {
    std::uint32_t first = 0;
    std::uint32_t count = 0;
};

struct RouteTable {
    std::uint32_t hosts = 0;
    /// [node * hosts + destination]: a port, or first_group + the number of a group; unused for hosts.
    std::vector<std::uint32_t> entries;
    std::vector<PortGroup> groups;
    std::vector<PortIndex> ports;

    static constexpr std::uint32_t first_group = 1U << 31;
    [[nodiscard]] const std::uint32_t& entry(NodeIndex node, HostIndex destination) const {
        return entries[static_cast<std::size_t>(node) * hosts + destination];
    }
    [[nodiscard]] const PortGroup& group(std::uint32_t entry) const { return groups[entry - first_group]; }
};

/// Around the cables that are `down`, by number; none if it is empty. Where a node cannot reach a host without them,
/// its routes are those with all cables. Error: a host that another cannot reach at all.
Result<RouteTable> make_routes(const Topology& topology, Routing routing, const std::vector<bool>& down = {});

}  // namespace incast::sim::packet

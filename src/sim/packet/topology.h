// Which hosts and switches there are, and the cables between them. A description only: Network::make() checks it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "sim/packet/types.h"

namespace incast::sim::packet {

struct Topology {
    struct Node {
        std::string name;
        bool is_host = false;
        std::uint32_t settings = 0;       // which of NetworkSettings::hosts or ::switches
        std::uint32_t shift_divisor = 1;  // of a switch: see Routing::shift_aware
    };
    struct Cable {
        NodeIndex one = 0;
        NodeIndex two = 0;
        Rate rate{};                     // each way
        Time propagation = 0;            // 5 ns/m in fibre
        bool one_ignores_pause = false;  // what `one` sends on this cable never pauses (docs/fabrics.md: QFX10000)
        bool two_ignores_pause = false;
        bool repeats = false;  // by itself, what is not accepted: RapidIO (link_retry.cpp); at switches with credits
    };
    std::vector<Node> nodes;
    std::vector<Cable> cables;  // cable c has the egress ports 2c (one to two) and 2c + 1 (two to one)

    NodeIndex add_host(std::string name, std::uint32_t settings = 0);
    NodeIndex add_switch(std::string name, std::uint32_t settings = 0, std::uint32_t shift_divisor = 1);
    /// The index of the cable.
    std::uint32_t add_cable(NodeIndex one, NodeIndex two, Rate rate, Time propagation);
    [[nodiscard]] std::uint32_t host_count() const;
};

/// The egress ports of a cable, and the way back.
constexpr PortIndex port_from_one(std::uint32_t cable) {
    return 2 * cable;
}
constexpr PortIndex port_from_two(std::uint32_t cable) {
    return 2 * cable + 1;
}
constexpr PortIndex reverse_of(PortIndex port) {
    return port ^ 1U;
}

/// `hosts` hosts on one switch. Cable h is host h's.
Topology single_switch(std::uint32_t hosts, Rate rate, Time propagation);

struct LeafSpine {
    std::uint32_t leaves = 0;
    std::uint32_t hosts_per_leaf = 0;
    std::uint32_t spines = 0;
    std::uint32_t cables_per_spine = 1;  // from each leaf to each spine
    Rate host_rate{};
    Rate uplink_rate{};
    Time host_propagation = 0;
    Time uplink_propagation = 0;
    std::uint32_t leaf_settings = 0;
    std::uint32_t spine_settings = 0;
};
/// Two tiers; oversubscribed where hosts_per_leaf x host_rate exceeds spines x cables_per_spine x uplink_rate. Host h
/// is on leaf h / hosts_per_leaf, and cable h is its own.
Topology leaf_spine(const LeafSpine& shape);

/// The three-tier fat tree of k-port switches: k pods of k/2 edge and k/2 aggregation switches, (k/2)^2 core switches,
/// k^3/4 hosts (M. Al-Fares, A. Loukissas, A. Vahdat, SIGCOMM 2008). k is even. Cable h is host h's.
Topology fat_tree(std::uint32_t k, Rate rate, Time propagation);

struct Chassis {
    std::uint32_t cards = 0;
    std::uint32_t ports_per_card = 0;
    std::uint32_t fabrics = 0;  // every card has one internal link to each
    Rate port_rate{};
    Rate internal_rate{};  // speed-up = fabrics x internal_rate / (ports_per_card x port_rate)
    Time propagation = 0;
    Time internal_propagation = 0;
    std::uint32_t card_settings = 0;
    std::uint32_t fabric_settings = 0;
};
/// Line cards joined by an internal fabric: a leaf-spine inside one box. Host h is on card h / ports_per_card.
Topology chassis(const Chassis& shape);

}  // namespace incast::sim::packet

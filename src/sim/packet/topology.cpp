#include "sim/packet/topology.h"

#include <algorithm>
#include <utility>

namespace incast::sim::packet {

NodeIndex Topology::add_host(std::string name, std::uint32_t settings) {
    nodes.push_back({.name = std::move(name), .is_host = true, .settings = settings});
    return static_cast<NodeIndex>(nodes.size() - 1);
}

NodeIndex Topology::add_switch(std::string name, std::uint32_t settings, std::uint32_t shift_divisor) {
    nodes.push_back({.name = std::move(name), .is_host = false, .settings = settings, .shift_divisor = shift_divisor});
    return static_cast<NodeIndex>(nodes.size() - 1);
}

std::uint32_t Topology::add_cable(NodeIndex one, NodeIndex two, Rate rate, Time propagation) {
    cables.push_back({.one = one, .two = two, .rate = rate, .propagation = propagation});
    return static_cast<std::uint32_t>(cables.size() - 1);
}

std::uint32_t Topology::host_count() const {
    return static_cast<std::uint32_t>(
        std::count_if(nodes.begin(), nodes.end(), [](const Node& node) { return node.is_host; }));
}

namespace {

void add_hosts(Topology& topology, std::uint32_t hosts) {
    for (std::uint32_t host = 0; host < hosts; ++host)
        topology.add_host("host" + std::to_string(host));
}

}  // namespace

Topology single_switch(std::uint32_t hosts, Rate rate, Time propagation) {
    Topology topology;
    add_hosts(topology, hosts);
    const NodeIndex middle = topology.add_switch("switch");
    for (NodeIndex host = 0; host < hosts; ++host)
        topology.add_cable(host, middle, rate, propagation);
    return topology;
}

Topology leaf_spine(const LeafSpine& shape) {
    Topology topology;
    const std::uint32_t hosts = shape.leaves * shape.hosts_per_leaf;
    add_hosts(topology, hosts);
    const NodeIndex first_leaf = hosts;
    for (std::uint32_t leaf = 0; leaf < shape.leaves; ++leaf)
        topology.add_switch("leaf" + std::to_string(leaf), shape.leaf_settings);
    const NodeIndex first_spine = first_leaf + shape.leaves;
    for (std::uint32_t spine = 0; spine < shape.spines; ++spine)
        topology.add_switch("spine" + std::to_string(spine), shape.spine_settings);
    for (std::uint32_t host = 0; host < hosts; ++host)
        topology.add_cable(host, first_leaf + host / shape.hosts_per_leaf, shape.host_rate, shape.host_propagation);
    for (std::uint32_t leaf = 0; leaf < shape.leaves; ++leaf) {
        for (std::uint32_t spine = 0; spine < shape.spines; ++spine) {
            for (std::uint32_t cable = 0; cable < shape.cables_per_spine; ++cable)
                topology.add_cable(first_leaf + leaf, first_spine + spine, shape.uplink_rate, shape.uplink_propagation);
        }
    }
    return topology;
}

Topology fat_tree(std::uint32_t k, Rate rate, Time propagation) {
    Topology topology;
    const std::uint32_t half = k / 2;
    const std::uint32_t hosts = k * half * half;
    add_hosts(topology, hosts);
    const NodeIndex first_edge = hosts;
    const NodeIndex first_aggregation = first_edge + k * half;
    const NodeIndex first_core = first_aggregation + k * half;
    for (std::uint32_t edge = 0; edge < k * half; ++edge)
        topology.add_switch("edge" + std::to_string(edge));
    for (std::uint32_t aggregation = 0; aggregation < k * half; ++aggregation)
        topology.add_switch("aggregation" + std::to_string(aggregation), 0, half);
    for (std::uint32_t core = 0; core < half * half; ++core)
        topology.add_switch("core" + std::to_string(core));
    for (std::uint32_t host = 0; host < hosts; ++host)
        topology.add_cable(host, first_edge + host / half, rate, propagation);
    for (std::uint32_t pod = 0; pod < k; ++pod) {
        for (std::uint32_t edge = 0; edge < half; ++edge) {
            for (std::uint32_t up = 0; up < half; ++up)
                topology.add_cable(first_edge + pod * half + edge, first_aggregation + pod * half + up, rate,
                                   propagation);
        }
        for (std::uint32_t aggregation = 0; aggregation < half; ++aggregation) {
            for (std::uint32_t up = 0; up < half; ++up)
                topology.add_cable(first_aggregation + pod * half + aggregation, first_core + aggregation * half + up,
                                   rate, propagation);
        }
    }
    return topology;
}

Topology chassis(const Chassis& shape) {
    return leaf_spine({.leaves = shape.cards,
                       .hosts_per_leaf = shape.ports_per_card,
                       .spines = shape.fabrics,
                       .host_rate = shape.port_rate,
                       .uplink_rate = shape.internal_rate,
                       .host_propagation = shape.propagation,
                       .uplink_propagation = shape.internal_propagation,
                       .leaf_settings = shape.card_settings,
                       .spine_settings = shape.fabric_settings});
}

}  // namespace incast::sim::packet

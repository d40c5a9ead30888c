#include "sim/packet/routing.h"

#include <map>

namespace incast::sim::packet {
namespace {

struct Edge {
    PortIndex port;
    NodeIndex to;
};

using Edges = std::vector<std::vector<Edge>>;  // by node

Edges edges_of(const Topology& topology, const std::vector<bool>& down) {
    Edges edges(topology.nodes.size());
    for (std::uint32_t cable = 0; cable < topology.cables.size(); ++cable) {
        if (!down.empty() && down[cable]) continue;
        const Topology::Cable& ends = topology.cables[cable];
        edges[ends.one].push_back({port_from_one(cable), ends.two});
        edges[ends.two].push_back({port_from_two(cable), ends.one});
    }
    return edges;
}

/// Distances to `destination`; nothing is routed through another host.
std::vector<std::uint32_t> distances(const Topology& topology, const Edges& edges, NodeIndex destination) {
    std::vector<std::uint32_t> distance(topology.nodes.size(), nil);
    std::vector<NodeIndex> queue{destination};
    distance[destination] = 0;
    for (std::size_t index = 0; index < queue.size(); ++index) {
        const NodeIndex node = queue[index];
        if (node != destination && topology.nodes[node].is_host) continue;
        for (const Edge& edge : edges[node]) {
            if (distance[edge.to] != nil) continue;
            distance[edge.to] = distance[node] + 1;
            queue.push_back(edge.to);
        }
    }
    return distance;
}

}  // namespace

Result<RouteTable> make_routes(const Topology& topology, Routing routing, const std::vector<bool>& down) {
    const Edges all = edges_of(topology, {});
    const Edges alive = down.empty() ? Edges{} : edges_of(topology, down);
    RouteTable table;
    table.hosts = topology.host_count();
    table.entries.assign(topology.nodes.size() * table.hosts, nil);
    std::map<std::vector<PortIndex>, std::uint32_t> known;
    std::vector<PortIndex> ports;
    HostIndex destination = 0;
    for (NodeIndex host = 0; host < topology.nodes.size(); ++host) {
        if (!topology.nodes[host].is_host) continue;
        const std::vector<std::uint32_t> with_all = distances(topology, all, host);
        const std::vector<std::uint32_t> around = down.empty() ? with_all : distances(topology, alive, host);
        for (NodeIndex node = 0; node < topology.nodes.size(); ++node) {
            if (node == host) continue;
            const bool is_reached = !down.empty() && around[node] != nil;
            const std::vector<std::uint32_t>& distance = is_reached ? around : with_all;
            const Edges& edges = is_reached ? alive : all;
            if (distance[node] == nil && topology.nodes[node].is_host)
                return Error{"fabric: '" + topology.nodes[node].name + "' cannot reach '" + topology.nodes[host].name +
                             "'; connect them"};
            if (distance[node] == nil || topology.nodes[node].is_host) continue;
            ports.clear();
            for (const Edge& edge : edges[node])
                if (distance[edge.to] + 1 == distance[node]) ports.push_back(edge.port);
            if (routing == Routing::shift_aware && ports.size() > 1)
                ports = {ports[destination / topology.nodes[node].shift_divisor % ports.size()]};
            std::uint32_t& route = table.entries[static_cast<std::size_t>(node) * table.hosts + destination];
            if (ports.size() == 1) {
                route = ports.front();
                continue;
            }
            const auto [entry, is_new] = known.try_emplace(ports, static_cast<std::uint32_t>(table.groups.size()));
            if (is_new) {
                table.groups.push_back(
                    {static_cast<std::uint32_t>(table.ports.size()), static_cast<std::uint32_t>(ports.size())});
                table.ports.insert(table.ports.end(), ports.begin(), ports.end());
            }
            route = RouteTable::first_group + entry->second;
        }
        ++destination;
    }
    return table;
}

}  // namespace incast::sim::packet

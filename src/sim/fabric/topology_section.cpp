#include "sim/fabric/topology_section.h"

#include <optional>
#include <set>
#include <vector>

namespace incast::sim::fabric {
namespace {

using packet::NodeIndex;
using packet::Topology;

constexpr std::uint64_t most_hosts = 16384;
constexpr std::uint64_t most_switches = 4096;

/// What `key` names; it may be left out where there is one kind only.
template <class Kind>
Kind named(Section& section, std::string_view key, const std::map<std::string, Kind>& kinds, std::string_view table) {
    const std::string word = section.text(key, kinds.size() == 1 ? std::string_view(kinds.begin()->first) : "");
    const auto found = kinds.find(word);
    if (found != kinds.end()) return found->second;
    std::string known;
    for (const auto& [name, kind] : kinds)
        known += (known.empty() ? "" : ", ") + name;
    section.fail(key, (word.empty() ? std::string("missing") : "there is no '" + word + "'") + "; the kinds of [" +
                          std::string(table) + ".NAME] are: " + (known.empty() ? "none" : known));
    return {};
}

class Reader {
public:
    Reader(Section& section, const Kinds& kinds) : section_(section), kinds_(kinds) {}

    Topology read() {
        switch (section_.choice("kind", 0, {"single-switch", "leaf-spine", "fat-tree", "chassis", "explicit"})) {
            case 0:
                return single();
            case 1:
                return tree();
            case 2:
                return fat();
            case 3:
                return box();
            default:
                return listed();
        }
    }

private:
    std::uint32_t number(std::string_view key, std::uint64_t least, std::uint64_t most) {
        if (!section_.has(key)) section_.fail(key, "missing");
        return static_cast<std::uint32_t>(section_.count(key, least, least, most));
    }
    std::uint32_t host(Section& section) { return named(section, "host", kinds_.hosts, "hosts"); }
    std::uint32_t switch_kind(Section& section, std::string_view key) {
        return named(section, key, kinds_.switches, "switches");
    }
    Link link(Section& section, std::string_view key) { return named(section, key, kinds_.links, "links"); }

    /// All hosts of a regular shape are of one kind.
    Topology with_hosts(Topology topology) {
        const std::uint32_t kind = host(section_);
        for (Topology::Node& node : topology.nodes) {
            if (node.is_host) node.settings = kind;
        }
        return topology;
    }

    /// What shapes do not know of their cables.
    static Topology with_links(Topology topology, const Link& at_hosts, const Link& between) {
        for (Topology::Cable& cable : topology.cables)
            cable.repeats = (topology.nodes[cable.one].is_host ? at_hosts : between).repeats;
        return topology;
    }

    Topology single() {
        const std::uint32_t hosts = number("hosts", 1, most_hosts);
        const Link cable = link(section_, "link");
        Topology topology = packet::single_switch(hosts, cable.rate, cable.propagation);
        const std::uint32_t kind = switch_kind(section_, "switch");
        for (Topology::Node& node : topology.nodes) {
            if (!node.is_host) node.settings = kind;
        }
        return with_links(with_hosts(std::move(topology)), cable, cable);
    }

    Topology tree() {
        packet::LeafSpine shape;
        shape.leaves = number("leaves", 1, most_switches);
        shape.hosts_per_leaf = number("hosts_per_leaf", 1, most_hosts / shape.leaves);
        shape.spines = number("spines", 1, most_switches);
        shape.cables_per_spine = static_cast<std::uint32_t>(section_.count("cables_per_spine", 1, 1, 1024));
        const Link down = link(section_, "host_link");
        const Link up = link(section_, "uplink");
        shape.host_rate = down.rate;
        shape.host_propagation = down.propagation;
        shape.uplink_rate = up.rate;
        shape.uplink_propagation = up.propagation;
        shape.leaf_settings = switch_kind(section_, "leaf");
        shape.spine_settings = switch_kind(section_, "spine");
        return with_links(with_hosts(packet::leaf_spine(shape)), down, up);
    }

    Topology fat() {
        const std::uint32_t radix = number("radix", 2, 64);
        if (radix % 2 != 0) section_.fail("radix", "must be even");
        const Link cable = link(section_, "link");
        Topology topology = packet::fat_tree(radix - radix % 2, cable.rate, cable.propagation);
        const std::uint32_t kind = switch_kind(section_, "switch");
        for (Topology::Node& node : topology.nodes) {
            if (!node.is_host) node.settings = kind;
        }
        return with_links(with_hosts(std::move(topology)), cable, cable);
    }

    Topology box() {
        packet::Chassis shape;
        shape.cards = number("cards", 1, most_switches);
        shape.ports_per_card = number("ports_per_card", 1, most_hosts / shape.cards);
        shape.fabrics = number("fabrics", 1, most_switches);
        const Link port = link(section_, "port_link");
        const Link internal = link(section_, "internal_link");
        shape.port_rate = port.rate;
        shape.propagation = port.propagation;
        shape.internal_rate = internal.rate;
        shape.internal_propagation = internal.propagation;
        shape.card_settings = switch_kind(section_, "card");
        shape.fabric_settings = switch_kind(section_, "fabric");
        return with_links(with_hosts(packet::chassis(shape)), port, internal);
    }

    /// Groups of nodes by name; a cable goes from each node of one group to each of the other.
    Topology listed() {
        Topology topology;
        std::map<std::string, std::vector<NodeIndex>> groups;
        std::set<std::string> names;
        for (const bool hosts : {true, false}) {
            for (Section& each : section_.sections(hosts ? "hosts" : "switches")) {
                const std::string name = each.text("name", "");
                const auto count = static_cast<std::uint32_t>(each.count("count", 1, 1, most_hosts));
                const std::uint32_t kind = hosts ? host(each) : switch_kind(each, "switch");
                const auto divisor =
                    static_cast<std::uint32_t>(hosts ? 1 : each.count("shift_divisor", 1, 1, most_hosts));
                if (name.empty() || groups.contains(name)) {
                    each.fail("name", name.empty() ? "missing" : "'" + name + "' is taken");
                }
                std::vector<NodeIndex>& group = groups[name];
                for (std::uint32_t index = 0; index < count; ++index) {
                    const std::string own = count == 1 ? name : name + std::to_string(index);
                    if (!names.insert(own).second) {
                        std::string problem = "'";
                        problem.append(name).append("' makes a second '").append(own);
                        each.fail("name", problem + "'; every host and switch has a name of its own");
                    }
                    group.push_back(hosts ? topology.add_host(own, kind) : topology.add_switch(own, kind, divisor));
                }
                each.finish();
            }
        }
        for (Section& each : section_.sections("cables")) {
            const std::vector<NodeIndex>* from = group_of(each, "from", groups);
            const std::vector<NodeIndex>* to = group_of(each, "to", groups);
            const Link cable = link(each, "link");
            const std::uint64_t count = each.count("count", 1, 1, 1024);
            const bool from_ignores = each.flag("from_ignores_pause", false);
            const bool to_ignores = each.flag("to_ignores_pause", false);
            each.finish();
            if (from == nullptr || to == nullptr) continue;
            for (const NodeIndex one : *from) {
                for (const NodeIndex two : *to) {
                    for (std::uint64_t i = 0; i < count; ++i) {
                        const std::uint32_t index = topology.add_cable(one, two, cable.rate, cable.propagation);
                        topology.cables[index].repeats = cable.repeats;
                        topology.cables[index].one_ignores_pause = from_ignores;
                        topology.cables[index].two_ignores_pause = to_ignores;
                    }
                }
            }
        }
        return topology;
    }

    static const std::vector<NodeIndex>* group_of(Section& section, std::string_view key,
                                                  const std::map<std::string, std::vector<NodeIndex>>& groups) {
        const std::string name = section.text(key, "");
        const auto found = groups.find(name);
        if (found != groups.end()) return &found->second;
        section.fail(key, name.empty() ? "missing" : "no host or switch is called '" + name + "'");
        return nullptr;
    }

    Section& section_;
    const Kinds& kinds_;
};

}  // namespace

packet::Topology read_topology(Section& section, const Kinds& kinds) {
    packet::Topology topology = Reader(section, kinds).read();
    section.finish();
    return topology;
}

}  // namespace incast::sim::fabric

#include "softrio/udp/routing.h"

#include <algorithm>

#include <toml++/toml.h>

#include "softrio/udp/lines.h"

namespace incast::softrio::udp {

namespace {

constexpr std::uint32_t max_port = max_endpoints - 1;

Error wrong(const std::string& place, std::string_view key, const std::string& what) {
    return Error{"[" + place + "] " + std::string(key) + ": " + what};
}

Error no_destid(const std::string& place, std::string_view key) {
    return wrong(place, key, "must be a destination id, 1..65534 and not 255");
}

std::optional<std::uint32_t> destid_of(std::string_view key) {
    const auto destid = number_of(key, 1, max_destid);
    return destid && is_destid(*destid) ? destid : std::nullopt;
}

std::optional<std::uint32_t> whole_number(const toml::node& value, std::uint32_t high) {
    const auto number = value.value_exact<std::int64_t>();
    if (!number || *number < 0 || *number > high) return std::nullopt;
    return static_cast<std::uint32_t>(*number);
}

std::optional<RoutingTable::Route> route_of(const toml::node& value) {
    const auto word = value.value_exact<std::string_view>();
    if (word == "own") return RoutingTable::own;
    if (word == "discard") return RoutingTable::discard;
    return whole_number(value, max_port);
}

Result<RoutingTable::Routes> routes_of(const std::string& place, const toml::table& lines) {
    RoutingTable::Routes routes;
    for (const auto& [key, value] : lines) {
        const bool is_default = key.str() == "default";
        const auto destid = destid_of(key.str());
        if (!is_default && !destid) return no_destid(place, key.str());
        const auto route = route_of(value);
        if (!route) {
            return wrong(place, key.str(),
                         "must be \"own\", \"discard\" or the number of a port, 0.." + std::to_string(max_port));
        }
        if (is_default)
            routes.otherwise = route;
        else
            routes.to.emplace(*destid, *route);
    }
    return routes;
}

Result<MulticastGroup> group_of(std::string_view key, const toml::node& value) {
    const auto destid = destid_of(key);
    if (!destid) return no_destid("multicast", key);
    const toml::array* members = value.as_array();
    if (members == nullptr || members->empty() || members->size() > max_endpoints) {
        return wrong("multicast", key,
                     "must be a list of 1.." + std::to_string(max_endpoints) + " destination ids, as [1, 2]");
    }
    MulticastGroup group{.destid = *destid, .members = {}};
    for (const toml::node& each : *members) {
        const auto member = whole_number(each, max_destid);
        if (!member || *member == 0 || !is_destid(*member) || member == destid)
            return wrong("multicast", key, "each member must be the destination id of an endpoint, 1..65534, not 255");
        group.members.push_back(*member);
    }
    return group;
}

Result<Ok> add_input(RoutingTable& table, std::string_view key, const toml::node& value) {
    const auto port = number_of(key, 0, max_port);
    const toml::table* lines = value.as_table();
    const std::string place = "from." + std::string(key);
    if (!port || lines == nullptr)
        return Error{"[" + place + "] must be a table for the number of a port, 0.." + std::to_string(max_port)};
    const auto routes = routes_of(place, *lines);
    if (!routes) return routes.error();
    table.from.emplace(*port, *routes);
    return Ok{};
}

Result<Ok> add_port(RoutingTable& table, std::string_view key, const toml::node& value) {
    const auto destid = destid_of(key);
    if (!destid) return no_destid("ports", key);
    const auto port = whole_number(value, max_port);
    if (!port) return wrong("ports", key, "must be the number of a port, 0.." + std::to_string(max_port));
    if (table.is_kept(*port)) return wrong("ports", key, "port " + std::to_string(*port) + " is there twice");
    table.ports.emplace(*destid, *port);
    return Ok{};
}

Result<Ok> add_group(RoutingTable& table, std::string_view key, const toml::node& value) {
    const auto group = group_of(key, value);
    if (!group) return group.error();
    if (table.groups.size() == max_groups)
        return Error{"[multicast] has more than " + std::to_string(max_groups) + " groups"};
    table.groups.push_back(*group);
    return Ok{};
}

Result<RoutingTable> table_of(const toml::table& file) {
    RoutingTable table;
    for (const auto& [name, value] : file) {
        const toml::table* lines = value.as_table();
        const bool is_known =
            name.str() == "routes" || name.str() == "from" || name.str() == "ports" || name.str() == "multicast";
        if (!is_known || lines == nullptr) {
            return Error{"'" + std::string(name.str()) +
                         "': there are tables [routes], [from.PORT], [ports] and [multicast], and nothing else"};
        }
        if (name.str() == "routes") {
            auto routes = routes_of("routes", *lines);
            if (!routes) return routes.error();
            table.routes = std::move(*routes);
            continue;
        }
        const auto add = name.str() == "from" ? add_input : name.str() == "ports" ? add_port : add_group;
        for (const auto& [key, line] : *lines) {
            const auto done = add(table, key.str(), line);
            if (!done) return done.error();
        }
    }
    return table;
}

template <class Parse>
Result<RoutingTable> parsed(Parse&& parse) {
    try {
        return table_of(parse());
    } catch (const toml::parse_error& error) {
        const auto line = error.source().begin.line;
        return Error{(line == 0 ? "" : "line " + std::to_string(line) + ": ") + std::string(error.description())};
    }
}

}  // namespace

Result<RoutingTable> RoutingTable::parse(std::string_view text) {
    return parsed([&] { return toml::parse(text); });
}

Result<RoutingTable> RoutingTable::read(const std::string& path) {
    auto table = parsed([&] { return toml::parse_file(path); });
    if (!table) return Error{path + ": " + table.error().message};
    return table;
}

RoutingTable::Route RoutingTable::route(std::uint32_t input_port, std::uint32_t destid) const {
    const auto find = [&](const Routes& those) {
        const auto found = those.to.find(destid);
        return found == those.to.end() ? those.otherwise : std::optional(found->second);
    };
    const auto input = from.find(input_port);
    const auto first = input == from.end() ? std::nullopt : find(input->second);
    return first ? *first : find(routes).value_or(own);
}

bool RoutingTable::is_kept(std::uint32_t port) const {
    return std::ranges::any_of(ports, [&](const auto& each) { return each.second == port; });
}

}  // namespace incast::softrio::udp

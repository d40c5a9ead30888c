// What a switch (switch.h) is programmed with: the port by which a packet leaves, by its destination id and perhaps by
// the port it came in at; and multicast groups. As a TOML file, in which nothing has to be:
//
//   [routes]            destination id = number of a port, "own" (of the endpoint that has the id) or "discard"
//   5 = "discard"
//   default = "own"     for ids that do not stand here
//   [from.0]            the same for what comes in at port 0, ahead of [routes]
//   6 = 3
//   [ports]             the endpoint that joins with id 5 is at port 2; others: at the lowest that is free
//   5 = 2
//   [multicast]         who sends to 40000 sends to each of these
//   40000 = [1, 2, 3]
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <incast/result.h>

#include "softrio/options.h"

namespace incast::softrio::udp {

struct RoutingTable {
    /// The number of a port, or one of these.
    using Route = std::uint32_t;
    static constexpr Route own = UINT32_MAX;
    static constexpr Route discard = UINT32_MAX - 1;

    struct Routes {
        std::map<std::uint32_t, Route> to;  // by destination id
        std::optional<Route> otherwise;
    };
    Routes routes;
    std::map<std::uint32_t, Routes> from;          // by input port
    std::map<std::uint32_t, std::uint32_t> ports;  // by destination id
    std::vector<MulticastGroup> groups;

    static Result<RoutingTable> parse(std::string_view text);
    /// An error begins with the path.
    static Result<RoutingTable> read(const std::string& path);
    [[nodiscard]] Route route(std::uint32_t input_port, std::uint32_t destid) const;
    /// Whether that port is kept for an endpoint that may join.
    [[nodiscard]] bool is_kept(std::uint32_t port) const;
};

}  // namespace incast::softrio::udp

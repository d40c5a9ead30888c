// Where a node is, as it says: part of its message "address", and of the result.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include <nlohmann/json.hpp>

#include <incast/result.h>

#include "runtime/launch/rendezvous.h"
#include "runtime/machine/network_place.h"
#include "runtime/machine/seat.h"
#include "runtime/plan/resolve.h"

namespace incast::runtime {

/// This host's name.
std::string host_name();
/// `place`: of the address that its transport uses, if it has one. `seat`: on its host.
/// `folder`: of what it writes, if it is not the run's.
Json whereabouts(const std::optional<NetworkPlace>& place, const Seat& seat, const std::string& folder);
/// Of another process: what makes sense of it, or null.
nlohmann::ordered_json checked_whereabouts(const Json& message);

/// Whether a file that a node at that place has written is not here, too: some folders are the same on several hosts.
bool is_elsewhere(const std::filesystem::path& file, const nlohmann::ordered_json& place);
/// Sets where a node listens: on the network that the config names, or else at the address by which it has reached the
/// coordinator, unless the settings say otherwise. Its place, if it is known; error: this host is not in that network.
Result<std::optional<NetworkPlace>> choose_address(const Plan& plan, int coordinator_fd, transport::Settings& settings);

/// Puts this process beside the network of the node, as run.pin says, and says where it and its memory are now.
/// `settings`: of its transport.
Seat sit_down(const Plan& plan, const std::optional<NetworkPlace>& place, const transport::Settings& settings,
              std::uint32_t nodes_here);

}  // namespace incast::runtime

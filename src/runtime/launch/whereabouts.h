// Where a node is, as it says: part of its message "address", and of the result.
#pragma once

#include <optional>
#include <string>

#include <nlohmann/json.hpp>

#include "runtime/launch/rendezvous.h"
#include "runtime/machine/network_place.h"

namespace incast::runtime {

/// This host's name.
std::string host_name();
/// `place`: of the address that its transport uses, if it has one. `folder`: of what it writes, if it is not the run's.
Json whereabouts(const std::optional<NetworkPlace>& place, const std::string& folder);
/// Of another process: what makes sense of it, or null.
nlohmann::ordered_json checked_whereabouts(const Json& message);

}  // namespace incast::runtime

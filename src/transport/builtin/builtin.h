// THE list of transports. Everybody takes them from here: engine, command line, documents, conformance suite.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <incast/result.h>

#include "transport/descriptor.h"

namespace incast::transport {

std::span<const Descriptor> builtin_transports();
/// Names of modules beside the engine that are not in the list: built elsewhere (docs/adding-a-transport.md).
std::span<const std::string> outside_transports();
/// One of these. Error: one line.
Result<const Descriptor*> load_outside(std::string_view name);
/// The list, and those from outside that can be loaded.
std::vector<const Descriptor*> known_transports();
/// One of these. nullptr if there is none of that name.
const Descriptor* find_transport(std::string_view name);
/// What "auto" means.
const Descriptor& chosen_transport(bool across_hosts);

/// Of this process, if the launcher of one of them started it.
std::optional<Rank> launched_rank();

/// Loads its module first, if it has one that is not loaded. Error: one line.
Result<std::unique_ptr<Medium>> make_medium(const Descriptor& transport, const Settings& settings);

}  // namespace incast::transport

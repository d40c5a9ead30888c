// A node that joined from elsewhere replays files of its own, by the run's numbering, and tells what it found.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "runtime/launch/rendezvous.h"
#include "runtime/plan/resolve.h"

namespace incast::runtime {

/// Part of a welcome, so that all nodes number their events alike.
Json to_json(const Recorded& recorded);
std::optional<Recorded> recorded_from_json(const Json& json);
/// What a node says of the files that it replays.
std::vector<Json> input_messages(const std::string& host, const std::vector<sources::InputFile>& files);
/// Puts it in the place of what the coordinator found. False: it makes no sense, or they are not that node's.
bool take_inputs(const Plan& plan, std::uint32_t node, const Json& message, Inputs& inputs);

}  // namespace incast::runtime

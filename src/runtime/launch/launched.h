// Nodes that a launcher of their transport's own starts: one process for each, whose rank is the node's number.
#pragma once

#include <cstdint>
#include <string>

#include <incast/result.h>

#include "runtime/launch/spawner.h"
#include "runtime/plan/resolve.h"

namespace incast::runtime {

/// Starts the launcher, with as many nodes as `options` says are here; returns what it is called. Error: one line.
Result<std::string> launch_nodes(Spawner& spawner, const Plan& plan, const JoinOptions& options);

/// This process may be that node. Error: one line, also where its transport has a launcher that did not start it.
Result<Ok> check_rank(const Plan& plan, std::uint64_t node);

}  // namespace incast::runtime

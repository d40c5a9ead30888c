// The nodes of one host of a run that is conducted elsewhere: a process each, and one that watches over them.
#pragma once

#include <cstdint>

#include "runtime/launch/member.h"

namespace incast::runtime {

/// Starts `count` nodes; from options.node on, if it says one. Returns when all have ended: the exit status. An
/// interrupt ends them at once. `until_eof`: whoever holds standard input open launched them; they end soon after it.
int join_all(const JoinOptions& options, std::uint32_t count, bool until_eof);

}  // namespace incast::runtime

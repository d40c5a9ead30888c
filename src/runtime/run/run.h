// One run, from its config to result.json, as the main program starts it.
#pragma once

#include "runtime/config/config.h"
#include "runtime/launch/run_options.h"

namespace incast::runtime {

/// Returns the exit status (exit_status.h); what is wrong has been said on standard error.
int run(const ConfigText& config, const RunOptions& options);

}  // namespace incast::runtime

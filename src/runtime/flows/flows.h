// `incast-node --flows`: flows of a file on the network of another, and a folder with what became of them.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include <incast/transport.h>

#include "runtime/report/report.h"

namespace incast::runtime {

struct FlowsOptions {
    std::filesystem::path flows;
    std::string name;  // of that file, in errors and the result
    std::filesystem::path fabric;
    std::filesystem::path output;
    bool replace = false;  // an old run's files in it
    Progress progress = Progress::text;
    std::uint64_t seed = 1;
    std::optional<Time> until;  // virtual; nothing: until all flows have ended, or none can
    bool alone = true;          // whether each is simulated alone, too
    int watched_by = 0;         // it ends early with this process; 0: with none
};

/// Returns the exit status (exit_status.h); what is wrong has been said on standard error.
int run_flows(const FlowsOptions& options);

}  // namespace incast::runtime

// A process that is one node of a run which a coordinator elsewhere conducts.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace incast::runtime {

struct JoinOptions {
    std::string coordinator;            // HOST:PORT
    std::optional<std::uint32_t> node;  // nothing: whichever the coordinator has no node for
    std::string token;
    std::string output;  // folder for the event manager's ledger, if this is its node; empty: that of the run, or here
    int watched_by = 0;  // a parent process to end with; 0: none
    std::uint32_t nodes_here = 1;  // of the run, that were started together

    /// Started by the coordinator: on its host, and it says how this process ends.
    [[nodiscard]] bool beside_coordinator() const { return watched_by != 0 && output.empty(); }
};

/// Returns the exit status: ok after the coordinator said so, refused otherwise.
int join(const JoinOptions& options);

}  // namespace incast::runtime

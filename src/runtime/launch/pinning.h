// Whether nodes may stay on one core each.
#pragma once

#include "runtime/plan/resolve.h"

namespace incast::runtime {

/// Not where programs besides the nodes belong to the run: they need the cores, too, and commands that a node starts
/// would inherit its core.
inline bool may_pin(const Plan& plan) {
    const RunConfig& config = plan.config;
    return config.pin == Pin::automatic && !sinks::traits_of(config.sink_kind).has_other_processes &&
           config.filter_kind != FilterKind::command;
}

}  // namespace incast::runtime

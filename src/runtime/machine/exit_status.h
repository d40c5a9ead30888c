// Exit statuses of incast-node; docs/running.md lists them.
#pragma once

namespace incast::runtime {

inline constexpr int exit_ok = 0;      // everything admitted is accounted for, nothing failed to verify
inline constexpr int exit_failed = 1;  // it could not start, did not drain, lost events, or did not verify
inline constexpr int exit_bad_config = 2;
inline constexpr int exit_lost =
    3;  // ended early because the event manager or too many nodes were lost; results so far are kept
inline constexpr int exit_refused = 4;     // --join: the coordinator refused, or cannot be reached any more
inline constexpr int exit_incomplete = 5;  // more events than run.fail_above_incomplete allows are incomplete
inline constexpr int exit_aborted = 130;   // interrupted twice

}  // namespace incast::runtime

// What the parts of resolve() share.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include <fmt/format.h>

#include "base/units.h"
#include "runtime/plan/resolve.h"

namespace incast::runtime {

inline std::string bytes_text(std::uint64_t bytes) {
    return fmt::format("{} ({} B)", base::format_bytes(static_cast<double>(bytes)), bytes);
}

inline Error not_allowed(std::string_view key, const std::string& value, std::string_view problem,
                         std::string_view allowed) {
    return {fmt::format("{} = {}: {}; allowed: {}", key, value, problem, allowed)};
}

/// Nodes [0, n_rus) read out and the last n_bus of them build, split; or all do both. The event manager is node 0, or
/// one more.
Result<Ok> lay_out_nodes(Plan& plan);
/// Where nobody said how many nodes there are: no more than have a recorded source to read out.
Result<Ok> fit_nodes(Plan& plan, const ConfigText& text);
/// Recorded MFPs are what they are: the sources, their sizes, the packing and the end of the run follow from the files.
Result<Ok> take_recording(Plan& plan);
/// What boards or programs send has room, or is cut.
Result<Ok> size_boards(Plan& plan);
/// Chooses protocol.credits where they are not given.
void count_credits(Plan& plan, const Machine& machine);
/// How long the run is measured, and how often it is looked at. ends_itself: a number of events or messages ends it.
void set_times(Plan& plan, bool ends_itself);
/// Layout, and what the limits of a fabric leave of it.
Result<Ok> check_buffers(const Plan& plan);

}  // namespace incast::runtime

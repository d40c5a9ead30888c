// What a run says of its input files: those that are not like the others, and what of them has no place in it.
#pragma once

#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "runtime/plan/resolve.h"

namespace incast::runtime {

/// One line for each file that does not bring all events of the run, or more than these; a few, and how many more.
std::vector<std::string> input_warnings(const Plan& plan);
/// Of a replay: "inputs" of result.json.
nlohmann::ordered_json inputs_json(const Plan& plan);
/// Not empty: more of a file is left out than run.fail_above_incomplete allows.
std::string too_much_left_out(const Plan& plan);

}  // namespace incast::runtime

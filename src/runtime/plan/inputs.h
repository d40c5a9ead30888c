// What a run says of its input files: those that are not like the others, and what of them has no place in it.
#pragma once

#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "runtime/plan/resolve.h"

namespace incast::runtime {

/// One line for each file that does not bring all events of the run, or more than these; a few, and how many more. Of
/// the files of `nodes` nodes from `node` on.
std::vector<std::string> input_warnings(const Plan& plan, const Inputs& inputs, std::uint32_t node,
                                        std::uint32_t nodes);
/// Of a replay: "inputs" of result.json.
nlohmann::ordered_json inputs_json(const Inputs& inputs);
/// Not empty: more of a file is left out than `most`, a share.
std::string too_much_left_out(const Inputs& inputs, double most);

}  // namespace incast::runtime

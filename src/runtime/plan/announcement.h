// What a run is about to do, for a person: a row for each thing, and for what was not asked for why it is as it is.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "runtime/plan/resolve.h"

namespace incast::runtime {

/// A label and a text in each row. `because`: why that transport; empty: it was asked for.
[[nodiscard]] std::vector<std::pair<std::string, std::string>> announcement(const Plan& plan,
                                                                            const std::string& because);

}  // namespace incast::runtime

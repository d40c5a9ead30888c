// JSON for people and files.
#pragma once

#include <nlohmann/json.hpp>

namespace incast::runtime {

/// Keys stay in the order in which they were put there.
using OrderedJson = nlohmann::ordered_json;

}  // namespace incast::runtime

// What a simulated farm did in the measured window: a part of result.json (docs/farm.md).
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "farm/simulated/farm.h"

namespace incast::runtime {

nlohmann::ordered_json farm_json(const farm::simulated::Farm& farm);

}  // namespace incast::runtime

// JSON for people and files.
#pragma once

#include <string>

#include <nlohmann/json.hpp>

#include "transport/medium.h"

namespace incast::runtime {

/// Keys stay in the order in which they were put there.
using OrderedJson = nlohmann::ordered_json;

/// The value of a key of the configuration: a number or truth value where the key's kind has no unit, else its text.
OrderedJson typed_json(const std::string& key, const std::string& value);

/// What tells one transport from another, for whoever must not know their names.
OrderedJson traits_json(const transport::Traits& traits);

}  // namespace incast::runtime

// JSON for people and files.
#pragma once

#include <string>

#include <nlohmann/json.hpp>

namespace incast::runtime {

/// Keys stay in the order in which they were put there.
using OrderedJson = nlohmann::ordered_json;

/// The value of a key of the configuration: a number or truth value where the key's kind has no unit, else its text.
OrderedJson typed_json(const std::string& key, const std::string& value);

}  // namespace incast::runtime

// THE list of configuration keys: name, kind, default, range and help. Checking, error texts, docs/config.md and
// schema/config.schema.json all come from it.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <variant>

#include "runtime/config.h"

namespace incast::runtime {

enum class Kind : std::uint8_t { count, bytes, duration, frequency, real, choice, boolean, text };

/// Where a checked value goes: a field, or for a choice a function that takes its index.
using Field = std::variant<std::uint64_t RunConfig::*, double RunConfig::*, Time RunConfig::*, bool RunConfig::*,
                           std::string RunConfig::*, void (*)(RunConfig&, std::size_t)>;

struct KeySpec {
    std::string_view key;
    Kind kind;
    Field field;
    std::string_view default_value;
    double min = 0;  // in the kind's base unit: 1, bytes, picoseconds, hertz
    double max = 0;
    bool may_be_auto = false;
    std::span<const std::string_view> choices;
    std::string_view help;
};

std::span<const KeySpec> config_keys();
/// nullptr if there is none.
const KeySpec* find_key(std::string_view key);
/// "1..4096", "64 B..1.0 GiB or auto", "push | pull".
std::string range_text(const KeySpec& spec);
/// Checks one value and stores it. The error names key, value and range.
Result<Ok> apply_key(const KeySpec& spec, std::string_view value, RunConfig& config);

/// The nearest of `candidates` by edit distance, or empty if none is near.
std::string_view nearest(std::string_view word, std::span<const std::string_view> candidates);

}  // namespace incast::runtime

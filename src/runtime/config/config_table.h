// THE list of configuration keys: name, kind, default, range and help. Checking, error texts, docs/config.md and
// schema/config.schema.json all come from it.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <variant>

#include "base/setting.h"
#include "runtime/config/config.h"

namespace incast::runtime {

/// Where a checked value goes: a field, or for a choice a function that takes its index.
using Field = std::variant<std::uint64_t RunConfig::*, double RunConfig::*, Time RunConfig::*, bool RunConfig::*,
                           std::string RunConfig::*, void (*)(RunConfig&, std::size_t)>;

/// A key of the engine: its name with the section, and where its value goes.
struct KeySpec : base::Setting {
    Field field;
};

std::span<const KeySpec> config_keys();
/// nullptr if there is none.
const KeySpec* find_key(std::string_view key);
/// A key of the engine, or of a transport: "transport.tcp.streams". nullptr if there is none.
const base::Setting* find_setting(std::string_view key);

/// The same of whole keys: the engine's own, and those of transports.
struct FormerKey {
    std::string former;
    std::string present;
    std::string_view unit;
};
std::span<const FormerKey> former_names();

/// Checks one value and stores it. The error names key, value and range.
Result<Ok> apply_key(const KeySpec& spec, std::string_view value, RunConfig& config);

}  // namespace incast::runtime

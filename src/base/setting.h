// What a person may set, typed: how its text is read, what is allowed, and how both are said. The engine's keys and the
// settings of every transport are lists of these; checking, error texts, documents and the schema come from them.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <variant>

#include <incast/result.h>
#include <incast/transport.h>

#include "base/units.h"

namespace incast::base {

enum class Kind : std::uint8_t { count, bytes, duration, frequency, rate, real, choice, boolean, text };

/// Another word for one of the choices.
struct Alias {
    std::string_view word;
    std::string_view means;
};

struct Setting {
    std::string_view name;
    Kind kind = Kind::text;
    std::string_view default_value;
    double min = 0;  // in the kind's base unit: 1, bytes, picoseconds, hertz, bytes per second
    double max = 0;
    bool may_be_auto = false;
    std::span<const std::string_view> choices;
    std::string_view help;
    std::string_view form;  // text: what it has to be, for a person; numbers: what else they have to be
    std::span<const Alias> aliases;
};

/// What a setting was called in the last version; a bare number had that unit.
struct FormerName {
    std::string_view former;
    std::string_view present;
    std::string_view unit;
};

/// Settings as lists write them.
constexpr Setting number(Kind kind, std::string_view name, std::string_view value, double min, double max,
                         std::string_view help, std::string_view form = {}) {
    return {name, kind, value, min, max, value == "auto", {}, help, form, {}};
}
constexpr Setting choice(std::string_view name, std::string_view value, std::span<const std::string_view> words,
                         std::string_view help, std::span<const Alias> aliases = {}) {
    return {name, Kind::choice, value, 0, 0, false, words, help, {}, aliases};
}
constexpr Setting text(std::string_view name, std::string_view value, std::string_view help,
                       std::string_view form = "text") {
    return {name, Kind::text, value, 0, 0, false, {}, help, form, {}};
}
constexpr Setting flag(std::string_view name, std::string_view help) {
    return {name, Kind::boolean, "false", 0, 0, false, {}, help, {}, {}};
}

/// count, bytes: whole; a choice: the number of its word; frequency, rate, real: double. "auto" of a number is 0.
using Value = std::variant<std::uint64_t, double, Time, bool, std::string>;

/// The value of a text. The error is the problem alone ("not a size"); refuse() makes a line of it.
Result<Value> parse(const Setting& setting, std::string_view text);
/// "protocol.mfp_size = 12Q: not a size; allowed: 32 B..1.0 GiB"; `name` is the setting's whole name.
Error refuse(std::string_view name, const Setting& setting, std::string_view text, std::string_view problem);
/// "1..4096", "64 B..1.0 GiB, or auto", "push | pull".
std::string range_text(const Setting& setting);
/// As a table of a document: setting, default, what is allowed, and what it is. Of a name only what is behind the
/// last dot.
std::string table_head();
std::string table_row(const Setting& setting);
/// The word that an alias stands for; any other text as it is.
std::string_view meant(const Setting& setting, std::string_view text);

/// What may stand behind a number of that kind; none for those that have no unit.
std::span<const Unit> units_of(Kind kind);
/// "count", "bytes" ...
std::string_view kind_name(Kind kind);

/// The nearest of `candidates` by edit distance, or empty if none is near.
std::string_view nearest(std::string_view word, std::span<const std::string_view> candidates);

}  // namespace incast::base

// The configuration written down: its reference and its schema, made from the one table of keys, and the values of a
// run as TOML.
#include <span>
#include <utility>
#include <variant>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "runtime/config/config_table.h"
#include "runtime/config/json.h"

namespace incast::runtime {
namespace {

using base::Kind;

std::string_view section_of(std::string_view key) {
    return key.substr(0, key.find('.'));
}
std::string_view name_of(std::string_view key) {
    return key.substr(key.find('.') + 1);
}

/// A number, as 1.5 or 5e-6, and a unit.
OrderedJson quantity_in(std::span<const base::Unit> units) {
    std::string names;
    for (const base::Unit& unit : units) {
        names += (names.empty() ? "" : "|") + std::string(unit.name);
    }
    return {{"type", "string"}, {"pattern", fmt::format("^ *[0-9.]+([eE][-+]?[0-9]+)? *(|{}) *$", names)}};
}

OrderedJson schema_of(const base::Setting& setting) {
    OrderedJson schema;
    OrderedJson alternatives = OrderedJson::array();
    switch (setting.kind) {
        case Kind::choice:
            schema["enum"] = setting.choices;
            for (const base::Alias& alias : setting.aliases) {
                schema["enum"].push_back(alias.word);
            }
            break;
        case Kind::boolean:
            schema["type"] = "boolean";
            break;
        case Kind::text:
            schema["type"] = "string";
            break;
        case Kind::count:
        case Kind::bytes:
            alternatives.push_back({{"type", "integer"},
                                    {"minimum", static_cast<std::uint64_t>(setting.min)},
                                    {"maximum", static_cast<std::uint64_t>(setting.max)}});
            break;
        case Kind::duration:
        case Kind::frequency:
        case Kind::rate:
            alternatives.push_back({{"type", "number"}, {"minimum", 0}});
            break;
        case Kind::real:
            alternatives.push_back({{"type", "number"}, {"minimum", setting.min}, {"maximum", setting.max}});
            break;
    }
    if (const std::span<const base::Unit> units = base::units_of(setting.kind); !units.empty()) {
        alternatives.push_back(quantity_in(units));
    }
    if (setting.may_be_auto) {
        alternatives.push_back({{"const", "auto"}});
    }
    if (alternatives.size() == 1) {
        schema = alternatives[0];
    } else if (!alternatives.empty()) {
        schema["anyOf"] = alternatives;
    }
    schema["default"] = setting.default_value;
    schema["description"] = setting.help;
    schema["x-kind"] = base::kind_name(setting.kind);
    schema["x-allowed"] = base::range_text(setting);
    return schema;
}

OrderedJson units_json() {
    OrderedJson json;
    for (const Kind kind : {Kind::bytes, Kind::duration, Kind::frequency, Kind::rate}) {
        for (const base::Unit& unit : base::units_of(kind)) {
            json[std::string(base::kind_name(kind))][std::string(unit.name)] = unit.factor;
        }
    }
    return json;
}

OrderedJson former_json() {
    OrderedJson json;
    for (const FormerKey& name : former_names()) {
        json[std::string(name.former)] = {{"present", name.present}, {"unit", name.unit}};
    }
    return json;
}

std::string units_text() {
    std::string text;
    for (const auto& [what, kind] : {std::pair{"sizes", Kind::bytes},
                                     {"times", Kind::duration},
                                     {"frequencies", Kind::frequency},
                                     {"rates", Kind::rate}}) {
        std::string names;
        for (const base::Unit& unit : base::units_of(kind)) {
            names += unit.name.empty() ? "" : fmt::format("{}`{}`", names.empty() ? "" : ", ", unit.name);
        }
        text += fmt::format("- {}: {}\n", what, names);
    }
    return text;
}

OrderedJson section_schema() {
    return {{"type", "object"}, {"additionalProperties", false}, {"properties", OrderedJson::object()}};
}

}  // namespace

std::string config_reference() {
    std::string text =
        "# Configuration\n\n"
        "A run is described by a TOML file, by `--set section.key=value`, or by both; the command line wins.\n"
        "This page is made by `incast-node --print-config-reference` from the lists that also check the values.\n\n"
        "A quantity is a number and a unit, with or without a space: `64KiB`, `2m`, `40kHz`, `100Gbps`. A bare number "
        "counts bytes,\nseconds, hertz, or bytes per second. `64K` is `64KiB`, 65536 bytes; `64kB` is 64000 bytes. "
        "The units are\n\n" +
        units_text();
    std::string_view section;
    for (const KeySpec& spec : config_keys()) {
        if (section_of(spec.name) != section) {
            section = section_of(spec.name);
            text += fmt::format("\n## [{}]\n\n", section) + base::table_head();
        }
        text += base::table_row(spec);
    }
    for (const transport::Descriptor& builtin : transport::builtin_transports()) {
        text += fmt::format("\n## [transport.{}]\n\n{}.\n\n", builtin.name, builtin.summary);
        text += builtin.settings.empty() ? "It has no settings.\n" : base::table_head();
        for (const base::Setting& setting : builtin.settings) {
            text += base::table_row(setting);
        }
    }
    text += "\n## Former names\n\nThey work in this version, with a warning.\n\n| former | now |\n|---|---|\n";
    for (const FormerKey& name : former_names()) {
        text += fmt::format("| `{}` | `{}` |\n", name.former, name.present);
    }
    return text;
}

OrderedJson traits_json(const transport::Traits& traits) {
    return {{"in_process", traits.in_process},         {"simulated", traits.simulated},
            {"shares_memory", traits.shares_memory()}, {"rank_here", traits.rank_here},
            {"rank_across", traits.rank_across},       {"launch", traits.nature.launch}};
}

OrderedJson typed_json(const std::string& key, const std::string& value) {
    const base::Setting* setting = find_setting(key);
    if (setting == nullptr || value == "auto") {
        return value;
    }
    const Result<base::Value> parsed = base::parse(*setting, value);
    if (parsed && setting->kind == Kind::boolean) {
        return std::get<bool>(*parsed);
    }
    if (parsed && setting->kind == Kind::count) {
        return std::get<std::uint64_t>(*parsed);
    }
    if (parsed && setting->kind == Kind::real) {
        return std::get<double>(*parsed);
    }
    return value;
}

std::string config_toml(const std::map<std::string, std::string>& values) {
    std::map<std::string, std::string> sections;
    for (const auto& [key, value] : values) {
        const std::size_t dot = key.rfind('.');
        // JSON's texts and numbers are TOML too.
        sections[key.substr(0, dot)] += fmt::format("{} = {}\n", key.substr(dot + 1), typed_json(key, value).dump());
    }
    std::string text;
    for (const auto& [section, lines] : sections) {
        text += fmt::format("{}[{}]\n{}", text.empty() ? "" : "\n", section, lines);
    }
    return text;
}

std::string config_schema() {
    OrderedJson schema{{"$schema", "https://json-schema.org/draft/2020-12/schema"},
                       {"title", "Configuration of an Incast run"},
                       {"description", "Made by incast-node --print-config-schema from the engine's table of keys."},
                       {"type", "object"},
                       {"additionalProperties", false},
                       {"properties", OrderedJson::object()}};
    OrderedJson& sections = schema["properties"];
    for (const KeySpec& spec : config_keys()) {
        const std::string section(section_of(spec.name));
        if (!sections.contains(section)) {
            sections[section] = section_schema();
        }
        sections[section]["properties"][std::string(name_of(spec.name))] = schema_of(spec);
    }
    for (const transport::Descriptor& builtin : transport::builtin_transports()) {
        OrderedJson settings = section_schema();
        for (const base::Setting& setting : builtin.settings) {
            settings["properties"][std::string(setting.name)] = schema_of(setting);
        }
        sections["transport"]["properties"][std::string(builtin.name)] = settings;
    }
    schema["x-units"] = units_json();
    for (const transport::Descriptor& builtin : transport::builtin_transports()) {
        schema["x-transports"][std::string(builtin.name)] = traits_json(builtin.traits);
    }
    schema["x-former-names"] = former_json();
    return schema.dump(2) + "\n";
}

}  // namespace incast::runtime

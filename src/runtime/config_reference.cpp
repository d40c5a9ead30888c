// The configuration written down: its reference and its schema, made from the one table of keys, and the values of a
// run as TOML.
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "runtime/config_table.h"
#include "runtime/json.h"

namespace incast::runtime {
namespace {

std::string_view section_of(std::string_view key) {
    return key.substr(0, key.find('.'));
}
std::string_view name_of(std::string_view key) {
    return key.substr(key.find('.') + 1);
}

/// A number, as 1.5 or 5e-6, and a unit.
OrderedJson quantity_in(std::string_view units) {
    return {{"type", "string"}, {"pattern", fmt::format("^ *[0-9.]+([eE][-+]?[0-9]+)? *{} *$", units)}};
}

OrderedJson schema_of(const KeySpec& spec) {
    OrderedJson schema;
    OrderedJson alternatives = OrderedJson::array();
    switch (spec.kind) {
        case Kind::choice:
            schema["enum"] = OrderedJson::array();
            for (const std::string_view word : spec.choices) {
                schema["enum"].push_back(word);
            }
            break;
        case Kind::boolean:
            schema["type"] = "boolean";
            break;
        case Kind::text:
            schema["type"] = "string";
            break;
        case Kind::count:
            alternatives.push_back({{"type", "integer"},
                                    {"minimum", static_cast<std::uint64_t>(spec.min)},
                                    {"maximum", static_cast<std::uint64_t>(spec.max)}});
            break;
        case Kind::bytes:
            alternatives.push_back({{"type", "integer"},
                                    {"minimum", static_cast<std::uint64_t>(spec.min)},
                                    {"maximum", static_cast<std::uint64_t>(spec.max)}});
            alternatives.push_back(quantity_in("([kKMGT]i?)?B?"));
            break;
        case Kind::duration:
            alternatives.push_back({{"type", "number"}, {"minimum", 0}});
            alternatives.push_back(quantity_in("(ps|ns|us|ms|s|min|h)?"));
            break;
        case Kind::frequency:
            alternatives.push_back({{"type", "number"}, {"minimum", 0}});
            alternatives.push_back(quantity_in("([kMG]?Hz)?"));
            break;
        case Kind::real:
            alternatives.push_back({{"type", "number"}, {"minimum", spec.min}, {"maximum", spec.max}});
            break;
    }
    if (spec.may_be_auto) {
        alternatives.push_back({{"const", "auto"}});
    }
    if (alternatives.size() == 1) {
        schema = alternatives[0];
    } else if (!alternatives.empty()) {
        schema["anyOf"] = alternatives;
    }
    schema["default"] = spec.default_value;
    schema["description"] = fmt::format("{} ({})", spec.help, range_text(spec));
    return schema;
}

OrderedJson section_schema() {
    return {{"type", "object"}, {"additionalProperties", false}, {"properties", OrderedJson::object()}};
}

}  // namespace

std::string config_reference() {
    std::string text =
        "# Configuration\n\n"
        "A run is described by a TOML file, by `--set section.key=value`, or by both; the command line wins.\n"
        "This page is made by `incast-node --print-config-reference` from the table that also checks the values.\n"
        "Sizes are written as `64KiB` or `1MB`, times as `500ms`, frequencies as `40kHz`; a bare number counts bytes, "
        "seconds or hertz.\n";
    std::string_view section;
    for (const KeySpec& spec : config_keys()) {
        if (section_of(spec.key) != section) {
            section = section_of(spec.key);
            text += fmt::format("\n## [{}]\n\n| key | default | allowed | what |\n|---|---|---|---|\n", section);
        }
        std::string range = range_text(spec);
        for (std::size_t at = range.find('|'); at != std::string::npos; at = range.find('|', at + 2)) {
            range.insert(at, "\\");
        }
        text +=
            fmt::format("| `{}` | {} | {} | {} |\n", name_of(spec.key),
                        spec.default_value.empty() ? "" : fmt::format("`{}`", spec.default_value), range, spec.help);
    }
    for (const transport::Builtin& builtin : transport::builtin_transports()) {
        text += fmt::format("\n## [transport.{}]\n\n{}.\n", builtin.name, builtin.summary);
        if (builtin.parameters.empty()) {
            text += "\nIt has no settings.\n";
            continue;
        }
        text += "\n| key | default | allowed | what |\n|---|---|---|---|\n";
        for (const transport::Parameter& parameter : builtin.parameters) {
            text += fmt::format("| `{}` | {} | {} | {} |\n", parameter.name,
                                parameter.default_value.empty() ? "" : fmt::format("`{}`", parameter.default_value),
                                parameter.range, parameter.help);
        }
    }
    return text;
}

std::string config_toml(const std::map<std::string, std::string>& values) {
    std::map<std::string, std::string> sections;
    for (const auto& [key, value] : values) {
        const std::size_t dot = key.rfind('.');
        const KeySpec* spec = find_key(key);
        const bool bare = spec != nullptr && value != "auto" &&
                          (spec->kind == Kind::count || spec->kind == Kind::real || spec->kind == Kind::boolean);
        // A JSON string is a TOML string too.
        sections[key.substr(0, dot)] +=
            fmt::format("{} = {}\n", key.substr(dot + 1), bare ? value : OrderedJson(value).dump());
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
        const std::string section(section_of(spec.key));
        if (!sections.contains(section)) {
            sections[section] = section_schema();
        }
        sections[section]["properties"][std::string(name_of(spec.key))] = schema_of(spec);
    }
    OrderedJson names = OrderedJson::array();
    for (const transport::Builtin& builtin : transport::builtin_transports()) {
        names.push_back(builtin.name);
        OrderedJson settings = section_schema();
        for (const transport::Parameter& parameter : builtin.parameters) {
            settings["properties"][std::string(parameter.name)] = {
                {"type", {"string", "number", "boolean"}},
                {"default", parameter.default_value},
                {"description", fmt::format("{} ({})", parameter.help, parameter.range)}};
        }
        sections["transport"]["properties"][std::string(builtin.name)] = settings;
    }
    sections["transport"]["properties"]["name"]["enum"] = names;
    sections["transport"]["properties"]["name"]["enum"].push_back("auto");
    return schema.dump(2) + "\n";
}

}  // namespace incast::runtime

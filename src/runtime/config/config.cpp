#include "runtime/config/config.h"

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <sstream>
#include <system_error>
#include <utility>

#include <fmt/format.h>
#include <toml++/toml.h>

#include "runtime/config/config_table.h"
#include "runtime/machine/network_place.h"
#include "transport/settings.h"

namespace incast::runtime {
namespace {

std::string did_you_mean(std::string_view word, std::span<const std::string_view> candidates) {
    const std::string_view found = base::nearest(word, candidates);
    return found.empty() ? "" : fmt::format("; did you mean '{}'?", found);
}

/// "tcp.bind" of the key "transport.tcp.bind", which is unknown.
Error unknown_transport_key(std::string_view key, std::string_view rest) {
    const std::size_t dot = rest.find('.');
    const std::string_view name = rest.substr(0, dot);
    const transport::Descriptor* builtin = transport::find_transport(name);
    if (builtin != nullptr) {
        return transport::Values::read(name, builtin->settings, {{std::string(rest.substr(dot + 1)), ""}}).error();
    }
    std::vector<std::string_view> names;
    for (const transport::Descriptor& each : transport::builtin_transports())
        names.push_back(each.name);
    return Error{fmt::format("unknown key '{}': there is no transport '{}'{}; allowed: {}", key, name,
                             did_you_mean(name, names), fmt::join(names, " | "))};
}

Result<Ok> check_key(std::string_view key) {
    constexpr std::string_view transports = "transport.";
    if (find_setting(key) != nullptr) {
        return Ok{};
    }
    if (key.starts_with(transports) && key.find('.', transports.size()) != std::string_view::npos) {
        return unknown_transport_key(key, key.substr(transports.size()));
    }
    std::vector<std::string_view> known;
    std::vector<std::string_view> names;  // a key without its section, or with another one, is a common slip
    for (const KeySpec& spec : config_keys()) {
        known.push_back(spec.name);
        names.push_back(spec.name.substr(spec.name.find('.') + 1));
    }
    std::string hint = did_you_mean(key, known);
    if (const auto named = std::ranges::find(names, key.substr(key.find('.') + 1));
        hint.empty() && named != names.end()) {
        hint = fmt::format("; did you mean '{}'?", known[static_cast<std::size_t>(named - names.begin())]);
    }
    return Error{fmt::format("unknown key '{}'{}", key,
                             hint.empty() ? "; incast-node --print-config-reference lists all keys" : hint)};
}

const FormerKey* find_former(std::string_view key) {
    const auto found = std::ranges::find(former_names(), key, &FormerKey::former);
    return found == former_names().end() ? nullptr : &*found;
}

bool is_bare_number(const std::string& value) {
    return !value.empty() && value.find_first_not_of("0123456789.") == std::string::npos;
}

Result<std::string> scalar_text(const std::string& key, const toml::node& node) {
    if (const auto* text = node.as_string()) {
        return text->get();
    }
    if (const auto* whole = node.as_integer()) {
        return fmt::format("{}", whole->get());
    }
    if (const auto* real = node.as_floating_point()) {
        return fmt::format("{}", real->get());
    }
    if (const auto* truth = node.as_boolean()) {
        return std::string(truth->get() ? "true" : "false");
    }
    return Error{fmt::format("{}: a list, date or table stands where one value is expected", key)};
}

Result<Ok> flatten(const toml::table& table, const std::string& prefix, ConfigText& into) {
    for (const auto& [name, node] : table) {
        const std::string key = prefix.empty() ? std::string(name.str()) : prefix + "." + std::string(name.str());
        if (const toml::table* nested = node.as_table()) {
            if (Result<Ok> done = flatten(*nested, key, into); !done) {
                return done;
            }
            continue;
        }
        if (Result<Ok> known = check_key(find_former(key) != nullptr ? find_former(key)->present : key); !known) {
            return known;
        }
        Result<std::string> text = scalar_text(key, node);
        if (!text) {
            return text.error();
        }
        if (Result<Ok> done = into.set(key, *text); !done) {
            return done;
        }
    }
    return Ok{};
}

}  // namespace

Result<Ok> ConfigText::read_toml(const std::filesystem::path& file) {
    std::error_code code;
    if (std::filesystem::is_directory(file, code)) {
        return Error{fmt::format("config '{}' is a folder; allowed: a TOML file", file.string())};
    }
    const std::ifstream input(file);
    if (!input) {
        return Error{fmt::format("config '{}' cannot be read: {}; allowed: a TOML file", file.string(),
                                 std::generic_category().message(errno))};
    }
    std::ostringstream content;
    content << input.rdbuf();
    try {
        const toml::table table = toml::parse(content.str());
        if (Result<Ok> done = flatten(table, "", *this); !done) {
            return Error{fmt::format("{}: {}", file.string(), done.error().message)};
        }
    } catch (const toml::parse_error& error) {
        return Error{
            fmt::format("{}: line {}: not TOML: {}", file.string(), error.source().begin.line, error.description())};
    }
    return Ok{};
}

Result<Ok> ConfigText::assign(std::string_view assignment) {
    const std::size_t equals = assignment.find('=');
    if (equals == std::string_view::npos || equals == 0) {
        return Error{fmt::format("--set {}: allowed: section.key=value", assignment)};
    }
    const auto trimmed = [](std::string_view part) {
        const std::size_t first = part.find_first_not_of(' ');
        return first == std::string_view::npos
                   ? std::string()
                   : std::string(part.substr(first, part.find_last_not_of(' ') - first + 1));
    };
    return set(trimmed(assignment.substr(0, equals)), trimmed(assignment.substr(equals + 1)));
}

Result<Ok> ConfigText::set(const std::string& key, const std::string& value) {
    if (const FormerKey* former = find_former(key)) {
        former_names_.insert(key);
        return set(former->present, is_bare_number(value) ? value + std::string(former->unit) : value);
    }
    if (Result<Ok> known = check_key(key); !known) {
        return known;
    }
    values_[key] = base::meant(*find_setting(key), value);
    return Ok{};
}

std::string ConfigText::warning() const {
    std::string names;
    for (const std::string& key : former_names_) {
        names += fmt::format("{}{} is now {}", names.empty() ? "" : ", ", key, find_former(key)->present);
    }
    return names.empty() ? "" : names + "; the next version does not know the former names";
}

namespace {

/// Error: the transport has no setting of that name, so the key means nothing to it.
Result<Ok> needs(std::string_view setting, std::string_view key, std::string_view value, const RunConfig& config) {
    std::string able;
    for (const transport::Descriptor* const known : transport::known_transports()) {
        if (std::ranges::find(known->settings, setting, &base::Setting::name) == known->settings.end()) {
            continue;
        }
        if (known->name == config.transport) {
            return Ok{};
        }
        able += fmt::format("{}{}", able.empty() ? "" : ", ", known->name);
    }
    return Error{
        fmt::format("{} = {}: {} cannot choose; allowed with transport.name = {}", key, value, config.transport, able)};
}

/// What is said of the network for any transport becomes a setting of the one in use.
Result<Ok> choose_network(RunConfig& config) {
    if (!config.network.empty()) {
        if (Result<Ok> fits = needs("bind", "run.network", config.network, config); !fits) {
            return fits;
        }
        if (config.network.find('/') != std::string::npos) {
            if (const Result<bool> subnet = lies_in("", config.network); !subnet) {
                return Error{fmt::format("run.network = {}: {}", config.network, subnet.error().message)};
            }
        }
    }
    if (config.ports != "any") {
        if (Result<Ok> fits = needs("ports", "run.ports", config.ports, config); !fits) {
            return fits;
        }
        config.transport_settings.try_emplace("ports", config.ports);
    }
    return Ok{};
}

}  // namespace

Result<RunConfig> ConfigText::parse() const {
    RunConfig config;
    for (const KeySpec& spec : config_keys()) {
        const auto given = values_.find(std::string(spec.name));
        if (Result<Ok> done =
                apply_key(spec, given == values_.end() ? spec.default_value : std::string_view(given->second), config);
            !done) {
            return done.error();
        }
    }
    if (config.transport == "auto") {
        config.transport = transport::chosen_transport(false).name;
    }
    if (transport::find_transport(config.transport) == nullptr) {
        return transport::load_outside(config.transport).error();
    }
    for (const transport::Descriptor* const known : transport::known_transports()) {
        const std::string prefix = fmt::format("transport.{}.", known->name);
        transport::Settings settings;
        for (const auto& [key, value] : values_) {
            if (key.starts_with(prefix)) {
                settings[key.substr(prefix.size())] = value;
            }
        }
        if (const auto checked = transport::Values::read(known->name, known->settings, settings); !checked) {
            return checked.error();
        }
        if (known->name == config.transport) {
            config.transport_settings = std::move(settings);
        }
    }
    if (Result<Ok> fits = choose_network(config); !fits) {
        return fits.error();
    }
    return config;
}

std::map<std::string, std::string> config_values(const ConfigText& text) {
    std::map<std::string, std::string> values = text.given();
    for (const KeySpec& spec : config_keys()) {
        values.try_emplace(std::string(spec.name), spec.default_value);
    }
    return values;
}

}  // namespace incast::runtime

// Checking a transport's settings against its parameter list.
#pragma once

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <span>
#include <string>

#include "transport/medium.h"

namespace incast::transport {

/// One line naming the first setting that is not in the list; `transport` is for that line.
inline Result<Ok> check_names(std::string_view transport, std::span<const Parameter> parameters,
                              const Settings& settings) {
    for (const auto& [name, value] : settings) {
        if (std::ranges::none_of(parameters, [&](const Parameter& parameter) { return parameter.name == name; })) {
            std::string known;
            for (const Parameter& parameter : parameters)
                known += (known.empty() ? "" : ", ") + std::string(parameter.name);
            std::string error = "transport ";
            error.append(transport).append(" has no parameter '").append(name).append("' (value '").append(value);
            return Error{error.append("'); known: ").append(known.empty() ? "none" : known)};
        }
    }
    return Ok{};
}

/// The value of a parameter: as set, or its default. The name must be in the list.
inline std::string_view value_of(std::span<const Parameter> parameters, const Settings& settings,
                                 std::string_view name) {
    if (const auto found = settings.find(std::string(name)); found != settings.end()) return found->second;
    return std::ranges::find(parameters, name, &Parameter::name)->default_value;
}

/// A whole number in [low, high], plain decimal digits.
inline Result<std::uint64_t> number_of(std::span<const Parameter> parameters, const Settings& settings,
                                       std::string_view name, std::uint64_t low, std::uint64_t high) {
    const std::string_view text = value_of(parameters, settings, name);
    std::uint64_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc{} || end != text.data() + text.size() || value < low || value > high) {
        return Error{std::string(name) + " = '" + std::string(text) + "': expected a whole number from " +
                     std::to_string(low) + " to " + std::to_string(high)};
    }
    return value;
}

}  // namespace incast::transport

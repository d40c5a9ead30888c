#include "base/setting.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <utility>
#include <vector>

namespace incast::base {
namespace {

std::string value_text(Kind kind, double value) {
    switch (kind) {
        case Kind::bytes:
            return format_bytes(value);
        case Kind::duration:
            return duration_text(static_cast<Time>(value));
        case Kind::frequency:
            return format_number(value) + " Hz";
        case Kind::rate:
            return format_rate(value);
        case Kind::count:
            return value < 1e9 ? std::to_string(static_cast<std::uint64_t>(value)) : format_number(value);
        default:
            return format_number(value);
    }
}

std::string joined(std::span<const std::string_view> words) {
    std::string all;
    for (const std::string_view word : words)
        all.append(all.empty() ? "" : " | ").append(word);
    return all;
}

template <typename Number>
Result<Number> plain(std::string_view text, const char* problem) {
    Number number{};
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    if (error != std::errc{} || end != text.data() + text.size()) return Error{problem};
    return number;
}

/// In the kind's base unit.
Result<double> parse_number(Kind kind, std::string_view text) {
    switch (kind) {
        case Kind::count: {
            const Result<std::uint64_t> whole = plain<std::uint64_t>(text, "not a whole number");
            return whole ? Result<double>(static_cast<double>(*whole)) : Result<double>(whole.error());
        }
        case Kind::bytes: {
            const Result<std::uint64_t> bytes = parse_bytes(text);
            return bytes ? Result<double>(static_cast<double>(*bytes)) : Result<double>(Error{"not a size"});
        }
        case Kind::duration: {
            const Result<Time> time = parse_duration(text);
            return time ? Result<double>(static_cast<double>(*time)) : Result<double>(Error{"not a duration"});
        }
        case Kind::frequency: {
            const Result<double> hertz = parse_frequency_hz(text);
            return hertz ? hertz : Result<double>(Error{"not a frequency"});
        }
        case Kind::rate: {
            const Result<double> rate = parse_bytes_per_s(text);
            return rate ? rate : Result<double>(Error{"not a rate"});
        }
        default:
            return plain<double>(text, "not a number");
    }
}

Value typed(Kind kind, double number) {
    switch (kind) {
        case Kind::count:
        case Kind::bytes:
            return static_cast<std::uint64_t>(number);
        case Kind::duration:
            return static_cast<Time>(number);
        default:
            return number;
    }
}

}  // namespace

Result<Value> parse(const Setting& setting, std::string_view text) {
    if (setting.kind == Kind::text) return Value(std::string(text));
    if (setting.kind == Kind::boolean) {
        if (text != "true" && text != "false") return Error{"neither true nor false"};
        return Value(text == "true");
    }
    if (setting.kind == Kind::choice) {
        const auto found = std::ranges::find(setting.choices, meant(setting, text));
        if (found == setting.choices.end()) return Error{"no such choice"};
        return Value(static_cast<std::uint64_t>(found - setting.choices.begin()));
    }
    if (setting.may_be_auto && text == "auto") return typed(setting.kind, 0);
    const Result<double> number = parse_number(setting.kind, text);
    if (!number) return number.error();
    if (!(*number >= setting.min && *number <= setting.max)) return Error{"out of range"};  // nor is NaN in any range
    return typed(setting.kind, *number);
}

Error refuse(std::string_view name, const Setting& setting, std::string_view text, std::string_view problem) {
    std::string line(name);
    line.append(" = ").append(text.empty() ? "\"\"" : text).append(": ").append(problem);
    return Error{line.append("; allowed: ").append(range_text(setting))};
}

std::string range_text(const Setting& setting) {
    switch (setting.kind) {
        case Kind::choice: {
            std::string all = joined(setting.choices);
            for (const Alias& alias : setting.aliases) {
                all.append(" (also ").append(alias.word).append(": ").append(alias.means).append(")");
            }
            return all;
        }
        case Kind::boolean:
            return "true | false";
        case Kind::text:
            return std::string(setting.form);
        default:
            break;
    }
    std::string range = value_text(setting.kind, setting.min) + ".." + value_text(setting.kind, setting.max);
    if (!setting.form.empty()) range.append(", ").append(setting.form);
    return setting.may_be_auto ? range + ", or auto" : range;
}

std::string table_head() {
    return "| setting | default | allowed | what |\n|---|---|---|---|\n";
}

std::string table_row(const Setting& setting) {
    const auto cell = [](std::string_view words) {
        std::string safe;
        for (const char letter : words)
            safe.append(letter == '|' ? "\\|" : std::string(1, letter));
        return safe;
    };
    std::string row = "| `";
    row.append(setting.name.substr(setting.name.rfind('.') + 1)).append("` | ");
    if (!setting.default_value.empty()) row.append("`").append(setting.default_value).append("`");
    return row.append(" | ").append(cell(range_text(setting))).append(" | ").append(cell(setting.help)).append(" |\n");
}

std::string_view meant(const Setting& setting, std::string_view text) {
    const auto found = std::ranges::find(setting.aliases, text, &Alias::word);
    return found == setting.aliases.end() ? text : found->means;
}

std::span<const Unit> units_of(Kind kind) {
    switch (kind) {
        case Kind::bytes:
            return byte_units();
        case Kind::duration:
            return time_units();
        case Kind::frequency:
            return frequency_units();
        case Kind::rate:
            return rate_units();
        default:
            return {};
    }
}

std::string_view kind_name(Kind kind) {
    constexpr std::array<std::string_view, 9> names{"count", "bytes",  "duration", "frequency", "rate",
                                                    "real",  "choice", "boolean",  "text"};
    return names[static_cast<std::size_t>(kind)];
}

std::string_view nearest(std::string_view word, std::span<const std::string_view> candidates) {
    std::string_view best;
    std::size_t best_distance = word.size() / 3 + 2;  // further away it would not be a slip of the hand
    for (const std::string_view candidate : candidates) {
        std::vector<std::size_t> row(candidate.size() + 1);
        for (std::size_t column = 0; column < row.size(); ++column)
            row[column] = column;
        for (std::size_t line = 1; line <= word.size(); ++line) {
            std::size_t diagonal = row[0];
            row[0] = line;
            for (std::size_t column = 1; column < row.size(); ++column) {
                const std::size_t replaced = diagonal + (word[line - 1] == candidate[column - 1] ? 0 : 1);
                diagonal = row[column];
                row[column] = std::min({row[column] + 1, row[column - 1] + 1, replaced});
            }
        }
        if (row.back() < best_distance) {
            best_distance = row.back();
            best = candidate;
        }
    }
    return best;
}

}  // namespace incast::base

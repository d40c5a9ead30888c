#include "sim/fabric/section.h"

#include <algorithm>
#include <cmath>
#include <sstream>

#include "base/units.h"

namespace incast::sim::fabric {
namespace {

/// A node as it stands in the file, on one line.
std::string as_written(const toml::node& node) {
    std::ostringstream out;
    if (const auto* string = node.as_string()) {
        out << '"' << string->get() << '"';
    } else if (node.is_value() || node.is_array()) {
        node.visit([&out](const auto& value) {
            if constexpr (toml::is_value<decltype(value)>) {
                out << value;
            } else {
                out << "(a list)";
            }
        });
    } else {
        out << "(a table)";
    }
    return out.str();
}

bool has_unit(std::string_view text) {
    return std::ranges::any_of(text,
                               [](char each) { return (each >= 'a' && each <= 'z') || (each >= 'A' && each <= 'Z'); });
}

std::string in_range(std::string_view what, const std::string& least, const std::string& most) {
    return std::string(what) + " in " + least + ".." + most;
}

}  // namespace

void Problems::add(const toml::node* where, const std::string& text) {
    if (first) return;
    const std::string line =
        where != nullptr && where->source().begin.line > 0 ? ":" + std::to_string(where->source().begin.line) : "";
    first = Error{file + line + ": " + text};
}

std::string Section::full(std::string_view key) const {
    return path_.empty() ? std::string(key) : path_ + "." + std::string(key);
}

const toml::node* Section::find(std::string_view key) {
    known_.emplace(key);
    return table_ != nullptr ? table_->get(key) : nullptr;
}

void Section::fail(std::string_view key, const std::string& text) {
    const toml::node* node = key.empty() || table_ == nullptr ? nullptr : table_->get(key);
    problems_.add(node != nullptr ? node : table_, (key.empty() ? path_ : full(key)) + ": " + text);
}

void Section::reject(std::string_view key, const toml::node& node, std::string_view allowed) {
    problems_.add(&node, full(key) + " = " + as_written(node) + ": not allowed; allowed: " + std::string(allowed));
}

std::string Section::text(std::string_view key, std::string_view otherwise) {
    const toml::node* node = find(key);
    if (node == nullptr) return std::string(otherwise);
    const auto* value = node->as_string();
    if (value == nullptr) {
        reject(key, *node, "a text in quotes");
        return std::string(otherwise);
    }
    return value->get();
}

bool Section::flag(std::string_view key, bool otherwise) {
    const toml::node* node = find(key);
    if (node == nullptr) return otherwise;
    const auto* value = node->as_boolean();
    if (value == nullptr) {
        reject(key, *node, "true or false");
        return otherwise;
    }
    return value->get();
}

std::uint64_t Section::count(std::string_view key, std::uint64_t otherwise, std::uint64_t least, std::uint64_t most) {
    const toml::node* node = find(key);
    if (node == nullptr) return otherwise;
    const auto* value = node->as_integer();
    if (value == nullptr || value->get() < 0 || static_cast<std::uint64_t>(value->get()) < least ||
        static_cast<std::uint64_t>(value->get()) > most) {
        reject(key, *node, in_range("a whole number", std::to_string(least), std::to_string(most)));
        return otherwise;
    }
    return static_cast<std::uint64_t>(value->get());
}

std::uint64_t Section::bytes(std::string_view key, std::uint64_t otherwise, std::uint64_t least, std::uint64_t most) {
    const toml::node* node = find(key);
    if (node == nullptr) return otherwise;
    const auto* value = node->as_string();
    const Result<std::uint64_t> parsed = value != nullptr && has_unit(value->get())
                                             ? base::parse_bytes(value->get())
                                             : Result<std::uint64_t>(Error{"no unit"});
    if (!parsed || *parsed < least || *parsed > most) {
        reject(key, *node,
               in_range("a size with its unit, such as \"64KiB\",", std::to_string(least) + " B",
                        std::to_string(most) + " B"));
        return otherwise;
    }
    return *parsed;
}

Time Section::time(std::string_view key, Time otherwise) {
    const toml::node* node = find(key);
    if (node == nullptr) return otherwise;
    const auto* value = node->as_string();
    const Result<Time> parsed = value != nullptr && has_unit(value->get()) ? base::parse_duration(value->get())
                                                                           : Result<Time>(Error{"no unit"});
    if (!parsed || *parsed < 0 || *parsed > 3600 * ps_per_s) {
        reject(key, *node, "a time with its unit, such as \"1.5us\", in 0..1h");
        return otherwise;
    }
    return *parsed;
}

packet::Rate Section::rate(std::string_view key, packet::Rate otherwise, bool none) {
    constexpr double least = 1e6 / 8;
    constexpr double most = 100e12 / 8;
    const toml::node* node = find(key);
    if (node == nullptr) return otherwise;
    const auto* value = node->as_string();
    if (none && value != nullptr && value->get() == "none") return {};
    const Result<double> parsed = value != nullptr && has_unit(value->get()) ? base::parse_bytes_per_s(value->get())
                                                                             : Result<double>(Error{"no unit"});
    if (!parsed || !(*parsed >= least) || !(*parsed <= most)) {
        reject(key, *node,
               std::string("a rate with its unit, such as \"100Gb/s\", in 1Mb/s..100Tb/s") +
                   (none ? ", or \"none\"" : ""));
        return otherwise;
    }
    return {static_cast<std::uint64_t>(std::llround(*parsed * 8))};
}

std::uint32_t Section::per_million(std::string_view key, std::uint32_t otherwise) {
    const toml::node* node = find(key);
    if (node == nullptr) return otherwise;
    const std::optional<double> value = node->value<double>();
    if (node->is_string() || !value || !(*value >= 0) || !(*value <= 1)) {
        reject(key, *node, "a share in 0..1");
        return otherwise;
    }
    return static_cast<std::uint32_t>(std::lround(*value * 1e6));
}

std::vector<std::uint64_t> Section::counts(std::string_view key, std::uint64_t most) {
    std::vector<std::uint64_t> found;
    const toml::node* node = find(key);
    if (node == nullptr) return found;
    const toml::array* list = node->as_array();
    for (std::size_t i = 0; list != nullptr && i < list->size(); ++i) {
        const auto* value = (*list)[i].as_integer();
        if (value == nullptr || value->get() < 0 || static_cast<std::uint64_t>(value->get()) > most) {
            list = nullptr;
            break;
        }
        found.push_back(static_cast<std::uint64_t>(value->get()));
    }
    if (list == nullptr) {
        reject(key, *node, "a list of whole numbers in 0.." + std::to_string(most));
        found.clear();
    }
    return found;
}

std::uint8_t Section::classes(std::string_view key, std::uint8_t otherwise) {
    if (!has(key)) {
        known_.emplace(key);
        return otherwise;
    }
    unsigned bits = 0;
    for (const std::uint64_t each : counts(key, packet::max_classes - 1))
        bits |= 1U << each;
    return static_cast<std::uint8_t>(bits);
}

std::size_t Section::choice(std::string_view key, std::size_t otherwise,
                            std::initializer_list<std::string_view> words) {
    const toml::node* node = find(key);
    if (node == nullptr) return otherwise;
    const auto* value = node->as_string();
    const auto* const found = value != nullptr ? std::ranges::find(words, value->get()) : words.end();
    if (found == words.end()) {
        std::string allowed;
        for (const std::string_view word : words)
            allowed += (allowed.empty() ? "" : ", ") + std::string(word);
        reject(key, *node, allowed);
        return otherwise;
    }
    return static_cast<std::size_t>(found - words.begin());
}

Section Section::section(std::string_view key) {
    const toml::node* node = find(key);
    const toml::table* table = node != nullptr ? node->as_table() : nullptr;
    if (node != nullptr && table == nullptr) reject(key, *node, "a table");
    return {problems_, full(key), table};
}

std::vector<Section> Section::sections(std::string_view key) {
    std::vector<Section> found;
    const toml::node* node = find(key);
    if (node == nullptr) return found;
    const toml::array* list = node->as_array();
    for (std::size_t i = 0; list != nullptr && i < list->size(); ++i) {
        const toml::table* table = (*list)[i].as_table();
        if (table == nullptr) {
            list = nullptr;
            break;
        }
        found.emplace_back(problems_, full(key) + "[" + std::to_string(i) + "]", table);
    }
    if (list == nullptr) reject(key, *node, "tables, each begun with [[" + full(key) + "]]");
    return found;
}

std::vector<std::pair<std::string, Section>> Section::named_sections(std::string_view key) {
    std::vector<std::pair<std::string, Section>> found;
    const toml::node* node = find(key);
    if (node == nullptr) return found;
    const toml::table* table = node->as_table();
    if (table == nullptr) {
        reject(key, *node, "tables, each begun with [" + full(key) + ".NAME]");
        return found;
    }
    for (const auto& [name, inner] : *table) {
        const std::string word(name.str());
        if (inner.as_table() == nullptr) {
            problems_.add(&inner, full(key) + "." + word + " = " + as_written(inner) +
                                      ": not allowed; allowed: a table, begun with [" + full(key) + ".NAME]");
            continue;
        }
        found.emplace_back(word, Section(problems_, full(key) + "." + word, inner.as_table()));
    }
    return found;
}

void Section::finish() {
    if (table_ == nullptr) return;
    for (const auto& [name, node] : *table_) {
        if (known_.contains(name.str())) continue;
        std::string known;
        for (const std::string& each : known_)
            known += (known.empty() ? "" : ", ") + each;
        problems_.add(&node, full(name.str()) + ": there is no such key; known here: " + known);
    }
}

}  // namespace incast::sim::fabric

// One table of a fabric file: typed values with units, and one clear line for what is wrong. The first error counts;
// whoever reads goes on with defaults and asks at the end.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <toml++/toml.h>

#include <incast/result.h>
#include <incast/transport.h>

#include "sim/packet/types.h"

namespace incast::sim::fabric {

/// What all sections of a file share.
struct Problems {
    std::string file;
    std::optional<Error> first;

    /// `where`: a position in the file, or nullptr.
    void add(const toml::node* where, const std::string& text);
};

class Section {
public:
    /// `path`: "switches.leaf". `table` may be nullptr: all defaults.
    Section(Problems& problems, std::string path, const toml::table* table)
        : problems_(problems), path_(std::move(path)), table_(table) {}

    [[nodiscard]] const std::string& path() const { return path_; }
    [[nodiscard]] bool has(std::string_view key) const { return table_ != nullptr && table_->contains(key); }
    /// An error at `key` of this section, or at the section.
    void fail(std::string_view key, const std::string& text);

    std::string text(std::string_view key, std::string_view otherwise);
    bool flag(std::string_view key, bool otherwise);
    std::uint64_t count(std::string_view key, std::uint64_t otherwise, std::uint64_t least, std::uint64_t most);
    /// "64KiB": with a unit.
    std::uint64_t bytes(std::string_view key, std::uint64_t otherwise, std::uint64_t least, std::uint64_t most);
    /// "1.5us": with a unit; 0 to an hour.
    Time time(std::string_view key, Time otherwise);
    /// "100Gb/s": with a unit; 1 Mb/s to 100 Tb/s. `none` allows "none", which is rate 0.
    packet::Rate rate(std::string_view key, packet::Rate otherwise, bool none = false);
    /// A share of 1, as parts per million.
    std::uint32_t per_million(std::string_view key, std::uint32_t otherwise);
    /// A list of class numbers, as bits.
    std::uint8_t classes(std::string_view key, std::uint8_t otherwise);
    /// The place of the word among the allowed ones.
    std::size_t choice(std::string_view key, std::size_t otherwise, std::initializer_list<std::string_view> words);
    /// A list of whole numbers, each at most `most`.
    std::vector<std::uint64_t> counts(std::string_view key, std::uint64_t most);
    Section section(std::string_view key);
    /// The tables of an array of tables.
    std::vector<Section> sections(std::string_view key);
    /// The tables in a table, by name and in the order of their names.
    std::vector<std::pair<std::string, Section>> named_sections(std::string_view key);

    /// Errs for every key that nobody asked for.
    void finish();

private:
    const toml::node* find(std::string_view key);
    [[nodiscard]] std::string full(std::string_view key) const;
    void reject(std::string_view key, const toml::node& node, std::string_view allowed);

    Problems& problems_;
    std::string path_;
    const toml::table* table_;
    std::set<std::string, std::less<>> known_;
};

}  // namespace incast::sim::fabric

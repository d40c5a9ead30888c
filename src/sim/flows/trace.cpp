#include "sim/flows/trace.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <fstream>
#include <optional>
#include <string_view>
#include <system_error>
#include <unordered_map>

#include "base/units.h"
#include "base/utf8.h"

namespace incast::sim::flows {
namespace {

using packet::HostIndex;

constexpr std::size_t longest_line = 4096;
constexpr std::string_view blank = " \t\r";

std::string_view stripped(std::string_view text) {
    const std::size_t first = text.find_first_not_of(blank);
    if (first == std::string_view::npos) return {};
    text = text.substr(first, text.find_last_not_of(blank) - first + 1);
    if (text.size() >= 2 && text.front() == '"' && text.back() == '"') text = text.substr(1, text.size() - 2);
    return text;
}

template <class Number>
std::optional<Number> number_in(std::string_view text) {
    Number value{};
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc{} || end != text.data() + text.size()) return {};
    return value;
}

/// Which column a word of the first line names.
enum Column : std::uint8_t { start, source, destination, bytes, traffic_class, columns, other = columns };
constexpr std::string_view column_names[columns]{"start", "source", "destination", "bytes", "class"};

struct StartUnit {
    std::string_view name;
    Time ps;  // 0: written with its unit
};
constexpr StartUnit start_units[]{
    {"start", 0},         {"start_ps", 1}, {"start_ns", ps_per_ns}, {"start_us", ps_per_us}, {"start_ms", ps_per_ms},
    {"start_s", ps_per_s}};

class Reader {
public:
    Reader(std::istream& in, const std::string& file, const fabric::Fabric& fabric)
        : in_(in), file_(file), fabric_(fabric) {
        for (const auto& node : fabric.topology.nodes)
            if (node.is_host) hosts_.emplace(node.name, static_cast<HostIndex>(hosts_.size()));
    }

    Result<std::vector<Flow>> read();

private:
    using Words = std::vector<std::string_view>;

    bool next_line();
    void split(char separator);
    void read_columns();
    void read_row();
    void read_matrix();
    void read_connection();
    [[nodiscard]] std::uint64_t header_number();
    void add(const Flow& flow);

    Time start_time(std::string_view text, Time unit);
    HostIndex host(std::string_view column, std::string_view text);
    std::uint64_t size(std::string_view column, std::string_view text);

    /// The first is the one that counts.
    void fail(const std::string& what) {
        if (!error_) error_ = Error{file_ + ":" + std::to_string(line_number_) + ": " + what};
    }
    void fail(std::string_view column, std::string_view value, const std::string& what) {
        const std::string text(value.substr(0, 60));
        fail(std::string(column) + " = '" + (base::is_utf8(text) ? text : base::shown(text)) + "': " + what);
    }

    std::istream& in_;
    const std::string& file_;
    const fabric::Fabric& fabric_;
    std::unordered_map<std::string, HostIndex> hosts_;
    std::string line_;
    std::uint64_t line_number_ = 0;
    Words words_;
    std::array<std::size_t, columns> column_{};  // where each is
    std::size_t column_count_ = 0;
    bool has_class_ = false;
    Time start_unit_ = 0;
    std::vector<Flow> flows_;
    std::optional<Error> error_;
};

/// One that says something. False: there is none, or too long a one.
bool Reader::next_line() {
    while (!error_) {
        line_.clear();
        ++line_number_;
        int letter = in_.get();
        for (; letter != std::istream::traits_type::eof() && letter != '\n'; letter = in_.get()) {
            if (letter == 0 || line_.size() >= longest_line) {
                fail(letter == 0 ? "a byte of 0: no text; allowed: CSV, or a connection matrix of htsim"
                                 : "longer than " + std::to_string(longest_line) +
                                       " bytes; allowed: CSV, or a connection matrix of htsim");
                return false;
            }
            line_ += static_cast<char>(letter);
        }
        if (line_number_ == 1 && line_.starts_with("\xef\xbb\xbf")) line_.erase(0, 3);
        const std::string_view said = stripped(line_);
        if (!said.empty() && said.front() != '#') return true;
        if (letter == std::istream::traits_type::eof()) return false;
    }
    return false;
}

void Reader::split(char separator) {
    words_.clear();
    std::string_view rest = line_;
    for (;;) {
        const std::size_t end = rest.find(separator);
        const std::string_view word = stripped(rest.substr(0, end));
        if (separator != ' ' || !word.empty()) words_.push_back(word);
        if (end == std::string_view::npos) return;
        rest.remove_prefix(end + 1);
    }
}

void Reader::read_columns() {
    split(',');
    column_.fill(words_.size());
    column_count_ = words_.size();
    for (std::size_t index = 0; index < words_.size(); ++index) {
        const std::string_view word = words_[index];
        const auto* const unit = std::ranges::find(start_units, word, &StartUnit::name);
        const auto named = unit != std::end(start_units)
                               ? start
                               : static_cast<Column>(std::ranges::find(column_names, word) - column_names);
        if (named == other) continue;
        if (column_[named] != words_.size()) fail("two columns of the name " + std::string(column_names[named]));
        column_[named] = index;
        if (named == start) start_unit_ = unit->ps;
    }
    has_class_ = column_[traffic_class] != words_.size();
    for (const Column needed : {start, source, destination, bytes})
        if (column_[needed] == words_.size())
            fail("no column '" + std::string(column_names[needed]) +
                 "'; allowed: CSV whose first line names start, source, destination, bytes and class, or a connection "
                 "matrix of htsim");
}

Time Reader::start_time(std::string_view text, Time unit) {
    constexpr const char* allowed = "allowed: a time from 0 to 500000 s, from the beginning of the simulation";
    Time found = -1;
    if (unit == 0) {
        if (const Result<Time> time = base::parse_duration(text)) found = *time;
    } else if (const auto whole = number_in<std::int64_t>(text)) {
        if (*whole >= 0 && *whole <= last_start / unit) found = *whole * unit;
    } else if (const auto number = number_in<double>(text); number && *number >= 0) {
        const double time = *number * static_cast<double>(unit);
        if (time <= static_cast<double>(last_start)) found = std::llround(time);
    }
    if (found < 0 || found > last_start) {
        fail("start", text, allowed);
        return 0;
    }
    return found;
}

HostIndex Reader::host(std::string_view column, std::string_view text) {
    if (const auto named = hosts_.find(std::string(text)); named != hosts_.end()) return named->second;
    if (const auto number = number_in<HostIndex>(text); number && *number < hosts_.size()) return *number;
    const auto first = std::ranges::find(fabric_.topology.nodes, true, &packet::Topology::Node::is_host);
    fail(column, text,
         "no host of fabric '" + fabric_.name + "'; allowed: 0 to " + std::to_string(hosts_.size() - 1) +
             ", or a name such as " + first->name);
    return 0;
}

std::uint64_t Reader::size(std::string_view column, std::string_view text) {
    const auto plain = number_in<std::uint64_t>(text);
    const Result<std::uint64_t> found = plain ? Result<std::uint64_t>(*plain) : base::parse_bytes(text);
    if (!found || *found == 0 || *found > most_bytes) {
        fail(column, text, "allowed: 1 to 2^40 bytes");
        return 1;
    }
    return *found;
}

void Reader::add(const Flow& flow) {
    if (flow.source == flow.destination)
        fail("from host " + std::to_string(flow.source) + " to itself; allowed: two different hosts");
    if (flows_.size() == most_flows) fail("one flow too many; allowed: " + std::to_string(most_flows));
    flows_.push_back(flow);
}

void Reader::read_row() {
    split(',');
    if (words_.size() != column_count_) {
        fail(std::to_string(words_.size()) + " fields; allowed: " + std::to_string(column_count_) +
             ", as in the first line");
        return;
    }
    Flow flow;
    flow.start = start_time(words_[column_[start]], start_unit_);
    flow.source = host("source", words_[column_[source]]);
    flow.destination = host("destination", words_[column_[destination]]);
    flow.bytes = size("bytes", words_[column_[bytes]]);
    flow.traffic_class = fabric_.flow.traffic_class;
    if (has_class_) {
        const std::string_view text = words_[column_[traffic_class]];
        const auto number = number_in<std::uint8_t>(text);
        if (!number || *number >= packet::max_classes) fail("class", text, "allowed: 0 to 7");
        flow.traffic_class = number.value_or(0);
    }
    add(flow);
}

/// Of "Nodes 128".
std::uint64_t Reader::header_number() {
    const auto number = words_.size() == 2 ? number_in<std::uint64_t>(words_[1]) : std::nullopt;
    if (!number) fail(std::string(words_[0]) + ": allowed: one whole number");
    return number.value_or(0);
}

void Reader::read_connection() {
    Flow flow;
    flow.traffic_class = fabric_.flow.traffic_class;
    const std::size_t arrow = words_[0].find("->");
    flow.source = host("source", words_[0].substr(0, arrow));
    flow.destination = host("destination", words_[0].substr(arrow + 2));
    bool started = false;
    for (std::size_t index = 1; index < words_.size(); index += 2) {
        const std::string_view key = words_[index];
        const std::string_view value = index + 1 < words_.size() ? words_[index + 1] : std::string_view();
        if (key == "start") {
            flow.start = start_time(value, 1);
            started = true;
        } else if (key == "size") {
            flow.bytes = size(key, value);
        } else if (key != "id" && key != "prio") {
            fail(key, value, "allowed: id, start, size and prio, as flows that wait for others are not simulated");
        }
    }
    if (!started) fail("no start; allowed: 'start' and a time in picoseconds");
    if (flow.bytes == 0) fail("no size; allowed: 'size' and a number of bytes");
    add(flow);
}

void Reader::read_matrix() {
    std::optional<std::uint64_t> connections;
    std::uint64_t connections_line = 0;
    do {
        split(' ');
        if (words_[0].find("->") != std::string_view::npos) {
            read_connection();
        } else if (words_[0] == "Nodes") {
            if (const std::uint64_t nodes = header_number(); nodes > hosts_.size())
                fail("Nodes " + std::to_string(nodes) + ": fabric '" + fabric_.name + "' has " +
                     std::to_string(hosts_.size()) + " hosts");
        } else if (words_[0] == "Connections") {
            connections = header_number();
            connections_line = line_number_;
        } else if ((words_[0] != "Triggers" && words_[0] != "Failures") || header_number() != 0) {
            fail(words_[0], words_.size() > 1 ? words_[1] : "",
                 "allowed: Nodes, Connections and lines such as '0->5 start 0 size 2000000'; triggers are not "
                 "simulated, and failures are faults of the fabric");
        }
    } while (next_line());
    if (connections && *connections != flows_.size()) {
        line_number_ = connections_line;
        fail("Connections " + std::to_string(*connections) + ": there are " + std::to_string(flows_.size()));
    }
}

Result<std::vector<Flow>> Reader::read() {
    if (next_line()) {
        const std::string_view said = stripped(line_);
        if (said.starts_with("Nodes") || said.starts_with("Connections")) {
            read_matrix();
        } else {
            read_columns();
            while (next_line())
                read_row();
        }
    }
    if (in_.bad()) fail("cannot be read");
    if (!error_ && flows_.empty()) error_ = Error{file_ + ": no flows; allowed: at least one"};
    if (error_) return *error_;
    return std::move(flows_);
}

}  // namespace

Result<std::vector<Flow>> parse_flows(std::istream& in, const std::string& name, const fabric::Fabric& fabric) {
    return Reader(in, name, fabric).read();
}

Result<std::vector<Flow>> read_flows(const std::filesystem::path& file, const std::string& name,
                                     const fabric::Fabric& fabric) {
    std::ifstream in(file);
    if (!in || std::filesystem::is_directory(file)) return Error{name + ": cannot be read; allowed: a file of flows"};
    return parse_flows(in, name, fabric);
}

}  // namespace incast::sim::flows

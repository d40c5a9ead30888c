#include "runtime/sources/recorded_shapes.h"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <fstream>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>
#include <system_error>

#include <fmt/format.h>
#include <toml++/toml.h>

namespace incast::sources {
namespace {

constexpr double most_bytes = 268435456;
constexpr std::size_t most_gaps = 50'000'000;  // 400 MB

Error bad_file(const std::filesystem::path& file, std::string_view why) {
    return Error{fmt::format("{}: {}", file.string(), why)};
}

std::string_view trimmed(std::string_view text) {
    constexpr std::string_view blank = " \t\r";
    const std::size_t first = text.find_first_not_of(blank);
    return first == std::string_view::npos ? std::string_view{}
                                           : text.substr(first, text.find_last_not_of(blank) - first + 1);
}

std::optional<double> number_in(std::string_view text) {
    text = trimmed(text);
    double number = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    return error == std::errc{} && end == text.data() + text.size() && std::isfinite(number) ? std::optional(number)
                                                                                             : std::nullopt;
}

/// Lines that hold something, without comments, with their numbers.
template <class Each>
Result<Ok> each_line(const std::filesystem::path& file, Each&& each) {
    std::error_code code;
    if (std::filesystem::is_directory(file, code)) {
        return bad_file(file, "is a folder, not a file");
    }
    std::ifstream input(file);
    if (!input) {
        return bad_file(file, fmt::format("cannot be read: {}", std::generic_category().message(errno)));
    }
    std::size_t number = 0;
    for (std::string line; std::getline(input, line);) {
        ++number;
        const std::string_view content = trimmed(std::string_view(line).substr(0, line.find('#')));
        if (content.empty()) {
            continue;
        }
        if (Result<Ok> done = each(content, number); !done) {
            return bad_file(file, fmt::format("line {}: {}", number, done.error().message));
        }
    }
    return Ok{};
}

Result<std::shared_ptr<const SizeHistogram>> made(const std::filesystem::path& file, std::span<const double> edges,
                                                  std::span<const double> weights) {
    Result<SizeHistogram> histogram = SizeHistogram::make(edges, weights);
    if (!histogram) {
        return bad_file(file, histogram.error().message);
    }
    return std::shared_ptr<const SizeHistogram>(std::make_shared<SizeHistogram>(std::move(*histogram)));
}

Result<std::shared_ptr<const SizeHistogram>> read_csv(const std::filesystem::path& file) {
    std::vector<double> edges;
    std::vector<double> weights;
    bool begun = false;
    bool ended = false;
    const Result<Ok> read = each_line(file, [&](std::string_view line, std::size_t) -> Result<Ok> {
        const std::size_t comma = line.find(',');
        const std::optional<double> edge = number_in(line.substr(0, comma));
        if (!begun && !edge) {
            begun = true;  // the names of the columns
            return Ok{};
        }
        begun = true;
        if (ended) {
            return Error{"a line behind the one without a weight, which ends the last bin"};
        }
        const std::string_view rest = comma == std::string_view::npos ? "" : trimmed(line.substr(comma + 1));
        const std::optional<double> weight = number_in(rest);
        if (!edge || (!rest.empty() && !weight)) {
            return Error{fmt::format("'{}', expected the lower edge of a bin in bytes, a comma and its weight", line)};
        }
        edges.push_back(*edge);
        if (weight) {
            weights.push_back(*weight);
        }
        ended = !weight;
        return Ok{};
    });
    if (!read) {
        return read.error();
    }
    if (!ended) {
        return bad_file(file, "the last line must hold an edge alone, which ends the last bin");
    }
    return made(file, edges, weights);
}

Result<std::vector<double>> numbers_of(const toml::table& table, std::string_view key) {
    const toml::array* array = table[key].as_array();
    if (array == nullptr) {
        return Error{fmt::format("'{}' must be a list of numbers", key)};
    }
    std::vector<double> numbers;
    for (const toml::node& node : *array) {
        const std::optional<double> number = node.value<double>();
        if (!number || !std::isfinite(*number)) {
            return Error{fmt::format("'{}' holds something that is no number", key)};
        }
        numbers.push_back(*number);
    }
    return numbers;
}

Result<std::shared_ptr<const SizeHistogram>> read_toml(const std::filesystem::path& file) {
    const std::ifstream input(file);
    if (!input) {
        return bad_file(file, fmt::format("cannot be read: {}", std::generic_category().message(errno)));
    }
    std::ostringstream content;
    content << input.rdbuf();
    try {
        const toml::table table = toml::parse(content.str());
        const Result<std::vector<double>> edges = numbers_of(table, "edges");
        if (!edges) {
            return bad_file(file, edges.error().message);
        }
        const Result<std::vector<double>> weights = numbers_of(table, "weights");
        if (!weights) {
            return bad_file(file, weights.error().message);
        }
        return made(file, *edges, *weights);
    } catch (const toml::parse_error& error) {
        return bad_file(file, fmt::format("line {}: not TOML: {}", error.source().begin.line, error.description()));
    }
}

}  // namespace

Result<SizeHistogram> SizeHistogram::make(std::span<const double> edges, std::span<const double> weights) {
    if (weights.empty() || weights.size() > most_bins || edges.size() != weights.size() + 1) {
        return Error{fmt::format("{} edges and {} weights, expected 1 .. {} weights and one edge more", edges.size(),
                                 weights.size(), most_bins)};
    }
    for (std::size_t index = 0; index < edges.size(); ++index) {
        if (!(edges[index] >= 0 && edges[index] <= most_bytes) || (index > 0 && edges[index] <= edges[index - 1])) {
            return Error{fmt::format("edge {}, expected edges of 0 .. {} bytes that ascend", edges[index], most_bytes)};
        }
    }
    double sum = 0;
    for (const double weight : weights) {
        if (!(weight >= 0 && weight <= 1e300 / static_cast<double>(most_bins))) {
            return Error{fmt::format("weight {}, expected 0 or more", weight)};
        }
        sum += weight;
    }
    if (!(sum > 0)) {
        return Error{"all weights are 0"};
    }
    return SizeHistogram(edges, weights);
}

SizeHistogram::SizeHistogram(std::span<const double> edges, std::span<const double> weights)
    : edges_(edges.begin(), edges.end()) {
    double sum = 0;
    for (const double weight : weights) {
        sum += weight;
    }
    double before = 0;
    double squares = 0;
    for (std::size_t bin = 0; bin < weights.size(); ++bin) {
        below_.push_back(before / sum);
        before += weights[bin];
        const double low = edges_[bin];
        const double high = edges_[bin + 1];
        const double part = weights[bin] / sum;
        mean_ += part * (low + high) / 2;
        squares += part * (low * low + low * high + high * high) / 3;
    }
    sigma_ = std::sqrt(std::max(squares - mean_ * mean_, 0.0));
    below_.push_back(1);
}

double SizeHistogram::quantile(double p) const {
    // The last bin that begins at or below p; bins without weight begin where the next one does, and are passed over.
    const auto behind = std::ranges::upper_bound(below_.begin(), below_.end() - 1, p);
    const auto bin = static_cast<std::size_t>(behind - below_.begin()) - 1;
    const double width = below_[bin + 1] - below_[bin];
    const double part = width > 0 ? std::min((p - below_[bin]) / width, 1.0) : 0.0;
    return edges_[bin] + (edges_[bin + 1] - edges_[bin]) * part;
}

Result<std::shared_ptr<const SizeHistogram>> read_size_histogram(const std::filesystem::path& file) {
    return file.extension() == ".toml" ? read_toml(file) : read_csv(file);
}

Result<ArrivalTrace> read_arrival_trace(const std::filesystem::path& file) {
    std::vector<double> gaps;
    double sum = 0;
    const Result<Ok> read = each_line(file, [&](std::string_view line, std::size_t) -> Result<Ok> {
        const std::optional<double> gap = number_in(line);
        if (!gap || !(*gap >= 0 && *gap <= 3.6e12)) {
            return Error{fmt::format("'{}', expected a number of nanoseconds, 0 .. 3.6e12", line)};
        }
        if (gaps.size() == most_gaps) {
            return Error{fmt::format("more than {} gaps", most_gaps)};
        }
        gaps.push_back(*gap);
        sum += *gap;
        return Ok{};
    });
    if (!read) {
        return read.error();
    }
    if (!(sum > 0)) {
        return bad_file(file, "no gap above 0 ns");
    }
    const double mean_ns = sum / static_cast<double>(gaps.size());
    for (double& gap : gaps) {
        gap /= mean_ns;
    }
    return ArrivalTrace{std::make_shared<const std::vector<double>>(std::move(gaps)), 1e9 / mean_ns};
}

}  // namespace incast::sources

// Fragment sizes and trigger times as somebody measured them, from files (docs/formats.md).
#pragma once

#include <filesystem>
#include <memory>
#include <span>
#include <vector>

#include <incast/result.h>

namespace incast::sources {

class SizeHistogram {
public:
    static constexpr std::size_t most_bins = 65536;

    /// One more edge than weights. Errors: edges that do not ascend or are not 0 .. 268435456 bytes, weights that are
    /// negative or all 0.
    static Result<SizeHistogram> make(std::span<const double> edges, std::span<const double> weights);

    /// Inverse distribution function, 0 < p < 1: the bin by its weight, evenly within the bin.
    [[nodiscard]] double quantile(double p) const;
    [[nodiscard]] double mean() const { return mean_; }
    [[nodiscard]] double sigma() const { return sigma_; }
    [[nodiscard]] double largest() const { return edges_.back(); }

private:
    SizeHistogram(std::span<const double> edges, std::span<const double> weights);
    std::vector<double> edges_;
    std::vector<double> below_;  // by bin: the part of the weight in the bins before it
    double mean_ = 0;
    double sigma_ = 0;
};

/// A file whose name ends in .toml is TOML, any other CSV. Errors name the file, the line where there is one, and what
/// is wrong.
Result<std::shared_ptr<const SizeHistogram>> read_size_histogram(const std::filesystem::path& file);

/// Gaps between triggers, one number per line in nanoseconds (docs/formats.md), as multiples of their mean.
struct ArrivalTrace {
    std::shared_ptr<const std::vector<double>> gaps;
    double rate_hz = 0;  // of the recording
};
Result<ArrivalTrace> read_arrival_trace(const std::filesystem::path& file);

}  // namespace incast::sources

// Fragment sizes as a pure function of (seed, source, event), so that whoever builds an event knows what its sources
// must have sent.
//
// One 64-bit draw per fragment: splitmix64 (Steele, Lea, Flood 2014) used as a counter, so any event can be had without
// those before it. The draw, as a number p in (0, 1), goes through the inverse distribution function:
//   normal       mean + sigma z(p), z by AS 241 (portable_math.h)
//   log-normal   exp(mu + s z(p)) with s^2 = ln(1 + (sigma/mean)^2), mu = ln(mean) - s^2/2: mean and sigma are those of
//   the sizes themselves exponential  -mean ln(1 - p)
// then is rounded to the nearest byte and clamped to [min, max]. Clamping moves the mean; goodput counts what was
// really sent. Between 1024 equidistant p the inverse is a straight line, in the two outermost cells it is exact: the
// tails are not cut. A histogram is inverted exactly: within a bin all sizes are alike.
//
// Correlated sources (EB-M7): z = sqrt(c) z(event) + sqrt(1 - c) z(source, event) is a standard normal number again,
// and c is the correlation of those of two sources; p = P(Z <= z) then goes the same way. For a normal distribution c
// is the correlation of the sizes, for others nearly so. The factor of an event is drawn once per `correlated_events`
// events: what many consecutive events have in common is not averaged away by packing either.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include <incast/result.h>

#include "base/prng.h"
#include "runtime/sources/recorded_shapes.h"

namespace incast::sources {

/// splitmix64 as a counter: draw `index` of the stream that `key` names.
constexpr std::uint64_t draw_at(std::uint64_t key, std::uint64_t index) {
    return base::mix64(key + index * 0x9e3779b97f4a7c15ULL);
}

enum class Distribution : std::uint8_t { fixed, normal, log_normal, exponential, histogram };

/// Turns uniform 64-bit draws into numbers of one distribution.
class QuantileTable {
public:
    /// mean > 0; sigma > 0 matters to normal and log_normal only, and `histogram` to the distribution of that name.
    QuantileTable(Distribution distribution, double mean, double sigma,
                  std::shared_ptr<const SizeHistogram> histogram = nullptr);

    /// p = (the draw's upper 52 bits + 1/2) / 2^52: never 0 or 1.
    [[nodiscard]] double operator()(std::uint64_t draw) const {
        const std::size_t cell = draw >> (64 - cell_bits);
        if (cell == 0 || cell == cells - 1 || histogram_ != nullptr) {
            return exact((static_cast<double>(draw >> 12) + 0.5) * 0x1.0p-52);
        }
        const double part = static_cast<double>((draw << cell_bits) >> 11) * 0x1.0p-53;
        return edges_[cell] + (edges_[cell + 1] - edges_[cell]) * part;
    }

    /// The inverse distribution function itself, 0 < p < 1.
    [[nodiscard]] double exact(double p) const;
    /// What a standard normal number becomes: exact(P(Z <= z)).
    [[nodiscard]] double of_normal(double z) const;

private:
    static constexpr int cell_bits = 10;
    static constexpr std::size_t cells = std::size_t{1} << cell_bits;
    Distribution distribution_;
    double mean_;
    double sigma_;         // normal: of the value; log-normal: of its logarithm
    double log_mean_ = 0;  // log-normal: mu
    std::shared_ptr<const SizeHistogram> histogram_;
    std::array<double, cells + 1> edges_{};  // at p = k / cells; the two ends are never used
};

struct SizeOptions {
    Distribution distribution = Distribution::fixed;
    double mean_bytes = 1024;
    double sigma_bytes = 0;  // normal and log-normal
    std::uint32_t min_bytes = 0;
    std::uint32_t max_bytes = 65535;                   // above it: the wide MFP (EB-S1)
    std::shared_ptr<const SizeHistogram> histogram{};  // of that distribution; mean and sigma are its own
    double correlation = 0;                            // 0 .. 1, of the sources of an event
    std::uint64_t correlated_events = 1;               // consecutive events with one common factor
    std::uint32_t n_sources = 1;                       // ids 0 .. n_sources - 1, where means differ
    double mean_ratio = 1;  // largest mean over the smallest, geometric over the sources; their mean is mean_bytes
    double hot_factor = 1;  // of the hot source's mean and spread, on top of that
    std::uint32_t hot_source = 0;
};

/// By what the sizes of each source are multiplied; empty if all means are the same.
[[nodiscard]] std::vector<double> size_factors(const SizeOptions& options);

class FragmentSizes {
public:
    /// Errors name the value and the range: mean 0, sigma missing where it is needed, min above max.
    static Result<FragmentSizes> make(const SizeOptions& options, std::uint64_t seed);

    /// Sizes of the fragments of events first_event, first_event + 1, ...
    void fill(std::uint16_t source, std::uint64_t first_event, std::span<std::uint32_t> sizes) const;
    [[nodiscard]] std::uint32_t size(std::uint16_t source, std::uint64_t event) const {
        std::uint32_t one = 0;
        fill(source, event, {&one, 1});
        return one;
    }

    /// Every event has the same size in a source.
    [[nodiscard]] bool fixed() const { return options_.distribution == Distribution::fixed; }
    [[nodiscard]] std::uint32_t max_bytes() const { return options_.max_bytes; }

private:
    FragmentSizes(const SizeOptions& options, std::uint64_t seed);
    SizeOptions options_;
    std::uint64_t seed_;
    QuantileTable table_;
    QuantileTable normal_;         // standard
    double common_weight_ = 0;     // sqrt(c)
    double own_weight_ = 1;        // sqrt(1 - c)
    std::vector<double> factors_;  // by source id, where means differ
};

}  // namespace incast::sources

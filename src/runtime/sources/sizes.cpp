#include "runtime/sources/sizes.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include <fmt/format.h>

#include "runtime/sources/portable_math.h"

namespace incast::sources {

QuantileTable::QuantileTable(Distribution distribution, double mean, double sigma,
                             std::shared_ptr<const SizeHistogram> histogram)
    : distribution_(distribution), mean_(mean), sigma_(sigma), histogram_(std::move(histogram)) {
    if (distribution == Distribution::log_normal) {
        const double variance = portable_log(1 + (sigma / mean) * (sigma / mean));
        sigma_ = std::sqrt(variance);
        log_mean_ = portable_log(mean) - variance / 2;
    }
    for (std::size_t index = 1; index < cells; ++index) {
        edges_[index] = exact(static_cast<double>(index) / cells);
    }
}

double QuantileTable::exact(double p) const {
    switch (distribution_) {
        case Distribution::fixed:
            return mean_;
        case Distribution::normal:
            return mean_ + sigma_ * normal_quantile(p);
        case Distribution::log_normal:
            return portable_exp(log_mean_ + sigma_ * normal_quantile(p));
        case Distribution::exponential:
            return -mean_ * portable_log(1 - p);
        case Distribution::histogram:
            return histogram_->quantile(p);
    }
    return mean_;
}

double QuantileTable::of_normal(double z) const {
    switch (distribution_) {
        case Distribution::normal:
            return mean_ + sigma_ * z;
        case Distribution::log_normal:
            return portable_exp(log_mean_ + sigma_ * z);
        case Distribution::exponential:
            return -mean_ * portable_log(normal_probability(-z));  // 1 - P(Z <= z), without losing the tail
        default:
            return exact(normal_probability(z));
    }
}

std::vector<double> size_factors(const SizeOptions& options) {
    if (options.mean_ratio == 1 && options.hot_factor == 1) {
        return {};
    }
    const double log_step = options.n_sources > 1 ? portable_log(options.mean_ratio) / (options.n_sources - 1) : 0.0;
    std::vector<double> factors;
    double sum = 0;
    for (std::uint32_t source = 0; source < options.n_sources; ++source) {
        factors.push_back(portable_exp(log_step * source));
        sum += factors.back();
    }
    for (double& factor : factors) {
        factor *= options.n_sources / sum;
    }
    if (options.hot_source < options.n_sources) {
        factors[options.hot_source] *= options.hot_factor;
    }
    return factors;
}

Result<FragmentSizes> FragmentSizes::make(const SizeOptions& options, std::uint64_t seed) {
    const bool has_sigma =
        options.distribution == Distribution::normal || options.distribution == Distribution::log_normal;
    // Fixed sizes may be 0: empty fragments only. A distribution needs a mean.
    const double least_mean = options.distribution == Distribution::fixed ? 0 : 1;
    if (!(options.mean_bytes >= least_mean && options.mean_bytes <= 4294967295.0)) {
        return Error{
            fmt::format("fragment size: mean of {} bytes, expected {} .. 4294967295", options.mean_bytes, least_mean)};
    }
    // Beyond 1000 times the mean a log-normal is no size any more.
    if (has_sigma && !(options.sigma_bytes > 0 && options.sigma_bytes <= 1000 * options.mean_bytes)) {
        return Error{
            fmt::format("fragment size: sigma of {} bytes, expected more than 0 and at most 1000 times the mean",
                        options.sigma_bytes)};
    }
    if (options.distribution == Distribution::histogram && options.histogram == nullptr) {
        return Error{"fragment size: no histogram"};
    }
    if (!(options.correlation >= 0 && options.correlation <= 1) || options.correlated_events == 0) {
        return Error{fmt::format("fragment size: correlation {} over {} events, expected 0 .. 1 over at least 1",
                                 options.correlation, options.correlated_events)};
    }
    if (!(options.mean_ratio >= 1 && options.mean_ratio <= 1e6) || !(options.hot_factor > 0) ||
        options.hot_source >= std::max(options.n_sources, 1U)) {
        return Error{fmt::format(
            "fragment size: means over a ratio of {}, source {} of {} by {}, expected a ratio of 1 .. 1e6, a source "
            "there is and a factor above 0",
            options.mean_ratio, options.hot_source, options.n_sources, options.hot_factor)};
    }
    if (options.min_bytes > options.max_bytes) {
        return Error{
            fmt::format("fragment size: min of {} bytes is above max of {}", options.min_bytes, options.max_bytes)};
    }
    if (options.distribution == Distribution::fixed &&
        !(options.mean_bytes >= options.min_bytes && options.mean_bytes <= options.max_bytes)) {
        return Error{fmt::format("fragment size: fixed at {} bytes, expected {} .. {}", options.mean_bytes,
                                 options.min_bytes, options.max_bytes)};
    }
    return FragmentSizes(options, seed);
}

FragmentSizes::FragmentSizes(const SizeOptions& options, std::uint64_t seed)
    : options_(options),
      seed_(seed),
      table_(options.distribution, options.mean_bytes, options.sigma_bytes, options.histogram),
      normal_(Distribution::normal, 0, 1),
      common_weight_(std::sqrt(options.correlation)),
      own_weight_(std::sqrt(1 - options.correlation)),
      factors_(size_factors(options)) {}

void FragmentSizes::fill(std::uint16_t source, std::uint64_t first_event, std::span<std::uint32_t> sizes) const {
    const double factor = source < factors_.size() ? factors_[source] : 1.0;
    if (options_.distribution == Distribution::fixed) {
        const double size = std::min(options_.mean_bytes * factor, static_cast<double>(options_.max_bytes));
        std::ranges::fill(sizes, static_cast<std::uint32_t>(nearest(size)));
        return;
    }
    const std::uint64_t key = base::mix64(base::mix64(seed_) + source);
    // Of no source: ids end at 65535.
    const std::uint64_t common_key = base::mix64(base::mix64(seed_) + (std::uint64_t{1} << 32U));
    const double low = options_.min_bytes;
    const double high = options_.max_bytes;
    for (std::size_t index = 0; index < sizes.size(); ++index) {
        const std::uint64_t event = first_event + index;
        double value = 0;
        if (common_weight_ > 0) {
            const double common = normal_(draw_at(common_key, event / options_.correlated_events));
            value = table_.of_normal(common_weight_ * common + own_weight_ * normal_(draw_at(key, event)));
        } else {
            value = table_(draw_at(key, event));
        }
        // Clamped first: the conversion of a double out of range would be undefined.
        sizes[index] = static_cast<std::uint32_t>(nearest(std::min(std::max(value * factor, low), high)));
    }
}

}  // namespace incast::sources

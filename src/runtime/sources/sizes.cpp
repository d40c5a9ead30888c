#include "runtime/sources/sizes.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "runtime/sources/portable_math.h"

namespace incast::sources {

QuantileTable::QuantileTable(Distribution distribution, double mean, double sigma)
    : distribution_(distribution), mean_(mean), sigma_(sigma) {
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
    }
    return mean_;
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
    : options_(options), seed_(seed), table_(options.distribution, options.mean_bytes, options.sigma_bytes) {}

void FragmentSizes::fill(std::uint16_t source, std::uint64_t first_event, std::span<std::uint32_t> sizes) const {
    if (options_.distribution == Distribution::fixed) {
        std::ranges::fill(sizes, static_cast<std::uint32_t>(nearest(options_.mean_bytes)));
        return;
    }
    const std::uint64_t key = base::mix64(base::mix64(seed_) + source);
    const double low = options_.min_bytes;
    const double high = options_.max_bytes;
    for (std::size_t index = 0; index < sizes.size(); ++index) {
        const double value = table_(draw_at(key, first_event + index));
        // Clamped first: the conversion of a double out of range would be undefined.
        sizes[index] = static_cast<std::uint32_t>(nearest(std::min(std::max(value, low), high)));
    }
}

}  // namespace incast::sources

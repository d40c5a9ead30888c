// A histogram of durations or sizes with bounded relative error and no allocation when recording.
// Buckets are log-linear, as in HdrHistogram (Tene): 32 per power of two, so a quantile is at most 3.2 % off.
#pragma once

#include <array>
#include <bit>
#include <cstdint>

namespace incast::base {

class Histogram {
public:
    void record(std::uint64_t value, std::uint64_t times = 1) {
        counts_[bucket(value)] += times;
        count_ += times;
        if (value > max_) {
            max_ = value;
        }
        if (value < min_) {
            min_ = value;
        }
    }

    void merge(const Histogram& other) {
        for (std::size_t index = 0; index < counts_.size(); ++index) {
            counts_[index] += other.counts_[index];
        }
        count_ += other.count_;
        max_ = other.max_ > max_ ? other.max_ : max_;
        min_ = other.min_ < min_ ? other.min_ : min_;
    }

    void clear() { *this = Histogram{}; }

    [[nodiscard]] std::uint64_t count() const { return count_; }
    [[nodiscard]] std::uint64_t max() const { return max_; }
    /// 0 if empty. Of what add_bucket() put back: the lower edge of its bucket.
    [[nodiscard]] std::uint64_t min() const { return count_ == 0 ? 0 : min_; }

    /// The upper edge of the bucket that holds the q-quantile (0 < q <= 1), never above max(); 0 if empty.
    [[nodiscard]] std::uint64_t quantile(double q) const {
        const auto wanted = static_cast<std::uint64_t>(q * static_cast<double>(count_) + 0.999999);
        std::uint64_t seen = 0;
        for (std::size_t index = 0; index < counts_.size(); ++index) {
            seen += counts_[index];
            if (seen >= wanted && seen > 0) {
                const std::uint64_t edge = upper_edge(index);
                return edge < max_ ? edge : max_;
            }
        }
        return max_;
    }

    static constexpr std::size_t buckets = std::size_t{32} * 60;
    /// Raw counts, to send a histogram to the coordinator.
    [[nodiscard]] const std::array<std::uint64_t, buckets>& counts() const { return counts_; }
    /// Puts counts back that `counts()` gave (index below `buckets`), with the maximum they came with.
    void add_bucket(std::size_t index, std::uint64_t times, std::uint64_t max) {
        counts_[index] += times;
        count_ += times;
        max_ = max > max_ ? max : max_;
        const std::uint64_t low = index == 0 ? 0 : upper_edge(index - 1) + 1;
        min_ = times > 0 && low < min_ ? low : min_;
    }

private:
    static std::size_t bucket(std::uint64_t value) {
        if (value < 32) {
            return static_cast<std::size_t>(value);
        }
        const int exponent = static_cast<int>(std::bit_width(value)) - 6;  // value >> exponent is in 32..63
        return static_cast<std::size_t>(exponent + 1) * 32 + static_cast<std::size_t>((value >> exponent) - 32);
    }
    static std::uint64_t upper_edge(std::size_t index) {
        if (index < 32) {
            return index;
        }
        const auto exponent = static_cast<unsigned>(index / 32 - 1);
        return ((static_cast<std::uint64_t>(index % 32 + 32) + 1) << exponent) - 1;
    }

    std::array<std::uint64_t, buckets> counts_{};
    std::uint64_t count_ = 0;
    std::uint64_t max_ = 0;
    std::uint64_t min_ = ~std::uint64_t{0};
};

}  // namespace incast::base

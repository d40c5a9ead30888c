#include "runtime/sources/sizes.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include <gtest/gtest.h>

#include "runtime/sources/portable_math.h"

namespace incast::sources {
namespace {

constexpr std::size_t many = 400'000;

FragmentSizes sizes_of(const SizeOptions& options, std::uint64_t seed = 11) {
    return FragmentSizes::make(options, seed).value();
}

struct Moments {
    double mean = 0;
    double sigma = 0;
};

Moments moments_of(const std::vector<std::uint32_t>& sizes) {
    double sum = 0;
    for (const std::uint32_t size : sizes) {
        sum += size;
    }
    const double mean = sum / static_cast<double>(sizes.size());
    double squares = 0;
    for (const std::uint32_t size : sizes) {
        squares += (size - mean) * (size - mean);
    }
    return {mean, std::sqrt(squares / static_cast<double>(sizes.size()))};
}

std::vector<std::uint32_t> drawn(const FragmentSizes& sizes, std::uint16_t source, std::size_t count) {
    std::vector<std::uint32_t> all(count);
    sizes.fill(source, 0, all);
    return all;
}

double fraction_below(const std::vector<std::uint32_t>& sizes, double limit) {
    const auto below = std::ranges::count_if(sizes, [&](std::uint32_t size) { return size < limit; });
    return static_cast<double>(below) / static_cast<double>(sizes.size());
}

TEST(PortableMath, AgreesWithTheLibrary) {
    for (double x = 1e-300; x < 1e300; x *= 1.7) {
        EXPECT_NEAR(portable_log(x), std::log(x), 1e-14 * std::max(1.0, std::fabs(std::log(x)))) << x;
    }
    for (double x = 0.5; x < 2; x += 0.001) {
        EXPECT_NEAR(portable_log(x), std::log(x), 1e-15) << x;
    }
    for (double x = -700; x <= 700; x += 0.37) {
        EXPECT_NEAR(portable_exp(x) / std::exp(x), 1, 1e-14) << x;
    }
}

TEST(PortableMath, NormalProbabilityAgreesWithTheLibrary) {
    for (double z = -9; z <= 9; z += 0.01) {
        EXPECT_NEAR(normal_probability(z) / (0.5 * std::erfc(-z / std::sqrt(2.0))), 1, 1e-7) << z;
    }
    for (double p = 1e-12; p < 1; p += p < 0.001 ? p : 0.001) {
        EXPECT_NEAR(normal_probability(normal_quantile(p)), p, 1e-13) << p;
    }
}

// P(Z <= z) by the library's complementary error function, another road to the same number.
TEST(PortableMath, NormalQuantileInvertsTheDistribution) {
    for (double p = 1e-15; p < 1; p += p < 0.001 ? p : 0.001) {
        const double z = normal_quantile(p);
        EXPECT_NEAR(0.5 * std::erfc(-z / std::sqrt(2.0)) / p, 1, 1e-12) << p;
    }
    EXPECT_EQ(normal_quantile(0.5), 0);
    EXPECT_NEAR(normal_quantile(0.975), 1.959963984540054, 1e-14);
    EXPECT_EQ(normal_quantile(0.25), -normal_quantile(0.75));
}

TEST(Sizes, FixedIsFixed) {
    const auto all = drawn(sizes_of({.mean_bytes = 1000}), 3, 1000);
    EXPECT_TRUE(std::ranges::all_of(all, [](std::uint32_t size) { return size == 1000; }));
}

TEST(Sizes, NormalHasItsMomentsAndTails) {
    const auto all =
        drawn(sizes_of({.distribution = Distribution::normal, .mean_bytes = 2000, .sigma_bytes = 300}), 1, many);
    const Moments found = moments_of(all);
    EXPECT_NEAR(found.mean, 2000, 4 * 300 / std::sqrt(many));
    EXPECT_NEAR(found.sigma, 300, 4 * 300 / std::sqrt(2.0 * many));
    for (const double z : {-3.0, -2.0, -1.0, 0.0, 1.0, 2.0, 3.0}) {
        const double expected = 0.5 * std::erfc(-z / std::sqrt(2.0));
        // Half a byte, because sizes are whole.
        EXPECT_NEAR(fraction_below(all, 2000 + 300 * z - 0.5), expected,
                    4 * std::sqrt(expected * (1 - expected) / many) + 0.001)
            << z;
    }
}

TEST(Sizes, LogNormalHasItsMomentsAndMedian) {
    const auto all =
        drawn(sizes_of({.distribution = Distribution::log_normal, .mean_bytes = 1000, .sigma_bytes = 500}), 1, many);
    const Moments found = moments_of(all);
    EXPECT_NEAR(found.mean, 1000, 4 * 500 / std::sqrt(many));
    EXPECT_NEAR(found.sigma, 500, 10);
    EXPECT_NEAR(fraction_below(all, 1000 / std::sqrt(1.25)), 0.5, 4 * std::sqrt(0.25 / many) + 0.001);
}

TEST(Sizes, ExponentialHasItsMomentsAndTail) {
    const auto all = drawn(sizes_of({.distribution = Distribution::exponential, .mean_bytes = 1500}), 1, many);
    const Moments found = moments_of(all);
    EXPECT_NEAR(found.mean, 1500, 4 * 1500 / std::sqrt(many));
    EXPECT_NEAR(found.sigma, 1500, 4 * 1500 * std::sqrt(2.0 / many));
    EXPECT_NEAR(1 - fraction_below(all, 5 * 1500), std::exp(-5), 4 * std::sqrt(std::exp(-5) / many));
    EXPECT_GT(*std::ranges::max_element(all), 1500 * 10U) << "the tail is cut";
}

TEST(Sizes, AreClampedToTheirRange) {
    const auto all = drawn(sizes_of({.distribution = Distribution::normal,
                                     .mean_bytes = 100,
                                     .sigma_bytes = 200,
                                     .min_bytes = 8,
                                     .max_bytes = 150}),
                           1, 10'000);
    EXPECT_EQ(*std::ranges::min_element(all), 8U);
    EXPECT_EQ(*std::ranges::max_element(all), 150U);
}

TEST(Sizes, EB_M7_DependOnSeedSourceAndEventAlone) {
    const SizeOptions options{.distribution = Distribution::normal, .mean_bytes = 5000, .sigma_bytes = 1000};
    const FragmentSizes sizes = sizes_of(options);
    const auto all = drawn(sizes, 4, 1000);
    for (std::uint64_t event = 0; event < 1000; ++event) {
        ASSERT_EQ(sizes.size(4, event), all[event]) << event;
    }
    EXPECT_EQ(drawn(sizes_of(options), 4, 1000), all);
    EXPECT_NE(drawn(sizes_of(options), 5, 1000), all);
    EXPECT_NE(drawn(sizes_of(options, 12), 4, 1000), all);
}

TEST(Sizes, OfDifferentSourcesAreNotCorrelated) {
    const FragmentSizes sizes =
        sizes_of({.distribution = Distribution::normal, .mean_bytes = 5000, .sigma_bytes = 1000});
    const auto one = drawn(sizes, 0, many);
    const auto other = drawn(sizes, 1, many);
    double product = 0;
    for (std::size_t index = 0; index < many; ++index) {
        product += (one[index] - 5000.0) * (other[index] - 5000.0);
    }
    EXPECT_NEAR(product / many / 1e6, 0, 4 / std::sqrt(many));
}

struct Pair {
    double correlation = 0;
    Moments one;
    Moments other;
};

Pair measured(const FragmentSizes& sizes, std::uint16_t one_source, std::uint16_t other_source) {
    const auto one = drawn(sizes, one_source, many);
    const auto other = drawn(sizes, other_source, many);
    Pair pair{0, moments_of(one), moments_of(other)};
    double product = 0;
    for (std::size_t index = 0; index < many; ++index) {
        product += (one[index] - pair.one.mean) * (other[index] - pair.other.mean);
    }
    pair.correlation = product / many / pair.one.sigma / pair.other.sigma;
    return pair;
}

TEST(Sizes, EB_M7_OfSourcesAreAsCorrelatedAsAskedFor) {
    for (const double c : {0.1, 0.5, 0.9}) {
        const Pair normal = measured(
            sizes_of({.distribution = Distribution::normal, .mean_bytes = 5000, .sigma_bytes = 1000, .correlation = c}),
            0, 1);
        EXPECT_NEAR(normal.correlation, c, 4 / std::sqrt(many));
        EXPECT_NEAR(normal.one.mean, 5000, 4 * 1000 / std::sqrt(many)) << "each source's own sizes stay what they were";
        EXPECT_NEAR(normal.one.sigma, 1000, 4 * 1000 / std::sqrt(2.0 * many));
        // Of log-normal sizes: (exp(c s^2) - 1) / (exp(s^2) - 1), exactly.
        const Pair log_normal = measured(
            sizes_of(
                {.distribution = Distribution::log_normal, .mean_bytes = 5000, .sigma_bytes = 2500, .correlation = c}),
            0, 1);
        const double s2 = std::log(1.25);
        EXPECT_NEAR(log_normal.correlation, std::expm1(c * s2) / std::expm1(s2), 0.015);
        EXPECT_NEAR(log_normal.one.mean, 5000, 4 * 2500 / std::sqrt(many));
        const Pair exponential =
            measured(sizes_of({.distribution = Distribution::exponential, .mean_bytes = 1500, .correlation = c}), 3, 9);
        EXPECT_NEAR(exponential.one.mean, 1500, 4 * 1500 / std::sqrt(many));
        EXPECT_NEAR(exponential.one.sigma, 1500, 4 * 1500 * std::sqrt(2.0 / many));
        EXPECT_GT(exponential.correlation, 0.8 * c);
        EXPECT_LT(exponential.correlation, c + 0.01);
    }
    const Pair same =
        measured(sizes_of({.distribution = Distribution::exponential, .mean_bytes = 1500, .correlation = 1}), 3, 9);
    EXPECT_NEAR(same.correlation, 1, 1e-9);
}

// The sum over sources of an event spreads as n sigma^2 (1 + (n - 1) c), and packing does not average that away over
// sources.
TEST(Sizes, CorrelatedSourcesMakeWholeEventsSpread) {
    constexpr std::size_t n_sources = 16;
    constexpr std::size_t n_events = 40'000;
    for (const double c : {0.0, 0.25}) {
        const FragmentSizes sizes =
            sizes_of({.distribution = Distribution::normal, .mean_bytes = 5000, .sigma_bytes = 500, .correlation = c});
        std::vector<std::uint32_t> sums(n_events);
        for (std::uint16_t source = 0; source < n_sources; ++source) {
            const auto one = drawn(sizes, source, n_events);
            for (std::size_t event = 0; event < n_events; ++event) {
                sums[event] += one[event];
            }
        }
        const double expected = 500 * std::sqrt(n_sources * (1 + (n_sources - 1) * c));
        EXPECT_NEAR(moments_of(sums).sigma, expected, expected * 4 / std::sqrt(2.0 * n_events));
    }
}

TEST(Sizes, ManyEventsMayShareTheCommonFactor) {
    const FragmentSizes sizes = sizes_of({.distribution = Distribution::normal,
                                          .mean_bytes = 5000,
                                          .sigma_bytes = 500,
                                          .correlation = 1,
                                          .correlated_events = 50});
    const auto all = drawn(sizes, 2, 1000);
    for (std::size_t event = 0; event < all.size(); ++event) {
        EXPECT_EQ(all[event], all[event / 50 * 50]);
        EXPECT_TRUE(event < 50 || event % 50 != 0 || all[event] != all[event - 1]);
    }
}

TEST(Sizes, MeansSpanTheirRatioAndKeepTheirMean) {
    const SizeOptions options{.distribution = Distribution::exponential,
                              .mean_bytes = 1000,
                              .max_bytes = 1U << 20U,
                              .n_sources = 8,
                              .mean_ratio = 10};
    const FragmentSizes sizes = sizes_of(options);
    const std::vector<double> factors = size_factors(options);
    double sum = 0;
    double before = 0;
    for (std::uint16_t source = 0; source < 8; ++source) {
        const double mean = moments_of(drawn(sizes, source, many)).mean;
        EXPECT_NEAR(mean / (1000 * factors[source]), 1, 4 / std::sqrt(many));
        EXPECT_TRUE(source == 0 || std::fabs(mean / before / std::pow(10, 1.0 / 7) - 1) < 0.02) << "geometric";
        before = mean;
        sum += mean;
    }
    EXPECT_NEAR(sum / 8, 1000, 5);
    EXPECT_NEAR(factors[7] / factors[0], 10, 1e-9);
}

TEST(Sizes, EB_M7_OneHotSourceSendsItsFactorMore) {
    const FragmentSizes sizes = sizes_of({.mean_bytes = 100, .n_sources = 4, .hot_factor = 7.5, .hot_source = 2});
    EXPECT_EQ(sizes.size(0, 5), 100U);
    EXPECT_EQ(sizes.size(2, 5), 750U);
    EXPECT_EQ(sizes.size(3, 5), 100U);
}

SizeOptions of_histogram(std::vector<double> edges, std::vector<double> weights, double correlation = 0) {
    SizeOptions options;
    options.distribution = Distribution::histogram;
    options.histogram = std::make_shared<SizeHistogram>(SizeHistogram::make(edges, weights).value());
    options.mean_bytes = options.histogram->mean();
    options.correlation = correlation;
    return options;
}

TEST(Sizes, HistogramHasItsBinsAndMoments) {
    for (const double c : {0.0, 0.4}) {
        const SizeOptions options = of_histogram({0, 100, 200, 500, 4000}, {1, 0, 6, 3}, c);
        const auto all = drawn(sizes_of(options), 1, many);
        // By hand: 0.1 x 50 + 0.6 x 350 + 0.3 x 2250; the spread within bins counts.
        EXPECT_NEAR(options.mean_bytes, 890, 1e-9);
        const Moments found = moments_of(all);
        EXPECT_NEAR(found.mean, 890, 4 * options.histogram->sigma() / std::sqrt(many));
        EXPECT_NEAR(found.sigma, options.histogram->sigma(), 0.01 * options.histogram->sigma());
        const double error = 4 * std::sqrt(0.25 / many) + 0.001;
        EXPECT_NEAR(fraction_below(all, 100), 0.1, error);
        EXPECT_NEAR(fraction_below(all, 200.5), 0.1, error + 0.002) << "a bin of weight 0";
        EXPECT_NEAR(fraction_below(all, 350), 0.4, error + 0.002);
        EXPECT_NEAR(fraction_below(all, 500), 0.7, error + 0.002);
        EXPECT_LE(*std::ranges::max_element(all), 4000U);
    }
}

TEST(Sizes, HistogramsThatAreNoneAreRefused) {
    using Numbers = std::vector<double>;
    EXPECT_TRUE(SizeHistogram::make(Numbers{0, 1}, Numbers{1}));
    EXPECT_FALSE(SizeHistogram::make(Numbers{0}, Numbers{}));
    EXPECT_FALSE(SizeHistogram::make(Numbers{0, 1}, Numbers{1, 2}));
    EXPECT_FALSE(SizeHistogram::make(Numbers{0, 2, 2}, Numbers{1, 2}));
    EXPECT_FALSE(SizeHistogram::make(Numbers{-1, 2}, Numbers{1}));
    EXPECT_FALSE(SizeHistogram::make(Numbers{0, 2}, Numbers{0}));
    EXPECT_FALSE(SizeHistogram::make(Numbers{0, 2}, Numbers{-1}));
    EXPECT_FALSE(SizeHistogram::make(Numbers{0, 1e12}, Numbers{1}));
}

std::uint64_t folded(const std::vector<std::uint32_t>& sizes) {
    std::uint64_t hash = 0;
    for (const std::uint32_t size : sizes) {
        hash = base::mix64(hash ^ size);
    }
    return hash;
}

// The values come from a second implementation, in Python with its own normal quantile and logarithm.
TEST(Sizes, AreTheSameBitsInEveryBuild) {
    const SizeOptions normal{.distribution = Distribution::normal, .mean_bytes = 2000, .sigma_bytes = 300};
    const SizeOptions log_normal{.distribution = Distribution::log_normal, .mean_bytes = 1000, .sigma_bytes = 500};
    const SizeOptions exponential{.distribution = Distribution::exponential, .mean_bytes = 1500};
    using Values = std::vector<std::uint32_t>;
    EXPECT_EQ(drawn(sizes_of(normal), 1, 6), (Values{1863, 1620, 2229, 1987, 1554, 2219}));
    EXPECT_EQ(drawn(sizes_of(log_normal), 1, 6), (Values{721, 492, 1283, 877, 443, 1263}));
    EXPECT_EQ(drawn(sizes_of(exponential), 1, 6), (Values{588, 163, 2255, 991, 106, 2187}));
    EXPECT_EQ(folded(drawn(sizes_of(normal), 1, 100'000)), 0x879e399453fef8a3U);
    EXPECT_EQ(folded(drawn(sizes_of(log_normal), 1, 100'000)), 0x293a5811394fcf88U);
    EXPECT_EQ(folded(drawn(sizes_of(exponential), 1, 100'000)), 0x79efe2efd5602080U);
}

TEST(Sizes, RefusesWhatMakesNoSense) {
    EXPECT_TRUE(FragmentSizes::make({.mean_bytes = 0}, 1).ok());
    EXPECT_FALSE(FragmentSizes::make({.mean_bytes = -1}, 1).ok());
    EXPECT_FALSE(FragmentSizes::make({.mean_bytes = 70000}, 1).ok());
    EXPECT_TRUE(FragmentSizes::make({.mean_bytes = 70000, .max_bytes = 1U << 20}, 1).ok());
    EXPECT_FALSE(FragmentSizes::make({.distribution = Distribution::normal, .mean_bytes = 100}, 1).ok());
    EXPECT_FALSE(FragmentSizes::make({.distribution = Distribution::exponential, .mean_bytes = 0}, 1).ok());
    EXPECT_FALSE(
        FragmentSizes::make({.distribution = Distribution::exponential, .min_bytes = 10, .max_bytes = 9}, 1).ok());
}

// As above: a second implementation, with Python's own normal distribution.
TEST(Sizes, CorrelatedAndFromAHistogramAreTheSameBitsInEveryBuild) {
    const SizeOptions normal{
        .distribution = Distribution::normal, .mean_bytes = 2000, .sigma_bytes = 300, .correlation = 0.3};
    const SizeOptions exponential{.distribution = Distribution::exponential, .mean_bytes = 1500, .correlation = 0.3};
    const SizeOptions histogram = of_histogram({0, 100, 200, 500, 4000}, {1, 0, 6, 3});
    using Values = std::vector<std::uint32_t>;
    EXPECT_EQ(drawn(sizes_of(normal), 1, 6), (Values{1679, 1977, 2373, 2011, 1526, 2085}));
    EXPECT_EQ(drawn(sizes_of(exponential), 1, 6), (Values{231, 952, 3356, 1083, 88, 1416}));
    EXPECT_EQ(drawn(sizes_of(histogram), 1, 6), (Values{312, 201, 1405, 392, 68, 1286}));
    EXPECT_EQ(folded(drawn(sizes_of(normal), 1, 100'000)), 0x6afdbf625773430bU);
    EXPECT_EQ(folded(drawn(sizes_of(exponential), 1, 100'000)), 0x35571f1d95df00f2U);
    EXPECT_EQ(folded(drawn(sizes_of(histogram), 1, 100'000)), 0x4acefecbc3d460e5U);
}

}  // namespace
}  // namespace incast::sources

// Logarithm, exponential and the normal quantile from IEEE-754 basic operations alone, so that the same seed gives the
// same bits with every compiler and C library (libm functions differ in the last place). Relative errors are below
// 1e-14, far below what a size or time rounds to.
#pragma once

#include <cstdint>

namespace incast::sources {

/// The nearest integer of 0 <= x < 2^52, halves up. Unlike std::lround no call, and this is done once per fragment.
[[nodiscard]] inline std::uint64_t nearest(double x) {
    constexpr double half = 0.5;
    return static_cast<std::uint64_t>(x + half);
}

/// Natural logarithm of a positive, normal number: x = m 2^e with m in [sqrt(1/2), sqrt(2)), ln m = 2 atanh((m - 1) /
/// (m + 1)).
[[nodiscard]] double portable_log(double x);

/// e^x for |x| <= 700: x = n ln 2 + r with |r| <= ln(2) / 2, Taylor series of e^r.
[[nodiscard]] double portable_exp(double x);

/// The z with P(Z <= z) = p for a standard normal Z and 0 < p < 1. Algorithm AS 241 (PPND16), M. J. Wichura, Applied
/// Statistics 37 (1988), 477-484.
[[nodiscard]] double normal_quantile(double p);

/// P(Z <= z) for a standard normal Z. Rational approximation 5666 of J. F. Hart et al., Computer Approximations
/// (1968), as G. West gives it in Wilmott Magazine (May 2005), 70-76. Absolute error below 1e-13; relative error of the
/// tail below 1e-7 up to |z| = 9.
[[nodiscard]] double normal_probability(double z);

}  // namespace incast::sources

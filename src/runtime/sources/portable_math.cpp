#include "runtime/sources/portable_math.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <span>

namespace incast::sources {

namespace {

constexpr double ln2 = 0.693147180559945309417232121458;
// ln 2 in two parts: the first has 21 trailing zero bits, so n * ln2_high is exact for the n that occur.
constexpr double ln2_high = 0x1.62e42feep-1;
constexpr double ln2_low = 1.90821492927058770002e-10;
constexpr std::uint64_t mantissa_mask = (std::uint64_t{1} << 52) - 1;

// Horner's scheme, coefficients from the highest power down.
double polynomial(std::span<const double> coefficients, double x) {
    double sum = 0;
    for (const double coefficient : coefficients) {
        sum = sum * x + coefficient;
    }
    return sum;
}

// AS 241's rational approximations, highest power first: |p - 1/2| <= 0.425, then r <= 5, then the far tail.
constexpr std::array<double, 8> central_top = {2509.0809287301226727, 33430.575583588128105, 67265.770927008700853,
                                               45921.953931549871457, 13731.693765509461125, 1971.5909503065514427,
                                               133.14166789178437745, 3.387132872796366608};
constexpr std::array<double, 8> central_bottom = {
    5226.495278852545925,  28729.085735721942674, 39307.89580009271061,  21213.794301586595867,
    5394.1960214247511077, 687.1870074920579083,  42.313330701600911252, 1.0};
constexpr std::array<double, 8> middle_top = {
    7.7454501427834140764e-4, 0.0227238449892691845833, 0.24178072517745061177, 1.27045825245236838258,
    3.64784832476320460504,   5.7694972214606914055,    4.6303378461565452959,  1.42343711074968357734};
constexpr std::array<double, 8> middle_bottom = {
    1.05075007164441684324e-9, 5.475938084995344946e-4, 0.0151986665636164571966, 0.14810397642748007459,
    0.68976733498510000455,    1.6763848301838038494,   2.05319162663775882187,   1.0};
constexpr std::array<double, 8> tail_top = {
    2.01033439929228813265e-7, 2.71155556874348757815e-5, 0.0012426609473880784386, 0.026532189526576123093,
    0.29656057182850489123,    1.7848265399172913358,     5.4637849111641143699,    6.6579046435011037772};
constexpr std::array<double, 8> tail_bottom = {
    2.04426310338993978564e-15, 1.4215117583164458887e-7, 1.8463183175100546818e-5, 7.868691311456132591e-4,
    0.0148753612908506148525,   0.13692988092273580531,   0.59983220655588793769,   1.0};

constexpr std::array<double, 7> hart_top = {3.52624965998911e-2, 0.700383064443688, 6.37396220353165, 33.912866078383,
                                            112.079291497871,    221.213596169931,  220.206867912376};
constexpr std::array<double, 8> hart_bottom = {8.83883476483184e-2, 1.75566716318264, 16.064177579207,
                                               86.7807322029461,    296.564248779674, 637.333633378831,
                                               793.826512519948,    440.413735824752};

}  // namespace

double portable_log(double x) {
    const auto bits = std::bit_cast<std::uint64_t>(x);
    int exponent = static_cast<int>(bits >> 52) - 1023;
    double mantissa = std::bit_cast<double>((bits & mantissa_mask) | (std::uint64_t{1023} << 52));
    if (mantissa > 1.4142135623730951) {
        mantissa *= 0.5;
        ++exponent;
    }
    const double s = (mantissa - 1) / (mantissa + 1);
    double sum = 0;
    for (int k = 11; k >= 0; --k) {
        sum = sum * (s * s) + 1.0 / (2 * k + 1);
    }
    return exponent * ln2 + 2 * s * sum;
}

double portable_exp(double x) {
    const double n = std::floor(x / ln2 + 0.5);
    const double r = (x - n * ln2_high) - n * ln2_low;
    double sum = 1;
    for (int k = 14; k >= 1; --k) {
        sum = 1 + sum * r / k;
    }
    const auto exponent = static_cast<std::uint64_t>(static_cast<std::int64_t>(n) + 1023);
    return sum * std::bit_cast<double>(exponent << 52);
}

double normal_quantile(double p) {
    const double q = p - 0.5;
    if (std::fabs(q) <= 0.425) {
        const double r = 0.180625 - q * q;
        return q * polynomial(central_top, r) / polynomial(central_bottom, r);
    }
    double r = std::sqrt(-portable_log(q < 0 ? p : 1 - p));
    double z = 0;
    if (r <= 5) {
        r -= 1.6;
        z = polynomial(middle_top, r) / polynomial(middle_bottom, r);
    } else {
        r -= 5;
        z = polynomial(tail_top, r) / polynomial(tail_bottom, r);
    }
    return q < 0 ? -z : z;
}

double normal_probability(double z) {
    const double x = std::min(std::fabs(z), 37.0);
    const double density = portable_exp(-x * x / 2);
    double tail = 0;
    if (x < 7.07106781186547) {
        tail = density * polynomial(hart_top, x) / polynomial(hart_bottom, x);
    } else {
        tail = density / (x + 1 / (x + 2 / (x + 3 / (x + 4 / (x + 0.65))))) / 2.506628274631;
    }
    return z > 0 ? 1 - tail : tail;
}

}  // namespace incast::sources

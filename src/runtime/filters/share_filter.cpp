#include <cmath>
#include <limits>

#include "base/prng.h"
#include "runtime/filters/filters.h"

namespace incast::filters {

namespace {

constexpr std::uint64_t everything = std::numeric_limits<std::uint64_t>::max();
constexpr double two_to_64 = 18446744073709551616.0;

}  // namespace

ShareFilter::ShareFilter(double accept, std::uint64_t seed)
    : accepted_below_(accept >= 1 ? everything : static_cast<std::uint64_t>(std::floor(accept * two_to_64))),
      seed_(base::mix64(seed ^ 0xacce97)) {}

protocol::Filter::Verdict ShareFilter::decide(Time /*now*/, const protocol::BuiltMep& first) {
    const bool all = accepted_below_ == everything;
    return all || base::mix64(seed_ ^ first.mep) < accepted_below_ ? Verdict::accept : Verdict::reject;
}

}  // namespace incast::filters

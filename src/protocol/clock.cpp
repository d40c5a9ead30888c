#include "protocol/clock.h"

#include <algorithm>

namespace incast::protocol {

namespace {

// Crystals are good to 100 ppm each; an estimate grows worse by that.
constexpr Time drift_share = 5000;
/// Beyond any clock (26 days): a peer that says so lies, and sums must not overflow.
constexpr Time time_max = time_never / 4;

}  // namespace

bool EmClock::add(Time asked, Time theirs, Time answered) {
    if (local_ || theirs < 0 || theirs > time_max || answered < asked) {
        return false;
    }
    const Time error_now = (answered - asked + 1) / 2;
    if (known_ && error_now > error(answered)) {
        return false;
    }
    known_ = true;
    offset_ = theirs - (asked + (answered - asked) / 2);
    error_ = error_now;
    taken_ = answered;
    return true;
}

Time EmClock::error(Time now) const {
    return local_ ? 0 : error_ + std::max<Time>(0, now - taken_) / drift_share;
}

}  // namespace incast::protocol

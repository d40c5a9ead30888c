// How much of something there may be: so many at once, and so many a second. What is beyond that waits.
#pragma once

#include <algorithm>

#include <incast/transport.h>

namespace incast::base {

class Allowance {
public:
    /// `burst` at once, then one per `gap`.
    Allowance(unsigned burst, Time gap) : depth_(burst * gap), gap_(gap) {}

    /// One more now? Then it is counted.
    bool take(Time now) {
        if (next(now) > now) {
            return false;
        }
        empty_at_ = std::max(empty_at_, now) + gap_;
        return true;
    }
    /// When take() will succeed: `now` or later.
    [[nodiscard]] Time next(Time now) const { return std::max(now, empty_at_ + gap_ - depth_); }

private:
    Time depth_;
    Time gap_;
    Time empty_at_ = 0;  // all that was taken is forgotten by then
};

}  // namespace incast::base

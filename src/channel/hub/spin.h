// How long to look before sleeping, as it has paid lately.
#pragma once

#include <algorithm>
#include <cstdint>

#include <incast/transport.h>

namespace incast::channel {

class Spin {
public:
    explicit Spin(Time longest) : longest_(longest) {}
    [[nodiscard]] Time now() const { return now_; }
    /// A wait is over, whose end was found by looking, or by sleeping in the end. Looking for twice as long as it took
    /// would have found it; if that is too long, looking is in vain. What comes soon after falling asleep may have come
    /// because of that: on a busy host the peer may have to run on this core. Then the next waits are slept through,
    /// twice as many each time; fewer, once looking has found something.
    void learn(Time waited, bool has_slept) {
        if (!has_slept && waited <= longest_) {
            now_ = std::min(std::max(now_, 2 * waited), longest_);
            vain_ /= 2;
            return;
        }
        if (waited > 2 * longest_) {
            now_ /= 2;
            return;
        }
        if (now_ > 0) {
            now_ = 0;
            vain_ = std::min(2 * vain_ + 1, most_vain);
            rest_ = vain_;
        }
        if (rest_ > 0)
            --rest_;
        else if (waited <= longest_)
            now_ = std::min(2 * waited, longest_);
    }

private:
    static constexpr std::uint32_t most_vain = 255;

    Time longest_;
    Time now_ = 0;
    std::uint32_t vain_ = 0;  // waits that were slept through for the last one in which looking was in vain
    std::uint32_t rest_ = 0;  // of them, still to come
};

}  // namespace incast::channel

// How long to look before sleeping, as it has paid lately.
#pragma once

#include <algorithm>

#include <incast/transport.h>

namespace incast::channel {

class Spin {
public:
    explicit Spin(Time longest) : longest_(longest) {}
    [[nodiscard]] Time now() const { return now_; }
    /// Looking a little longer than it took would have found it; if that is too long, looking is in vain.
    void learn(Time waited) {
        if (waited <= longest_)
            now_ = std::min(std::max(now_, 2 * waited), longest_);
        else
            now_ /= 2;
    }

private:
    Time longest_;
    Time now_ = 0;
};

}  // namespace incast::channel

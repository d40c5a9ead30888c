// Whoever was stopped itself, by a signal or with its whole machine, has heard nothing meanwhile: that is nobody's
// silence.
#pragma once

#include <cstdint>

namespace incast::base {

/// Notices that its owner was stopped. What it waits for from others cannot come meanwhile, so its deadlines are later
/// by that time. Times are of any unit.
class PauseWatch {
public:
    /// Longer than `shortest` without a look was a pause.
    PauseWatch(std::int64_t now, std::int64_t shortest) : looked_(now), shortest_(shortest) {}

    /// For how long it was stopped since the last look, after which it meant to sleep for `sleep`; 0: it was not.
    std::int64_t look(std::int64_t now, std::int64_t sleep = 0) {
        const std::int64_t gap = now - looked_ - sleep;
        looked_ = now;
        return gap > shortest_ ? gap : 0;
    }

private:
    std::int64_t looked_;
    std::int64_t shortest_;
};

}  // namespace incast::base

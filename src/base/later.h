// Adding to a time: what is past the end of time never happens.
#pragma once

#include <incast/transport.h>

namespace incast::base {

/// `by` later, but never later than time_never. `time`, `by` >= 0.
constexpr Time later(Time time, Time by) {
    return by < time_never - time ? time + by : time_never;
}
/// The same in picoseconds that need be neither whole nor within the range of Time.
constexpr Time later(Time time, double ps) {
    return ps < static_cast<double>(time_never - time) ? time + static_cast<Time>(ps) : time_never;
}

}  // namespace incast::base

#include "farm/book/taker.h"

#include <algorithm>

namespace incast::farm {

Due due(const Taker& taker, Time now, const Limits& limits) {
    if (taker.is_over) {
        return Due::nothing;
    }
    if (!taker.is_greeted && now - taker.heard > greeting_time) {
        return Due::no_greeting;
    }
    if (now - taker.heard > limits.silence) {
        return Due::silent;
    }
    if (limits.patience > 0 && taker.held > 0 && now - taker.progress > limits.patience) {
        return Due::idle;
    }
    if (taker.is_leaving && taker.held == 0) {
        return Due::left;
    }
    return taker.is_welcomed && now - taker.said > alive_interval ? Due::word : Due::nothing;
}

Time next_due(const Taker& taker, const Limits& limits) {
    if (taker.is_over) {
        return time_never;
    }
    Time next = taker.heard + limits.silence;
    if (!taker.is_greeted) next = std::min(next, taker.heard + greeting_time);
    if (limits.patience > 0 && taker.held > 0) next = std::min(next, taker.progress + limits.patience);
    if (taker.is_welcomed) next = std::min(next, taker.said + alive_interval);
    return next + 1;
}

}  // namespace incast::farm

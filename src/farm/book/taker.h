// A farm node as a dispatcher knows it, whatever wire lies between them.
#pragma once

#include <cstdint>

#include <incast/transport.h>

#include "farm/book/credits.h"

namespace incast::farm {

inline constexpr Time alive_interval = ps_per_s;     // each side says something as often
inline constexpr Time greeting_time = 5 * ps_per_s;  // for a stranger to say who it is

/// Not the owner of what it is reached by, which a class that is one adds.
struct Taker {
    Credits credits;
    bool is_greeted = false;   // it said who it is
    bool is_welcomed = false;  // and was told of the run
    bool is_leaving = false;
    bool is_over = false;
    std::uint64_t held = 0;  // sent, and nothing heard of
    std::uint64_t done = 0;
    Time heard = 0;
    Time said = 0;
    Time progress = 0;

    void meet(Time now) { heard = said = progress = now; }
    [[nodiscard]] bool may_get() const { return !is_over && is_welcomed && !is_leaving; }
};

struct Limits {
    Time silence = 5 * ps_per_s;  // one that says nothing for so long is given up
    Time patience = 0;            // one that has MEPs and finishes none for so long is, too; 0: never
};

enum class Due : std::uint8_t { nothing, no_greeting, silent, idle, left, word };

/// What is to be done about one, as time passes: give it up, let it go, or say something to it.
Due due(const Taker& taker, Time now, const Limits& limits);
/// When that may change without a word of it.
Time next_due(const Taker& taker, const Limits& limits);

}  // namespace incast::farm

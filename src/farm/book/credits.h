// Who gets the next MEP: credits of farm nodes, absolute and cumulative, so that one that is late or said twice is
// harmless.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "farm/book/frames.h"

namespace incast::farm {

class Credits {
public:
    /// It says that it has had room for so many since the beginning. False: that cannot be.
    [[nodiscard]] bool grant(std::uint64_t total) {
        if (total > sent_ + most_window || total < granted_) return false;
        granted_ = total;
        return true;
    }
    void send() { ++sent_; }
    [[nodiscard]] std::uint64_t free() const { return granted_ > sent_ ? granted_ - sent_ : 0; }
    [[nodiscard]] std::uint64_t sent() const { return sent_; }

private:
    std::uint64_t granted_ = 0;
    std::uint64_t sent_ = 0;
};

/// Of those with credits whoever has most; among equals each in turn.
class Turn {
public:
    /// The free credits of each. Nobody has any: nothing.
    std::optional<std::size_t> choose(std::span<const std::uint64_t> free) {
        std::optional<std::size_t> best;
        for (std::size_t step = 0; step < free.size(); ++step) {
            const std::size_t each = (next_ + step) % free.size();
            if (free[each] > 0 && (!best || free[each] > free[*best])) best = each;
        }
        ++next_;
        return best;
    }

private:
    std::size_t next_ = 0;
};

}  // namespace incast::farm

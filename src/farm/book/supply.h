// What a farm node has of one dispatcher: its slots, and the credits that it gave for them.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>

#include "farm/book/frames.h"

namespace incast::farm {

class Supply {
public:
    /// Slots are numbers of the farm node's own.
    void add_slot(std::uint32_t slot) { free_.push_back(slot); }
    /// By a new connection, of which nothing came yet. Slots that are taken still come back.
    void begin() { taken_ = granted_ = 0; }

    /// The slot for that MEP; nothing: the dispatcher broke the rules.
    std::optional<std::uint32_t> take(const MepFrame& frame) {
        if (frame.what != What::mep || free_.empty() || taken_ >= granted_) return {};
        ++taken_;
        const std::uint32_t slot = free_.front();
        free_.pop_front();
        return slot;
    }
    void give_back(std::uint32_t slot) { free_.push_back(slot); }
    [[nodiscard]] std::size_t free() const { return free_.size(); }

    /// A credit for each free slot; nothing: that was said.
    std::optional<Reply> grant() {
        const std::uint64_t granted = taken_ + free_.size();
        if (granted <= granted_) return {};
        granted_ = granted;
        return Reply{.says = Says::credit, .value = granted};
    }

private:
    std::uint64_t taken_ = 0;  // MEPs that came by this connection
    std::uint64_t granted_ = 0;
    std::deque<std::uint32_t> free_;
};

}  // namespace incast::farm

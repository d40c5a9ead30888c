// What goes through a channel, and what comes: pieces of memory, which wait for room or for bytes without blocking.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>
#include <vector>

#include <incast/channel.h>

namespace incast::farm {

/// Writes pieces in order. Those of others stay as they are until they were written, those it keeps are its own.
class Outbox {
public:
    /// Where the transport sends from the caller's memory, pieces of so many bytes or more are not copied: the caller
    /// has them back once incast_channel_released() says so, or the farm node has answered.
    static constexpr std::size_t least_in_place = 32768;

    void keep(std::span<const std::byte> bytes);
    /// The caller's memory.
    void show(std::span<const std::byte> bytes) {
        if (!bytes.empty()) pieces_.push_back({bytes, {}});
    }
    [[nodiscard]] bool is_empty() const { return pieces_.empty(); }
    /// As much as there is room for. False: the channel has ended.
    [[nodiscard]] bool push(incast_channel* channel, bool may_send_in_place);
    void clear() { pieces_.clear(); }

private:
    struct Piece {
        std::span<const std::byte> rest;
        std::vector<std::byte> kept;  // empty: it is shown
    };
    std::deque<Piece> pieces_;
};

enum class Got : std::uint8_t { all, some, end, lost };

/// Fills `rest` from the channel: all of it, or what there is.
Got take(incast_channel* channel, std::span<std::byte>& rest);

}  // namespace incast::farm

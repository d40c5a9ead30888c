#include "farm/outbox.h"

#include <cerrno>

namespace incast::farm {

void Outbox::keep(std::span<const std::byte> bytes) {
    if (bytes.empty()) {
        return;
    }
    pieces_.push_back({{}, std::vector<std::byte>(bytes.begin(), bytes.end())});
    pieces_.back().rest = pieces_.back().kept;
}

bool Outbox::push(incast_channel* channel, bool may_send_in_place) {
    const bool has_some = !pieces_.empty();
    while (!pieces_.empty()) {
        Piece& piece = pieces_.front();
        const bool is_in_place = may_send_in_place && piece.kept.empty() && piece.rest.size() >= least_in_place;
        const std::int64_t wrote = is_in_place
                                       ? incast_channel_write_in_place(channel, piece.rest.data(), piece.rest.size())
                                       : incast_channel_write(channel, piece.rest.data(), piece.rest.size(), 0);
        if (wrote == -EAGAIN) {
            return true;
        }
        if (wrote < 0) {
            return false;
        }
        piece.rest = piece.rest.subspan(static_cast<std::size_t>(wrote));
        if (!piece.rest.empty()) {
            return true;  // no more room
        }
        pieces_.pop_front();
    }
    if (has_some) {
        (void)incast_channel_flush(channel);  // an error shows with the next write or read
    }
    return true;
}

Got take(incast_channel* channel, std::span<std::byte>& rest) {
    while (!rest.empty()) {
        const std::int64_t got = incast_channel_read(channel, rest.data(), rest.size(), 0);
        if (got == -EAGAIN) {
            return Got::some;
        }
        if (got <= 0) {
            return got == 0 ? Got::end : Got::lost;
        }
        rest = rest.subspan(static_cast<std::size_t>(got));
    }
    return Got::all;
}

}  // namespace incast::farm

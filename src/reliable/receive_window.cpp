#include "reliable/receive_window.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace incast::reliable {

ReceiveWindow::ReceiveWindow(const Settings& settings)
    : body_bytes_(settings.datagram_bytes - static_cast<std::uint32_t>(header_bytes)),
      here_(settings.window_packets),
      held_(settings.window_packets),
      bytes_(std::make_unique_for_overwrite<std::byte[]>(std::size_t{settings.window_packets} * body_bytes_)) {
    reset();
}

void ReceiveWindow::reset() {
    std::ranges::fill(here_, std::uint8_t{0});
    std::ranges::fill(held_, Held{});
    lane_next_.fill(first_in_lane);
    held_in_lane_ = {};
    complete_below_ = end_ = 0;
    is_ready_ = false;
    lent_.reset();
    lane_ = 0;
}

bool ReceiveWindow::take(const Packet& packet) {
    if (packet.body.size() > body_bytes_) {
        ++counters_.bad;
        return false;
    }
    if (packet.sequence < complete_below_ ||
        (packet.sequence < complete_below_ + here_.size() && here_[place(packet.sequence)] != 0)) {
        ++counters_.duplicates;
        return true;
    }
    if (packet.sequence - complete_below_ >= here_.size()) {
        ++counters_.outside;
        return true;
    }
    const std::size_t at = place(packet.sequence);
    const std::uint32_t ahead = packet.lane_sequence - lane_next_[packet.lane];
    // Nobody numbers a lane so that more than a window is missing, or that a place is still held a window later.
    if (packet.lane != 0 && (ahead >= here_.size() || held_[at].used)) {
        ++counters_.bad;
        return false;
    }
    if (packet.lane == 0 || ahead == 0) {
        is_ready_ = true;
        ready_ = packet.body.data();
        ready_bytes_ = static_cast<std::uint32_t>(packet.body.size());
        lane_ = packet.lane;
        look_from_ = packet.sequence + 1;
        if (packet.lane != 0) ++lane_next_[packet.lane];
    } else {
        held_[at] = {true, packet.lane, static_cast<std::uint16_t>(packet.body.size()), packet.lane_sequence};
        if (!packet.body.empty()) std::memcpy(bytes(at).data(), packet.body.data(), packet.body.size());
        ++held_in_lane_[packet.lane];
    }
    here_[at] = 1;
    end_ = std::max(end_, packet.sequence + 1);
    for (; here_[place(complete_below_)] != 0; ++complete_below_)
        here_[place(complete_below_)] = 0;
    return true;
}

std::optional<Delivery> ReceiveWindow::next() {
    if (lent_) {
        held_[*lent_].used = false;
        lent_.reset();
    }
    if (std::exchange(is_ready_, false)) {
        ++counters_.delivered;
        return Delivery{lane_, {ready_, ready_bytes_}};
    }
    if (lane_ == 0) return std::nullopt;
    // Those of a lane stand in its order, so that one look over all is enough.
    for (; held_in_lane_[lane_] > 0 && look_from_ < end_; ++look_from_) {
        const std::size_t at = place(look_from_);
        const Held& one = held_[at];
        if (!one.used || one.lane != lane_ || one.lane_sequence != lane_next_[lane_]) continue;
        ++lane_next_[lane_];
        --held_in_lane_[lane_];
        ++look_from_;
        ++counters_.delivered;
        lent_ = at;
        return Delivery{lane_, bytes(at).first(one.body_bytes)};
    }
    lane_ = 0;
    return std::nullopt;
}

std::size_t ReceiveWindow::write_bitmap(std::span<std::byte> into) const {
    if (end_ <= complete_below_ + 1) return 0;
    const std::uint64_t bits = std::min<std::uint64_t>(end_ - complete_below_ - 1, into.size() * 8);
    const std::size_t used = (bits + 7) / 8;
    std::memset(into.data(), 0, used);
    for (std::uint64_t bit = 0; bit < bits; ++bit) {
        if (here_[place(complete_below_ + 1 + bit)] != 0) into[bit / 8] |= static_cast<std::byte>(1U << bit % 8);
    }
    return used;
}

}  // namespace incast::reliable

#include "reliable/send_window.h"

#include <algorithm>

namespace incast::reliable {

namespace {

constexpr double first_congestion = 32;
constexpr double min_congestion = 4;
constexpr double decrease = 0.7;
/// Sent later by that many transmissions, and arrived: what was sent before and did not is lost.
constexpr std::uint64_t reordering = 3;
constexpr std::int64_t granularity_ns = 1'000'000;  // of the caller's waiting
constexpr std::uint32_t max_backoff = 10;
constexpr std::int64_t pace_burst_ns = 1'000'000;

}  // namespace

SendWindow::SendWindow(const Settings& settings)
    : settings_(settings),
      slots_(settings.window_packets),
      bytes_(
          std::make_unique_for_overwrite<std::byte[]>(std::size_t{settings.window_packets} * settings.datagram_bytes)) {
    reset();
}

void SendWindow::reset() {
    lane_next_.fill(first_in_lane);
    first_ = fresh_ = next_ = 0;
    limit_ = settings_.window_packets;
    in_flight_ = lost_ = 0;
    lost_from_ = 0;
    transmissions_ = newest_ = reduced_ = 0;
    congestion_ = std::min<double>(first_congestion, settings_.window_packets);
    threshold_ = settings_.window_packets;
    smoothed_ns_ = variance_ns_ = 0;
    backoff_ = 0;
    retransmit_ns_ = never_ns;
    paced_ns_ = 0;
    held_by_pace_ = false;
}

void SendWindow::add(std::uint8_t lane, std::size_t body_bytes) {
    Slot& one = slot(next_++);
    one.state = State::waiting;
    one.lane = lane;
    one.body_bytes = static_cast<std::uint16_t>(body_bytes);
    one.lane_sequence = lane_next_[lane]++;
    one.sent_once = false;
}

std::span<const std::byte> SendWindow::pass(std::int64_t now_ns, std::uint64_t token, std::size_t kept_bytes,
                                            std::size_t rest_bytes) {
    const std::uint64_t sequence = fresh_;
    add(0, kept_bytes + rest_bytes);
    ++fresh_;
    const auto all = transmit(now_ns, token, sequence);
    Slot& one = slot(sequence);
    one.sent_once = true;
    one.body_bytes = 0;
    return all.first(header_bytes + kept_bytes);
}

std::span<const std::byte> SendWindow::transmit(std::int64_t now_ns, std::uint64_t token, std::uint64_t sequence) {
    Slot& one = slot(sequence);
    const std::span<std::byte> bytes = datagram(sequence).first(header_bytes + one.body_bytes);
    write_header({.kind = Kind::data,
                  .lane = one.lane,
                  .time_us = static_cast<std::uint32_t>(now_ns / 1000),
                  .token = token,
                  .sequence = sequence,
                  .lane_sequence = one.lane_sequence,
                  .body = bytes.subspan(header_bytes)},
                 bytes.data());
    one.state = State::in_flight;
    one.transmission = ++transmissions_;
    one.sent_ns = now_ns;
    ++in_flight_;
    ++counters_.sent;
    if (retransmit_ns_ == never_ns) retransmit_ns_ = now_ns + timeout_ns();
    if (settings_.pace_bytes_per_s != 0) {
        const auto cost = static_cast<std::int64_t>(bytes.size() * 1'000'000'000 / settings_.pace_bytes_per_s);
        paced_ns_ = std::max(paced_ns_, now_ns - pace_burst_ns) + cost;
    }
    return bytes;
}

std::span<const std::byte> SendWindow::next(std::int64_t now_ns, std::uint64_t token) {
    held_by_pace_ = false;
    const bool has_fresh = fresh_ < next_ && fresh_ - first_ < limit_;
    if ((lost_ == 0 && !has_fresh) || in_flight_ >= static_cast<std::uint32_t>(congestion_)) return {};
    if (is_paced(now_ns)) {
        held_by_pace_ = true;
        return {};
    }
    if (lost_ == 0) return transmit(now_ns, token, fresh_++);
    std::uint64_t sequence = std::max(lost_from_, first_);
    while (slot(sequence).state != State::lost)
        ++sequence;
    lost_from_ = sequence + 1;
    --lost_;
    if (!slot(sequence).sent_once) ++counters_.repeated;
    return transmit(now_ns, token, sequence);
}

void SendWindow::settle(Slot& one, std::uint64_t& newest, std::uint32_t& newly) {
    if (one.state == State::acknowledged) return;
    if (one.state == State::in_flight) {
        --in_flight_;
    } else {
        --lost_;  // too early given up
    }
    one.state = State::acknowledged;
    newest = std::max(newest, one.transmission);
    ++newly;
}

bool SendWindow::acknowledge(std::int64_t now_ns, const Packet& ack) {
    if (ack.sequence > fresh_) return false;
    if (ack.sequence < first_) return true;  // an older one, overtaken
    std::uint64_t newest = newest_;
    std::uint32_t newly = 0;
    std::uint64_t end = ack.sequence;
    for (; first_ < ack.sequence; ++first_)
        settle(slot(first_), newest, newly);
    for (std::size_t index = 0; index < ack.body.size(); ++index) {
        const auto bits = static_cast<std::uint8_t>(ack.body[index]);
        for (unsigned bit = 0; bits >> bit != 0; ++bit) {
            if ((bits >> bit & 1) == 0) continue;
            const std::uint64_t sequence = ack.sequence + 1 + index * 8 + bit;
            if (sequence >= fresh_) return false;
            settle(slot(sequence), newest, newly);
            end = sequence;
        }
    }
    if (newly == 0) return true;
    newest_ = newest;
    measure(std::int64_t{static_cast<std::int32_t>(static_cast<std::uint32_t>(now_ns / 1000) - ack.time_us)} * 1000);
    if (congestion_ < threshold_) {
        congestion_ += newly;
    } else {
        congestion_ += newly / congestion_;
    }
    congestion_ = std::min<double>(congestion_, settings_.window_packets);
    find_losses(now_ns, end);
    backoff_ = 0;
    retransmit_ns_ = in_flight_ == 0 ? never_ns : now_ns + timeout_ns();
    return true;
}

void SendWindow::measure(std::int64_t round_trip_ns) {
    // What is echoed is the peer's word: absurd values are no measurement.
    if (round_trip_ns < 0 || round_trip_ns > settings_.deadline_ns) return;
    if (smoothed_ns_ == 0) {
        smoothed_ns_ = std::max<std::int64_t>(round_trip_ns, 1);
        variance_ns_ = round_trip_ns / 2;
        return;
    }
    const std::int64_t error = round_trip_ns - smoothed_ns_;
    variance_ns_ += ((error < 0 ? -error : error) - variance_ns_) / 4;
    smoothed_ns_ = std::max<std::int64_t>(smoothed_ns_ + error / 8, 1);
}

void SendWindow::lose(Slot& one) {
    one.state = State::lost;
    --in_flight_;
    ++lost_;
    ++counters_.lost;
}

void SendWindow::find_losses(std::int64_t now_ns, std::uint64_t end) {
    const std::int64_t patience_ns = smoothed_ns_ + smoothed_ns_ / 8 + granularity_ns;
    lost_from_ = std::max(lost_from_, first_);
    // Once some were repeated, their order is not that of their transmissions.
    const std::uint64_t last = transmissions_ == fresh_ ? end : fresh_;
    for (std::uint64_t sequence = first_; sequence < last; ++sequence) {
        Slot& one = slot(sequence);
        if (one.state != State::in_flight || one.transmission >= newest_) continue;
        if (newest_ - one.transmission < reordering && now_ns - one.sent_ns < patience_ns) continue;
        shrink(one.transmission);
        lose(one);
        lost_from_ = std::min(lost_from_, sequence);
    }
}

void SendWindow::shrink(std::uint64_t transmission) {
    if (transmission <= reduced_) return;  // once for all that was on its way
    congestion_ = threshold_ = std::max(congestion_ * decrease, min_congestion);
    reduced_ = transmissions_;
}

std::int64_t SendWindow::timeout_ns() const {
    const std::int64_t base =
        smoothed_ns_ == 0 ? settings_.first_timeout_ns : smoothed_ns_ + std::max(granularity_ns, 4 * variance_ns_);
    const std::int64_t bounded = std::clamp(base, settings_.min_timeout_ns, settings_.max_timeout_ns);
    return std::min(bounded << std::min(backoff_, max_backoff), settings_.max_timeout_ns);
}

std::int64_t SendWindow::deadline_ns() const {
    return std::min(retransmit_ns_, held_by_pace_ ? paced_ns_ : never_ns);
}

void SendWindow::advance(std::int64_t now_ns) {
    if (now_ns < retransmit_ns_) return;
    if (in_flight_ == 0) {
        retransmit_ns_ = never_ns;
        return;
    }
    ++counters_.timeouts;
    // First a probe: its acknowledgement says what else is missing. After that nothing is believed to be under way.
    const bool is_probe = backoff_ == 0;
    ++backoff_;
    for (std::uint64_t sequence = first_; sequence < fresh_; ++sequence) {
        Slot& one = slot(sequence);
        if (one.state != State::in_flight) continue;
        lose(one);
        lost_from_ = std::min(lost_from_, sequence);
        if (is_probe) break;
    }
    if (!is_probe) {
        threshold_ = std::max(congestion_ * decrease, min_congestion);
        congestion_ = min_congestion;
        reduced_ = transmissions_;
    }
    retransmit_ns_ = now_ns + timeout_ns();
}

}  // namespace incast::reliable

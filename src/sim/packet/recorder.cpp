#include "sim/packet/recorder.h"

#include <algorithm>
#include <cmath>

namespace incast::sim::packet {
namespace {

constexpr std::size_t least_intervals = 16;

SeriesPoint merged(const SeriesPoint& one, const SeriesPoint& two) {
    return {.sent_bytes = one.sent_bytes + two.sent_bytes,
            .mean_queue_bytes = (one.mean_queue_bytes + two.mean_queue_bytes) / 2,
            .peak_queue_bytes = std::max(one.peak_queue_bytes, two.peak_queue_bytes),
            .dropped = one.dropped + two.dropped,
            .marked = one.marked + two.marked,
            .lost = one.lost + two.lost,
            .pauses_heard = one.pauses_heard + two.pauses_heard,
            .paused_time = one.paused_time + two.paused_time};
}

}  // namespace

PortCounters difference(const PortCounters& later, const PortCounters& earlier) {
    return {.packets = later.packets - earlier.packets,
            .bytes = later.bytes - earlier.bytes,
            .data_packets = later.data_packets - earlier.data_packets,
            .marked = later.marked - earlier.marked,
            .dropped = later.dropped - earlier.dropped,
            .lost = later.lost - earlier.lost,
            .repeated = later.repeated - earlier.repeated,
            .pauses_sent = later.pauses_sent - earlier.pauses_sent,
            .pauses_heard = later.pauses_heard - earlier.pauses_heard,
            .paused_time = later.paused_time - earlier.paused_time};
}

Recorder::Recorder(Network& network, const RecorderSettings& settings)
    : network_(network),
      settings_(settings),
      port_count_(network.ports()),
      // An even number, as pairs become one.
      most_intervals_(std::max(least_intervals, settings.most_points / std::max<std::size_t>(1, port_count_)) & ~1ULL),
      prng_(settings.seed),
      interval_(settings.interval),
      next_point_(network.now() + interval_),
      probe_interval_(settings.interval),
      states_(port_count_ * max_classes),
      interval_peak_(port_count_),
      before_(port_count_),
      window_(port_count_) {
    for (PortIndex port = 0; port < port_count_; ++port) {
        before_[port] = network_.counters(port);
        for (unsigned traffic_class = 0; traffic_class < max_classes; ++traffic_class)
            state(port, traffic_class).byte_ps = network_.queue(port, static_cast<std::uint8_t>(traffic_class)).byte_ps;
    }
    draw_probe(network.now());
    begin_window();
}

void Recorder::look() {
    const Time now = network_.now();
    if (now == next_probe_) probe();
    if (now == next_point_) add_point();
}

void Recorder::draw_probe(Time from) {
    probe_slot_ = from;
    next_probe_ = from + static_cast<Time>(prng_.below(static_cast<std::uint64_t>(probe_interval_)));
}

void Recorder::probe() {
    const auto weight = static_cast<std::uint64_t>(probe_interval_ / settings_.interval);
    probe_weight_ += weight;
    ++probes_;
    for (unsigned rest = classes_; rest != 0; rest &= rest - 1) {
        const auto traffic_class = static_cast<std::uint8_t>(std::countr_zero(rest));
        for (PortIndex port = 0; port < port_count_; ++port) {
            const std::uint64_t bytes = network_.queued_bytes(port, traffic_class);
            if (bytes == 0) continue;
            std::unique_ptr<base::Histogram>& occupied = state(port, traffic_class).occupied;
            if (occupied == nullptr) occupied = std::make_unique<base::Histogram>();
            occupied->record(bytes, weight);
        }
    }
    const Time next_slot = probe_slot_ + probe_interval_;
    if (++probes_at_distance_ == settings_.most_probes) {
        probes_at_distance_ = settings_.most_probes / 2;
        probe_interval_ *= 2;
    }
    draw_probe(next_slot);
}

/// Into this interval's and the window's.
void Recorder::take_peaks() {
    std::uint8_t used = 0;
    for (std::uint8_t traffic_class = 0; traffic_class < max_classes; ++traffic_class) {
        for (PortIndex port = 0; port < port_count_; ++port) {
            const std::uint64_t peak = network_.take_peak(port, traffic_class);
            if (peak == 0) continue;
            used |= bit_of(traffic_class);
            interval_peak_[port] = std::max(interval_peak_[port], peak);
            QueueState& queue = state(port, traffic_class);
            queue.window_peak = std::max(queue.window_peak, peak);
        }
    }
    classes_ = used;
}

void Recorder::add_point() {
    take_peaks();
    for (PortIndex port = 0; port < port_count_; ++port) {
        const PortCounters counters = network_.counters(port);
        const PortCounters delta = difference(counters, before_[port]);
        before_[port] = counters;
        double byte_ps = 0;
        for (unsigned rest = classes_; rest != 0; rest &= rest - 1) {
            const auto traffic_class = static_cast<std::uint8_t>(std::countr_zero(rest));
            QueueState& queue = state(port, traffic_class);
            const double now = network_.queue(port, traffic_class).byte_ps;
            byte_ps += now - queue.byte_ps;
            queue.byte_ps = now;
        }
        points_.push_back(
            {.sent_bytes = delta.bytes,
             .mean_queue_bytes = static_cast<std::uint64_t>(std::llround(byte_ps / static_cast<double>(interval_))),
             .peak_queue_bytes = interval_peak_[port],
             .dropped = delta.dropped,
             .marked = delta.marked,
             .lost = delta.lost,
             .pauses_heard = delta.pauses_heard,
             .paused_time = delta.paused_time});
        interval_peak_[port] = 0;
    }
    if (intervals() == most_intervals_) halve();
    next_point_ += interval_;
}

void Recorder::halve() {
    const std::size_t half = most_intervals_ / 2;
    for (std::size_t interval = 0; interval < half; ++interval)
        for (PortIndex port = 0; port < port_count_; ++port)
            points_[interval * port_count_ + port] = merged(point(2 * interval, port), point(2 * interval + 1, port));
    points_.resize(half * port_count_);
    interval_ *= 2;
}

void Recorder::begin_window() {
    take_peaks();
    window_begin_ = network_.now();
    window_end_ = window_begin_;
    window_ended_ = false;
    probes_ = 0;
    probe_weight_ = 0;
    window_before_.resize(port_count_);
    for (PortIndex port = 0; port < port_count_; ++port) {
        window_before_[port] = network_.counters(port);
        for (unsigned traffic_class = 0; traffic_class < max_classes; ++traffic_class) {
            QueueState& queue = state(port, traffic_class);
            queue.window_peak = network_.queued_bytes(port, static_cast<std::uint8_t>(traffic_class));
            queue.window_byte_ps = network_.queue(port, static_cast<std::uint8_t>(traffic_class)).byte_ps;
            queue.occupied.reset();
        }
    }
}

void Recorder::end_window() {
    if (window_ended_) return;
    window_ended_ = true;
    take_peaks();
    window_end_ = network_.now();
    queues_.clear();
    const auto length = static_cast<double>(std::max<Time>(1, window_end_ - window_begin_));
    for (PortIndex port = 0; port < port_count_; ++port) {
        window_[port] = difference(network_.counters(port), window_before_[port]);
        for (unsigned traffic_class = 0; traffic_class < max_classes; ++traffic_class) {
            const QueueState& queue = state(port, traffic_class);
            if (queue.window_peak == 0) continue;
            const auto number = static_cast<std::uint8_t>(traffic_class);
            const auto quantile = [&](double q) -> std::uint64_t {
                if (queue.occupied == nullptr) return 0;
                const auto all = static_cast<double>(probe_weight_);
                const auto occupied = static_cast<double>(queue.occupied->count());
                const double beyond_empty = q * all - (all - occupied);
                return beyond_empty > 0 ? queue.occupied->quantile(beyond_empty / occupied) : 0;
            };
            queues_.push_back({.port = port,
                               .traffic_class = number,
                               .mean_bytes = (network_.queue(port, number).byte_ps - queue.window_byte_ps) / length,
                               .p50_bytes = quantile(0.5),
                               .p90_bytes = quantile(0.9),
                               .p99_bytes = quantile(0.99),
                               .peak_bytes = queue.window_peak});
        }
    }
}

}  // namespace incast::sim::packet

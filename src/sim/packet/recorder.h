// What a switch tells of itself, over time: occupancy of queues with percentiles, utilisation of links, drops, marks,
// pauses. Looks at a Network from outside at instants of virtual time, so nothing that the network does depends on it.
//
// Means and peaks are exact, from the network's own counters. Percentiles are over probes, one at a random instant of
// each interval: at regular ones, traffic that is regular itself would be met in the same state every time. The series
// is bounded: when it is full, every two intervals become one, and so do the intervals to come; probes likewise.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/histogram.h"
#include "base/prng.h"
#include "sim/packet/network.h"

namespace incast::sim::packet {

struct RecorderSettings {
    Time interval = 10 * ps_per_us;       // of the series, at first; at least 1 ns
    std::uint32_t most_points = 200'000;  // of all ports together; at least 16 intervals are kept
    std::uint32_t most_probes = 2048;     // at a distance; then the distance doubles
    std::uint64_t seed = 1;
};

/// One port in one interval.
struct SeriesPoint {
    std::uint64_t sent_bytes = 0;
    std::uint64_t mean_queue_bytes = 0;  // all classes together
    std::uint64_t peak_queue_bytes = 0;  // of the class that held most
    std::uint64_t dropped = 0;
    std::uint64_t marked = 0;
    std::uint64_t lost = 0;
    std::uint64_t pauses_heard = 0;
    Time paused_time = 0;
};

/// One queue in the window.
struct QueueRecord {
    PortIndex port = 0;
    std::uint8_t traffic_class = 0;
    double mean_bytes = 0;
    std::uint64_t p50_bytes = 0;
    std::uint64_t p90_bytes = 0;
    std::uint64_t p99_bytes = 0;
    std::uint64_t peak_bytes = 0;
};

class Recorder {
public:
    /// The network outlives it. Restarts the peaks of its queues, which are this recorder's from now on.
    Recorder(Network& network, const RecorderSettings& settings);

    /// When it wants to look next: the network is advanced to this moment, then look() is called.
    [[nodiscard]] Time next_time() const { return next_probe_ < next_point_ ? next_probe_ : next_point_; }
    void look();

    /// Counters and percentiles are of the window, which begins with the recorder unless the first of these is called,
    /// and ends with the next call of the second; further ones do nothing. The series is of the whole time.
    void begin_window();
    void end_window();
    [[nodiscard]] bool window_ended() const { return window_ended_; }
    [[nodiscard]] Time window_begin() const { return window_begin_; }
    [[nodiscard]] Time window_end() const { return window_end_; }

    /// By port, of the window. After end_window().
    [[nodiscard]] const std::vector<PortCounters>& ports() const { return window_; }
    /// Queues that held anything in the window, by port and class. After end_window().
    [[nodiscard]] const std::vector<QueueRecord>& queues() const { return queues_; }
    [[nodiscard]] std::uint64_t probes() const { return probes_; }

    /// All intervals of the series have this length.
    [[nodiscard]] Time interval() const { return interval_; }
    [[nodiscard]] std::size_t intervals() const { return points_.size() / port_count_; }
    [[nodiscard]] const SeriesPoint& point(std::size_t interval, PortIndex port) const {
        return points_[interval * port_count_ + port];
    }

private:
    struct QueueState {
        double byte_ps = 0;  // when the interval began
        double window_byte_ps = 0;
        std::uint64_t window_peak = 0;
        std::unique_ptr<base::Histogram> occupied;  // of probes that found something; weighted
    };
    void add_point();
    void halve();
    void probe();
    void draw_probe(Time from);
    void take_peaks();
    QueueState& state(PortIndex port, unsigned traffic_class) { return states_[port * max_classes + traffic_class]; }

    Network& network_;
    RecorderSettings settings_;
    std::size_t port_count_;
    std::size_t most_intervals_;
    base::Prng prng_;
    Time interval_;
    Time next_point_;
    Time probe_interval_;
    Time probe_slot_ = 0;  // the interval of the next probe begins here
    Time next_probe_ = 0;
    std::uint32_t probes_at_distance_ = 0;
    std::uint64_t probes_ = 0;
    std::uint64_t probe_weight_ = 0;
    std::uint8_t classes_ = 0xff;  // in use when the peaks were last taken
    std::vector<QueueState> states_;
    std::vector<std::uint64_t> interval_peak_;  // by port
    std::vector<PortCounters> before_;          // when the interval began
    std::vector<PortCounters> window_before_;
    std::vector<PortCounters> window_;
    std::vector<QueueRecord> queues_;
    std::vector<SeriesPoint> points_;
    Time window_begin_ = 0;
    Time window_end_ = 0;
    bool window_ended_ = false;
};

/// What `later` counted more than `earlier`.
PortCounters difference(const PortCounters& later, const PortCounters& earlier);

}  // namespace incast::sim::packet

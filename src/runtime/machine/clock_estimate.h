// What the coordinator's clock shows, as seen from another host, from questions and answers (docs/measuring.md).
//
// The coordinator read its clock some time between question and answer, so the middle of the two is off by half the
// round trip at most. The least round trip of each 10 s counts; a line through those of the last minute follows clocks
// that run at different speeds. Until there are enough for a line, the best answer counts, which grows worse by the
// most that two crystals differ.
#pragma once

#include <cstdint>
#include <vector>

#include <incast/transport.h>

namespace incast::runtime {

class ClockEstimate {
public:
    struct Answer {
        std::int64_t asked_ns = 0;  // CLOCK_MONOTONIC of this host
        Time told = 0;              // the coordinator's time, read between the two
        std::int64_t answered_ns = 0;
    };
    /// False: it makes no sense. One that contradicts what was known ends that: a host was stopped, and its clock with
    /// it.
    bool add(const Answer& answer);

    /// From the first answer on.
    [[nodiscard]] bool known() const { return !points_.empty(); }
    /// There are answers enough for a line: one per second will do.
    [[nodiscard]] bool has_line() const { return has_line_; }
    /// The coordinator's time when CLOCK_MONOTONIC of this host shows that; off by error() at most.
    [[nodiscard]] Time at(std::int64_t local_ns) const;
    [[nodiscard]] Time error(std::int64_t local_ns) const;
    /// By how much the coordinator's clock runs faster than this one, in ps per ns.
    [[nodiscard]] double drift() const { return drift_; }

private:
    struct Point {
        std::int64_t at_ns = 0;  // since the first question
        Time offset = 0;         // the coordinator's time less that
        Time half = 0;           // of the round trip
    };
    [[nodiscard]] std::vector<Point> best_of_windows() const;
    void fit();
    void fit_point();

    std::int64_t begin_ns_ = 0;  // the first question
    std::vector<Point> points_;  // of the last minute
    bool has_line_ = false;
    double drift_ = 0;
    Point line_;                // through here; `half` is what it is off by there
    std::int64_t span_ns_ = 0;  // of the points that it is drawn through
};

}  // namespace incast::runtime

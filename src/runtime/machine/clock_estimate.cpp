#include "runtime/machine/clock_estimate.h"

#include <algorithm>
#include <cmath>

namespace incast::runtime {
namespace {

constexpr std::int64_t clock_second_ns = 1'000'000'000;
constexpr std::int64_t fit_window_ns = 10 * clock_second_ns;
constexpr std::int64_t fit_history_ns = 60 * clock_second_ns;
constexpr std::size_t least_windows = 3;
constexpr std::size_t most_points = 1000;
constexpr Time crystal_share = 5000;  // crystals are good to 100 ppm each
/// Beyond any run (26 days on either side): a peer that says so lies, and sums must not overflow.
constexpr Time clock_most = time_never / 4;

}  // namespace

bool ClockEstimate::add(const Answer& answer) {
    const std::int64_t begin_ns = known() ? begin_ns_ : answer.asked_ns;
    if (answer.told < 0 || answer.told > clock_most || answer.answered_ns < answer.asked_ns ||
        answer.answered_ns - begin_ns > clock_most / ps_per_ns || answer.asked_ns < begin_ns) {
        return false;
    }
    Point point;
    const std::int64_t round_trip_ns = answer.answered_ns - answer.asked_ns;
    point.at_ns = answer.asked_ns - begin_ns + round_trip_ns / 2;
    point.offset = answer.told - point.at_ns * ps_per_ns;
    point.half = (round_trip_ns + 1) / 2 * ps_per_ns;
    if (known()) {
        const std::int64_t local_ns = begin_ns_ + point.at_ns;
        if (std::abs(answer.told - at(local_ns)) > point.half + error(local_ns) + ps_per_us) {
            points_.clear();
        }
    }
    begin_ns_ = begin_ns;
    std::erase_if(points_, [&](const Point& each) { return each.at_ns < point.at_ns - fit_history_ns; });
    if (points_.size() >= most_points) {
        points_.erase(points_.begin());
    }
    points_.push_back(point);
    fit();
    return true;
}

/// The least round trip of each 10 s, the newest first.
std::vector<ClockEstimate::Point> ClockEstimate::best_of_windows() const {
    std::vector<Point> best;
    std::int64_t window = -1;
    for (auto each = points_.rbegin(); each != points_.rend(); ++each) {
        const std::int64_t of = (points_.back().at_ns - each->at_ns) / fit_window_ns;
        if (of != window) {
            best.push_back(*each);
            window = of;
        } else if (each->half < best.back().half) {
            best.back() = *each;
        }
    }
    return best;
}

void ClockEstimate::fit() {
    const std::vector<Point> best = best_of_windows();
    has_line_ = best.size() >= least_windows && best.front().at_ns - best.back().at_ns >= fit_window_ns;
    if (!has_line_) {
        fit_point();
        return;
    }
    const Point& last = best.front();  // sums count from here, so that no digits are lost
    const auto n = static_cast<double>(best.size());
    double x_mean = 0;
    double y_mean = 0;
    for (const Point& each : best) {
        x_mean += static_cast<double>(each.at_ns - last.at_ns) / n;
        y_mean += static_cast<double>(each.offset - last.offset) / n;
    }
    double xx = 0;
    double xy = 0;
    for (const Point& each : best) {
        const double x = static_cast<double>(each.at_ns - last.at_ns) - x_mean;
        xx += x * x;
        xy += x * (static_cast<double>(each.offset - last.offset) - y_mean);
    }
    drift_ = xy / xx;
    line_ = {last.at_ns, last.offset + static_cast<Time>(y_mean - drift_ * x_mean), 0};
    Time residual = 0;
    for (const Point& each : best) {
        const Time on_line = line_.offset + static_cast<Time>(drift_ * static_cast<double>(each.at_ns - line_.at_ns));
        residual = std::max(residual, std::abs(each.offset - on_line));
    }
    line_.half = last.half + residual;
    span_ns_ = best.front().at_ns - best.back().at_ns;
}

void ClockEstimate::fit_point() {
    const std::int64_t now_ns = points_.back().at_ns;
    const auto error_now = [&](const Point& each) {
        return each.half + (now_ns - each.at_ns) * ps_per_ns / crystal_share;
    };
    line_ = *std::ranges::min_element(points_, {}, error_now);
    drift_ = 0;
    span_ns_ = 0;
}

Time ClockEstimate::at(std::int64_t local_ns) const {
    const std::int64_t at_ns = local_ns - begin_ns_;
    return at_ns * ps_per_ns + line_.offset + static_cast<Time>(drift_ * static_cast<double>(at_ns - line_.at_ns));
}

Time ClockEstimate::error(std::int64_t local_ns) const {
    const std::int64_t age_ns = std::max<std::int64_t>(local_ns - begin_ns_ - line_.at_ns, 0);
    if (!has_line_) {
        return line_.half + age_ns * ps_per_ns / crystal_share;
    }
    // A line leads on for as long as the window that its last point is of; its slope is known as well as its ends are.
    const std::int64_t led_ns = std::min(age_ns, fit_window_ns);
    const auto slope = static_cast<Time>(static_cast<double>(line_.half) * static_cast<double>(led_ns) /
                                         static_cast<double>(span_ns_));
    return line_.half + slope + (age_ns - led_ns) * ps_per_ns / crystal_share;
}

}  // namespace incast::runtime

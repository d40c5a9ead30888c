#include "runtime/sinks/metered_sink.h"

#include <algorithm>

namespace incast::sinks {

MeteredSink::Begin MeteredSink::begin_of(const protocol::BuiltMep& mep) {
    if (!open_loop_ || mep.trigger == time_never) {
        return {mep.assigned, 0};
    }
    if (policy_ == sources::Policy::throttle) {
        // Each RU inhibits its triggers itself, from what it heard when: the event begins with the first of them.
        const auto spread = static_cast<std::uint64_t>((mep.last_trigger - mep.trigger) / ps_per_ns);
        stats_.trigger_spread_ns = std::max(stats_.trigger_spread_ns, spread);
    }
    return {mep.assigned, mep.trigger};
}

void MeteredSink::count(const protocol::BuiltMep& mep) {
    ++stats_.meps;
    stats_.events += mep.n_events;
    stats_.goodput_bytes += mep.goodput_bytes;
    stats_.incomplete_meps += mep.flagged_sources > 0 ? 1 : 0;
    stats_.redelivered_meps += mep.redelivered ? 1 : 0;
}

void MeteredSink::note_wrong(const std::vector<std::string>& lines) {
    constexpr std::size_t most_error_lines = 8;
    for (const std::string& line : lines) {
        ++stats_.verify_errors;
        if (stats_.first_errors.size() < most_error_lines) {
            stats_.first_errors.push_back(line);
        }
    }
}

void MeteredSink::count_latency(Time now, const Begin& begin) {
    const auto since = [now](Time time) {
        return static_cast<std::uint64_t>(std::max<Time>(now - time, 0) / ps_per_ns);
    };
    stats_.service_ns.record(since(begin.assigned));
    if (begin.trigger != 0) {
        stats_.trigger_ns.record(since(begin.trigger));
    }
    ++stats_.timed_meps;
    stats_.delay_ns += since(begin.trigger != 0 ? begin.trigger : begin.assigned);
}

}  // namespace incast::sinks

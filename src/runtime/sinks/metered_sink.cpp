#include "runtime/sinks/metered_sink.h"

#include <algorithm>

namespace incast::sinks {

MeteredSink::Begin MeteredSink::begin_of(const protocol::BuiltMep& mep) const {
    return {mep.assigned, open_loop_ && mep.trigger != time_never ? mep.trigger : 0};
}

void MeteredSink::count(const protocol::BuiltMep& mep) {
    ++stats_.meps;
    stats_.events += mep.n_events;
    stats_.goodput_bytes += mep.goodput_bytes;
    stats_.incomplete_meps += mep.missing_sources > 0 ? 1 : 0;
    stats_.missing_mfps += mep.missing_sources;
    stats_.redelivered_meps += mep.redelivered ? 1 : 0;
}

void MeteredSink::count_latency(Time now, const Begin& begin) {
    stats_.service_ns.record(static_cast<std::uint64_t>(std::max<Time>(now - begin.assigned, 0) / ps_per_ns));
    if (begin.trigger != 0) {
        stats_.trigger_ns.record(static_cast<std::uint64_t>(std::max<Time>(now - begin.trigger, 0) / ps_per_ns));
    }
}

}  // namespace incast::sinks

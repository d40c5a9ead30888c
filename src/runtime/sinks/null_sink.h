// Takes everything and looks at nothing: the cost of event building alone.
#pragma once

#include "runtime/sinks/metered_sink.h"

namespace incast::sinks {

class NullSink final : public MeteredSink {
public:
    using MeteredSink::MeteredSink;
    [[nodiscard]] bool wants_sources() const override { return false; }
    Taken take(Time now, const protocol::BuiltMep& mep) override {
        count(mep);
        count_latency(now, begin_of(mep));
        return Taken::done;
    }
};

}  // namespace incast::sinks

// Reads one word of each 64-byte line: what the first look of any consumer costs (EB-M5).
#pragma once

#include "runtime/sinks/metered_sink.h"

namespace incast::sinks {

class TouchSink final : public MeteredSink {
public:
    using MeteredSink::MeteredSink;
    Taken take(Time now, const protocol::BuiltMep& mep) override;
    /// Of the words read; kept so that no compiler leaves the reading out.
    [[nodiscard]] std::uint64_t sum() const { return sum_; }

private:
    std::uint64_t sum_ = 0;
};

}  // namespace incast::sinks

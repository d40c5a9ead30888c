// A log that strangers cannot fill.
#pragma once

#include <cstdint>
#include <string>

#include "transport/medium.h"

namespace incast::transport {

/// One line a second at most, which says how many were left out since the last.
class LimitedLog {
public:
    explicit LimitedLog(LogSink log) : log_(std::move(log)) {}

    void add(Time now, const std::string& line) {
        if (has_logged_ && now < next_) {
            ++left_out_;
            return;
        }
        has_logged_ = true;
        next_ = now + ps_per_s;
        if (log_) log_(left_out_ == 0 ? line : line + " (and " + std::to_string(left_out_) + " more like this)");
        left_out_ = 0;
    }

private:
    LogSink log_;
    bool has_logged_ = false;
    Time next_ = 0;
    std::uint64_t left_out_ = 0;
};

}  // namespace incast::transport

// CPU time of all processes with nodes, as results give it: every share is of the CPU time that the same two readings
// of a process say, over the time between them.
#pragma once

#include <algorithm>
#include <cstdint>

#include <nlohmann/json.hpp>

#include "runtime/record/metrics.h"

namespace incast::runtime {

class CpuUse {
public:
    /// What a node counted; `wall_ns`: the time in which its process did, 0 if another node's numbers hold it.
    void add(const NodeTotals& delta, std::uint64_t wall_ns) {
        cpu_ns_ += delta.cpu_ns;
        sink_ns_ += delta.sink_cpu_ns;
        polling_ns_ += delta.polling_cpu_ns;
        if (wall_ns > 0) {
            cores_ += static_cast<double>(delta.cpu_ns) / static_cast<double>(wall_ns);
            shortest_ns_ = std::min(shortest_ns_, wall_ns);
        }
    }

    [[nodiscard]] double seconds() const { return 1e-9 * static_cast<double>(cpu_ns_); }
    /// Both are estimated from samples: no more than there is.
    [[nodiscard]] double polling_seconds() const { return 1e-9 * static_cast<double>(std::min(polling_ns_, cpu_ns_)); }
    [[nodiscard]] double sink_seconds() const {
        return 1e-9 * static_cast<double>(std::min(sink_ns_, cpu_ns_ - std::min(polling_ns_, cpu_ns_)));
    }
    /// null: too short to say, or nobody lived to tell.
    [[nodiscard]] nlohmann::ordered_json cores() const {
        const bool known = shortest_ns_ >= shortest_known_ns && shortest_ns_ != UINT64_MAX;
        return known ? nlohmann::ordered_json(cores_) : nlohmann::ordered_json(nullptr);
    }

private:
    static constexpr std::uint64_t shortest_known_ns = 10'000'000;

    std::uint64_t cpu_ns_ = 0;
    std::uint64_t sink_ns_ = 0;
    std::uint64_t polling_ns_ = 0;
    double cores_ = 0;
    std::uint64_t shortest_ns_ = UINT64_MAX;
};

}  // namespace incast::runtime

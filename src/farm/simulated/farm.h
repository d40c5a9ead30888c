// Dispatchers and farm nodes of one simulated run.
//
// Both speak farm/book over the simulated network: a MEP travels as one write of as many bytes as the frames of
// farm/book/frames.h have, what a farm node says as messages.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include <incast/result.h>

#include "farm/simulated/dispatch_host.h"
#include "farm/simulated/farm_host.h"
#include "runtime/sinks/lending_sink.h"
#include "sim/world.h"

namespace incast::farm::simulated {

struct FarmOptions {
    std::vector<std::uint32_t> builders;  // nodes with a builder unit, each of which has a dispatcher
    std::uint32_t first_host = 0;         // of farm nodes, behind the nodes of the run
    std::uint32_t nodes = 1;
    bool own_network = false;       // each dispatcher has a host of its own, behind the farm nodes
    std::uint32_t dispatchers = 0;  // that each farm node takes from; 0: all
    std::uint32_t window = 8;       // MEPs that it has of each
    std::uint32_t processes = 1;
    std::uint32_t n_sources = 1;
    std::uint64_t mep_bytes = 0;  // the most that the MFPs of a MEP take
    std::uint64_t run = 0;
    Time work = 0;
    Limits limits{};
};

/// What a farm did between two times.
struct FarmCounts {
    FarmHostCounts nodes;          // of all together
    DispatcherCounts dispatchers;  // the same
    std::vector<double> goodput;   // bytes of each farm node
    std::vector<double> idle;      // the share of its processes' time, of each farm node
    Time time = 0;
};

class Farm {
public:
    static constexpr std::uint64_t most_mep_bytes_here = max_write_bytes - (std::uint64_t{1} << 20U);

    /// Error: the network has no place for it, or MEPs are too large.
    static Result<std::unique_ptr<Farm>> make(sim::World& world, FarmOptions options);

    /// The builder unit of that node has a new sink, or is about to lose the one it has. Other nodes are passed over.
    void attach(std::uint32_t builder, sinks::LendingSink& sink, std::function<void()> wake);
    void detach(std::uint32_t builder);
    void begin_window(Time now);
    void end_window(Time now);
    [[nodiscard]] FarmCounts counts() const;
    [[nodiscard]] std::uint32_t nodes() const { return options_.nodes; }
    [[nodiscard]] std::uint32_t dispatchers_of_each() const { return options_.dispatchers; }

    // --- faults
    // -------------------------------------------------------------------------------------------------------
    void kill(std::uint32_t node);
    /// Again, if it was killed.
    Result<Ok> start(std::uint32_t node);
    void leave(std::uint32_t node);
    [[nodiscard]] bool is_there(std::uint32_t node) const { return hosts_[node] != nullptr; }
    void watch(Witness& witness);
    [[nodiscard]] std::size_t in_flight() const;

private:
    struct Snapshot {
        std::vector<FarmHostCounts> nodes;
        DispatcherCounts dispatchers;
        Time at = 0;
    };

    Farm(sim::World& world, FarmOptions options) : world_(world), options_(std::move(options)) {}
    [[nodiscard]] std::size_t dispatcher_of(std::uint32_t node, std::uint32_t which) const {
        return (std::size_t{node} * options_.dispatchers + which) % dispatchers_.size();
    }
    [[nodiscard]] Snapshot snapshot(Time now) const;
    [[nodiscard]] DispatchHost* of(std::uint32_t builder) const;

    sim::World& world_;
    FarmOptions options_;
    std::uint64_t place_bytes_ = 0;
    std::uint32_t n_hosts_ = 0;
    std::vector<std::unique_ptr<DispatchHost>> dispatchers_;
    std::vector<std::unique_ptr<FarmHost>> hosts_;  // null: killed
    std::vector<std::uint32_t> incarnations_;
    std::vector<FarmHostCounts> gone_;  // what earlier incarnations did
    Witness* witness_ = nullptr;
    Snapshot begin_;
    Snapshot end_;
    bool has_ended_ = false;
};

}  // namespace incast::farm::simulated

// A run whose nodes all live in this process, in one thread: in real time over inproc, in virtual time over sim.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>

#include <incast/result.h>

#include "runtime/phases/run_control.h"
#include "runtime/plan/resolve.h"
#include "runtime/report/report.h"
#include "transport/medium.h"

namespace incast::sim {
class PacketModel;
}  // namespace incast::sim
namespace incast::farm::simulated {
class Farm;
}  // namespace incast::farm::simulated

namespace incast::runtime {

struct LocalOutcome {
    bool aborted = false;
    std::optional<std::uint64_t> trace_hash;  // virtual time
};

class LocalRun {
public:
    /// Everything is borrowed.
    LocalRun(const Plan& plan, transport::Medium& medium, Reporter& reporter);
    ~LocalRun();

    /// True if the medium is a simulated world, which moves the clock.
    [[nodiscard]] bool virtual_time() const;
    /// Until run control is done, or interrupted twice. Error: a node could not be set up.
    Result<LocalOutcome> run();
    [[nodiscard]] const RunControl& control() const;
    /// The packet model, if the run is on it and it records; the measured window has ended. nullptr: it is not.
    [[nodiscard]] sim::PacketModel* recorded_network();
    /// The farm, if the run has one; its measured window has ended. nullptr: it has none.
    [[nodiscard]] const farm::simulated::Farm* farm();

private:
    class Nodes;
    std::unique_ptr<Nodes> run_nodes_;
};

}  // namespace incast::runtime

// Conducts a run whose nodes are processes: starts them or waits for them, introduces them to each other, collects what
// they report.
#pragma once

#include <memory>
#include <vector>

#include <nlohmann/json.hpp>

#include <incast/result.h>

#include "runtime/launch/run_options.h"
#include "runtime/phases/run_control.h"
#include "runtime/plan/resolve.h"
#include "runtime/report/report.h"

namespace incast::runtime {

class Coordinator {
public:
    /// Everything is borrowed.
    Coordinator(const Plan& plan, const RunOptions& options, Reporter& reporter);
    ~Coordinator();

    /// Until the run is over and no process started here is left. False: aborted. Error: it could not begin.
    Result<bool> run();
    [[nodiscard]] const RunControl& control() const;
    /// As those nodes found theirs that joined from elsewhere.
    [[nodiscard]] const Inputs& inputs() const;
    /// Where the nodes are, by node; null: not known.
    [[nodiscard]] const std::vector<nlohmann::ordered_json>& places() const;

private:
    class Nodes;
    std::unique_ptr<Nodes> members_;
};

}  // namespace incast::runtime

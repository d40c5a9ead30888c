// result.json: what a run measured, and everything that is needed to believe it. EB-M1 to EB-M7;
// schema/result.schema.json.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "base/histogram.h"
#include "runtime/machine/machine.h"
#include "runtime/phases/run_control.h"
#include "runtime/plan/resolve.h"
#include "runtime/record/ledger.h"

namespace incast::runtime {

struct RunFacts {
    const Plan& plan;
    const Machine& machine;
    const RunControl& control;
    bool virtual_time = false;
    std::uint32_t processes = 1;              // that held nodes
    std::optional<std::uint64_t> trace_hash;  // simulated runs: the same seed gives the same
    std::optional<LedgerSummary> ledger;      // nothing if it could not be read
    std::string ledger_error;
    const nlohmann::ordered_json* network = nullptr;  // of the packet model, if it records
    const nlohmann::ordered_json* farm = nullptr;     // of a simulated run with one
    const nlohmann::ordered_json* incomplete_files = nullptr;
    const std::vector<nlohmann::ordered_json>* places = nullptr;  // of the nodes; null, or an entry: not known
    const Inputs* inputs = nullptr;  // with those of nodes that joined from elsewhere; null: the plan's
};

struct RunResult {
    std::string json;     // result.json
    std::string summary;  // some lines for a person
    int exit_status = 0;
};
RunResult make_result(const RunFacts& facts);
/// Of raw traffic: schema/net_result.schema.json.
RunResult make_net_result(const RunFacts& facts);

/// Values by key ("run.nodes") as sections with typed values, as schema/config.schema.json has them.
nlohmann::ordered_json config_json(const std::map<std::string, std::string>& values);

nlohmann::ordered_json machine_json(const Machine& machine);
/// What the ports of all hosts grew by in the measured window, or in the whole run; each once.
nlohmann::ordered_json ports_json(const std::vector<NodeRecord>& nodes);
nlohmann::ordered_json versions_json();
nlohmann::ordered_json datagrams_json(const NodeTotals& totals);

/// Into a node's entry: what came of each of its boards.
void add_boards(nlohmann::ordered_json& entry, const protocol::Config& config, std::size_t node,
                const NodeSample& sample);
/// Into a node's entry: which host it was on, and by which address others reached it.
void add_place(nlohmann::ordered_json& entry, const RunFacts& facts, std::size_t node);

/// Empty: the latency is known well enough for the clocks of the hosts. Nothing was timed: also empty.
std::string why_no_latency(const base::Histogram& latency, std::uint64_t clock_error_ns);
/// In ns. `open_loop`: from the trigger on. The least is up to 3.2 % less than it was, the others up to 3.2 % more.
nlohmann::ordered_json latency_json(const base::Histogram& latency, bool open_loop, std::uint64_t clock_error_ns);

/// How much of the events' content was compared.
std::string_view verified_text(const RunConfig& config, bool virtual_time);
/// Rates of triggers over the time: at most 1000 points, of equal numbers of intervals.
nlohmann::ordered_json triggers_over_time(const Plan& plan, const std::vector<Interval>& intervals);

}  // namespace incast::runtime

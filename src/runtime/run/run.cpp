#include "runtime/run/run.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "os/signals.h"
#include "os/socket.h"
#include "runtime/launch/coordinator.h"
#include "runtime/launch/local_run.h"
#include "runtime/machine/exit_status.h"
#include "runtime/machine/limits.h"
#include "runtime/machine/machine.h"
#include "runtime/monitor/metrics_server.h"
#include "runtime/plan/announcement.h"
#include "runtime/plan/inputs.h"
#include "runtime/plan/resolve.h"
#include "runtime/results/farm_results.h"
#include "runtime/results/network_report.h"
#include "runtime/results/results.h"
#include "transport/builtin/builtin.h"

namespace incast::runtime {
namespace {

constexpr const char* result_name = "result.json";

int refuse(const Error& error, int status) {
    // Not fmt::print, which throws where nobody reads.
    std::fputs(fmt::format("incast-node: {}\n", error.message).c_str(), stderr);
    return status;
}

/// Transports whose endpoints share this process's memory, or its virtual clock, cannot have nodes elsewhere.
bool is_local(const Plan& plan) {
    return plan.config.traits().in_process;
}

Result<Ok> check(const Plan& plan, const RunOptions& options) {
    const std::uint32_t spawn = options.spawn.value_or(0);
    if (is_local(plan) && spawn != 0) {
        return Error{
            fmt::format("--spawn {}: over {} all nodes live in one process; allowed: 0", spawn, plan.config.transport)};
    }
    if (spawn > plan.n_nodes) {
        return Error{
            fmt::format("--spawn {}: the run has {} nodes; allowed: 0..{}", spawn, plan.n_nodes, plan.n_nodes)};
    }
    if (plan.config.traits().nature.launch) {
        if (transport::launched_rank()) {
            return Error{
                fmt::format("transport {}: a launcher started this program, which starts one by itself; allowed: "
                            "without it, or --join --by-rank",
                            plan.config.transport)};
        }
        if (spawn != 0 && spawn != plan.n_nodes) {
            return Error{fmt::format("--spawn {}: over {} one launcher starts all nodes; allowed: 0 or {}", spawn,
                                     plan.config.transport, plan.n_nodes)};
        }
    }
    if (const Result<os::HostPort> listen = os::parse_host_port(options.listen); !options.listen.empty() && !listen) {
        return Error{"--listen: " + listen.error().message};
    }
    if (plan.config.metrics != "off") {
        if (plan.config.traits().simulated) {
            return Error{
                fmt::format("run.metrics = {}: nobody can scrape virtual time; allowed: off", plan.config.metrics)};
        }
        if (const Result<std::string> last = metrics_address(plan.config.metrics, plan.n_nodes - 1); !last) {
            return last.error();
        }
    }
    return Ok{};
}

/// The files of a run that starts `here` nodes: the coordinator has a connection with every node and watches those that
/// it starts; a node is connected with all.
std::uint64_t open_files(const Plan& plan, std::uint32_t here) {
    const auto streams = plan.config.transport_settings.find("streams");
    const std::uint64_t per_peer =
        streams == plan.config.transport_settings.end() ? 1 : std::strtoull(streams->second.c_str(), nullptr, 10);
    const std::uint64_t conducting = plan.n_nodes + here;
    const std::uint64_t taking_part = here > 0 ? (plan.n_nodes - 1) * per_peer : 0;
    return std::max(conducting, taking_part);
}

/// `here`: nodes of this host.
void announce(const Plan& plan, std::uint32_t here, const std::string& because, Reporter& reporter) {
    reporter.plan(announcement(plan, because));
    for (const std::string& line : input_warnings(plan, plan.inputs, 0, here)) {
        reporter.notice(Level::warning, line);
    }
}

RunResult result_of(RunFacts facts, Reporter& reporter) {
    if (!facts.plan.is_net()) {
        const Result<LedgerSummary> ledger =
            read_ledger(reporter.directory() / "ledger.bin", {}, facts.plan.mep_events);
        if (ledger) {
            facts.ledger = *ledger;
            if (ledger->missing > 0) {
                reporter.is_incomplete("ledger.bin", ledger->missing, ledger->reason);
            }
        } else {
            facts.ledger_error = ledger.error().message;
            const auto em = static_cast<std::size_t>(facts.plan.protocol.em);
            if (facts.places != nullptr && facts.places->at(em).contains("folder")) {
                const nlohmann::ordered_json& place = facts.places->at(em);
                facts.ledger_error = fmt::format("it is on {}: {}/ledger.bin", place["host"].get<std::string>(),
                                                 place["folder"].get<std::string>());
            }
        }
    }
    const nlohmann::ordered_json incomplete = reporter.incomplete_files();
    facts.incomplete_files = &incomplete;
    return facts.plan.is_net() ? make_net_result(facts) : make_result(facts);
}

/// Room for result.json: some KB for each node, and in open loop at most 1000 lines over time.
std::uint64_t size_of_result(const Plan& plan) {
    constexpr std::uint64_t common = 32U << 10U;
    constexpr std::uint64_t of_a_node = 6U << 10U;
    constexpr std::uint64_t of_a_pair = 1U << 10U;
    constexpr std::uint64_t over_time = 400U << 10U;
    constexpr std::uint64_t of_a_file = 400;
    return common + plan.n_nodes * of_a_node + plan.inputs.files.size() * of_a_file +
           (plan.is_net() ? plan.net.pairs.size() * of_a_pair : 0) + (plan.config.trigger_rate > 0 ? over_time : 0);
}

int finish(const RunFacts& facts, Reporter& reporter) {
    const RunResult result = result_of(facts, reporter);
    const std::filesystem::path file = reporter.directory() / result_name;
    if (const Result<Ok> written = write_whole(file, result.json); !written) {
        reporter.notice(Level::error, written.error().message + "; what it would say:");
        reporter.notice(Level::info, result.summary);
        return exit_failed;
    }
    reporter.result(file, result.summary);
    return result.exit_status;
}

int run_and_report(const Plan& plan, transport::Medium& medium, const Machine& machine, const RunOptions& options,
                   Reporter& reporter) {
    if (is_local(plan)) {
        LocalRun local(plan, medium, reporter);
        const Result<LocalOutcome> outcome = local.run();
        if (!outcome) {
            reporter.notice(Level::error, with_memory_limit(outcome.error()).message);
            return exit_failed;
        }
        if (outcome->aborted) {
            reporter.notice(Level::error, "aborted: no result was written");
            return exit_aborted;
        }
        RunFacts facts{plan, machine, local.control(), local.virtual_time(), 1, outcome->trace_hash, {}, {}, {}};
        nlohmann::ordered_json network;
        if (sim::PacketModel* const model = local.recorded_network(); model != nullptr) {
            network = report_network(*model, reporter);
            facts.network = &network;
        }
        nlohmann::ordered_json farm;
        if (const farm::simulated::Farm* const made = local.farm(); made != nullptr) {
            farm = farm_json(*made);
            facts.farm = &farm;
        }
        return finish(facts, reporter);
    }
    Coordinator coordinator(plan, options, reporter);
    const Result<bool> ended = coordinator.run();
    if (!ended) {
        reporter.notice(Level::error, ended.error().message);
        return exit_failed;
    }
    if (!*ended) {
        reporter.notice(Level::error, "aborted: no result was written");
        return exit_aborted;
    }
    RunFacts facts{plan, machine, coordinator.control(), false, plan.n_nodes, {}, {}, {}, {}};
    facts.inputs = &coordinator.inputs();
    facts.places = &coordinator.places();
    return finish(facts, reporter);
}

}  // namespace

int run(const ConfigText& config, const RunOptions& options) {
    prepare_descriptors();
    Machine machine = read_machine();
    if (options.check_only) {
        machine.plain_over_streaming = nullptr;  // a config is right or wrong on every machine: nothing is measured
    }
    ConfigText asked = config;
    std::string because;
    if (const auto name = asked.given().find("transport.name"); name == asked.given().end() || name->second == "auto") {
        const bool elsewhere = options.spawn.has_value();
        const std::string_view best = transport::chosen_transport(elsewhere).name;
        because = elsewhere ? "as nodes may be on other hosts" : "as all are on this host";
        if (const Result<Ok> done = asked.set("transport.name", std::string(best)); !done) {
            return refuse(done.error(), exit_bad_config);
        }
    }
    const Result<Plan> plan = resolve(asked, machine);
    if (!plan) {
        return refuse(plan.error(), exit_bad_config);
    }
    const Result<std::unique_ptr<transport::Medium>> medium =
        transport::make_medium(*transport::find_transport(plan->config.transport), plan->config.transport_settings);
    if (!medium) {
        return refuse(medium.error(), exit_bad_config);
    }
    if (Result<Ok> checked = check(*plan, options); !checked) {
        return refuse(checked.error(), exit_bad_config);
    }
    const std::string former = asked.warning();
    if (options.check_only) {
        if (!former.empty()) std::fputs(fmt::format("incast-node: warning: {}\n", former).c_str(), stderr);
        return exit_ok;
    }
    const std::uint32_t here = is_local(*plan) ? 1 : options.spawn.value_or(plan->n_nodes);
    if (!is_local(*plan)) {
        const std::string who = fmt::format("{} nodes over {}", plan->n_nodes, plan->config.transport);
        if (Result<Ok> enough = check_file_limit(open_files(*plan, here), who); !enough) {
            return refuse(enough.error(), exit_failed);
        }
    }
    if (Result<Ok> free = try_metrics(plan->config.metrics, here); !free) {
        return refuse(free.error(), exit_bad_config);
    }
    Result<std::unique_ptr<Reporter>> reporter = Reporter::open(options.output, options.progress, options.replace);
    if (!reporter) {
        return refuse(reporter.error(), exit_bad_config);
    }
    os::count_interrupts();
    os::watch_over(options.watched_by);
    const std::filesystem::path result_file = (*reporter)->directory() / result_name;
    reserve_for(result_file, size_of_result(*plan));
    (*reporter)->write_file("config.toml", config_toml(plan->values));
    if (plan->config.sink_kind == SinkKind::mep && here > 0) {
        (*reporter)->watch_disk(plan->config.sink_path);
    }
    if (!former.empty()) (*reporter)->notice(Level::warning, former);
    announce(*plan, is_local(*plan) ? plan->n_nodes : here, because, **reporter);
    const int status = run_and_report(*plan, **medium, machine, options, **reporter);
    give_up_reserve(result_file);  // of a run without a result
    return status;
}

}  // namespace incast::runtime

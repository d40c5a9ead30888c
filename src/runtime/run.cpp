#include "runtime/run.h"

#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/units.h"
#include "runtime/coordinator.h"
#include "runtime/exit_status.h"
#include "runtime/local_run.h"
#include "runtime/machine.h"
#include "runtime/metrics_server.h"
#include "runtime/network_report.h"
#include "runtime/resolve.h"
#include "runtime/results.h"
#include "runtime/signals.h"
#include "runtime/socket.h"

namespace incast::runtime {
namespace {

int refuse(const Error& error, int status) {
    fmt::print(stderr, "incast-node: {}\n", error.message);
    return status;
}

/// Transports whose endpoints share this process's memory, or its virtual clock, cannot have nodes elsewhere.
bool is_local(const Plan& plan) {
    return plan.config.transport == "inproc" || plan.config.transport == "sim";
}

/// A transport names its setting; the person knows it by its whole key.
Error with_whole_key(const Plan& plan, const Error& error) {
    for (const transport::Parameter& parameter : transport::find_transport(plan.config.transport)->parameters) {
        if (error.message.starts_with(std::string(parameter.name) + " ")) {
            return {fmt::format("transport.{}.{}; allowed: {}", plan.config.transport, error.message, parameter.range)};
        }
    }
    return {fmt::format("transport {}: {}", plan.config.transport, error.message)};
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
    if (const Result<HostPort> listen = parse_host_port(options.listen); !listen) {
        return Error{"--listen: " + listen.error().message};
    }
    if (plan.config.metrics != "off") {
        if (plan.config.transport == "sim") {
            return Error{
                fmt::format("run.metrics = {}: nobody can scrape virtual time; allowed: off", plan.config.metrics)};
        }
        if (const Result<std::string> last = metrics_address(plan.config.metrics, plan.n_nodes - 1); !last) {
            return last.error();
        }
    }
    return Ok{};
}

void announce(const Plan& plan, std::vector<std::string> chosen, Reporter& reporter) {
    const auto bytes = [](std::uint64_t value) { return base::format_bytes(static_cast<double>(value)); };
    if (plan.is_net()) {
        reporter.notice(
            Level::info,
            fmt::format(
                "{} nodes, {} pairs ({}{}) over {}; queues per pair {}, messages in flight {} each, of {}; slots per "
                "receiver up to {}, ring per sender {}; working set {}",
                plan.n_nodes, plan.net.pairs.size(), plan.values.at("net.pattern"),
                plan.config.duplex ? ", duplex" : "", plan.config.transport, plan.net.queues, plan.net.outstanding,
                bytes(plan.net.message_bytes), bytes(plan.bu_memory_bytes), bytes(plan.ru_memory_bytes),
                bytes(plan.working_set_bytes)));
        return;
    }
    reporter.notice(
        Level::info,
        fmt::format("{} nodes ({} RU, {} BU) over {}; MFP {} = {} events, slot {}, {} credit{}; memory per BU {}, per "
                    "RU {} (F1 asks for {}); working set {}",
                    plan.n_nodes, plan.n_rus, plan.n_bus, plan.config.transport, bytes(plan.mfp_bytes), plan.packing,
                    bytes(plan.slot_bytes), plan.config.credits, plan.config.credits == 1 ? "" : "s",
                    bytes(plan.bu_memory_bytes), bytes(plan.ru_memory_bytes), bytes(plan.ru_memory_needed_bytes),
                    bytes(plan.working_set_bytes)));
    chosen.insert(chosen.end(), plan.chosen.begin(), plan.chosen.end());
    if (!chosen.empty()) {
        reporter.notice(Level::info, fmt::format("chosen: {}", fmt::join(chosen, "; ")));
    }
}

RunResult result_of(RunFacts facts, const Reporter& reporter) {
    if (facts.plan.is_net()) {
        return make_net_result(facts);
    }
    const Result<LedgerSummary> ledger = read_ledger(reporter.directory() / "ledger.bin", {});
    if (ledger) {
        facts.ledger = *ledger;
    } else {
        facts.ledger_error = ledger.error().message;
    }
    return make_result(facts);
}

int finish(const RunFacts& facts, Reporter& reporter) {
    const RunResult result = result_of(facts, reporter);
    const Result<std::filesystem::path> file = write_result(reporter.directory(), result.json);
    if (!file) {
        reporter.notice(Level::error, file.error().message);
        return exit_failed;
    }
    reporter.result(*file, result.summary);
    return result.exit_status;
}

}  // namespace

int run(const ConfigText& config, const RunOptions& options) {
    const Machine machine = read_machine();
    ConfigText asked = config;
    std::vector<std::string> chosen;
    if (const auto name = asked.given().find("transport.name"); name == asked.given().end() || name->second == "auto") {
        const bool elsewhere = options.spawn.has_value();
        chosen.emplace_back(elsewhere ? "tcp, because nodes may be on other hosts"
                                      : "shm, because all nodes are on this host");
        if (const Result<Ok> done = asked.set("transport.name", elsewhere ? "tcp" : "shm"); !done) {
            return refuse(done.error(), exit_bad_config);
        }
    }
    const Result<Plan> plan = resolve(asked, machine);
    if (!plan) {
        return refuse(plan.error(), exit_bad_config);
    }
    const Result<std::unique_ptr<transport::Medium>> medium =
        transport::find_transport(plan->config.transport)->make(plan->config.transport_settings);
    if (!medium) {
        return refuse(with_whole_key(*plan, medium.error()), exit_bad_config);
    }
    if (Result<Ok> checked = check(*plan, options); !checked) {
        return refuse(checked.error(), exit_bad_config);
    }
    if (options.check_only) {
        return exit_ok;
    }
    Result<std::unique_ptr<Reporter>> reporter = Reporter::open(options.output, options.progress);
    if (!reporter) {
        return refuse(reporter.error(), exit_bad_config);
    }
    std::ofstream(options.output / "config.toml") << config_toml(plan->values);
    announce(*plan, std::move(chosen), **reporter);
    count_interrupts();

    if (is_local(*plan)) {
        LocalRun local(*plan, **medium, **reporter);
        const Result<LocalOutcome> outcome = local.run();
        if (!outcome) {
            (*reporter)->notice(Level::error, outcome.error().message);
            return exit_failed;
        }
        if (outcome->aborted) {
            (*reporter)->notice(Level::error, "aborted: no result was written");
            return exit_aborted;
        }
        RunFacts facts{*plan, machine, local.conductor(), local.virtual_time(), 1, outcome->trace_hash, {}, {}, {}};
        nlohmann::ordered_json network;
        if (sim::PacketModel* const model = local.recorded_network(); model != nullptr) {
            Result<nlohmann::ordered_json> reported = report_network(*model, (*reporter)->directory());
            if (!reported) {
                (*reporter)->notice(Level::error, reported.error().message);
                return exit_failed;
            }
            network = std::move(*reported);
            facts.network = &network;
        }
        return finish(facts, **reporter);
    }
    Coordinator coordinator(*plan, options, **reporter);
    const Result<bool> ended = coordinator.run();
    if (!ended) {
        (*reporter)->notice(Level::error, ended.error().message);
        return exit_failed;
    }
    if (!*ended) {
        (*reporter)->notice(Level::error, "aborted: no result was written");
        return exit_aborted;
    }
    return finish({*plan, machine, coordinator.conductor(), false, plan->n_nodes, {}, {}, {}, {}}, **reporter);
}

}  // namespace incast::runtime

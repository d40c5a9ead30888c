#include "runtime/flows/flows.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/units.h"
#include "os/signals.h"
#include "runtime/config/json.h"
#include "runtime/flows/flow_results.h"
#include "runtime/machine/exit_status.h"
#include "runtime/machine/limits.h"
#include "runtime/machine/machine.h"
#include "runtime/record/record_file.h"
#include "runtime/results/network_report.h"
#include "runtime/results/results.h"
#include "sim/fabric/fabric.h"
#include "sim/flows/simulation.h"

namespace incast::runtime {
namespace {

using base::seconds;
using sim::flows::Flow;
using sim::flows::Simulation;
using sim::flows::State;

constexpr const char* result_name = "result.json";
constexpr unsigned most_threads = 16;

/// Real time, in picoseconds since some moment.
Time clock_now() {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
               .count() *
           ps_per_ns;
}

bool is_to_stop() {
    return os::interrupts() > 0 || os::watcher_is_gone(clock_now());
}

/// A stream that repeats for ever would never let it end: after ten times as long as all flows would take one by one
/// over the slowest cable, and ten seconds for what waits for time-outs, it is over.
Time longest(const sim::fabric::Fabric& fabric, const std::vector<Flow>& flows) {
    std::uint64_t slowest = ~std::uint64_t{0};
    for (const auto& cable : fabric.topology.cables)
        slowest = std::min(slowest, cable.rate.bits_per_s);
    double bits = 0;
    Time last = 0;
    for (const Flow& flow : flows) {
        bits += 8 * static_cast<double>(flow.bytes);
        last = std::max(last, flow.start);
    }
    const double more_s = 10 + 10 * bits / static_cast<double>(slowest);
    constexpr double most_s = 1'000'000;
    return last + static_cast<Time>(std::min(more_s, most_s)) * ps_per_s;
}

class FlowsRun {
public:
    FlowsRun(const FlowsOptions& options, const sim::fabric::Fabric& fabric, const std::vector<Flow>& flows,
             Simulation& simulation, Reporter& reporter)
        : options_(options), fabric_(fabric), flows_(flows), simulation_(simulation), reporter_(reporter) {}

    int run();

private:
    void simulate();
    void simulate_alone();
    void report_progress();
    [[nodiscard]] std::string_view status() const;
    [[nodiscard]] OrderedJson result();
    [[nodiscard]] std::vector<std::uint64_t> repeated_by_host() const;

    const FlowsOptions& options_;
    const sim::fabric::Fabric& fabric_;
    const std::vector<Flow>& flows_;
    Simulation& simulation_;
    Reporter& reporter_;
    State state_ = State::running;
    std::vector<Time> alone_;
    Time next_report_ = 0;
    Time reported_ = 0;  // virtual
    std::uint64_t reported_bytes_ = 0;
    std::uint64_t reported_flows_ = 0;
};

void FlowsRun::report_progress() {
    constexpr Time interval = 500 * ps_per_ms;
    const Time now = clock_now();
    const Time span = simulation_.network().now() - reported_;
    if (now < next_report_ || span == 0) return;
    next_report_ = now + interval;
    const auto per_s = [&](std::uint64_t value) { return static_cast<double>(value) / seconds(span); };
    reporter_.interval({{"type", "sample"},
                        {"t", seconds(simulation_.network().now())},
                        {"goodput_bytes_per_s", per_s(simulation_.delivered_bytes() - reported_bytes_)},
                        {"events_per_s", per_s(simulation_.ended() - reported_flows_)},
                        {"nodes", OrderedJson::array()}});
    reported_ = simulation_.network().now();
    reported_bytes_ = simulation_.delivered_bytes();
    reported_flows_ = simulation_.ended();
}

void FlowsRun::simulate() {
    constexpr Time step = 100 * ps_per_us;  // of which each takes some milliseconds where it is busy
    reporter_.phase("flows");
    const Time until = options_.until.value_or(longest(fabric_, flows_));
    while (state_ == State::running && !is_to_stop()) {
        state_ = simulation_.advance(step, until);
        report_progress();
    }
    simulation_.recorder()->end_window();
}

void FlowsRun::simulate_alone() {
    alone_.assign(flows_.size(), time_never);
    if (!options_.alone || is_to_stop()) return;
    reporter_.phase("alone");
    const unsigned threads = std::clamp(read_machine().cores, 1U, most_threads);
    // Of those that were not delivered nobody asks.
    std::vector<Flow> delivered;
    std::vector<std::size_t> index;
    for (std::size_t flow = 0; flow < flows_.size(); ++flow) {
        if (simulation_.records()[flow].delivered == time_never) continue;
        delivered.push_back(flows_[flow]);
        index.push_back(flow);
    }
    const std::vector<Time> times =
        sim::flows::times_alone(fabric_, delivered, options_.seed, threads, [] { return is_to_stop(); });
    for (std::size_t flow = 0; flow < index.size(); ++flow)
        alone_[index[flow]] = times[flow];
}

std::string_view FlowsRun::status() const {
    switch (state_) {
        case State::running:
            return "stopped";
        case State::ended:
            return "complete";
        case State::stuck:
            return "stuck";
        case State::out_of_time:
            return "out of time";
    }
    return "";
}

std::vector<std::uint64_t> FlowsRun::repeated_by_host() const {
    std::vector<std::uint64_t> packets(fabric_.topology.host_count());
    for (std::size_t flow = 0; flow < flows_.size(); ++flow)
        packets[flows_[flow].source] += simulation_.records()[flow].repeated;
    return packets;
}

OrderedJson FlowsRun::result() {
    const FlowFacts facts{fabric_, flows_, simulation_.records(), alone_};
    write_flows(facts, reporter_);
    const std::vector<std::uint64_t> repeated = repeated_by_host();
    std::uint64_t bytes = 0;
    for (const Flow& flow : flows_)
        bytes += flow.bytes;
    sim::packet::Network& network = simulation_.network();
    const double span = seconds(simulation_.recorder()->window_end());
    OrderedJson json{{"kind", "flows"},
                     {"time_domain", "virtual"},
                     {"status", status()},
                     {"seed", fabric_.fixes_seed ? fabric_.settings.seed : options_.seed},
                     {"flows_file", options_.name},
                     {"fabric_file", options_.fabric.string()}};
    json["flows"] = {{"offered", flows_.size()},
                     {"ended", simulation_.ended()},
                     {"bytes", bytes},
                     {"delivered_bytes", simulation_.delivered_bytes()},
                     {"most_streams", simulation_.streams()}};
    json["seconds"] = span;
    json["bytes_per_s"] = span > 0 ? static_cast<double>(simulation_.delivered_bytes()) / span : 0.0;
    json["by_size"] = flows_by_size(facts);
    json["slowdown_is"] =
        options_.alone ? "completion time over that of the same flow alone in the empty network" : OrderedJson(nullptr);
    json["network"] = report_network({fabric_, network, *simulation_.recorder(), repeated}, reporter_);
    json["trace_hash"] = fmt::format("{:016x}", network.trace_hash());
    const Usage usage = process_usage();
    json["cpu_s"] = static_cast<double>(usage.cpu_ns) / 1e9;
    json["peak_rss_bytes"] = usage.peak_rss_bytes;
    json["machine"] = machine_json(read_machine());
    json["versions"] = versions_json();
    json["incomplete_files"] = reporter_.incomplete_files();
    return json;
}

int FlowsRun::run() {
    reporter_.notice(Level::info, fmt::format("{} flows on fabric {}, {} hosts", flows_.size(), fabric_.name,
                                              fabric_.topology.host_count()));
    simulation_.record({.seed = options_.seed});
    simulate();
    simulate_alone();
    if (os::interrupts() > 1) {
        reporter_.notice(Level::error, "aborted: no result was written");
        return exit_aborted;
    }
    const OrderedJson json = result();
    const std::filesystem::path file = reporter_.directory() / result_name;
    const std::string summary =
        fmt::format("{} of {} flows have ended in {:.6f} s of virtual time: {}", simulation_.ended(), flows_.size(),
                    json["seconds"].get<double>(), status());
    if (const Result<Ok> written = write_whole(file, json.dump(2) + "\n"); !written) {
        reporter_.notice(Level::error, written.error().message + "; what it would say:");
        reporter_.notice(Level::info, summary);
        return exit_failed;
    }
    reporter_.result(file, summary);
    return state_ == State::ended || (state_ == State::out_of_time && options_.until) ? exit_ok : exit_failed;
}

int refuse(const std::string& text) {
    std::fputs(fmt::format("incast-node: {}\n", text).c_str(), stderr);
    return exit_bad_config;
}

}  // namespace

int run_flows(const FlowsOptions& options) {
    const Result<sim::fabric::Fabric> fabric = sim::fabric::read(options.fabric);
    if (!fabric) return refuse(fabric.error().message);
    const Result<std::vector<Flow>> flows =
        within_limits([&] { return sim::flows::read_flows(options.flows, options.name, *fabric); });
    if (!flows) return refuse(flows.error().message);
    const Result<std::unique_ptr<Simulation>> simulation = Simulation::make(*fabric, *flows, options.seed);
    if (!simulation) return refuse(simulation.error().message);
    Result<std::unique_ptr<Reporter>> reporter = Reporter::open(options.output, options.progress, options.replace);
    if (!reporter) return refuse(reporter.error().message);
    os::count_interrupts();
    os::watch_over(options.watched_by);
    return FlowsRun(options, *fabric, *flows, **simulation, **reporter).run();
}

}  // namespace incast::runtime

#include "runtime/plan/resolve.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <numeric>

#include <fmt/format.h>

#include "base/units.h"
#include "consumer/layout.h"
#include "runtime/plan/resolve_parts.h"
#include "runtime/plan/source_options.h"
#include "runtime/sources/mfp_plan.h"
#include "runtime/sources/replay_files.h"
#include "runtime/sources/ring_source.h"
#include "wire/mfp.h"

namespace incast::runtime {
namespace {

constexpr std::uint8_t fragment_align_log2 = sources::generated_align_log2;
constexpr std::uint64_t default_cache_bytes = 16U << 20U;  // where the machine does not say
constexpr std::uint64_t region_line_bytes = 64;
constexpr std::uint64_t max_retention_meps = std::uint64_t{1} << 20U;  // protocol::validate

/// As many mean fragments as fit into mfp_size, at least one.
std::uint32_t packing_for(std::uint64_t mfp_size, std::uint32_t fragment_bytes) {
    std::uint32_t low = 1;
    std::uint32_t high = wire::mfp_max_fragments;
    while (low < high) {
        const std::uint32_t middle = low + (high - low + 1) / 2;
        if (wire::mfp_bytes(middle, fragment_bytes, fragment_align_log2).packet_bytes <= mfp_size) {
            low = middle;
        } else {
            high = middle - 1;
        }
    }
    return low;
}

/// Upper bound of a generated MFP of a source whose sizes are `factor` times the usual: what exceeds it is truncated
/// and flagged (EB-S4). Sizes vary from event to event, so the sum of `packing` of them strays from its mean by some
/// standard deviations times the root of `packing`, or of more where events share a factor; the constant term is for
/// the tail of a single fragment.
std::uint64_t generated_cap(const RunConfig& config, const sources::SizeOptions& sizes, std::uint32_t packing,
                            double factor) {
    if (config.size_distribution == SizeDistribution::fixed) {
        const double bytes = std::floor(sizes.mean_bytes * factor + 0.5);
        return wire::mfp_bytes(packing, static_cast<std::uint32_t>(bytes), fragment_align_log2).packet_bytes;
    }
    constexpr double sum_deviations = 5;
    constexpr double tail_deviations = 16;
    const double n = packing;
    const double together = std::min(n, static_cast<double>(sizes.correlated_events));
    const double root = std::sqrt(n * (1 + sizes.correlation * (together - 1)));
    const double sum = factor * (n * sizes.mean_bytes + sizes.sigma_bytes * (sum_deviations * root + tail_deviations));
    const std::uint64_t payload = static_cast<std::uint64_t>(std::min(sum, n * sizes.max_bytes));
    const std::uint64_t padding = ((std::uint64_t{1} << fragment_align_log2) - 1) * packing;
    return wire::mfp_prefix_bytes(packing, true) + payload + padding;
}

/// Files that describe sizes and triggers, and what follows from them.
Result<Ok> read_shapes(Plan& plan) {
    RunConfig& config = plan.config;
    if (config.size_distribution == SizeDistribution::histogram && config.source_kind == SourceKind::generator) {
        auto histogram = sources::read_size_histogram(config.size_histogram);
        if (!histogram) {
            return not_allowed("source.size_histogram", config.size_histogram, histogram.error().message,
                               "a file with bin edges and weights");
        }
        plan.size_histogram = std::move(*histogram);
        config.fragment_size =
            std::max<std::uint64_t>(1, static_cast<std::uint64_t>(std::llround(plan.size_histogram->mean())));
    }
    sources::TriggerOptions& triggers = plan.triggers;
    std::string rate_key = "source.trigger_rate";  // who gives the rate
    triggers.arrivals = config.arrivals;
    if (config.arrivals == sources::Arrivals::trace) {
        const auto trace = sources::read_arrival_trace(config.arrival_trace);
        if (!trace) {
            return not_allowed("source.arrival_trace", config.arrival_trace, trace.error().message,
                               "a file with a gap in nanoseconds per line");
        }
        triggers.trace = trace->gaps;
        if (config.trigger_rate == 0) {
            config.trigger_rate = trace->rate_hz;
            rate_key = "source.arrival_trace";
        }
    }
    triggers.rate_hz = config.trigger_rate;
    triggers.seed = config.seed;
    triggers.policy = config.policy;
    triggers.bunches = {config.bunch_spacing, static_cast<std::uint32_t>(config.orbit_bunches),
                        static_cast<std::uint32_t>(config.trains), static_cast<std::uint32_t>(config.train_bunches),
                        static_cast<std::uint32_t>(config.train_gap)};
    auto steps = sources::parse_rate_steps(config.trigger_steps);
    if (!steps) {
        return not_allowed("source.trigger_steps", config.trigger_steps, steps.error().message,
                           "RATE@TIME, with commas in between, such as 120kHz@5s,80kHz@10s");
    }
    triggers.steps = std::move(*steps);
    if (config.trigger_rate == 0 && (!triggers.steps.empty() || config.policy != sources::Policy::block)) {
        return not_allowed("source.trigger_rate", "0", "in a closed loop nothing is ever due",
                           "a rate, or neither source.trigger_steps nor source.policy");
    }
    if (const Result<Ok> valid = sources::check(triggers); !valid) {
        const bool bunches = config.arrivals == sources::Arrivals::bunch_train;
        sources::TriggerOptions first = triggers;
        first.steps.clear();
        const bool later = !triggers.steps.empty() && sources::check(first);  // it is a step that is wrong
        return not_allowed(later ? "source.trigger_steps" : rate_key,
                           later ? config.trigger_steps : fmt::format("{:g} Hz", config.trigger_rate),
                           valid.error().message,
                           bunches ? "rates and trains that fit the orbit" : "rates, and steps in the order of time");
    }
    return Ok{};
}

Result<Ok> size_mfps(Plan& plan) {
    RunConfig& config = plan.config;
    if (config.source_kind == SourceKind::mfp) {
        return take_recording(plan);
    }
    if (comes_from_elsewhere(config.source_kind)) {
        return size_boards(plan);
    }
    const auto mean = static_cast<std::uint32_t>(config.fragment_size);
    plan.packing =
        config.packing != 0 ? static_cast<std::uint32_t>(config.packing) : packing_for(config.mfp_size, mean);
    if (config.packing == 0) {
        plan.chosen.push_back({"packets", fmt::format("{} would not fit into protocol.mfp_size ({})",
                                                      plan.packing == 1 ? "2 events" : std::to_string(plan.packing + 1),
                                                      base::format_bytes(static_cast<double>(config.mfp_size)))});
    }
    config.packing = plan.packing;
    plan.mfp_bytes = wire::mfp_bytes(plan.packing, mean, fragment_align_log2).packet_bytes;
    const sources::SizeOptions sizes = size_options(plan);
    if (config.hot_factor != 1 && config.hot_source >= sizes.n_sources) {
        return not_allowed("source.hot_source", std::to_string(config.hot_source),
                           fmt::format("there are {} sources", sizes.n_sources),
                           fmt::format("0..{}", sizes.n_sources - 1));
    }
    const std::vector<double> factors = sources::size_factors(sizes);
    const std::uint32_t most = std::min<std::uint32_t>(sizes.n_sources, 65535);  // more are refused below
    for (std::uint32_t source = 0; source < most; ++source) {
        const double factor = factors.empty() ? 1.0 : factors[source];
        plan.source_caps.push_back(generated_cap(config, sizes, plan.packing, factor));
    }
    plan.cap_bytes = std::ranges::max(plan.source_caps);
    return Ok{};
}

double largest_factor(const Plan& plan) {
    const std::vector<double> factors = sources::size_factors(size_options(plan));
    return factors.empty() ? 1.0 : std::ranges::max(factors);
}

Result<Ok> lay_out_sources(Plan& plan) {
    const RunConfig& config = plan.config;
    const bool recorded = config.source_kind == SourceKind::mfp;
    const std::uint64_t n_sources =
        recorded ? plan.protocol.sources.size() : std::uint64_t{plan.n_rus} * config.sources_per_ru;
    if (n_sources > 65535) {
        return not_allowed("source.sources_per_ru", std::to_string(config.sources_per_ru),
                           fmt::format("{} sources in all", n_sources),
                           fmt::format("1..{} with {} readout units", 65535 / plan.n_rus, plan.n_rus));
    }
    // Those of the largest source on average: what is always cut is no event any more.
    const std::uint64_t usual_bytes =
        recorded ? plan.mfp_bytes
                 : static_cast<std::uint64_t>(static_cast<double>(plan.mfp_bytes) * largest_factor(plan));
    if (config.slot_bytes != 0) {
        const std::uint64_t share = config.slot_bytes / n_sources / region_line_bytes * region_line_bytes;
        const std::uint64_t room = share > max_head_bytes ? share - max_head_bytes : 0;
        if (room < usual_bytes) {
            const std::uint64_t needed = n_sources * (max_head_bytes + wire::round_up(usual_bytes, region_line_bytes));
            return not_allowed("protocol.slot_size", bytes_text(config.slot_bytes),
                               fmt::format("an MFP of {} events is {}, larger than its {} of the slot", plan.packing,
                                           bytes_text(usual_bytes), bytes_text(room)),
                               fmt::format("at least {}, or auto", bytes_text(needed)));
        }
        plan.cap_bytes = std::min(room, plan.cap_bytes);
    }
    if (plan.cap_bytes > max_write_bytes - max_head_bytes) {
        return not_allowed("protocol.packing", std::to_string(plan.packing),
                           fmt::format("MFPs of up to {}", bytes_text(plan.cap_bytes)),
                           fmt::format("MFPs of at most {}", bytes_text(max_write_bytes - max_head_bytes)));
    }
    for (protocol::SourceSpec& source : plan.protocol.sources) {
        source.cap_bytes = static_cast<std::uint32_t>(std::min<std::uint64_t>(source.cap_bytes, plan.cap_bytes));
    }
    const std::uint64_t first_id = comes_from_elsewhere(config.source_kind) ? config.first_id : 0;
    for (std::uint64_t index = plan.protocol.sources.size(); index < n_sources; ++index) {
        plan.protocol.sources.push_back(
            {static_cast<std::uint16_t>(first_id + index),
             Peer{static_cast<std::uint32_t>(index / config.sources_per_ru)},
             static_cast<std::uint32_t>(std::min(plan.source_caps[index], plan.cap_bytes))});
    }
    return Ok{};
}

/// EB-F1: every MFP is kept until its MEP is committed, by another builder unit if the first one dies.
Result<Ok> size_memory(Plan& plan, const Machine& machine, std::uint64_t cache) {
    RunConfig& config = plan.config;
    std::vector<std::uint64_t> bytes_by_ru(plan.n_rus);
    for (const protocol::SourceSpec& source : plan.protocol.sources) {
        bytes_by_ru[static_cast<std::size_t>(source.ru)] += sources::ring_stride(source.cap_bytes);
    }
    const std::uint64_t bytes_per_mep = std::ranges::max(bytes_by_ru);
    // What processes have and is not committed before they give it back is kept as well.
    const std::uint64_t lent = config.consumer_policy == ConsumerPolicy::block ? plan.protocol.held_slots : 0;
    const std::uint64_t in_flight = (config.credits + lent) * plan.n_bus;
    std::uint64_t needed = in_flight;
    std::string why =
        fmt::format("EB-F1, closed loop: {} credits of {} builder units", config.credits + lent, plan.n_bus);
    std::uint64_t asked = needed;
    if (config.trigger_rate > 0) {
        double rate = config.trigger_rate;
        for (const sources::RateStep& step : plan.triggers.steps) {
            rate = std::max(rate, step.rate_hz);
        }
        const Time outage = config.detection_deadline + config.suspect_grace + config.heartbeat;
        double meps_hz = rate / plan.packing;
        if (plan.protocol.max_wait > 0) {  // so many at most are closed before they are full
            meps_hz = std::max(meps_hz, std::min(rate, 1 / base::seconds(plan.protocol.max_wait)));
        }
        const double waiting = meps_hz * base::seconds(outage);
        asked += static_cast<std::uint64_t>(std::ceil(waiting));
        // What is due meanwhile waits. The other policies say what becomes of it, so less memory is a choice.
        if (config.policy == sources::Policy::block) {
            needed = asked;
            why = fmt::format(
                "EB-F1, open loop: {:g} Hz for {} until a loss is detected, and {} credits of {} builder units", rate,
                base::format_duration(outage), config.credits + lent, plan.n_bus);
        }
    }
    if (needed > max_retention_meps) {
        return not_allowed("protocol.packing", std::to_string(plan.packing),
                           fmt::format("{} MEPs would have to be kept ({})", needed, why),
                           fmt::format("at most {} MEPs: more events in an MFP, or a lower rate", max_retention_meps));
    }
    plan.ru_memory_needed_bytes = needed * bytes_per_mep;
    // Of productions and releases one is told in steps of an eighth of this memory (protocol::lazy_share): with little
    // more than may be in flight, less is. Triggers that wait want no more, and what is simulated loses nothing by
    // that.
    constexpr std::uint64_t few = 32;
    constexpr std::uint64_t spare_bytes = std::uint64_t{16} << 20;
    const bool runs_freely = !config.traits().simulated && config.trigger_rate == 0;
    const std::uint64_t most_spare = runs_freely ? std::max(few, spare_bytes / bytes_per_mep) : few;
    const std::uint64_t kept =
        config.memory == 0 ? asked + std::clamp<std::uint64_t>(asked, 4, most_spare) : config.memory / bytes_per_mep;
    if (kept < needed) {
        return not_allowed("source.memory", bytes_text(config.memory), fmt::format("too little ({})", why),
                           fmt::format("at least {}, or auto", bytes_text(plan.ru_memory_needed_bytes)));
    }
    plan.memory_meps = static_cast<std::uint32_t>(std::min(kept, max_retention_meps));
    plan.triggers.memory_meps = plan.memory_meps;
    // What was dropped keeps its number until it is built: as many of those again.
    const std::uint64_t numbers = config.policy == sources::Policy::drop ? 2 : 1;
    plan.protocol.retention_meps = static_cast<std::uint32_t>(std::min(numbers * plan.memory_meps, max_retention_meps));
    plan.ru_memory_bytes = plan.memory_meps * bytes_per_mep;
    config.memory = plan.ru_memory_bytes;
    if (config.prefill_bytes == 0) {
        const std::uint64_t beyond_cache = 4 * cache / plan.n_rus;
        config.prefill_bytes = std::max<std::uint64_t>(bytes_per_mep, beyond_cache);
        if (config.source_kind == SourceKind::generator && config.fill == Fill::prefilled) {
            const auto bytes = [](std::uint64_t value) { return base::format_bytes(static_cast<double>(value)); };
            plan.chosen.push_back(
                {"source",
                 fmt::format("each readout unit sends the same {} of generated data over and over, {}",
                             bytes(config.prefill_bytes),
                             bytes_per_mep > beyond_cache
                                 ? "which is one MEP"
                                 : fmt::format("so that it comes from memory: all together 4 times the cache of the "
                                               "processor ({})",
                                               bytes(cache)))});
        }
    }
    plan.bu_memory_bytes = protocol::bu_memory_bytes(plan.protocol);
    // Unless all nodes are in this process they may be spread over hosts, so only what one of them needs is certain to
    // be too much. In a simulation bodies are phantom: nothing is allocated.
    const bool all_here = config.traits().in_process;
    const std::uint64_t node_bytes = std::max(
        plan.ru_memory_bytes + (config.roles == Roles::folded ? plan.bu_memory_bytes : 0), plan.bu_memory_bytes);
    const std::uint64_t here_bytes =
        all_here ? plan.n_rus * plan.ru_memory_bytes + plan.n_bus * plan.bu_memory_bytes : node_bytes;
    if (!config.traits().simulated && machine.memory_bytes != 0 && here_bytes > machine.memory_bytes) {
        return not_allowed(
            "source.memory", bytes_text(plan.ru_memory_bytes),
            fmt::format("with {} of slots more than {}", bytes_text(plan.bu_memory_bytes), machine.memory_what),
            fmt::format("at most {} for {}: a lower rate, smaller MFPs or fewer credits",
                        bytes_text(machine.memory_bytes), all_here ? "all nodes" : "a node"));
    }
    plan.working_set_bytes = plan.n_bus * config.credits * plan.slot_bytes +
                             plan.n_rus * (config.source_kind == SourceKind::generator && config.fill == Fill::prefilled
                                               ? std::max(config.prefill_bytes, plan.ru_memory_bytes)
                                               : plan.ru_memory_bytes);
    return Ok{};
}

void set_protocol(Plan& plan) {
    const RunConfig& config = plan.config;
    protocol::Config& to = plan.protocol;
    to.run = config.seed;
    to.scheme = config.scheme;
    to.schedule = config.schedule;
    to.assignment = config.assignment;
    to.layout = config.layout;
    to.inter_send_gap = config.inter_send_gap;
    to.barrier_deadline = config.barrier_deadline;
    to.slot_time = config.slot_time;
    to.overrun = config.overrun;
    to.self_traffic = config.self_traffic;
    to.checksum = config.checksum;
    to.seed = config.seed;
    to.quarantine_slots = static_cast<std::uint32_t>(config.quarantine_slots);
    if (sinks::traits_of(config.sink_kind).lends_slots) {
        // Every process may hold on to a window of its own; blocking, all of them have the same MEPs.
        const bool same = config.delivery == Delivery::all && config.consumer_policy == ConsumerPolicy::block;
        const bool is_one = same || config.sink_kind == SinkKind::farm;
        to.held_slots = static_cast<std::uint32_t>(config.window * (is_one ? 1 : config.sink_consumers));
    }
    to.parallel_requests = static_cast<std::uint32_t>(config.parallel_requests);
    to.parallel_sends = static_cast<std::uint32_t>(config.parallel_sends);
    to.message_size = static_cast<std::uint32_t>(config.write_bytes);
    to.ack_per_write = config.ack_per_write;
    to.outstanding_writes = static_cast<std::uint32_t>(config.outstanding_writes);
    to.heartbeat = config.heartbeat;
    to.detection_deadline = config.detection_deadline;
    to.late_after = config.late_after;
    to.suspect_grace = config.suspect_grace;
    to.max_wait = config.max_wait;
    to.views = config.views;
    to.second_stage_all = config.second_stage == SecondStage::all;
    to.decision_deadline = config.decision_deadline;
    to.max_attempts = static_cast<std::uint32_t>(config.max_attempts);
}

/// What ends the run by itself.
void set_totals(Plan& plan) {
    const RunConfig& config = plan.config;
    MepEvents& events = plan.mep_events;
    std::uint64_t& meps = plan.protocol.total_meps;
    if (config.source_kind == SourceKind::mfp) {
        meps = events.pass_meps * config.repeat;
        if (config.events != 0) {  // MFPs are sent whole
            const std::uint64_t enough = events.meps_for(config.events);
            meps = meps == 0 ? enough : std::min(meps, enough);
        }
        plan.total_events = events.below(meps);
        return;
    }
    plan.total_events = config.events;
    meps = (config.events + plan.packing - 1) / plan.packing;
    events = {plan.packing, meps,
              static_cast<std::uint32_t>(meps == 0 ? 0 : config.events - (meps - 1) * plan.packing)};
    if (config.source_kind != SourceKind::mfp) {
        plan.protocol.packing = plan.packing;
        plan.protocol.total_events = plan.total_events;
    }
}

Result<Ok> check_together(const Plan& plan) {
    const RunConfig& config = plan.config;
    if (config.sink_kind == SinkKind::mep && config.sink_path.empty()) {
        return not_allowed("sink.path", "\"\"", "MEP files need a folder", "a path");
    }
    if (config.sink_kind == SinkKind::consumer && !consumer::is_name(config.sink_name)) {
        return not_allowed("sink.name", fmt::format("\"{}\"", config.sink_name), "processes cannot attach to that",
                           "1 to 64 letters, digits, '.', '_' and '-'");
    }
    if (config.sink_kind == SinkKind::farm && !config.traits().simulated) {
        return not_allowed("sink.kind", "farm", "the farm is part of a simulated network",
                           "transport.name = sim, or consumer with incast dispatch and incast consume (docs/farm.md)");
    }
    if (config.sink_kind == SinkKind::farm && config.consumer_policy == ConsumerPolicy::drop) {
        return not_allowed("sink.policy", "drop", "sink.kind = farm keeps what farm nodes have no room for", "block");
    }
    if (sinks::traits_of(config.sink_kind).lends_slots && config.self_traffic == protocol::SelfTraffic::pointer) {
        return not_allowed("protocol.self_traffic", "pointer",
                           "with sink.kind = consumer or farm everything must lie in the slot", "copy");
    }
    if (sinks::traits_of(config.sink_kind).lends_slots && config.views) {
        return not_allowed("protocol.views", "true",
                           "with sink.kind = consumer or farm everything must lie in the slot", "false");
    }
    if (config.sink_kind == SinkKind::command && config.command.empty()) {
        return not_allowed("sink.command", "\"\"", "there is nothing to run", "a command for /bin/sh");
    }
    const bool filters = protocol::two_stages(config.scheme);
    if (!filters && (config.filter_kind != FilterKind::share || config.filter_accept != 1)) {
        return not_allowed("filter.kind, filter.accept", "given", "the scheme has no second stage to decide on",
                           "protocol.scheme = push-pull or pull-pull");
    }
    std::error_code ignored;
    if (config.filter_kind == FilterKind::plugin && !std::filesystem::is_regular_file(config.filter_path, ignored)) {
        return not_allowed("filter.path", config.filter_path.empty() ? "\"\"" : config.filter_path,
                           "there is no such file", "a shared object (include/incast/filter.h)");
    }
    if (config.filter_kind == FilterKind::command && config.filter_command.empty()) {
        return not_allowed("filter.command", "\"\"", "there is nothing to run", "a command for /bin/sh");
    }
    return protocol::check_keys(plan.protocol);
}

}  // namespace

void set_times(Plan& plan, bool ends_itself) {
    const RunConfig& config = plan.config;
    plan.duration = config.duration != 0 || ends_itself ? config.duration : 10 * ps_per_s;
    plan.measured_whole = plan.duration == 0;
    const bool is_long = plan.duration > 120 * ps_per_s;
    plan.sample_interval =
        config.sample_interval != 0 ? config.sample_interval : (is_long ? 2 * ps_per_s : 500 * ps_per_ms);
}

std::uint64_t last_level_cache(const Machine& machine) {
    return machine.last_level_cache_bytes != 0 ? machine.last_level_cache_bytes : default_cache_bytes;
}

Result<Plan> resolve(const ConfigText& text, const Machine& here, std::optional<Recorded> recorded) {
    Result<RunConfig> parsed = text.parse();
    if (!parsed) {
        return parsed.error();
    }
    // What is simulated does not depend on the host that does it: its nodes have a cache of their own.
    Machine machine = here;
    if (parsed->traits().simulated) {
        machine.last_level_cache_bytes = default_cache_bytes;
        machine.cores = 2;
    }
    Plan plan;
    plan.config = *parsed;
    plan.recorded = std::move(recorded);
    const std::uint64_t cache = last_level_cache(machine);
    set_protocol(plan);
    if (Result<Ok> done = check_together(plan); !done) {
        return done.error();
    }
    if (plan.is_net()) {
        if (Result<Ok> done = resolve_net(plan, text, machine); !done) {
            return done.error();
        }
        return plan;
    }
    if (Result<Ok> done = fit_nodes(plan, text); !done) {
        return done.error();
    }
    for (Result<Ok> (*step)(Plan&) : {&lay_out_nodes, &read_shapes, &size_mfps, &lay_out_sources}) {
        if (Result<Ok> done = step(plan); !done) {
            return done.error();
        }
    }
    count_credits(plan, machine);
    if (Result<Ok> done = check_buffers(plan); !done) {
        return done.error();
    }
    if (Result<Ok> done = size_memory(plan, machine, cache); !done) {
        return done.error();
    }
    set_totals(plan);
    set_times(plan, plan.total_events != 0);
    if (Result<Ok> valid = protocol::validate(plan.protocol); !valid) {
        return valid.error();
    }
    plan.values = config_values(text);
    plan.values["run.nodes"] = std::to_string(plan.config.nodes);
    plan.values["transport.name"] = plan.config.transport;
    for (const auto& [name, value] : plan.config.transport_settings) {
        plan.values["transport." + plan.config.transport + "." + name] = value;
    }
    plan.values["protocol.credits"] = std::to_string(plan.config.credits);
    plan.values["protocol.packing"] = std::to_string(plan.config.packing);
    plan.values["source.memory"] = std::to_string(plan.config.memory);
    plan.values["source.prefill_size"] = std::to_string(plan.config.prefill_bytes);
    if (plan.config.arrivals == sources::Arrivals::trace) {
        plan.values["source.trigger_rate"] = fmt::format("{}", plan.config.trigger_rate);
    }
    if (plan.size_histogram) {
        plan.values["source.fragment_size"] = std::to_string(plan.config.fragment_size);
    }
    if (plan.config.roles == Roles::split) {
        plan.values["run.readout_units"] = std::to_string(plan.n_rus);
        plan.values["run.builder_units"] = std::to_string(plan.n_bus);
    }
    return plan;
}

}  // namespace incast::runtime

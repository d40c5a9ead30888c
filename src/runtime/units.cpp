#include "runtime/units.h"

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "runtime/filters/filters.h"
#include "runtime/machine.h"
#include "wire/mfp.h"

namespace incast::runtime {
namespace {

constexpr std::uint32_t verify_every = 64;  // sink.verify = sampled, as its help says

Time sink_cpu_clock() {
    return static_cast<Time>(thread_cpu_ns()) * ps_per_ns;
}

}  // namespace

sources::SizeOptions size_options(const Plan& plan) {
    const RunConfig& config = plan.config;
    constexpr sources::Distribution distributions[]{
        sources::Distribution::fixed, sources::Distribution::normal, sources::Distribution::log_normal,
        sources::Distribution::exponential, sources::Distribution::histogram};
    sources::SizeOptions sizes;
    sizes.distribution = distributions[static_cast<std::size_t>(config.size_distribution)];
    sizes.mean_bytes = static_cast<double>(config.fragment_size);
    const bool exponential = config.size_distribution == SizeDistribution::exponential;
    sizes.sigma_bytes = exponential ? sizes.mean_bytes : config.size_sigma * sizes.mean_bytes;
    double reach = sizes.mean_bytes;
    if (config.size_distribution == SizeDistribution::histogram) {
        sizes.histogram = plan.size_histogram;
        sizes.sigma_bytes = sizes.histogram->sigma();
        reach = sizes.histogram->largest();
    } else if (config.size_distribution != SizeDistribution::fixed) {
        reach += (exponential ? 24 : 12) * sizes.sigma_bytes;
    }
    sizes.correlation = config.size_correlation;
    sizes.correlated_events = config.correlated_events;
    sizes.n_sources = static_cast<std::uint32_t>(plan.n_rus * config.sources_per_ru);
    sizes.mean_ratio = config.mean_ratio;
    sizes.hot_factor = config.hot_factor;
    sizes.hot_source = static_cast<std::uint32_t>(config.hot_source);
    const std::vector<double> factors = sources::size_factors(sizes);
    if (!factors.empty()) {
        reach *= std::ranges::max(factors);
    }
    // The narrow MFP carries 65535 bytes per fragment; sizes that stay below are clamped there, others use the wide
    // one.
    constexpr double narrow_max = wire::mfp_max_fragment_bytes;
    sizes.max_bytes = static_cast<std::uint32_t>(std::ceil(std::clamp(reach, narrow_max, 4294967295.0)));
    return sizes;
}

sources::SourceOptions source_options(const Plan& plan) {
    const RunConfig& config = plan.config;
    sources::SourceOptions options;
    if (config.source_kind == SourceKind::mfp) {
        options.kind = sources::SourceOptions::Kind::replay;
        options.replay.path = config.source_path;
        options.replay.repeat = config.repeat;
        options.replay.triggers = plan.triggers;
        return options;
    }
    sources::GeneratorOptions& generator = options.generator;
    generator.seed = config.seed;
    generator.sizes = size_options(plan);
    generator.packing = plan.packing;
    generator.total_events = config.events;
    generator.fill = config.fill == Fill::prefilled ? sources::Fill::prefilled : sources::Fill::generated;
    generator.prefill_bytes = config.prefill_bytes;
    generator.triggers = plan.triggers;
    return options;
}

Result<std::unique_ptr<sources::RuntimeSource>> make_source(const Plan& plan) {
    return sources::make_source(source_options(plan));
}

Result<std::unique_ptr<sinks::RuntimeSink>> make_sink(const Plan& plan, std::uint32_t node, std::uint32_t incarnation,
                                                      bool phantom_bodies) {
    using Kind = sinks::SinkOptions::Kind;
    constexpr Kind kinds[]{Kind::verify, Kind::touch, Kind::null, Kind::mep, Kind::command, Kind::consumer};
    const RunConfig& config = plan.config;
    sinks::SinkOptions options;
    options.kind = kinds[static_cast<std::size_t>(config.sink_kind)];
    options.verify = static_cast<sinks::Verify>(config.verify);
    options.sample_every = verify_every;
    options.source = source_options(plan);
    options.files.path = config.sink_path;
    options.files.roll_bytes = config.file_bytes;
    options.files.roll_interval = config.file_time;
    options.files.fsync = config.fsync;
    options.files.fsync_interval = config.fsync_interval;
    options.files.on_full = config.on_full;
    options.command = {config.command, config.buffer_bytes, config.on_failure};
    options.policy = config.policy;
    options.consumer = {config.sink_name,
                        static_cast<sinks::ConsumerOptions::Delivery>(config.delivery),
                        static_cast<sinks::ConsumerOptions::Policy>(config.consumer_policy),
                        static_cast<std::uint32_t>(config.sink_consumers),
                        static_cast<std::uint32_t>(config.window),
                        config.patience};
    options.node = node;
    options.incarnation = incarnation;
    options.open_loop = config.trigger_rate > 0;
    options.phantom_bodies = phantom_bodies;
    options.cpu_clock = config.sink_kind == SinkKind::null ? nullptr : &sink_cpu_clock;
    return sinks::make_sink(options, plan.protocol);
}

Result<std::unique_ptr<protocol::Filter>> make_filter(const Plan& plan, std::uint32_t node) {
    const RunConfig& config = plan.config;
    using Made = std::unique_ptr<protocol::Filter>;
    if (!protocol::two_stages(config.scheme)) {
        return Made();
    }
    if (config.filter_kind == FilterKind::plugin) {
        return filters::open_plugin(std::filesystem::absolute(config.filter_path), config.filter_argument,
                                    plan.protocol);
    }
    if (config.filter_kind == FilterKind::command) {
        return filters::start_command(config.filter_command, node, plan.protocol);
    }
    return Made(std::make_unique<filters::ShareFilter>(config.filter_accept, config.seed));
}

}  // namespace incast::runtime

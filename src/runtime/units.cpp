#include "runtime/units.h"

#include <algorithm>
#include <cmath>

#include "runtime/machine.h"
#include "wire/mfp.h"

namespace incast::runtime {
namespace {

constexpr std::uint32_t verify_every = 64;  // sink.verify = sampled, as its help says

sources::TriggerOptions trigger_options(const RunConfig& config) {
    sources::TriggerOptions triggers;
    triggers.rate_hz = config.trigger_rate;
    triggers.arrivals = config.arrivals == Arrivals::poisson ? sources::Arrivals::poisson : sources::Arrivals::fixed;
    triggers.seed = config.seed;
    return triggers;
}

Time sink_cpu_clock() {
    return static_cast<Time>(thread_cpu_ns()) * ps_per_ns;
}

}  // namespace

sources::SizeOptions size_options(const RunConfig& config) {
    constexpr sources::Distribution distributions[]{sources::Distribution::fixed, sources::Distribution::normal,
                                                    sources::Distribution::log_normal,
                                                    sources::Distribution::exponential};
    sources::SizeOptions sizes;
    sizes.distribution = distributions[static_cast<std::size_t>(config.size_distribution)];
    sizes.mean_bytes = static_cast<double>(config.fragment_size);
    const bool exponential = config.size_distribution == SizeDistribution::exponential;
    sizes.sigma_bytes = exponential ? sizes.mean_bytes : config.size_sigma * sizes.mean_bytes;
    // The narrow MFP carries 65535 bytes per fragment; sizes that stay below are clamped there, others use the wide
    // one.
    constexpr double narrow_max = wire::mfp_max_fragment_bytes;
    const double deviations = exponential ? 24 : 12;
    const double reach = config.size_distribution == SizeDistribution::fixed
                             ? sizes.mean_bytes
                             : sizes.mean_bytes + deviations * sizes.sigma_bytes;
    sizes.max_bytes = static_cast<std::uint32_t>(std::ceil(std::max(reach, narrow_max)));
    return sizes;
}

sources::SourceOptions source_options(const Plan& plan) {
    const RunConfig& config = plan.config;
    sources::SourceOptions options;
    if (config.source_kind == SourceKind::mfp) {
        options.kind = sources::SourceOptions::Kind::replay;
        options.replay.path = config.source_path;
        options.replay.repeat = config.repeat;
        options.replay.triggers = trigger_options(config);
        return options;
    }
    sources::GeneratorOptions& generator = options.generator;
    generator.seed = config.seed;
    generator.sizes = size_options(config);
    generator.packing = plan.packing;
    generator.total_events = config.events;
    generator.fill = config.fill == Fill::prefilled ? sources::Fill::prefilled : sources::Fill::generated;
    generator.prefill_bytes = config.prefill_bytes;
    generator.triggers = trigger_options(config);
    return options;
}

Result<std::unique_ptr<sources::RuntimeSource>> make_source(const Plan& plan) {
    return sources::make_source(source_options(plan));
}

Result<std::unique_ptr<sinks::RuntimeSink>> make_sink(const Plan& plan, std::uint32_t node, std::uint32_t incarnation,
                                                      bool phantom_bodies) {
    using Kind = sinks::SinkOptions::Kind;
    constexpr Kind kinds[]{Kind::verify, Kind::touch, Kind::null, Kind::mep, Kind::consumer};
    const RunConfig& config = plan.config;
    sinks::SinkOptions options;
    options.kind = kinds[static_cast<std::size_t>(config.sink_kind)];
    options.verify = static_cast<sinks::Verify>(config.verify);
    options.sample_every = verify_every;
    options.source = source_options(plan);
    options.files.path = config.sink_path;
    options.consumer = {config.sink_name,
                        static_cast<sinks::ConsumerOptions::Delivery>(config.delivery),
                        static_cast<sinks::ConsumerOptions::Policy>(config.consumer_policy),
                        static_cast<std::uint32_t>(config.consumers),
                        static_cast<std::uint32_t>(config.window),
                        config.patience};
    options.node = node;
    options.incarnation = incarnation;
    options.open_loop = config.trigger_rate > 0;
    options.phantom_bodies = phantom_bodies;
    options.cpu_clock = config.sink_kind == SinkKind::null ? nullptr : &sink_cpu_clock;
    return sinks::make_sink(options, plan.protocol);
}

}  // namespace incast::runtime

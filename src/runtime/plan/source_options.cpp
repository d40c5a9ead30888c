#include "runtime/plan/source_options.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "wire/mfp.h"

namespace incast::runtime {

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
        if (plan.recorded) options.replay.numbering = plan.recorded->numbering;
        return options;
    }
    const sources::ArrivalOptions arrival{.packing = plan.packing,
                                          .total_events = config.events,
                                          .window_meps = static_cast<std::uint32_t>(config.window_meps),
                                          .patience = config.board_patience};
    if (config.source_kind == SourceKind::udp || config.source_kind == SourceKind::tcp) {
        options.kind = config.source_kind == SourceKind::udp ? sources::SourceOptions::Kind::boards
                                                             : sources::SourceOptions::Kind::streams;
        options.boards = {arrival, config.board_address, static_cast<std::uint16_t>(config.board_port),
                          config.board_format};
        return options;
    }
    if (config.source_kind == SourceKind::program) {
        options.kind = sources::SourceOptions::Kind::programs;
        options.programs = {arrival, config.source_name};
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

}  // namespace incast::runtime

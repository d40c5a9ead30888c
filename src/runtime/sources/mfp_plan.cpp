#include "runtime/sources/mfp_plan.h"

#include <algorithm>

#include <fmt/format.h>

#include "runtime/sources/ring_source.h"

namespace incast::sources {

namespace {

bool is_prime(std::uint64_t number) {
    for (std::uint64_t divisor = 2; divisor * divisor <= number; ++divisor) {
        if (number % divisor == 0) {
            return false;
        }
    }
    return number > 1;
}

// The smallest prime from `least` on that divides none of what slots are reused by: so it is coprime to every product
// of them.
std::uint64_t coprime_period(std::uint64_t least, std::span<const std::uint64_t> reuse) {
    for (std::uint64_t period = std::max<std::uint64_t>(least, 2);; ++period) {
        if (is_prime(period) && std::ranges::none_of(reuse, [&](std::uint64_t by) { return by % period == 0; })) {
            return period;
        }
    }
}

}  // namespace

Result<MfpPlan> MfpPlan::make(const protocol::Config& config, const GeneratorOptions& options) {
    if (options.packing == 0 || options.packing > wire::mfp_max_fragments) {
        return Error{fmt::format("packing = {}, expected 1 .. 65535 events", options.packing)};
    }
    if (const Result<Ok> triggers = check(options.triggers); !triggers) {
        return triggers.error();
    }
    auto sizes = FragmentSizes::make(options.sizes, options.seed);
    if (!sizes) {
        return sizes.error();
    }
    // Truncated to nothing, an MFP still has its tables.
    const std::uint64_t least =
        wire::mfp_prefix_bytes(options.packing, options.sizes.max_bytes > wire::mfp_max_fragment_bytes);
    for (const protocol::SourceSpec& source : config.sources) {
        if (source.cap_bytes < least) {
            return Error{
                fmt::format("source {}: room for MFPs of {} bytes, expected at least {} for the tables of {} events",
                            source.id, source.cap_bytes, least, options.packing)};
        }
    }
    return MfpPlan(config, options, *sizes);
}

MfpPlan::MfpPlan(const protocol::Config& config, const GeneratorOptions& options, const FragmentSizes& sizes)
    : options_(options), sizes_(sizes), total_meps_((options.total_events + options.packing - 1) / options.packing) {
    std::uint64_t bus = 0;
    for (const protocol::NodeSpec& node : config.nodes) {
        bus += (node.roles & protocol::role_bu) != 0 ? 1 : 0;
    }
    const std::uint64_t slots[] = {
        std::max<std::uint64_t>(bus, 1), std::max<std::uint64_t>(config.credits, 1),
        std::max<std::uint64_t>(config.credits, 1) + config.quarantine_slots + config.held_slots};
    std::uint64_t mep_bytes = 0;
    std::uint64_t rus = 0;
    for (std::size_t index = 0; index < config.sources.size(); ++index) {
        const protocol::SourceSpec& source = config.sources[index];
        source_ids_.push_back(source.id);
        streams_.push_back(content_stream(config.run, source.id));
        caps_.push_back(source.cap_bytes);
        mep_bytes += ring_stride(source.cap_bytes);
        rus += index == 0 || source.ru != config.sources[index - 1].ru ? 1 : 0;
    }
    // One period for all RUs, however much each has of an event: a MEP's sizes are those of the same events everywhere,
    // so that sources stay correlated.
    ring_meps_ = config.retention_meps;
    if (options.fill == Fill::prefilled) {
        const std::uint64_t filled =
            (options.prefill_bytes * rus + mep_bytes - 1) / std::max<std::uint64_t>(mep_bytes, 1);
        ring_meps_ = coprime_period(std::max(ring_meps_, filled), slots);
    }
}

std::uint32_t MfpPlan::events_from(std::uint64_t first_event) const {
    if (options_.total_events == 0) {
        return options_.packing;
    }
    const std::uint64_t left = options_.total_events - std::min(options_.total_events, first_event);
    return static_cast<std::uint32_t>(std::min<std::uint64_t>(options_.packing, left));
}

PlannedMfp MfpPlan::mfp(std::uint32_t source, protocol::MepId mep, std::uint64_t first_event, std::uint32_t n_events,
                        std::span<std::uint32_t> sizes) const {
    PlannedMfp planned;
    planned.n_events = n_events;
    planned.kept = planned.n_events;
    planned.first_event = first_event;
    planned.content_event =
        options_.fill == Fill::prefilled ? mep % ring_meps_ * options_.packing : planned.first_event;
    const std::span<std::uint32_t> own = sizes.first(planned.n_events);
    sizes_.fill(source_ids_[source], planned.content_event, own);
    planned.size = wire::mfp_bytes(own, generated_align_log2);
    if (planned.size.packet_bytes > caps_[source]) {
        // EB-S4: whole fragments as long as they fit. The variant is chosen again for what is left.
        std::uint64_t end = wire::mfp_prefix_bytes(planned.n_events, planned.size.wide);
        planned.kept = 0;
        while (end + wire::round_up(own[planned.kept], 1U << generated_align_log2) <= caps_[source]) {
            end += wire::round_up(own[planned.kept++], 1U << generated_align_log2);
        }
        std::ranges::fill(own.subspan(planned.kept), 0U);
        planned.size = wire::mfp_bytes(own, generated_align_log2);
        planned.flag = wire::SourceFlag::truncated;
    } else if (planned.size.payload_bytes == 0) {
        planned.flag = wire::SourceFlag::empty;
    }
    return planned;
}

}  // namespace incast::sources

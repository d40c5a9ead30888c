#include "runtime/sources/generator.h"

#include <utility>

namespace incast::sources {

namespace {

void write_mfp(std::span<std::byte> out, const MfpPlan& plan, std::uint32_t source, const PlannedMfp& mfp,
               std::span<const std::uint32_t> sizes) {
    const wire::MfpHeader header{.first_event = mfp.first_event,
                                 .source = plan.source_id(source),
                                 .align_log2 = generated_align_log2,
                                 .fragment_version = generated_fragment_version};
    // Cannot fail: the plan keeps sizes, counts and room within range.
    (void)wire::lay_out_mfp(out, header, generated_fragment_type, sizes);
    const std::size_t types = mfp.size.wide ? wire::mfp_wide_header_bytes : wire::mfp_header_bytes;
    for (std::uint32_t index = mfp.kept; index < mfp.n_events; ++index) {
        out[types + index] = std::byte{wire::flag_type(wire::SourceFlag::truncated)};
    }
    std::uint64_t offset = wire::mfp_prefix_bytes(mfp.n_events, mfp.size.wide);
    for (std::uint32_t index = 0; index < mfp.kept; ++index) {
        fill_content(plan.content(source, mfp, index), out.subspan(offset, sizes[index]));
        offset += wire::round_up(sizes[index], 1U << generated_align_log2);
    }
}

}  // namespace

Result<Ok> Generator::attach(Transport& transport, const protocol::Config& config, std::uint32_t first_source,
                             std::uint32_t count) {
    auto plan = MfpPlan::make(config, options_);
    if (!plan) {
        return plan.error();
    }
    plan_ = std::make_unique<MfpPlan>(std::move(plan).value());
    sizes_.assign(plan_->packing(), 0);
    const std::uint64_t ring_meps = plan_->ring_meps();
    const auto allocated =
        allocate(transport, config, first_source, count, ring_meps, options_.fill == Fill::prefilled);
    if (!allocated) {
        return allocated.error();
    }
    if (options_.fill == Fill::prefilled) {
        for (protocol::MepId mep = 0; mep < ring_meps && plan_->n_events(mep) > 0; ++mep) {
            for (std::uint32_t index = 0; index < count; ++index) {
                protocol::Piece& piece = piece_at(mep, index);
                write(plan_->mfp(first_source + index, mep, sizes_), index, piece, place_of(piece, index));
            }
        }
    }
    return Ok{};
}

/// Its sizes are those in sizes_.
void Generator::write(const PlannedMfp& mfp, std::uint32_t index, protocol::Piece& piece, std::span<std::byte> out) {
    const std::uint32_t source = first_source() + index;
    piece.first_event = mfp.first_event;
    piece.body.length = static_cast<std::uint32_t>(mfp.size.packet_bytes);
    piece.n_events = mfp.n_events;
    piece.goodput_bytes = static_cast<std::uint32_t>(mfp.size.payload_bytes);
    piece.flag = mfp.flag;
    if (!out.empty()) {
        write_mfp(out, *plan_, source, mfp, std::span(sizes_).first(mfp.n_events));
    }
}

void Generator::make(protocol::MepId mep, std::uint32_t index, protocol::Piece& piece, std::span<std::byte> out) {
    // A prefilled entry is written again only for a MEP of another length: the last one, or one that was closed early.
    if (options_.fill == Fill::generated || piece.n_events != next_events()) {
        const std::uint32_t source = first_source() + index;
        write(plan_->mfp(source, mep, next_first_event(), next_events(), sizes_), index, piece, out);
        return;
    }
    piece.first_event = next_first_event();
    if (!out.empty()) {
        wire::store(out, mfp_first_event_offset, piece.first_event);
    }
}

}  // namespace incast::sources

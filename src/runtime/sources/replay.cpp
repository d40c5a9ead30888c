#include "runtime/sources/replay.h"

#include <algorithm>
#include <span>

#include <fmt/format.h>

#include "wire/mfp.h"

namespace incast::sources {

Result<ReplayPlan> ReplayPlan::make(const protocol::Config& config, const ReplayOptions& options,
                                    std::uint32_t first_source, std::uint32_t count) {
    if (const Result<Ok> triggers = check(options.triggers); !triggers) {
        return triggers.error();
    }
    auto recording = Recording::open(options.path, options.numbering);
    if (!recording) {
        return recording.error();
    }
    ReplayPlan plan(std::move(recording).value(), options.repeat);
    const std::uint64_t least = wire::phantom_bytes(plan.recording_.packing);
    std::uint64_t scratch = 0;
    const auto all = std::span(config.sources).subspan(first_source);
    for (const protocol::SourceSpec& spec : all.first(std::min<std::size_t>(count, all.size()))) {
        const RecordedSource* recorded = plan.recording_.find(spec.id);
        if (recorded == nullptr) {
            return Error{fmt::format("{}: nothing of source {} in it", options.path, spec.id)};
        }
        if (spec.cap_bytes < least) {
            return Error{
                fmt::format("source {}: room for MFPs of {} bytes, expected at least {} for the tables of {} events",
                            spec.id, spec.cap_bytes, least, plan.recording_.packing)};
        }
        plan.places_.push_back({static_cast<std::size_t>(recorded - plan.recording_.sources.data()), spec.cap_bytes});
        const bool changed =
            recorded->largest_bytes > spec.cap_bytes || std::ranges::any_of(recorded->mfps, &RecordedMfp::relabel);
        scratch = std::max({scratch, least, changed ? std::uint64_t{spec.cap_bytes} : 0});
    }
    plan.scratch_.resize(scratch);
    return plan;
}

std::uint32_t ReplayPlan::n_events(protocol::MepId mep) const {
    return repeat_ != 0 && mep >= total_meps() ? 0 : recording_.n_events(mep % recording_.total_meps);
}

ReplayPlan::Replayed ReplayPlan::phantom(std::uint16_t source, std::uint32_t n_events) {
    // Cannot fail: make() saw to the room, and the recording's counts are in range.
    const std::uint64_t bytes = wire::write_phantom(scratch_, 0, n_events, source, wire::SourceFlag::desync).value();
    return {Bytes(scratch_).first(bytes), 0, wire::SourceFlag::desync};
}

ReplayPlan::Replayed ReplayPlan::mfp(std::uint32_t source, protocol::MepId mep) {
    const Place& place = places_[source];
    const RecordedSource& recorded = recording_.sources[place.recorded];
    const RecordedMfp* found = recorded.find(mep % recording_.total_meps);
    if (found == nullptr || found->n_events != n_events(mep)) {
        return phantom(recorded.id, n_events(mep));
    }
    const Bytes packet = recording_.packet(*found);
    const bool fits = packet.size() <= place.cap_bytes;
    if (fits && !found->relabel) {
        return {packet, found->goodput_bytes, found->flag};
    }
    std::span<std::byte> own = std::span(scratch_).first(std::min<std::size_t>(packet.size(), place.cap_bytes));
    std::ranges::copy(packet.first(own.size()), own.begin());
    if (!fits) {
        const Result<std::uint64_t> bytes = wire::truncate_mfp(own);
        if (!bytes) {  // a wide MFP's tables are larger than a phantom's
            return phantom(recorded.id, n_events(mep));
        }
        own = own.first(*bytes);
    }
    wire::relabel_missing(own, wire::SourceFlag::desync);
    const wire::MfpView whole = wire::MfpView::parse(own).value();
    return {whole.bytes(), static_cast<std::uint32_t>(whole.payload_bytes()), whole.flag()};
}

Result<Ok> Replay::attach(Transport& transport, const protocol::Config& config, std::uint32_t first_source,
                          std::uint32_t count) {
    auto plan = ReplayPlan::make(config, options_, first_source, count);
    if (!plan) {
        return plan.error();
    }
    plan_ = std::make_unique<ReplayPlan>(std::move(plan).value());
    return allocate(transport, config, first_source, count, config.retention_meps, false);
}

void Replay::make(protocol::MepId mep, std::uint32_t index, protocol::Piece& piece, std::span<std::byte> out) {
    const ReplayPlan::Replayed replayed = plan_->mfp(index, mep);
    piece.first_event = plan_->first_event(mep);
    piece.n_events = plan_->n_events(mep);
    piece.body.length = static_cast<std::uint32_t>(replayed.packet.size());
    piece.goodput_bytes = replayed.goodput_bytes;
    piece.flag = replayed.flag;
    if (!out.empty()) {
        std::ranges::copy(replayed.packet, out.begin());
        wire::store(out, mfp_first_event_offset, piece.first_event);
    }
}

}  // namespace incast::sources

#include "runtime/sources/ring_source.h"

#include <algorithm>

#include <fmt/format.h>

namespace incast::sources {
namespace {

constexpr Time triggers_awaited_every = ps_per_ms;

}  // namespace

Result<Ok> RingSource::allocate(Transport& transport, const protocol::Config& config, std::uint32_t first_source,
                                std::uint32_t count, std::uint64_t ring_meps) {
    constexpr std::size_t page_bytes = 4096;
    first_source_ = first_source;
    retention_meps_ = config.retention_meps;
    ring_meps_ = ring_meps;
    offsets_.clear();
    caps_.clear();
    std::uint64_t mep_bytes = 0;
    for (std::uint32_t index = 0; index < count; ++index) {
        offsets_.push_back(mep_bytes);
        caps_.push_back(config.sources[first_source + index].cap_bytes);
        mep_bytes += ring_stride(caps_.back());
    }
    stats_.ring_bytes = ring_meps * mep_bytes;
    const Result<Local> region = transport.allocate(stats_.ring_bytes);
    if (!region) {
        return Error{fmt::format("source ring of {} bytes: {}", stats_.ring_bytes, region.error().message)};
    }
    region_ = *region;
    memory_ = transport.memory(*region);
    for (std::size_t offset = 0; offset < memory_.size(); offset += page_bytes) {
        static_cast<volatile std::byte&>(memory_[offset]) = std::byte{0};
    }
    pieces_.assign(ring_meps * count, {});
    for (std::uint64_t entry = 0; entry < ring_meps; ++entry) {
        for (std::uint32_t index = 0; index < count; ++index) {
            pieces_[entry * count + index].body = {*region, 0, entry * mep_bytes + offsets_[index]};
        }
    }
    return Ok{};
}

void RingSource::start(Time now, protocol::MepId first) {
    next_ = released_ = first;
    told_full_ = 0;
    gate_.reset();
    plan_next(now);
}

void RingSource::plan_next(Time now) {
    const std::uint32_t events = n_events(next_);
    if (events == 0) {
        next_ready_ = time_never;
        return;
    }
    if (!open_loop()) {
        return;
    }
    if (triggers_.origin == 0) {
        next_ready_ = now + triggers_awaited_every;
        return;
    }
    if (!gate_) {
        gate_.emplace(triggers_, std::max(now, triggers_.origin), first_event(next_) - first_event(0));
        tell_room(now);
    }
    next_ready_ = gate_->due(events);
}

void RingSource::tell_room(Time now) {
    const protocol::MepId full = released_ + retention_meps_;
    if (!gate_ || full == told_full_) {
        return;
    }
    const std::uint32_t events = n_events(full);
    // A MEP is there, and needs its room, when its last event is.
    gate_->set_room(now, events == 0 ? TriggerGate::no_end : first_event(full) - first_event(0) + events - 1);
    told_full_ = full;
}

bool RingSource::produce(Time now, protocol::MepId mep) {
    if (open_loop() && !gate_) {
        plan_next(now);
    }
    tell_room(now);
    const std::uint32_t events = n_events(mep);
    if (mep != next_ || events == 0 || !has_room(mep) || (open_loop() && now < next_ready_)) {
        return false;
    }
    for (std::uint32_t index = 0; index < sources(); ++index) {
        protocol::Piece& piece = piece_at(mep, index);
        make(mep, index, piece, place_of(piece, index));
        piece.trigger = gate_ ? next_ready_ : now;
        stats_.goodput_bytes += piece.goodput_bytes;
        stats_.truncated_mfps += piece.flag == wire::SourceFlag::truncated ? 1 : 0;
        stats_.desync_mfps += piece.flag == wire::SourceFlag::desync ? 1 : 0;
    }
    if (gate_) {
        gate_->accept(events);
    }
    ++stats_.meps;
    stats_.accepted_events += events;
    ++next_;
    plan_next(now);
    return true;
}

SourceStats RingSource::stats(Time now) {
    SourceStats stats = stats_;
    stats.offered_events = gate_ ? gate_->offered_events(now) : stats.accepted_events;
    stats.dead_time = gate_ ? gate_->dead_time(now) : 0;
    return stats;
}

}  // namespace incast::sources

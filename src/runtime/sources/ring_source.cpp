#include "runtime/sources/ring_source.h"

#include <algorithm>

#include <fmt/format.h>

#include "base/later.h"
#include "wire/body_checksum.h"
#include "wire/mfp.h"

namespace incast::sources {
namespace {

constexpr Time triggers_awaited_every = ps_per_ms;

}  // namespace

Result<Ok> RingSource::allocate(Transport& transport, const protocol::Config& config, std::uint32_t first_source,
                                std::uint32_t count, std::uint64_t ring_meps, bool keeps_content) {
    constexpr std::size_t page_bytes = 4096;
    first_source_ = first_source;
    retention_meps_ = config.retention_meps;
    memory_meps_ = retention_meps_;
    ring_meps_ = ring_meps;
    keeps_content_ = keeps_content;
    checksum_ = transport.capabilities().phantom_bodies ? protocol::Checksum::off : config.checksum;
    offsets_.clear();
    caps_.clear();
    ids_.clear();
    mep_bytes_ = 0;
    std::uint64_t stand_in_bytes = 0;
    for (std::uint32_t index = 0; index < count; ++index) {
        offsets_.push_back(mep_bytes_);
        caps_.push_back(config.sources[first_source + index].cap_bytes);
        ids_.push_back(config.sources[first_source + index].id);
        mep_bytes_ += ring_stride(caps_.back());
    }
    std::uint64_t places = ring_meps;
    if (may_drop()) {
        // More MEPs are retained than there is room for data of: those without data still have their number.
        if (triggers_.memory_meps != 0) {
            memory_meps_ = std::min<std::uint64_t>(triggers_.memory_meps, memory_meps_);
        }
        places = keeps_content ? ring_meps : memory_meps_;
        dropped_.assign(retention_meps_, 0);
        stand_ins_.assign(std::size_t{retention_meps_} * count, {});
        stand_in_bytes = ring_stride(static_cast<std::uint32_t>(wire::phantom_bytes(most_events())));
    }
    if (open_loop()) {
        room_since_.assign(retention_meps_, 0);
        max_wait_ = may_close() ? config.max_wait : 0;
    }
    stats_.ring_bytes = places * mep_bytes_;
    const std::uint64_t bytes = stats_.ring_bytes + stand_ins_.size() * stand_in_bytes;
    const Result<Local> region = transport.allocate(bytes);
    if (!region) {
        return Error{fmt::format("source ring of {} bytes: {}", bytes, region.error().message)};
    }
    region_ = *region;
    memory_ = transport.memory(*region);
    for (std::size_t offset = 0; offset < memory_.size(); offset += page_bytes) {
        static_cast<volatile std::byte&>(memory_[offset]) = std::byte{0};
    }
    pieces_.assign(ring_meps * count, {});
    rests_.assign(keeps_content && checksum_ != protocol::Checksum::off ? pieces_.size() : 0, {});
    for (std::uint64_t entry = 0; entry < ring_meps; ++entry) {
        for (std::uint32_t index = 0; index < count; ++index) {
            pieces_[entry * count + index].body = {*region, 0, entry % places * mep_bytes_ + offsets_[index]};
        }
    }
    for (std::size_t index = 0; index < stand_ins_.size(); ++index) {
        stand_ins_[index].body = {*region, 0, stats_.ring_bytes + index * stand_in_bytes};
        stand_ins_[index].flag = wire::SourceFlag::dropped;
    }
    return Ok{};
}

void RingSource::start(Time now, protocol::MepId first, std::uint64_t first_event_told) {
    next_first_ = first_event(first, first_event_told);
    closed_events_ = 0;
    next_ = released_ = room_below_ = first;
    made_meps_ = freed_meps_ = held_meps_ = 0;
    held_since_ = now;
    std::ranges::fill(dropped_, std::uint8_t{0});
    gate_.reset();
    plan_next(now);
}

/// What the time and the releases until `now` have changed.
void RingSource::look(Time now) {
    if (!open_loop()) {
        return;
    }
    // Room there was before the triggers started was always there; that of an RU that came back is there from now on.
    const Time since = gate_ ? now : std::min(now, std::max<Time>(triggers_.origin, 0));
    for (; room_below_ < released_ + retention_meps_; ++room_below_) {
        room_since_[room_below_ % retention_meps_] = since;
    }
    if (now > held_since_) {
        const Time ns = (now - held_since_) / ps_per_ns;
        stats_.held_mep_ns += held_meps_ * static_cast<std::uint64_t>(ns);
        held_since_ += ns * ps_per_ns;
    }
    held_meps_ = made_meps_ - freed_meps_;
    if (gate_ && !gate_->behind() && held_meps_ < memory_meps_) {
        gate_->has_place(now);
    }
}

void RingSource::release(protocol::MepId below) {
    for (; released_ < below; ++released_) {
        freed_meps_ += was_dropped(released_) ? 0 : 1;
    }
}

void RingSource::plan_next(Time now) {
    const std::uint32_t events = next_events();
    impatient_at_ = time_never;
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
        look(now);
        gate_.emplace(triggers_, std::max(now, triggers_.origin), next_first_ - origin_event());
    }
    if (!gate_->catch_up()) {
        next_ready_ = now + 1;
        return;
    }
    next_ready_ = gate_->due(events, has_room(next_) ? room_since_[next_ % retention_meps_] : 0);
    if (max_wait_ > 0 && closed_events_ == 0) {
        const Time patience = base::later(gate_->next_event(), max_wait_);
        impatient_at_ = patience < next_ready_ ? patience : time_never;
    }
}

std::uint32_t RingSource::open_events(Time now) {
    return gate_ && !gate_->behind() ? gate_->waiting_events(now, next_events()) : 0;
}

void RingSource::close(Time now, protocol::MepId mep, std::uint32_t events) {
    if (mep == next_ && events < next_events()) {
        closed_events_ = events;
        plan_next(now);
    }
}

bool RingSource::produce(Time now, protocol::MepId mep) {
    look(now);
    const std::uint32_t events = next_events();
    if (mep != next_ || events == 0 || !has_room(mep)) {
        return false;
    }
    if (!open_loop()) {
        make_all(now);
    } else {
        plan_next(now);
        if (!gate_ || now < next_ready_) {
            return false;
        }
        const Time room = room_since_[mep % retention_meps_];
        const Time trigger = next_ready_;
        // Its data came when it was due: neither a place nor a number that became free since then helps them.
        if (may_drop() && (room > trigger || held_meps_ == memory_meps_)) {
            drop_all(trigger);
            gate_->drop(events, room);
        } else {
            make_all(trigger);
            gate_->accept(events, room);
        }
    }
    ++stats_.meps;
    ++next_;
    next_first_ += events;
    closed_events_ = 0;
    plan_next(now);
    return true;
}

/// Of what was made just now, while it is in the cache; of content that is kept, only the part that is made anew.
std::uint32_t RingSource::checksum_of(const protocol::Piece& piece, std::uint32_t index) {
    const std::span<const std::byte> body = memory_.subspan(piece.body.offset, piece.body.length);
    if (rests_.empty()) {
        return wire::body_checksum(body);
    }
    Rest& rest = rests_[place(next_, index)];
    if (rest.n_events != piece.n_events) {
        rest = {piece.n_events, wire::checksum_of_rest(body)};
    }
    return wire::body_checksum(body, rest.checksum);
}

void RingSource::make_all(Time trigger) {
    if (!dropped_.empty()) {
        dropped_[next_ % retention_meps_] = 0;
    }
    for (std::uint32_t index = 0; index < sources(); ++index) {
        protocol::Piece& piece = piece_at(next_, index);
        if (may_drop() && !keeps_content_) {
            // Places are used in turn by MEPs with data alone; they are released in the same order.
            piece.body.offset = made_meps_ % memory_meps_ * mep_bytes_ + offsets_[index];
        }
        make(next_, index, piece, place_of(piece, index));
        piece.trigger = trigger;
        if (is_checked(checksum_, next_)) {
            piece.checksum = checksum_of(piece, index);
        }
        stats_.goodput_bytes += piece.goodput_bytes;
        stats_.truncated_mfps += piece.flag == wire::SourceFlag::truncated ? 1 : 0;
        stats_.desync_mfps += piece.flag == wire::SourceFlag::desync ? 1 : 0;
    }
    stats_.accepted_events += next_events();
    ++made_meps_;
    ++held_meps_;
    stats_.peak_held_meps = std::max(stats_.peak_held_meps, held_meps_);
}

void RingSource::drop_all(Time trigger) {
    dropped_[next_ % retention_meps_] = 1;
    const std::uint32_t events = next_events();
    for (std::uint32_t index = 0; index < sources(); ++index) {
        protocol::Piece& piece = stand_ins_[stand_in(next_, index)];
        piece.first_event = next_first_;
        piece.n_events = events;
        piece.body.length = static_cast<std::uint32_t>(wire::phantom_bytes(events));
        piece.trigger = trigger;
        if (!memory_.empty()) {
            // Cannot fail: its place is as long as a phantom of the largest MEP.
            (void)wire::write_phantom(memory_.subspan(piece.body.offset, piece.body.length), piece.first_event, events,
                                      ids_[index], wire::SourceFlag::dropped);
        }
        if (is_checked(checksum_, next_)) {
            piece.checksum = wire::body_checksum(memory_.subspan(piece.body.offset, piece.body.length));
        }
    }
    stats_.dropped_mfps += sources();
}

SourceStats RingSource::stats(Time now) {
    look(now);
    SourceStats stats = stats_;
    stats.offered_events = stats.accepted_events;
    if (gate_ && !gate_->behind()) {
        const std::uint32_t events = next_events();
        const std::uint32_t waiting = has_room(next_) ? 0 : events;
        if (events > 0 && waiting == 0) {
            gate_->due(events, room_since_[next_ % retention_meps_]);
        }
        stats.inhibited_events = gate_->inhibited_events(now, waiting);
        stats.offered_events = events == 0 ? gate_->passed_events() : gate_->offered_events(now);
        stats.dropped_events = gate_->dropped_events();
        stats.dead_time = gate_->dead_time(now, waiting);
    }
    return stats;
}

}  // namespace incast::sources

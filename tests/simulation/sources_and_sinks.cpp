#include "sources_and_sinks.h"

#include <algorithm>
#include <cstring>

namespace incast::adversary {

using protocol::MepId;

// --- source
// ------------------------------------------------------------------------------------------------------------------

ModelSource::ModelSource(const Plan& plan, std::uint32_t node, sim::EndpointId endpoint, sim::World& world,
                         Checker& checker, std::uint64_t seed)
    : plan_(plan), node_(node), endpoint_(endpoint), world_(world), checker_(checker), prng_(seed) {}

Result<Ok> ModelSource::attach(Transport& transport, const protocol::Config& config, std::uint32_t first_source,
                               std::uint32_t count) {
    first_source_ = first_source;
    count_ = count;
    for (std::uint32_t index = 0; index < count; ++index) {
        const std::size_t bytes = std::size_t{config.sources[first_source + index].cap_bytes} * config.retention_meps;
        const Result<Local> region = transport.allocate(bytes);
        if (!region) return region.error();
        regions_.push_back(*region);
    }
    return Ok{};
}

void ModelSource::start(Time now, MepId first, std::uint64_t first_event) {
    if (started_) checker_.misuse("source of node {} started twice", node_);
    started_ = true;
    first_ = produced_ = released_ = first;
    next_ready_ = now;
    first_event_ = arrived_ = first_event;
    next_arrival_ = open_since_ = now;
    closed_ = 0;
    made_.assign(plan_.config.retention_meps, {});
}

std::uint32_t ModelSource::next_events() const {
    const std::uint64_t left = plan_.config.total_events - first_event_;
    return closed_ > 0 ? closed_ : static_cast<std::uint32_t>(std::min<std::uint64_t>(plan_.source.packing, left));
}

/// Events that came until now; each RU's at times of its own.
void ModelSource::look(Time now) {
    while (next_arrival_ <= now && arrived_ < plan_.config.total_events) {
        if (arrived_++ == first_event_) open_since_ = next_arrival_;
        next_arrival_ += prng_.between(0, 2 * plan_.source.interval / plan_.source.packing);
        if (prng_.chance(plan_.source.stutter_chance)) next_arrival_ += 20 * plan_.source.interval;
    }
}

Time ModelSource::impatient_at() const {
    if (!counts() || next_events() == 0 || closed_ > 0) return time_never;
    return (arrived_ > first_event_ ? open_since_ : next_arrival_) + plan_.config.max_wait;
}

std::uint32_t ModelSource::open_events(Time now) {
    look(now);
    return static_cast<std::uint32_t>(std::min<std::uint64_t>(arrived_ - first_event_, next_events()));
}

void ModelSource::close(Time now, MepId mep, std::uint32_t events) {
    if (mep != produced_ || events == 0 || events > open_events(now)) {
        checker_.misuse("source of node {}: close({}, {}) although {} is next, with {} events", node_, mep, events,
                        produced_, open_events(now));
        return;
    }
    checker_.mark("closed early");
    closed_ = events;
    next_ready_ = now;
}

Slice ModelSource::body(MepId mep, std::uint32_t index) const {
    const std::uint32_t source = first_source_ + index;
    const std::uint64_t cap = plan_.config.sources[source].cap_bytes;
    return {regions_[index], contribution_of(plan_, mep, source).bytes, mep % plan_.config.retention_meps * cap};
}

bool ModelSource::produce(Time now, MepId mep) {
    if (!started_) checker_.misuse("source of node {}: produce before start", node_);
    if (mep != produced_) checker_.misuse("source of node {}: produce({}) although {} is next", node_, mep, produced_);
    if (mep >= released_ + plan_.config.retention_meps) {
        checker_.misuse("source of node {}: produce({}) would overwrite MEP {}, not released", node_, mep,
                        mep - plan_.config.retention_meps);
    }
    if (counts() ? next_events() == 0 : mep >= plan_.source.total_meps) {
        next_ready_ = time_never;
        return false;
    }
    if (now < next_ready_) {
        checker_.mark("source not ready");
        return false;
    }
    if (counts()) {
        look(now);
        if (arrived_ < first_event_ + next_events()) {
            next_ready_ = next_arrival_;
            return false;
        }
        made_[mep % made_.size()] = {first_event_, next_events()};
        first_event_ += next_events();
        closed_ = 0;
        open_since_ = now;
    } else {
        next_ready_ = now + prng_.between(0, 2 * plan_.source.interval);
        if (prng_.chance(plan_.source.stutter_chance)) next_ready_ += 20 * plan_.source.interval;
    }
    const std::uint32_t retention = plan_.config.retention_meps;
    for (std::uint32_t index = 0; index < count_; ++index) {
        const std::uint64_t cap = plan_.config.sources[first_source_ + index].cap_bytes;
        const Slice place{regions_[index], static_cast<std::uint32_t>(cap), mep % retention * cap};
        if (world_.body_in_use(endpoint_, place)) {
            checker_.violation("EB-F1", "node {} lets MEP {} be overwritten while a write of it is not complete", node_,
                               mep - retention);
        }
    }
    ++produced_;
    checker_.produced(node_, produced_);
    return true;
}

const protocol::Piece& ModelSource::piece(MepId mep, std::uint32_t index) {
    if (index >= count_ || mep < released_ || mep >= produced_) {
        checker_.misuse("source of node {}: piece({}, {}) outside [{}, {})", node_, mep, index, released_, produced_);
    }
    const Contribution made = contribution_of(plan_, mep, first_source_ + index);
    protocol::Piece& piece = piece_;
    piece.body = body(mep, index);
    piece.first_event = counts() ? made_[mep % made_.size()].first_event : made.first_event;
    piece.n_events = counts() ? made_[mep % made_.size()].n_events : made.n_events;
    piece.goodput_bytes = made.bytes;
    piece.flag = made.flag;
    return piece;
}

void ModelSource::release(MepId below) {
    if (below < released_ || below > produced_) {
        checker_.misuse("source of node {}: release({}) outside [{}, {}]", node_, below, released_, produced_);
    }
    for (MepId mep = released_; mep < below; ++mep) {
        if (!checker_.is_committed(mep))
            checker_.violation("EB-F1", "node {} forgets MEP {}, which is not committed", node_, mep);
    }
    released_ = below;
}

// --- sink
// --------------------------------------------------------------------------------------------------------------------

ModelSink::ModelSink(const Plan& plan, std::uint32_t node, std::uint32_t incarnation, Checker& checker,
                     std::uint64_t seed)
    : plan_(plan), node_(node), incarnation_(incarnation), checker_(checker), prng_(seed) {}

protocol::Sink::Taken ModelSink::take(Time now, const protocol::BuiltMep& mep) {
    if (now < busy_until_ || prng_.chance(plan_.sink.busy_chance)) {
        if (now >= busy_until_) busy_until_ = now + prng_.between(1, plan_.sink.busy_max);
        checker_.mark("sink busy");
        return Taken::busy;
    }
    busy_until_ = 0;
    checker_.taken(node_, incarnation_, mep);
    if (!prng_.chance(plan_.sink.pending_chance)) {
        checker_.durable(node_, incarnation_, mep.mep);
        return hold(now, mep) ? Taken::held : Taken::done;
    }
    checker_.mark("sink pending");
    pending_.push_back({mep.mep, now + prng_.between(1, plan_.sink.durable_max)});
    return hold(now, mep) ? Taken::held_pending : Taken::pending;
}

bool ModelSink::hold(Time now, const protocol::BuiltMep& mep) {
    if (!prng_.chance(plan_.sink.hold_chance)) return false;
    checker_.mark("sink holds");
    Held held{mep.slot, mep.mep, now + prng_.between(1, plan_.sink.hold_max), {}};
    for (const protocol::BuiltSource& source : mep.sources) {
        if (source.head != nullptr) held.heads.emplace_back(source.head, *source.head);
    }
    held_.push_back(std::move(held));
    return true;
}

std::size_t ModelSink::returned(Time now, std::span<std::uint16_t> slots) {
    std::size_t count = 0;
    for (auto at = held_.begin(); at != held_.end() && count < slots.size();) {
        if (at->until > now) {
            ++at;
            continue;
        }
        for (const auto& [place, before] : at->heads) {
            if (std::memcmp(place, &before, sizeof before) != 0) {
                checker_.violation("EB-C1",
                                   "node {} lets MEP {} be written into slot {}, which its sink holds with MEP {}",
                                   node_, place->mep, at->slot, at->mep);
            }
        }
        slots[count++] = at->slot;
        at = held_.erase(at);
    }
    return count;
}

std::size_t ModelSink::durable(Time now, std::span<MepId> meps) {
    std::size_t count = 0;
    for (auto at = pending_.begin(); at != pending_.end() && count < meps.size();) {
        if (at->durable_at > now) {
            ++at;
            continue;
        }
        checker_.durable(node_, incarnation_, at->mep);
        meps[count++] = at->mep;
        at = pending_.erase(at);
    }
    return count;
}

Time ModelSink::next_deadline() const {
    Time deadline = busy_until_ > 0 ? busy_until_ : time_never;
    for (const Pending& each : pending_)
        deadline = std::min(deadline, each.durable_at);
    for (const Held& each : held_)
        deadline = std::min(deadline, each.until);
    return deadline;
}

// --- filter
// ------------------------------------------------------------------------------------------------------------------

protocol::Filter::Verdict ModelFilter::decide(Time now, const protocol::BuiltMep& first) {
    Verdict verdict = Verdict::undecided;
    if (prng_.chance(plan_.filter.undecided_chance)) {
        ask_again_ = now + prng_.between(1, plan_.filter.undecided_max);
    } else {
        const std::uint64_t bits = base::mix64(base::mix64(plan_.seed ^ 0xf1) + first.mep);
        verdict = bits % 1'000'000 < plan_.filter.reject_chance ? Verdict::reject : Verdict::accept;
    }
    checker_.decided(node_, incarnation_, first, verdict);
    return verdict;
}

}  // namespace incast::adversary

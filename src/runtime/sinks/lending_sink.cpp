#include "runtime/sinks/lending_sink.h"

namespace incast::sinks {

LendingSink::LendingSink(const SinkOptions& options, const protocol::Config& config)
    : MeteredSink(options),
      most_(config.held_slots),
      begins_(std::size_t{config.credits} + config.quarantine_slots + config.held_slots),
      waiting_(config.held_slots),
      returned_(config.held_slots),
      durable_(config.held_slots) {}

protocol::Sink::Taken LendingSink::take(Time now, const protocol::BuiltMep& mep) {
    now_ = now;
    // What was given back, and the builder unit has not heard of, still takes up a slot.
    refused_ = lent_ + returned_.size() >= most_;
    if (refused_) {
        return Taken::busy;
    }
    Lent lent{.mep = mep.mep,
              .first_event = mep.first_event,
              .goodput_bytes = mep.goodput_bytes,
              .n_events = mep.n_events,
              .missing_sources = mep.missing_sources,
              .attempt = mep.attempt,
              .slot = mep.slot,
              .redelivered = mep.redelivered};
    for (const protocol::BuiltSource& source : mep.sources) {
        lent.body_bytes += source.head != nullptr ? source.head->body_bytes : source.body.size();
    }
    begins_[mep.slot] = begin_of(mep);
    ++lent_;
    ++stats_.consumers.taken_meps;
    count(mep);
    waiting_.must_push(lent);
    if (on_lent_) {
        on_lent_();
    }
    return Taken::held_pending;
}

LendingSink::Lent LendingSink::next() {
    const Lent lent = waiting_.front();
    waiting_.pop();
    return lent;
}

void LendingSink::give_back(Time now, const Lent& lent, std::uint64_t verdict) {
    now_ = now;
    --lent_;
    returned_.must_push(lent.slot);
    durable_.must_push(lent.mep);
    count_latency(now, begins_[lent.slot]);
    ++stats_.consumers.done_meps;
    if (verdict != 0) {
        ++stats_.consumers.judged_meps;
        stats_.consumers.accepted_events += verdict - 1;
        stats_.consumers.rejected_events += lent.n_events - (verdict - 1);
    }
}

std::size_t LendingSink::durable(Time /*now*/, std::span<protocol::MepId> meps) {
    std::size_t count = 0;
    for (; count < meps.size() && !durable_.empty(); ++count) {
        meps[count] = durable_.front();
        durable_.pop();
    }
    return count;
}

std::size_t LendingSink::returned(Time /*now*/, std::span<std::uint16_t> slots) {
    std::size_t count = 0;
    for (; count < slots.size() && !returned_.empty(); ++count) {
        slots[count] = returned_.front();
        returned_.pop();
    }
    return count;
}

Time LendingSink::next_deadline() const {
    const bool has_news = !returned_.empty() || !durable_.empty() || (refused_ && lent_ < most_);
    return has_news ? now_ : time_never;
}

}  // namespace incast::sinks

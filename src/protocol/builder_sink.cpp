// A builder unit and its sink: what the sink is shown, what it took, holds and has made durable.
#include <algorithm>
#include <array>

#include "protocol/builder_unit.h"
#include "wire/body_checksum.h"

namespace incast::protocol {

using wire::AttemptEntry;
using wire::Head;
using wire::SourceFlag;

/// While they are in the cache. What arrived damaged says so in its head, which is what filter and sink are shown
/// (EB-F5). Views are left out: what is looked at later lies in the memory of its RU.
void BuilderUnit::check_bodies(std::uint32_t slot, std::uint32_t ru) {
    const Shape::Ru& unit = shape_.rus[ru];
    const bool elsewhere = ru == own_ru_ && port_.config().self_traffic == SelfTraffic::pointer;
    if (port_.config().views && ru != own_ru_) {
        return;
    }
    for (std::uint32_t source = unit.first_source; source < unit.first_source + unit.sources; ++source) {
        const Head* head = head_of(slot, ru, source);
        const Bytes body = elsewhere
                               ? self_bodies_[std::size_t{slot} * unit.sources + (source - unit.first_source)]
                               : Bytes{memory_at(shape_.layout.at(slot, source)) + sizeof(Head), head->body_bytes};
        if (wire::body_checksum(body) != head->checksum) {
            ++port_.counters().damaged_mfps;
            if (!wire::is_defect(head->flag)) {
                const_cast<Head*>(head)->flag = SourceFlag::bad_checksum;  // it lies in this unit's memory
                ++slots_[slot].defective_sources;
            }
        }
    }
}

/// Which of its sources it is the notice does not say, so it is all of them. What of them is right nobody knows, so
/// none of it counts as goodput.
void BuilderUnit::flag_torn(std::uint32_t slot, std::uint32_t ru) {
    Slot& each = slots_[slot];
    const Shape::Ru& unit = shape_.rus[ru];
    port_.counters().torn_mfps += unit.sources;
    for (std::uint32_t source = unit.first_source; source < unit.first_source + unit.sources; ++source) {
        Head& head = const_cast<Head&>(*head_of(slot, ru, source));  // it lies in this unit's memory
        each.goodput_bytes -= head.goodput_bytes;
        head.goodput_bytes = 0;
        if (!wire::is_defect(head.flag)) {
            head.flag = SourceFlag::bad_checksum;
            ++each.defective_sources;
        }
    }
}

/// Fills built_ with what is in a slot. False: some of it lies in the memory of an RU that is being lost.
bool BuilderUnit::show(std::uint32_t slot) {
    const Slot& each = slots_[slot];
    const bool pointer = port_.config().self_traffic == SelfTraffic::pointer;
    for (std::uint32_t ru = 0; ru < rus_.size(); ++ru) {
        const Shape::Ru& unit = shape_.rus[ru];
        const bool to_come = each.first_stage && ru >= shape_.first_stage_rus;
        if (!each.expected.test(ru) || to_come) {
            const SourceFlag flag = each.expected.test(ru) ? SourceFlag::late : rus_[ru].missing_as;
            const BuiltSource missing{flag, nullptr, {}};
            std::fill_n(built_.begin() + unit.first_source, unit.sources, missing);
            continue;
        }
        for (std::uint32_t source = unit.first_source; source < unit.first_source + unit.sources; ++source) {
            const Head* head = head_of(slot, ru, source);
            BuiltSource& built = built_[source];
            built = {head->flag, head, {}};
            if (ru == own_ru_ && pointer) {
                built.body = self_bodies_[std::size_t{slot} * unit.sources + (source - unit.first_source)];
            } else if (port_.config().views && ru != own_ru_ && head->body_bytes > 0) {
                if (rus_[ru].up && ru_incarnations_[ru] == head->incarnation) {
                    built.body = reader_->view(slot, source);
                }
                if (built.body.empty()) {
                    return false;
                }
            } else if (has_memory_) {
                built.body = {memory_at(shape_.layout.at(slot, source)) + sizeof(Head), head->body_bytes};
            }
        }
    }
    return true;
}

BuiltMep BuilderUnit::describe(std::uint32_t slot) {
    const Slot& each = slots_[slot];
    BuiltMep mep;
    mep.mep = each.mep;
    mep.attempt = each.attempt;
    mep.redelivered = each.redelivered;
    mep.slot = static_cast<std::uint16_t>(slot);
    mep.first_event = each.first_event;
    mep.n_events = each.n_events;
    mep.goodput_bytes = each.goodput_bytes;
    mep.self_bytes = each.self_bytes;
    mep.missing_sources = each.missing_sources;
    mep.flagged_sources = each.missing_sources + each.defective_sources;
    mep.trigger = each.trigger;
    mep.last_trigger = each.last_trigger;
    mep.assigned = each.assigned;
    mep.completed = each.completed;
    return mep;
}

/// Which defects a MEP has that is delivered incomplete.
void BuilderUnit::count_flags(std::uint32_t slot) {
    const Slot& each = slots_[slot];
    std::array<std::uint32_t, wire::source_flag_names.size()> sources{};
    for (std::uint32_t ru = 0; ru < rus_.size(); ++ru) {
        const Shape::Ru& unit = shape_.rus[ru];
        if (!each.expected.test(ru)) {
            sources[static_cast<std::size_t>(rus_[ru].missing_as)] += unit.sources;
            continue;
        }
        for (std::uint32_t source = unit.first_source; source < unit.first_source + unit.sources; ++source) {
            // A liar may have changed it since it was looked at.
            const auto flag = static_cast<std::size_t>(head_of(slot, ru, source)->flag);
            if (flag < sources.size()) {
                ++sources[flag];
            }
        }
    }
    Counters& counters = port_.counters();
    for (const FlagCounters& flag : flag_counters) {
        const std::uint32_t mfps = sources[static_cast<std::size_t>(flag.flag)];
        counters.*flag.mfps += mfps;
        counters.*flag.events += mfps > 0 ? each.n_events : 0;
    }
}

bool BuilderUnit::take(Time now, std::uint32_t slot) {
    Slot& each = slots_[slot];
    Counters& counters = port_.counters();
    if (each.rejected) {
        ++counters.meps_filtered;
        counters.events_filtered += each.n_events;
        committed_.must_push(entry_of(slot));
        return true;
    }
    BuiltMep mep = describe(slot);
    if (shows_) {
        if (!show(slot)) {
            return false;  // the EM will say that an RU is lost
        }
        mep.sources = built_;
    }
    const Sink::Taken taken = sink_.take(now, mep);
    if (taken == Sink::Taken::busy) {
        return false;
    }
    ++counters.meps_built;
    counters.events_built += mep.n_events;
    counters.built_goodput_bytes += mep.goodput_bytes;
    counters.built_self_bytes += mep.self_bytes;
    if (mep.flagged_sources > 0) {
        ++counters.incomplete_meps;
        counters.incomplete_events += mep.n_events;
        count_flags(slot);
    }
    if (mep.redelivered) {
        ++counters.redelivered_meps;
        counters.redelivered_events += mep.n_events;
    }
    if (taken == Sink::Taken::held || taken == Sink::Taken::held_pending) {
        each.held = true;
        each.held_since = now;
        reuse_until_ = now + port_.config().reuse_wait;
        ++held_;
    }
    if (taken == Sink::Taken::done || taken == Sink::Taken::held) {
        committed_.must_push(entry_of(slot));
    } else {
        undurable_.push_back(entry_of(slot));
    }
    return true;
}

void BuilderUnit::account_waiting(Time now) {
    if (in_flight_ == 0) {
        waiting_time_ += now - waiting_since_;
    }
    waiting_since_ = now;
}

void BuilderUnit::take_back(Time now) {
    for (std::size_t many = returned_.size(); many == returned_.size() && held_ > 0;) {
        many = sink_.returned(now, returned_);
        for (std::size_t index = 0; index < many; ++index) {
            Slot& each = slots_[returned_[index]];
            if (each.held) {
                each.held = false;
                --held_;
                holds_briefly_ = now - each.held_since <= port_.config().reuse_wait;
                if (port_.config().plant != Plant::early_reuse) {
                    settle(returned_[index]);
                }
            }
        }
    }
}

void BuilderUnit::serve_sink(Time now) {
    take_back(now);
    if (sink_deadline_ <= now || !undurable_.empty()) {
        for (std::size_t many = durable_.size(); many == durable_.size() && !undurable_.empty();) {
            many = sink_.durable(now, durable_);
            for (std::size_t index = 0; index < many; ++index) {
                // Sinks finish in order, or nearly: the entry is at the front.
                const auto found = std::find_if(undurable_.begin(), undurable_.end(), [&](const AttemptEntry& entry) {
                    return entry.mep == durable_[index];
                });
                if (found != undurable_.end()) {
                    committed_.must_push(*found);
                    undurable_.erase(found);
                }
            }
        }
    }
    while (!taking_.empty()) {
        const std::uint16_t slot = taking_.front();
        if (!take(now, slot)) {
            break;
        }
        taking_.pop();
        retire(now, slot);
    }
    sink_deadline_ = undurable_.empty() && taking_.empty() && held_ == 0 ? time_never : sink_.next_deadline();
}

}  // namespace incast::protocol

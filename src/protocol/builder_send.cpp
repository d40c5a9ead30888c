// The sending half of a builder unit: credits, pull requests, commit requests, lateness.
#include <algorithm>
#include <cstring>
#include <utility>

#include "base/bitmap.h"
#include "base/stream_copy.h"
#include "protocol/builder_unit.h"

namespace incast::protocol {

using wire::AttemptEntry;
using wire::ControlKind;

// --- pull
// -------------------------------------------------------------------------------------------------------------------

/// In which order the RUs of this stage are asked.
void BuilderUnit::plan_requests(std::uint32_t slot) {
    Slot& each = slots_[slot];
    const std::size_t rus = rus_.size();
    std::size_t ru = port_.config().schedule == Schedule::linear_shift ? (bu_ + 1) % rus : 0;
    for (std::uint16_t& place : each.order) {
        place = static_cast<std::uint16_t>(ru);
        ru = ru + 1 == rus ? 0 : ru + 1;
    }
    if (port_.config().schedule == Schedule::random) {  // Fisher-Yates
        for (std::size_t left = rus; left > 1; --left) {
            std::swap(each.order[left - 1], each.order[prng_.below(left)]);
        }
    }
    each.requested = 0;
    if (!each.queued) {
        each.queued = true;
        assigned_order_.must_push(static_cast<std::uint16_t>(slot));
    }
}

/// Without a limit all RUs are asked for all new MEPs at once: one message, sent to each of them.
void BuilderUnit::request_from_all() {
    auto message = port_.message<ControlKind::request>();
    std::size_t asked = 0;
    for (; asked < assigned_order_.size() && !message.full(); ++asked) {
        const std::uint16_t slot = assigned_order_[asked];
        if (slots_[slot].state == SlotState::assigned) {
            message.add(entry_of(slot));
        }
    }
    const std::vector<std::uint16_t>& order = slots_[assigned_order_.front()].order;
    for (const std::uint16_t ru : order) {
        RuLink& link = rus_[ru];
        if (!link.up || ru_incarnations_[ru] != link.view_incarnation) {
            continue;  // lost, or about to be: the EM will say so, or the MEP becomes late
        }
        bool all = message.count() > 0 && link.requests.empty() && link.knows_regions;
        for (std::size_t index = 0; index < asked; ++index) {
            Slot& each = slots_[assigned_order_[index]];
            const bool wanted = each.state == SlotState::assigned && each.awaited.test(ru);
            all = all && (wanted || each.state != SlotState::assigned);
            if (wanted) {
                owe(assigned_order_[index], ru);
                ++outstanding_requests_;
            }
        }
        if (all && port_.send(shape_.rus[ru].node, message)) {
            continue;
        }
        for (std::size_t index = 0; index < asked; ++index) {
            const std::uint16_t slot = assigned_order_[index];
            if (slots_[slot].state == SlotState::assigned && slots_[slot].awaited.test(ru)) {
                attempts_.must_push(link.requests, entry_of(slot));
                ru_work_.set(ru);
            }
        }
    }
    for (; asked > 0; --asked) {
        Slot& each = slots_[assigned_order_.front()];
        each.requested = static_cast<std::uint32_t>(rus_.size());
        each.queued = false;
        assigned_order_.pop();
    }
}

/// parallel_requests is the BU's total over its MEPs, oldest first (EB-C2).
void BuilderUnit::make_requests() {
    const std::uint32_t limit = port_.config().parallel_requests;
    while (limit == 0 && !assigned_order_.empty()) {
        request_from_all();
    }
    while (!assigned_order_.empty()) {
        const std::uint16_t slot = assigned_order_.front();
        Slot& each = slots_[slot];
        while (each.state == SlotState::assigned && each.requested < rus_.size()) {
            if (outstanding_requests_ >= limit) {
                return;
            }
            const std::uint16_t ru = each.order[each.requested++];
            RuLink& link = rus_[ru];
            if (!each.awaited.test(ru) || !link.up || ru_incarnations_[ru] != link.view_incarnation) {
                continue;  // lost, or about to be: the EM will say so, or the MEP becomes late
            }
            owe(slot, ru);
            ++outstanding_requests_;
            attempts_.must_push(link.requests, entry_of(slot));
            ru_work_.set(ru);
        }
        each.queued = false;
        assigned_order_.pop();
    }
}

/// Hands MEPs whose first stage is there to the filter (EB-C7).
void BuilderUnit::decide(Time now) {
    if (deciding_.empty() || now < next_decision_) {
        return;
    }
    next_decision_ = time_never;
    for (std::size_t left = deciding_.size(); left > 0; --left) {
        const std::uint16_t slot = deciding_.front();
        deciding_.pop();
        Slot& each = slots_[slot];
        each.in_deciding = false;
        if (each.state != SlotState::deciding) {
            continue;  // its attempt was voided
        }
        BuiltMep mep = describe(slot);
        mep.sources = show(slot) ? std::span<const BuiltSource>(built_) : std::span<const BuiltSource>();
        Filter::Verdict verdict = filter_ == nullptr ? Filter::Verdict::accept : filter_->decide(now, mep);
        const Time deadline = each.completed + port_.config().decision_deadline;
        if (verdict == Filter::Verdict::gone || (verdict == Filter::Verdict::undecided && now >= deadline)) {
            ++port_.counters().undecided_meps;
            verdict =
                port_.config().plant == Plant::undecided_reject ? Filter::Verdict::reject : Filter::Verdict::accept;
        }
        if (verdict == Filter::Verdict::reject && port_.config().plant == Plant::ignored_reject) {
            verdict = Filter::Verdict::accept;
        }
        if (verdict == Filter::Verdict::undecided) {
            each.in_deciding = true;
            deciding_.must_push(slot);
            next_decision_ = std::min(next_decision_, deadline);
        } else if (verdict == Filter::Verdict::reject) {
            each.rejected = true;
            complete(now, slot);
        } else {
            begin_second_stage(now, slot);
        }
    }
    if (!deciding_.empty()) {
        next_decision_ = std::min(next_decision_, filter_->next_deadline());
    }
}

void BuilderUnit::begin_second_stage(Time now, std::uint32_t slot) {
    Slot& each = slots_[slot];
    each.first_stage = false;
    if (port_.config().second_stage_all) {
        // An RU that was lost while the filter decided is not asked again: nothing more comes of it.
        for (std::uint32_t ru = 0; ru < shape_.first_stage_rus; ++ru) {
            const bool takes_part = rus_[ru].in_view && rus_[ru].from_mep <= each.mep;
            each.missing_sources += !takes_part && each.expected.take(ru) ? shape_.rus[ru].sources : 0;
        }
        each.awaited = each.expected;
        each.goodput_bytes = 0;
        each.self_bytes = 0;
        each.defective_sources = 0;
    } else {
        each.awaited = each.expected;
        for (std::size_t ru = 0; ru < shape_.first_stage_rus; ++ru) {
            each.awaited.reset(ru);
        }
    }
    if (!each.awaited.any()) {
        complete(now, slot);
        return;
    }
    each.state = SlotState::assigned;
    each.late_at = now + patience(port_.config(), each.late_before);
    next_late_ = std::min(next_late_, each.late_at);
    plan_requests(slot);
}

// --- sending
// -------------------------------------------------------------------------------------------------------------------

/// To the EM, or with source-credits to every RU that pushes; an RU of which the queue is full is told what counts now.
void BuilderUnit::grant_credit(wire::CreditEntry entry) {
    if (!ahead_) {
        grants_.must_push(entry);
        return;
    }
    open_.must_push(entry.slot);
    for (std::uint32_t ru = 0; ru < shape_.pushing_rus; ++ru) {
        if (!rus_[ru].up) {
            continue;
        }
        wire::CreditEntry told = entry;
        if (port_.config().plant == Plant::uneven_grant && ru == 0 && entry.credit % 16 == 5) {
            told.slot = static_cast<std::uint16_t>((told.slot + 1) % shape_.slots);
        }
        if (!told_[ru].push(told)) {
            repeat_credits(ru);
        }
        ru_work_.set(ru);
    }
}

/// Credits are absolute: those in service now are all that an RU must know (EB-C1).
void BuilderUnit::repeat_credits(std::uint32_t ru) {
    if (!ahead_) {
        return;
    }
    told_[ru].clear();
    for (std::uint32_t slot = 0; shape_.pushes(ru) && slot < slots_.size(); ++slot) {
        const wire::CreditEntry entry{slots_[slot].credit, static_cast<std::uint16_t>(slot), 0};
        if (is_in_service(entry)) {
            told_[ru].must_push(entry);
        }
    }
}

/// MEPs and credits meet in the order in which both are counted.
void BuilderUnit::bind(Time now) {
    while (!booked_.empty() && !open_.empty()) {
        AttemptEntry entry = booked_.front();
        entry.slot = open_.front();
        booked_.pop();
        open_.pop();
        begin(now, entry.slot, entry);
    }
}

void BuilderUnit::grant(Time now) {
    while (!free_.empty() && serving_ + awaited_slots(now) < port_.config().credits) {
        const std::uint16_t slot = free_.back();
        free_.pop_back();
        Slot& each = slots_[slot];
        each.state = SlotState::granted;
        each.credit = ++granted_;
        each.early.clear();
        each.torn.clear();
        ++serving_;
        grant_credit({each.credit, slot, 0});
        if (port_.config().plant == Plant::double_credit && granted_ % 16 == 0) {
            grant_credit({++granted_, slot, 0});
        }
    }
    bind(now);
    port_.send_all<ControlKind::grant>(port_.config().em, grants_);
}

/// Pull: RUs that were asked are told to forget it; those not asked owe nothing.
void BuilderUnit::abort_requests(std::uint32_t slot) {
    if (!pull_) {
        return;
    }
    Slot& each = slots_[slot];
    for (std::size_t ru = each.owed.next(0); ru != base::Bitmap::none; ru = each.owed.next(ru + 1)) {
        // One that has offered has nothing to forget; its reads are awaited.
        if (!shape_.pushes(ru) && !(reads_ && reader_->reading(slot, static_cast<std::uint32_t>(ru)))) {
            attempts_.must_push(rus_[ru].aborts, entry_of(slot));
            ru_work_.set(ru);
        }
    }
    each.requested = static_cast<std::uint32_t>(rus_.size());
}

/// An RU writes where its own sources lie, and nowhere else (EB-T8). Where it is read from, it writes nothing.
Result<Blob> BuilderUnit::grant(const Shape::Ru& unit, std::uint32_t index) {
    const std::uint32_t region = shape_.layout.region_of_ru(index, unit.first_source, unit.sources);
    Grant grant = shape_.layout.grant_of_ru(unit.first_source, unit.sources, shape_.slots);
    grant.peer = unit.node;
    grant.write = !reads_;
    return port_.transport().expose(regions_[region].local, grant);
}

Result<Ok> BuilderUnit::grant_all() {
    for (std::uint32_t ru = 0; ru < shape_.rus.size(); ++ru) {
        const Shape::Ru& unit = shape_.rus[ru];
        const std::uint32_t count = ru == own_ru_ ? 0 : shape_.layout.regions_of_ru(shape_.slots, unit.sources);
        for (std::uint32_t index = 0; index < count; ++index) {
            if (const Result<Blob> key = grant(unit, index); !key) {
                return key.error();
            }
        }
    }
    return Ok{};
}

/// The keys with which that RU writes; false: some are still to be told.
bool BuilderUnit::tell_regions(std::uint32_t ru, RuLink& link) {
    const Shape::Ru& unit = shape_.rus[ru];
    const std::uint32_t count = shape_.layout.regions_of_ru(shape_.slots, unit.sources);
    while (link.regions_told < count) {
        const Result<Blob> key = grant(unit, link.regions_told);  // as in grant_all(): nothing changes
        if (!key) {
            return false;
        }
        auto message = port_.message<ControlKind::region>();
        wire::RegionBody body;
        body.slot_bytes = shape_.layout.slot_bytes;
        body.slots = shape_.slots;
        body.index = link.regions_told;
        wire::set_key(message, body, key->view());
        if (!port_.send(unit.node, message)) {
            return false;
        }
        ++link.regions_told;
    }
    link.knows_regions = true;
    return true;
}

void BuilderUnit::flush_to_rus() {
    for (std::size_t ru = ru_work_.next(0); ru != base::Bitmap::none; ru = ru_work_.next(ru + 1)) {
        RuLink& link = rus_[ru];
        const Peer peer = shape_.rus[ru].node;
        if (!link.up) {
            ru_work_.reset(ru);
            continue;
        }
        if (!link.knows_regions && !tell_regions(static_cast<std::uint32_t>(ru), link)) {
            continue;
        }
        if (ahead_ && port_.config().plant != Plant::uneven_grant) {
            told_[ru].remove_if([&](const wire::CreditEntry& credit) { return !is_in_service(credit); });
        }
        if (!port_.send_all<ControlKind::request>(peer, attempts_, link.requests) ||
            !port_.send_all<ControlKind::abort>(peer, attempts_, link.aborts) ||
            (ahead_ && !port_.send_all<ControlKind::grant>(peer, told_[ru]))) {
            continue;
        }
        if (link.placed > 0) {
            auto message = port_.message<ControlKind::placed>();
            message.set_body({link.placed});
            if (!port_.send(peer, message)) {
                continue;
            }
        }
        ru_work_.reset(ru);
    }
}

void BuilderUnit::flush_late() {
    while (!late_.empty()) {
        const std::uint16_t slot = late_.front();
        const Slot& each = slots_[slot];
        if (each.state == SlotState::assigned) {
            auto message = port_.message<ControlKind::late>();
            message.set_body({entry_of(slot)});
            for (std::size_t ru = each.awaited.next(0); ru != base::Bitmap::none; ru = each.awaited.next(ru + 1)) {
                // Pull: an RU that was not even asked yet is not the one that is late.
                const bool asked = shape_.pushes(ru) || each.owed.test(ru) || !rus_[ru].up;
                if (asked && !message.add({static_cast<std::uint32_t>(shape_.rus[ru].node)})) {
                    break;
                }
            }
            if (!port_.send(port_.config().em, message)) {
                return;
            }
        }
        late_.pop();
    }
}

void BuilderUnit::flush(Time now) {
    if (std::exchange(self_streamed_, false)) {
        base::fence_streams();  // filter and sink are shown it below, and may tell other processes
    }
    decide(now);
    serve_sink(now);
    find_late(now);
    grant(now);
    flush_reads(now);
    make_requests();
    flush_to_rus();
    port_.send_all<ControlKind::commit_request>(port_.config().em, commit_requests_);
    port_.send_all<ControlKind::committed>(port_.config().em, committed_);
    flush_late();
}

Time BuilderUnit::next_deadline() const {
    const bool may_grant = held_ > 0 && serving_ < port_.config().credits && !free_.empty();
    return std::min({next_late_, sink_deadline_, deciding_.empty() ? time_never : next_decision_,
                     may_grant ? reuse_until_ : time_never});
}

}  // namespace incast::protocol

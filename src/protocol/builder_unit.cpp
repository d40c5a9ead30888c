#include "protocol/builder_unit.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "base/fifo.h"
#include "base/prefetch.h"
#include "base/stream_copy.h"

namespace incast::protocol {

using wire::AttemptEntry;
using wire::ControlKind;
using wire::ControlView;
using wire::Head;
using wire::SourceFlag;

BuilderUnit::BuilderUnit(Port& port, const Shape& shape, Sink& sink, Filter* filter)
    : port_(port),
      shape_(shape),
      sink_(sink),
      filter_(filter),
      bu_(shape.bu_of_node[static_cast<std::size_t>(port.self())]),
      own_ru_(shape.ru_of_node[static_cast<std::size_t>(port.self())]),
      pull_(shape.pushing_rus < shape.rus.size()),
      reads_(port.config().scheme == Scheme::pull_read),
      acks_(tells_placed(port.config())),
      ahead_(assigns_ahead(port.config())),
      shows_(sink.wants_sources()),
      lossy_(port.transport().capabilities().lossy_bodies && port.config().plant != Plant::unseen_damage),
      granted_(port.config().credits_before),
      assigned_(port.config().credits_before),
      prng_(base::mix64(port.config().seed ^ 0xb0) ^ bu_) {
    const std::size_t rus = shape.rus.size();
    const std::size_t slots = shape.slots;
    slots_.resize(slots);
    free_.reserve(slots);
    for (std::size_t slot = 0; slot < slots; ++slot) {
        Slot& each = slots_[slot];
        each.awaited = base::Bitmap(rus);
        each.expected = base::Bitmap(rus);
        each.owed = base::Bitmap(rus);
        each.early = base::Bitmap(rus);
        each.torn = base::Bitmap(lossy_ ? rus : 0);
        each.order.resize(pull_ ? rus : 0);
        free_.push_back(static_cast<std::uint16_t>(slot));
    }
    rus_.resize(rus);
    ru_incarnations_.resize(rus);
    attempts_ = Attempts(pull_ ? 2 * slots * rus : 0);  // a slot is asked for once, and aborted once
    for (std::size_t ru = 0; ahead_ && ru < rus; ++ru) {
        told_.emplace_back(2 * slots);
    }
    grants_ = base::Fifo<wire::CreditEntry>(2 * slots);
    booked_ = base::Fifo<AttemptEntry>(ahead_ ? shape.window : 0);
    open_ = base::Fifo<std::uint16_t>(ahead_ ? 2 * slots : 0);
    commit_requests_ = base::Fifo<AttemptEntry>(slots);
    committed_ = base::Fifo<AttemptEntry>(slots + 4 * std::size_t{port.config().retention_meps});
    taking_ = base::Fifo<std::uint16_t>(slots);
    assigned_order_ = base::Fifo<std::uint16_t>(slots);
    late_ = base::Fifo<std::uint16_t>(slots);
    deciding_ = base::Fifo<std::uint16_t>(two_stages(port.config().scheme) ? slots : 0);
    undurable_.reserve(2 * std::size_t{port.config().retention_meps} + slots);
    durable_.resize(64);
    returned_.resize(64);
    usual_.expected = base::Bitmap(rus);
    usual_.owed = base::Bitmap(rus);
    ru_work_ = base::Bitmap(rus);
    built_.resize(port.config().sources.size());
    if (reads_) {
        reader_ = std::make_unique<Reader>(port, shape);
    }
    if (own_ru_ != no_index) {
        self_heads_.resize(slots * shape.rus[own_ru_].sources);
        self_bodies_.resize(self_heads_.size());
        rus_[own_ru_].up = true;
        rus_[own_ru_].knows_regions = true;
        ru_incarnations_[own_ru_] = port.incarnation();
    }
}

Result<Ok> BuilderUnit::start(Time now) {
    Transport& transport = port_.transport();
    for (const std::uint64_t bytes : shape_.layout.region_bytes(shape_.slots)) {
        const Result<Local> region = transport.allocate(bytes);
        if (!region) {
            return region.error();
        }
        regions_.push_back({transport.memory(*region).data(), *region});
        if (reads_) {
            reader_->add_region(*region);
        }
    }
    has_memory_ = regions_.front().memory != nullptr;
    checks_ = has_memory_ && port_.config().checksum != Checksum::off;
    waiting_since_ = now;
    if (const Result<Ok> granted = grant_all(); !granted) {
        return granted;
    }
    return sink_.attach(transport, regions_.front().local);
}

// --- connections and view
// -----------------------------------------------------------------------------------------------------------

void BuilderUnit::on_connection_up(Peer peer, std::uint32_t incarnation) {
    const std::uint32_t ru = ru_of(peer);
    RuLink& link = rus_[ru];
    link.up = true;
    ru_incarnations_[ru] = incarnation;
    link.knows_regions = false;
    link.regions_told = 0;
    link.placed = 0;
    attempts_.clear(link.requests);
    attempts_.clear(link.aborts);
    repeat_credits(ru);
    ru_work_.set(ru);
    usual_.stale = true;
}

/// Fenced: nothing of it lands any more. Whether its contributions are missing is the EM's to say.
void BuilderUnit::on_connection_lost(Time now, Peer peer) {
    const std::uint32_t ru = ru_of(peer);
    RuLink& link = rus_[ru];
    link.up = false;
    attempts_.clear(link.requests);
    attempts_.clear(link.aborts);
    ru_work_.reset(ru);
    if (reads_) {
        reader_->on_connection_lost(ru);
    }
    usual_.stale = true;
    for (std::uint32_t slot = 0; slot < slots_.size(); ++slot) {
        slots_[slot].early.reset(ru);
        if (slots_[slot].owed.test(ru)) {
            forgive(slot, ru);
        }
    }
    if (port_.config().plant == Plant::unconfirmed_missing) {
        lose(now, ru);
    }
}

void BuilderUnit::on_view(Time now, const wire::ViewEntry& entry) {
    const std::uint32_t ru = shape_.ru_of_node[entry.node];
    if (ru == no_index) {
        return;
    }
    RuLink& link = rus_[ru];
    usual_.stale = true;
    if (entry.change == wire::Change::up) {
        link.in_view = true;
        link.view_incarnation = entry.incarnation;
        link.from_mep = entry.from_mep;
    } else {
        link.in_view = false;
        link.missing_as =
            entry.change == wire::Change::dead ? SourceFlag::missing_dead : SourceFlag::missing_unreachable;
        lose(now, ru);
    }
}

/// The EM confirmed the loss: no slot waits for that RU any longer.
void BuilderUnit::lose(Time now, std::uint32_t ru) {
    for (std::uint32_t slot = 0; slot < slots_.size(); ++slot) {
        Slot& each = slots_[slot];
        const bool assigned = each.state == SlotState::assigned;
        const bool viewed = port_.config().views && ru != own_ru_ &&
                            (assigned || each.state == SlotState::complete || each.state == SlotState::taking);
        if (viewed && !each.awaited.test(ru) && each.expected.take(ru)) {
            const Shape::Ru& unit = shape_.rus[ru];  // it was there, but in that RU's memory
            each.missing_sources += unit.sources;
            for (std::uint32_t source = unit.first_source; source < unit.first_source + unit.sources; ++source) {
                const Head& head = *head_of(slot, ru, source);
                each.goodput_bytes -= head.goodput_bytes;
                each.defective_sources -= wire::is_defect(head.flag) ? 1 : 0;
            }
            continue;
        }
        const bool awaited = assigned && each.awaited.take(ru);
        const bool yet_to_come = (assigned || each.state == SlotState::deciding) && each.first_stage &&
                                 ru >= shape_.first_stage_rus && each.expected.test(ru);
        if (!awaited && !yet_to_come) {
            continue;
        }
        each.expected.reset(ru);
        each.missing_sources += shape_.rus[ru].sources;
        if (awaited && !each.awaited.any()) {
            complete(now, slot);
        }
    }
}

// --- a slot's life
// ------------------------------------------------------------------------------------------------------------------

void BuilderUnit::on_assign(Time now, const ControlView& message) {
    for (std::uint32_t index = 0; index < message.header().count; ++index) {
        const AttemptEntry entry = message.entry<ControlKind::assign>(index);
        if (ahead_) {
            if (entry.credit == assigned_ + 1 && booked_.push(entry)) {
                ++assigned_;
            } else {
                ++port_.counters().bad_messages;
            }
            continue;
        }
        const bool planted = port_.config().plant == Plant::double_credit;
        if (entry.slot >= shape_.slots || slots_[entry.slot].state != SlotState::granted ||
            (slots_[entry.slot].credit != entry.credit && !planted)) {
            ++port_.counters().bad_messages;
            continue;
        }
        begin(now, entry.slot, entry);
    }
}

void BuilderUnit::begin(Time now, std::uint32_t slot, const AttemptEntry& entry) {
    Slot& each = slots_[slot];
    account_waiting(now);
    ++in_flight_;
    each.state = SlotState::assigned;
    each.mep = entry.mep;
    each.attempt = entry.attempt;
    each.credit = entry.credit;
    each.redelivered = false;
    each.goodput_bytes = 0;
    each.self_bytes = 0;
    each.defective_sources = 0;
    each.n_events = 0;
    each.trigger = time_never;
    each.last_trigger = 0;
    each.assigned = now;
    each.late_before = entry.value;
    each.late_at = now + patience(port_.config(), entry.value);
    next_late_ = std::min(next_late_, each.late_at);
    if (usual_.stale) {
        learn_usual();
    }
    if (each.mep >= usual_.from_mep) {
        each.expected = usual_.expected;
        each.owed = usual_.owed;
        each.missing_sources = usual_.missing_sources;
    } else {
        expect(slot);
    }
    each.awaited = each.expected;
    each.rejected = false;
    each.first_stage = two_stages(port_.config().scheme);
    for (std::size_t ru = shape_.first_stage_rus; ru < shape_.rus.size(); ++ru) {
        each.awaited.reset(ru);
    }
    if (!each.awaited.any()) {
        complete(now, slot);
        return;
    }
    if (shape_.pushing_rus == 0) {
        plan_requests(slot);
        return;
    }
    for (std::size_t ru = each.early.next(0); ru != base::Bitmap::none; ru = each.early.next(ru + 1)) {
        place(now, slot, static_cast<std::uint32_t>(ru));
    }
}

/// Which RUs an attempt waits for and which may write: for a MEP that some RUs in the view take no part in.
void BuilderUnit::expect(std::uint32_t slot) {
    Slot& each = slots_[slot];
    each.expected.clear();
    each.owed.clear();
    each.missing_sources = 0;
    for (std::uint32_t ru = 0; ru < rus_.size(); ++ru) {
        const RuLink& link = rus_[ru];
        if (link.in_view && link.from_mep <= each.mep) {
            each.expected.set(ru);
        } else {
            each.missing_sources += shape_.rus[ru].sources;
        }
        if (usual_.owed.test(ru) && (each.expected.test(ru) || !link.in_view)) {
            each.owed.set(ru);
        }
    }
}

/// What changes of connections and of the view have made of it. Only when it is asked for: a thousand RUs come up one
/// by one.
void BuilderUnit::learn_usual() {
    usual_.stale = false;
    usual_.expected.clear();
    usual_.owed.clear();
    usual_.missing_sources = 0;
    usual_.from_mep = 0;
    for (std::uint32_t ru = 0; ru < rus_.size(); ++ru) {
        const RuLink& link = rus_[ru];
        if (link.in_view) {
            usual_.expected.set(ru);
            usual_.from_mep = std::max(usual_.from_mep, link.from_mep);
        } else {
            usual_.missing_sources += shape_.rus[ru].sources;
        }
        // Push: an RU that was dropped but is not fenced yet may have heard of the assignment before it was dropped.
        // One that is only joining has not.
        const bool announced_to = link.up && ru_incarnations_[ru] == link.view_incarnation;
        if (shape_.pushes(ru) && announced_to) {
            usual_.owed.set(ru);
        }
    }
}

/// The head of a source of that RU in a slot; nullptr if none landed there yet.
const Head* BuilderUnit::head_of(std::uint32_t slot, std::uint32_t ru, std::uint32_t source) const {
    if (ru == own_ru_) {
        const Shape::Ru& self = shape_.rus[ru];
        return &self_heads_[std::size_t{slot} * self.sources + (source - self.first_source)];
    }
    if (reads_) {
        return &reader_->head(slot, source);
    }
    const SlotLayout::Place place = shape_.layout.at(slot, source);
    if (has_memory_) {
        return reinterpret_cast<const Head*>(memory_at(place));
    }
    const Local region = regions_[place.region].local;
    const Bytes bytes = std::as_const(port_).transport().local({region, sizeof(Head), place.offset});
    return bytes.size() == sizeof(Head) ? reinterpret_cast<const Head*>(bytes.data()) : nullptr;
}

/// All heads of that RU in the slot are those of the attempt the slot is in (EB-T8, EB-F6); then what they hold is
/// added.
inline bool BuilderUnit::contribution_is(std::uint32_t slot, std::uint32_t ru, Content& content) const {
    const Slot& each = slots_[slot];
    const Shape::Ru& unit = shape_.rus[ru];
    const Config& config = port_.config();
    const std::uint32_t incarnation = ru_incarnations_[ru];
    const std::uint32_t end = unit.first_source + unit.sources;
    for (std::uint32_t source = unit.first_source; source < end; ++source) {
        const Head* head = head_of(slot, ru, source);
        if (head == nullptr) {
            return false;
        }
        // What differs in any of it: they are nearly always equal, so all of it is looked at, with one branch.
        const std::uint64_t unknown =
            (std::uint64_t{head->magic} ^ wire::head_magic) | (std::uint64_t{head->version} ^ config.control_version) |
            (head->run ^ config.run) | (head->incarnation ^ incarnation) | (head->source ^ source) |
            std::uint64_t{head->body_bytes > config.sources[source].cap_bytes} |
            std::uint64_t{head->flag > SourceFlag::dropped};
        const std::uint64_t other =
            (head->credit ^ each.credit) | (head->mep ^ each.mep) | (std::uint64_t{head->attempt} ^ each.attempt);
        if ((unknown | other) != 0 && (unknown != 0 || config.plant != Plant::no_generation_check)) [[unlikely]] {
            return false;
        }
        content.goodput_bytes += head->goodput_bytes;
        content.first_event = head->first_event;
        content.trigger = std::min(content.trigger, head->trigger);
        content.last_trigger = std::max(content.last_trigger, head->trigger);
        content.n_events = std::max(content.n_events, head->n_events);
        content.defective_sources += wire::is_defect(head->flag) ? 1 : 0;
    }
    return true;
}

void BuilderUnit::prefetch(unsigned level) const {
    if (level == 0) {
        base::prefetch(slots_.data(), slots_.size() * sizeof(Slot));
        ru_work_.prefetch();
        return;
    }
    for (const Slot& each : slots_) {
        if (each.state == SlotState::assigned) {
            each.awaited.prefetch();
            each.owed.prefetch();
            if (each.requested < each.order.size()) {
                __builtin_prefetch(&each.order[each.requested]);
            }
        }
    }
}

void BuilderUnit::on_notice(Time now, Peer from, std::uint16_t slot, bool damaged) {
    const std::uint32_t ru = ru_of(from);
    const bool more = (slot & more_follows) != 0;
    slot &= static_cast<std::uint16_t>(~more_follows);
    if (ru == no_index || slot >= shape_.slots) {
        ++port_.counters().bad_messages;
        return;
    }
    if (acks_ && from != port_.self()) {
        ++rus_[ru].placed;
        ru_work_.set(ru);
    }
    if (damaged && lossy_) [[unlikely]] {
        slots_[slot].torn.set(ru);
    }
    if (more) {
        return;
    }
    place(now, slot, ru);
}

void BuilderUnit::place(Time now, std::uint32_t slot, std::uint32_t ru) {
    Slot& each = slots_[slot];
    if (each.state == SlotState::granted) {
        each.early.set(ru);  // the RU heard of the assignment before this BU did
        return;
    }
    Content content{each.goodput_bytes, each.first_event, each.trigger,
                    each.last_trigger,  each.n_events,    each.defective_sources};
    const bool torn = lossy_ && each.torn.take(ru);
    if (each.state == SlotState::free || !contribution_is(slot, ru, content)) {
        ++port_.counters().stale_contributions;
        return;
    }
    const bool assigned = each.state == SlotState::assigned;
    const bool quarantined = each.state == SlotState::quarantined;
    if (each.owed.take(ru)) {
        outstanding_requests_ -= shape_.pushes(ru) ? 0 : 1;
        if (quarantined) {
            settle(slot);
        }
    }
    if (assigned && each.awaited.take(ru)) {
        port_.counters().mfps_received += shape_.rus[ru].sources;
        each.self_bytes += ru == own_ru_ ? content.goodput_bytes - each.goodput_bytes : 0;
        each.goodput_bytes = content.goodput_bytes;
        each.first_event = content.first_event;
        each.trigger = content.trigger;
        each.last_trigger = content.last_trigger;
        each.n_events = content.n_events;
        each.defective_sources = content.defective_sources;
        if (torn) [[unlikely]] {
            flag_torn(slot, ru);
        } else if (checks_ && is_checked(port_.config().checksum, each.mep)) {
            check_bodies(slot, ru);
        }
        if (!each.awaited.any()) {
            complete(now, slot);
        }
    } else if (!quarantined) {
        ++port_.counters().stale_contributions;
    }
}

void BuilderUnit::complete(Time now, std::uint32_t slot) {
    Slot& each = slots_[slot];
    if (each.first_stage && !each.rejected) {
        each.state = SlotState::deciding;
        each.late_at = time_never;
        each.completed = now;
        if (!each.in_deciding) {
            each.in_deciding = true;
            deciding_.must_push(static_cast<std::uint16_t>(slot));
        }
        next_decision_ = now;
        return;
    }
    each.state = SlotState::complete;
    each.completed = now;
    each.late_at = time_never;
    commit_requests_.must_push(entry_of(slot));
    if (port_.config().plant == Plant::skipped_commit && each.mep % 16 == 5) {
        take(now, slot);
    }
}

void BuilderUnit::on_verdict(Time now, const ControlView& message) {
    for (std::uint32_t index = 0; index < message.header().count; ++index) {
        const AttemptEntry entry = message.entry<ControlKind::commit_verdict>(index);
        if (entry.slot >= shape_.slots || slots_[entry.slot].credit != entry.credit) {
            ++port_.counters().bad_messages;
            continue;
        }
        Slot& each = slots_[entry.slot];
        if ((entry.flags & wire::attempt_granted) != 0 && each.state == SlotState::complete) {
            each.state = SlotState::taking;
            each.redelivered = (entry.flags & wire::attempt_redelivered) != 0;
            taking_.must_push(entry.slot);
        } else if ((entry.flags & wire::attempt_granted) == 0 &&
                   (each.state == SlotState::assigned || each.state == SlotState::deciding ||
                    each.state == SlotState::complete)) {
            ++port_.counters().denied_commits;
            if (each.state == SlotState::assigned) {
                abort_requests(entry.slot);
            } else {
                // There is room for one request per slot, and this one may not have been sent yet.
                commit_requests_.remove_if([&](const AttemptEntry& queued) { return queued.slot == entry.slot; });
            }
            retire(now, entry.slot);
        }
    }
}

/// The slot's attempt is over, one way or the other.
void BuilderUnit::retire(Time now, std::uint32_t slot) {
    Slot& each = slots_[slot];
    account_waiting(now);
    --serving_;
    --in_flight_;
    each.late_at = time_never;
    each.state = SlotState::quarantined;
    if (port_.config().plant == Plant::no_quarantine) {
        each.owed.clear();
    }
    if (each.owed.any()) {
        ++port_.counters().quarantined_slots;
    }
    settle(slot);
}

/// That RU writes nothing more for the slot's attempt: its notice or its acknowledgement came, or it is fenced.
void BuilderUnit::forgive(std::uint32_t slot, std::size_t ru) {
    slots_[slot].owed.reset(ru);
    outstanding_requests_ -= shape_.pushes(ru) ? 0 : 1;
    settle(slot);
}

void BuilderUnit::settle(std::uint32_t slot) {
    Slot& each = slots_[slot];
    const bool held = each.held && port_.config().plant != Plant::early_reuse;
    if (each.state == SlotState::quarantined && !each.owed.any() && !held) {
        each.state = SlotState::free;
        free_.push_back(static_cast<std::uint16_t>(slot));
    }
}

void BuilderUnit::on_abort_ack(Peer from, const ControlView& message) {
    const std::uint32_t ru = ru_of(from);
    for (std::uint32_t index = 0; index < message.header().count; ++index) {
        const wire::CreditEntry entry = message.entry<ControlKind::abort_ack>(index);
        if (ru == no_index || entry.slot >= shape_.slots) {
            ++port_.counters().bad_messages;
            continue;
        }
        Slot& each = slots_[entry.slot];
        // It may overtake the EM's verdict (push): then the slot is still assigned, and owes one less when that comes.
        const bool reading = reads_ && reader_->reading(entry.slot, ru);
        if (each.credit == entry.credit && each.owed.test(ru) && !reading) {
            forgive(entry.slot, ru);
        }
    }
}

void BuilderUnit::place_self(const wire::HeadWords& head, std::uint32_t source, Slice body, std::uint16_t slot) {
    const Shape::Ru& self = shape_.rus[own_ru_];
    const std::size_t place = std::size_t{slot} * self.sources + (source - self.first_source);
    self_heads_[place] = std::bit_cast<Head>(head);
    const std::span<std::byte> from = port_.transport().memory(body.region);
    if (port_.config().self_traffic == SelfTraffic::pointer) {
        // The RU keeps it until the MEP is committed (EB-F1), and no sink sees this attempt after that (EB-F2).
        self_bodies_[place] = from.empty() ? Bytes{} : Bytes{from.subspan(body.offset, body.length)};
        return;
    }
    if (!from.empty() && body.length > 0) {
        std::byte* to = memory_at(shape_.layout.at(slot, source)) + sizeof(Head);
        constexpr std::uint32_t stream_from_bytes = 1024;  // of shorter bodies little is whole lines
        if (port_.config().stream_self_copies && body.length >= stream_from_bytes) {
            base::copy_streaming(to, from.data() + body.offset, body.length);
            self_streamed_ = true;
        } else {
            std::memcpy(to, from.data() + body.offset, body.length);
        }
        port_.counters().copied_bytes += body.length;
    }
}

void BuilderUnit::forgive(Time pause) {
    for (Slot& each : slots_) {
        if (each.late_at != time_never) {
            each.late_at += pause;
        }
        if (each.state == SlotState::deciding) {
            each.completed += pause;  // from which its filter's deadline counts
        }
    }
}

void BuilderUnit::find_late(Time now) {
    if (now < next_late_) {
        return;
    }
    next_late_ = time_never;
    for (std::size_t slot = 0; slot < slots_.size(); ++slot) {
        Slot& each = slots_[slot];
        if (each.late_at <= now && !late_.full()) {
            each.late_at = now + patience(port_.config(), each.late_before);
            late_.must_push(static_cast<std::uint16_t>(slot));
            ++port_.counters().late_reports;
        }
        next_late_ = std::min(next_late_, each.late_at);
    }
}

}  // namespace incast::protocol

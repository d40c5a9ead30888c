#include "protocol/event_manager.h"

#include <algorithm>
#include <bit>

namespace incast::protocol {

using wire::AttemptEntry;
using wire::ControlKind;
using wire::ControlView;

EventManager::EventManager(Port& port, const Shape& shape, Ledger* ledger)
    : port_(port),
      shape_(shape),
      ledger_(ledger),
      bus_with_credit_(shape.bus.size()),
      barrier_(shape.rus.size(), std::max(shape.rus.size(), shape.bus.size())),
      complaints_(port.config().nodes.size() * port.config().nodes.size()),
      quarrels_(port.config().nodes.size()),
      claims_(port.config().nodes.size()),
      clock_asks_(port.config().nodes.size()),
      due_(port.config().nodes.size()) {
    const Config& config = port.config();
    members_.resize(config.nodes.size());
    builders_.resize(shape.bus.size());
    for (Builder& builder : builders_) {
        builder.free = base::Fifo<Credit>(shape.slots);
        builder.assigns = base::Fifo<AttemptEntry>(assigns_ahead(config) ? shape.window : shape.slots);
        builder.verdicts = base::Fifo<AttemptEntry>(2 * std::size_t{shape.slots});
    }
    links_.resize(shape.bus.size() * shape.rus.size());
    views_.reserve(4 * config.nodes.size() + 64);
    suspicions_.reserve(4 * config.nodes.size());
    evicted_.reserve(config.nodes.size());
    bus_in_view_.reserve(shape.bus.size());
    window_.resize(shape.window);
    closed_events_.resize(shape.window);
    log_.resize(std::bit_ceil(8 * std::size_t{config.retention_meps} + 64));
    total_ = config.total_meps;
}

void EventManager::start(Time now) {
    last_step_ = now;
    next_beat_ = now;
    next_check_ = now;
}

bool EventManager::on_message(Time now, Peer from, const ControlView& message) {
    if (message.kind() == ControlKind::hello) {
        on_hello(now, from, message);
        return true;
    }
    Member& sender = member(from);
    if (sender.standing == Standing::absent) {
        return false;
    }
    if (sender.incarnation != message.header().incarnation) {
        return false;
    }
    sender.last_heard = now;
    switch (message.kind()) {
        case ControlKind::beat:
            return true;
        case ControlKind::connected:
            on_connected(from, message);
            return true;
        case ControlKind::peer_lost:
            on_peer_lost(now, from, message);
            return true;
        case ControlKind::available:
            if (shape_.ru_of_node[static_cast<std::size_t>(from)] == no_index) {
                return false;
            }
            on_available(now, from, message.body<ControlKind::available>().below);
            return true;
        case ControlKind::open:
            on_open(now, from, message);
            return true;
        case ControlKind::grant:
            on_grant(from, message);
            return true;
        case ControlKind::commit_request:
            on_commit_request(now, from, message);
            return true;
        case ControlKind::committed:
            on_committed(from, message);
            return true;
        case ControlKind::late:
            on_late(now, from, message);
            return true;
        case ControlKind::phase_done:
            on_phase_done(from, message);
            return true;
        case ControlKind::clock_ask:
            sender.clock_asked = message.body<ControlKind::clock_ask>().asked;
            sender.clock_heard = now;
            clock_asks_.set(static_cast<std::size_t>(from));
            return true;
        default:
            return false;
    }
}

// --- credits and commits
// ------------------------------------------------------------------------------------------------------------

void EventManager::on_grant(Peer from, const ControlView& message) {
    const std::uint32_t bu = shape_.bu_of_node[static_cast<std::size_t>(from)];
    if (bu == no_index || assigns_ahead(port_.config())) {
        ++port_.counters().bad_messages;
        return;
    }
    Builder& builder = builders_[bu];
    for (std::uint32_t index = 0; index < message.header().count; ++index) {
        const wire::CreditEntry entry = message.entry<ControlKind::grant>(index);
        // Cumulative (EB-C1): credit numbers are consecutive, so a repeated grant is seen and ignored.
        if (entry.credit != builder.granted + 1 || entry.slot >= shape_.slots ||
            !builder.free.push({entry.credit, entry.slot})) {
            ++port_.counters().bad_messages;
            continue;
        }
        builder.granted = entry.credit;
        if (member(from).standing == Standing::in_view) {
            bus_with_credit_.set(bu);
        }
    }
}

void EventManager::on_commit_request(Time now, Peer from, const ControlView& message) {
    const std::uint32_t bu = shape_.bu_of_node[static_cast<std::size_t>(from)];
    if (bu == no_index) {
        ++port_.counters().bad_messages;
        return;
    }
    const Plant plant = port_.config().plant;
    for (std::uint32_t index = 0; index < message.header().count; ++index) {
        const AttemptEntry entry = message.entry<ControlKind::commit_request>(index);
        const bool in_window = entry.mep >= watermark_ && entry.mep < next_;
        bool grant = false;
        if (in_window) {
            Mep& wanted = mep(entry.mep);
            const bool current = wanted.bu == bu && wanted.attempt == entry.attempt && wanted.credit == entry.credit;
            grant = (wanted.state == MepState::assigned && (current || plant == Plant::no_attempt_check)) ||
                    (plant == Plant::double_commit && wanted.state != MepState::waiting);
            const bool rejected = (entry.flags & wire::attempt_rejected) != 0;
            const std::uint32_t missing = wire::missing_sources(entry);
            const std::uint32_t defective = wire::defective_sources(entry);
            const bool false_claim = (rejected && !two_stages(port_.config().scheme)) ||
                                     missing + defective > port_.config().sources.size() ||
                                     (missing > 0 && missing > most_missing(entry.mep));
            if (grant && false_claim && plant != Plant::believed_missing) {
                grant = false;
                reassign(entry.mep);
                refuse_claim(now, from);
                if (member(from).standing != Standing::in_view) {
                    return;
                }
            }
            if (grant) {
                if (missing == 0 && !rejected) {
                    claims_.vouch(from, wanted.assigned);
                }
                wanted.state = MepState::granted;
                wanted.bu = bu;
                wanted.attempt = entry.attempt;
                wanted.missing_sources = missing;
                wanted.defective_sources = defective;
                wanted.rejected = rejected;
            }
        }
        std::uint16_t flags = grant ? std::uint16_t{wire::attempt_granted} : std::uint16_t{0};
        if (grant && mep(entry.mep).redelivered && plant != Plant::unmarked_redelivery) {
            flags |= wire::attempt_redelivered;
        }
        verdict(bu, entry, flags);
    }
}

void EventManager::verdict(std::uint32_t bu, const AttemptEntry& entry, std::uint16_t flags) {
    const AttemptEntry answer{.mep = entry.mep,
                              .credit = entry.credit,
                              .bu = entry.bu,
                              .slot = entry.slot,
                              .attempt = entry.attempt,
                              .flags = flags,
                              .value = entry.value};
    // An honest BU has at most one request and one abort per slot outstanding, so the ring never fills.
    if (!builders_[bu].verdicts.push(answer)) {
        ++port_.counters().bad_messages;
    }
    due_.set(static_cast<std::size_t>(shape_.bus[bu]));
}

void EventManager::on_committed(Peer from, const ControlView& message) {
    const std::uint32_t bu = shape_.bu_of_node[static_cast<std::size_t>(from)];
    for (std::uint32_t index = 0; index < message.header().count; ++index) {
        const AttemptEntry entry = message.entry<ControlKind::committed>(index);
        if (bu == no_index || entry.mep < watermark_ || entry.mep >= next_) {
            ++port_.counters().bad_messages;
            continue;
        }
        Mep& done = mep(entry.mep);
        if (done.state != MepState::granted || done.bu != bu || done.attempt != entry.attempt) {
            ++port_.counters().bad_messages;
            continue;
        }
        done.state = MepState::committed;
        // Views of an RU that was lost between verdict and delivery are missing, too.
        const std::uint32_t missing = wire::missing_sources(entry);
        if (missing > done.missing_sources) {
            done.missing_sources = std::max(done.missing_sources, std::min(missing, most_missing(entry.mep)));
        }
        const auto sources = static_cast<std::uint32_t>(port_.config().sources.size());
        done.defective_sources =
            std::min(wire::defective_sources(entry), sources - std::min(sources, done.missing_sources));
        const std::uint32_t flagged = done.missing_sources + done.defective_sources;
        Counters& counters = port_.counters();
        ++counters.meps_committed;
        counters.events_committed += done.n_events;
        counters.meps_rejected += done.rejected ? 1 : 0;
        counters.meps_flagged += !done.rejected && flagged > 0 ? 1 : 0;
        if (ledger_ != nullptr) {
            ledger_->committed({entry.mep, static_cast<std::uint32_t>(from), done.attempt, done.redelivered,
                                done.rejected, flagged, port_.view, done.n_events});
        }
    }
    while (watermark_ < next_ && mep(watermark_).state == MepState::committed) {
        ++watermark_;
    }
}

// --- assignment
// ---------------------------------------------------------------------------------------------------------------------

void EventManager::reassign(MepId id) {
    Mep& again = mep(id);
    again.redelivered = again.redelivered || again.state == MepState::granted;
    again.state = MepState::waiting;
    ++waiting_;
    ++port_.counters().reassignments;
}

EventManager::Credit EventManager::take_credit(std::uint32_t bu) {
    Builder& builder = builders_[bu];
    if (assigns_ahead(port_.config())) {
        return {++builder.assigned, wire::unknown_slot};
    }
    const Credit credit = builder.free.front();
    builder.free.pop();
    if (builder.free.empty()) {
        bus_with_credit_.reset(bu);
    }
    return credit;
}

void EventManager::assign(Time now, MepId id, std::uint32_t bu) {
    Builder& builder = builders_[bu];
    const Credit credit = take_credit(bu);
    Mep& target = mep(id);
    target.state = MepState::assigned;
    ++target.attempt;
    target.bu = bu;
    target.slot = credit.slot;
    target.credit = credit.credit;
    target.assigned = now;
    AttemptEntry entry;
    entry.mep = id;
    entry.credit = credit.credit;
    entry.bu = static_cast<std::uint16_t>(shape_.bus[bu]);
    entry.slot = credit.slot;
    entry.attempt = target.attempt;
    entry.value = target.late_before;
    // One assignment per credit, and the ring has a place for every slot of this incarnation, or for every MEP.
    if (!builder.assigns.push(entry)) {
        ++port_.counters().bad_messages;
    }
    due_.set(static_cast<std::size_t>(shape_.bus[bu]));
    if (shape_.pushing_rus > 0) {
        log_[log_head_++ & (log_.size() - 1)] = {entry, member(shape_.bus[bu]).incarnation, false};
    }
}

MepId EventManager::admission_limit() {
    if (!held_known_) {
        held_known_ = true;
        any_ru_ = false;
        held_below_ = ~MepId{0};
        for (const Shape::Ru& ru : shape_.rus) {
            const Member& holder = members_[static_cast<std::size_t>(ru.node)];
            if (holder.standing == Standing::in_view) {
                any_ru_ = true;
                const MepId ahead = port_.config().plant == Plant::admit_unretained ? 2 : 0;
                held_below_ = std::min(held_below_, holder.available_below + ahead);
            }
        }
    }
    MepId limit = std::min(watermark_ + window_.size(), held_below_);
    if (total_ > 0) {
        limit = std::min(limit, total_);
    }
    return any_ru_ ? limit : next_;
}

/// Room for one more record. The oldest cursor is looked up only when the log seems full: O(1) amortised.
bool EventManager::log_room() {
    if (log_head_ - log_tail_ < log_.size()) {
        return true;
    }
    std::uint64_t oldest = log_head_;
    for (const Shape::Ru& ru : shape_.rus) {
        const Member& reader = members_[static_cast<std::size_t>(ru.node)];
        if (reader.standing == Standing::in_view) {
            oldest = std::min(oldest, reader.log_cursor);
        }
    }
    log_tail_ = oldest;
    return log_head_ - log_tail_ < log_.size();
}

/// Who builds what comes next; none: nobody can yet. What a lost or late BU did not build goes to any with credit; with
/// source-credits to any, behind what it was given before.
std::size_t EventManager::builder_for(MepId id) {
    if (port_.config().assignment == Assignment::em || waiting_ > 0) {
        return bus_with_credit_.next_cyclic(next_bu_);
    }
    if (bus_known_at_ != port_.view) {
        learn_builders();
    }
    if (bus_in_view_.empty()) {
        return base::Bitmap::none;
    }
    const MepId wrong = port_.config().plant == Plant::wrong_builder && id % 16 == 5 ? 1 : 0;
    const std::uint32_t bu = bus_in_view_[(id + wrong) % bus_in_view_.size()];
    return bus_with_credit_.test(bu) ? bu : base::Bitmap::none;
}

void EventManager::learn_builders() {
    bus_in_view_.clear();
    for (std::uint32_t bu = 0; bu < shape_.bus.size(); ++bu) {
        if (member(shape_.bus[bu]).standing == Standing::in_view) {
            bus_in_view_.push_back(bu);
        }
    }
    bus_known_at_ = port_.view;
}

void EventManager::assign_all(Time now) {
    if (!formed_ || !bus_with_credit_.any()) {
        return;
    }
    const MepId limit = stopped_ ? next_ : admission_limit();
    MepId oldest_waiting = watermark_;
    while ((waiting_ > 0 || next_ < limit) && log_room()) {
        std::size_t bu = builder_for(next_);
        if (bu == base::Bitmap::none) {
            break;
        }
        if (waiting_ > 0) {  // the oldest can always finish: what was admitted comes first (EB-C3)
            while (mep(oldest_waiting).state != MepState::waiting) {
                ++oldest_waiting;
            }
            if (bu == mep(oldest_waiting).bu) {
                bu = bus_with_credit_.next_cyclic(bu + 1);  // another one, if any can: so two have tried it
            }
            --waiting_;
            assign(now, oldest_waiting, static_cast<std::uint32_t>(bu));
        } else {
            mep(next_) = Mep{};
            count_events(mep(next_));
            assign(now, next_++, static_cast<std::uint32_t>(bu));
            ++port_.counters().meps_admitted;
            port_.counters().events_admitted += mep(next_ - 1).n_events;
        }
        next_bu_ = bu + 1;
    }
}

// --- sending
// -------------------------------------------------------------------------------------------------------------------

void EventManager::tick(Time now) {
    const Time gap = now - last_step_;
    last_step_ = now;
    if (gap > port_.config().heartbeat) {
        forgive(now, gap);
    }
    if (now < next_check_) {
        return;
    }
    for (std::uint32_t node = 0; node < members_.size(); ++node) {
        const Member& each = members_[node];
        if (each.standing != Standing::absent && now - each.last_heard > port_.config().detection_deadline &&
            evictable(Peer{node})) {
            evict(now, Peer{node}, Cause::silent);
        }
    }
    decide_suspicions(now);
    watch_oldest(now);
    next_check_ = now + port_.config().heartbeat;
    for (const Suspicion& suspicion : suspicions_) {
        next_check_ = std::min(next_check_, suspicion.decide_at);
    }
}

/// What RUs need not keep any longer.
MepId EventManager::released_below() {
    MepId released = watermark_;
    if (port_.config().plant == Plant::early_release) {
        while (released < next_ && mep(released).state >= MepState::granted) {
            ++released;
        }
    }
    return released;
}

/// Who may have something to be told, besides those that have it already. Most steps change nothing for most members.
void EventManager::find_due(Time now, bool idle, bool beat) {
    released_ = released_below();
    const bool much = released_ - release_looked_ >= std::max(1U, port_.config().retention_meps / lazy_share);
    const bool at_leisure = idle && released_ > release_told_ && now >= release_at_;
    if (at_leisure) {
        release_told_ = released_;
        release_at_ = now + shape_.lazy_interval();
    }
    if (much || at_leisure) {
        release_looked_ = released_;
    }
    lazy_ = released_ > release_told_;
    const bool announce = log_head_ != log_looked_ && now >= announce_at_;
    if (announce) {
        announce_at_ = now + shape_.announce_interval();
    }
    if (much || at_leisure || beat || announce || ended() || views_.size() != views_looked_ ||
        barrier_.phase() != phase_looked_) {
        views_looked_ = views_.size();
        log_looked_ = log_head_;
        phase_looked_ = barrier_.phase();
        for (std::uint32_t node = 0; node < members_.size(); ++node) {
            due_.set(node);
        }
    }
}

void EventManager::flush(Time now, bool idle) {
    if (membership_changed_) {
        membership_changed_ = false;
        if (formed_) {
            admit_joining(now);
        } else {
            form(now);
        }
    }
    close_open();
    assign_all(now);
    turn_phase(now);
    answer_clocks(now);
    const bool beat = now >= next_beat_;
    if (beat) {
        next_beat_ = now + port_.config().heartbeat;
        next_check_ = std::min(next_check_, next_beat_);
    }
    find_due(now, idle, beat);
    announced_.message.reset();
    const bool end = ended();
    for (std::size_t node = due_.next(0); node != base::Bitmap::none; node = due_.next(node + 1)) {
        Member& to = members_[node];
        if (to.standing == Standing::absent) {
            due_.reset(node);
            continue;
        }
        const Peer peer{static_cast<std::uint32_t>(node)};
        if (to.view_cursor < views_.size()) {
            flush_views(peer, to);
        }
        bool told = to.view_cursor == views_.size();
        if (to.standing == Standing::in_view && told) {
            if (shape_.bu_of_node[node] != no_index) {
                told = flush_bu(peer, builders_[shape_.bu_of_node[node]]);
            }
            if (shape_.ru_of_node[node] != no_index) {
                told = flush_ru(peer, to) && told;
            }
        }
        if (end && !to.told_end) {
            auto message = port_.message<ControlKind::end>();
            message.set_body({next_});
            to.told_end = port_.send(peer, message);
            told = told && to.told_end;
        }
        // One that finds no room is tried again: a few that are lost in a row would be this node's silence.
        to.owes_beat = peer != port_.self() && (to.owes_beat || beat);
        if (to.owes_beat) {
            auto message = port_.message<ControlKind::beat>();
            to.owes_beat = !port_.send(peer, message);
            told = told && !to.owes_beat;
        }
        if (told) {
            due_.reset(node);
        }
    }
}

void EventManager::flush_views(Peer peer, Member& to) {
    while (to.view_cursor < views_.size()) {
        auto message = port_.message<ControlKind::view>();
        std::uint32_t cursor = to.view_cursor;
        while (cursor < views_.size() && message.add(views_[cursor])) {
            ++cursor;
        }
        if (!port_.send(peer, message)) {
            return;
        }
        to.view_cursor = cursor;
    }
}

bool EventManager::is_void(const LogRecord& record) const {
    return member(Peer{record.attempt.bu}).incarnation != record.bu_incarnation &&
           port_.config().plant != Plant::stale_incarnation;
}

/// False: something is left to be told, once there is room.
bool EventManager::flush_ru(Peer peer, Member& to) {
    if (!shape_.pushes(shape_.ru_of_node[static_cast<std::size_t>(peer)])) {
        to.log_cursor = log_head_;
    }
    if (to.told_phase < barrier_.phase() && !flush_phase(peer, to, released_)) {
        return false;
    }
    if (!flush_log(peer, to, log_head_, released_)) {
        return false;
    }
    const bool much = released_ >= to.told_released + std::max(1U, port_.config().retention_meps / lazy_share);
    if (much || to.told_released < release_told_) {
        auto message = port_.message<ControlKind::announce>();
        message.set_body({released_, 0, 0, 0});
        if (!port_.send(peer, message)) {
            return false;
        }
        to.told_released = released_;
    }
    return flush_close(peer, to);
}

/// Tells an RU of the log's records before `end`. False: not all of them.
bool EventManager::flush_log(Peer peer, Member& to, std::uint64_t end, MepId released) {
    while (to.log_cursor < end) {
        const LogRecord& first = log_[to.log_cursor & (log_.size() - 1)];
        // A record for a BU incarnation that is gone is void; sent, it could be taken for one of its successor.
        if (is_void(first)) {
            ++to.log_cursor;
            continue;
        }
        if (first.abort) {
            auto message = port_.message<ControlKind::abort>();
            message.add(first.attempt);
            if (!port_.send(peer, message)) {
                return false;
            }
            ++to.log_cursor;
            continue;
        }
        if (!port_.send(peer, announcement(to.log_cursor, end, released))) {
            return false;
        }
        to.log_cursor = announced_.next;
        to.told_released = released;
    }
    return true;
}

/// A run of consecutive MEPs of the same attempt is one message (EB-C4). Most RUs stand at the same record, so it is
/// built once for all of them.
EventManager::Announcement& EventManager::announcement(std::uint64_t cursor, std::uint64_t end, MepId released) {
    if (announced_.message && announced_.first == cursor && announced_.end == end) {
        return *announced_.message;
    }
    const LogRecord& first = log_[cursor & (log_.size() - 1)];
    Announcement& message =
        announced_.message.emplace(port_.config().run, port_.view, port_.incarnation(), port_.config().control_version);
    message.set_body({released, first.attempt.mep, first.attempt.attempt, 0});
    announced_.first = cursor;
    announced_.end = end;
    for (MepId expected = first.attempt.mep; cursor < end; ++cursor, ++expected) {
        const LogRecord& record = log_[cursor & (log_.size() - 1)];
        if (record.abort || record.attempt.mep != expected || record.attempt.attempt != first.attempt.attempt ||
            is_void(record) || !message.add({record.attempt.bu, record.attempt.slot, record.attempt.credit})) {
            break;
        }
    }
    announced_.next = cursor;
    return message;
}

bool EventManager::flush_bu(Peer peer, Builder& builder) {
    const bool assigned = port_.send_all<ControlKind::assign>(peer, builder.assigns);
    return port_.send_all<ControlKind::commit_verdict>(peer, builder.verdicts) && assigned;
}

}  // namespace incast::protocol

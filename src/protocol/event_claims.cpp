// What nodes claim, checked against what the event manager knows itself (EB-T8): how far MEPs are held, that an
// attempt is late and for want of whom, which sources are missing.
#include <algorithm>

#include "protocol/event_manager.h"

namespace incast::protocol {

using wire::AttemptEntry;
using wire::ControlKind;
using wire::ControlView;

/// It changes nothing. Who goes on with it is dropped, so that it is named and its MEPs go to others.
void EventManager::refuse_claim(Time now, Peer from) {
    ++port_.counters().bad_messages;
    if (claims_.strike(now, from, port_.config().heartbeat) && evictable(from) &&
        member(from).standing == Standing::in_view) {
        evict(now, from, Cause::distrusted);
    }
}

/// An RU keeps so many MEPs beyond those that it may forget, and no more (EB-F1).
void EventManager::on_available(Time now, Peer from, MepId below) {
    Member& sender = member(from);
    if (below > std::max(sender.told_released, sender.from_mep) + port_.config().retention_meps) {
        refuse_claim(now, from);
        return;
    }
    if (below > sender.available_below) {
        sender.available_below = below;
        sender.open = false;  // what it asked for was answered before it was heard
    }
    held_known_ = false;
    look_at_open_ = asked_;
}

/// The sources of RUs that are not in the view, or took no part in that MEP yet: what the EM itself has confirmed
/// (EB-F5).
std::uint32_t EventManager::most_missing(MepId id) const {
    std::uint32_t sources = 0;
    for (const Shape::Ru& ru : shape_.rus) {
        const Member& unit = member(ru.node);
        sources += unit.standing != Standing::in_view || unit.from_mep > id ? ru.sources : 0;
    }
    return sources;
}

void EventManager::on_late(Time now, Peer from, const ControlView& message) {
    const std::uint32_t bu = shape_.bu_of_node[static_cast<std::size_t>(from)];
    const AttemptEntry entry = message.body<ControlKind::late>().attempt;
    if (bu == no_index || entry.mep < watermark_ || entry.mep >= next_) {
        return;
    }
    const Mep& late = mep(entry.mep);
    if (late.state != MepState::assigned || late.bu != bu || late.attempt != entry.attempt) {
        return;
    }
    // It was given after the EM assigned it, and the BU says so again if it is believed too early. Half of it: what a
    // pause of the EM between its look at the clock and at its messages makes look early may be a little early.
    const bool early = now - late.assigned < patience(port_.config(), late.late_before) / 2;
    if (early && port_.config().plant != Plant::believed_late) {
        refuse_claim(now, from);
        return;
    }
    if (claims_.fails(now, from, late.assigned, port_.config().heartbeat) && evictable(from)) {
        evict(now, from, Cause::stuck);
        return;
    }
    if (blame(now, from, message)) {
        return;  // the BU, if it is still in, completes the MEP flagged
    }
    if (member(from).standing == Standing::in_view && log_room()) {
        verdict(bu, entry, 0);
        if (shape_.pushing_rus > 0) {
            AttemptEntry abort = entry;
            abort.bu = static_cast<std::uint16_t>(from);
            log_[log_head_++ & (log_.size() - 1)] = {abort, member(from).incarnation, true};
        }
        ++mep(entry.mep).late_before;
        reassign(entry.mep);
    }
}

/// A BU completes what it was given, or says that it is late. One that does neither, by the EM's own clock, is dropped:
/// everything waits for the oldest. Where credits come later than MEPs, how long that takes is a matter of its sink.
void EventManager::watch_oldest(Time now) {
    if (watermark_ == next_ || mep(watermark_).state != MepState::assigned || assigns_ahead(port_.config())) {
        oldest_.since = now;
        return;
    }
    const Mep& waited_for = mep(watermark_);
    if (oldest_.mep != watermark_ || oldest_.attempt != waited_for.attempt) {
        oldest_ = {watermark_, waited_for.attempt, now};
    }
    const Config& config = port_.config();
    const Time stage = patience(config, waited_for.late_before) + config.heartbeat;
    const Time silence = (now - oldest_.since - config.decision_deadline - config.detection_deadline) / 4;
    if (silence > stage && evictable(shape_.bus[waited_for.bu])) {
        evict(now, shape_.bus[waited_for.bu], Cause::stuck);
    }
}

/// Several BUs in turn could not get it: the RUs that do not deliver are unreachable (EB-F5: only the EM says so). True
/// if an RU was dropped. The word of one BU is enough only where no other could say anything.
bool EventManager::blame(Time now, Peer from, const ControlView& message) {
    const bool last = mep(message.body<ControlKind::late>().attempt.mep).late_before + 1 >= port_.config().max_attempts;
    const bool alone =
        std::ranges::count_if(shape_.bus, [this](Peer bu) { return member(bu).standing == Standing::in_view; }) <= 1;
    bool dropped = false;
    for (std::uint32_t index = 0; index < message.header().count; ++index) {
        const Peer named{message.entry<ControlKind::late>(index).node};
        const auto node = static_cast<std::size_t>(named);
        if (node >= members_.size() || shape_.ru_of_node[node] == no_index ||
            members_[node].standing != Standing::in_view) {
            continue;
        }
        claims_.accuse(now, from, named);
        const bool believed = alone || claims_.confirmed(named) || port_.config().plant == Plant::believed_late;
        if (last && believed && evictable(named)) {
            evict(now, named, Cause::late);
            dropped = true;
        }
    }
    return dropped;
}

}  // namespace incast::protocol

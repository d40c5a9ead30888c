// The event manager's half of patience (EB-C8): a MEP that is not full is closed early, for all readout units
// alike.
//
// A readout unit whose next MEP has waited for Config::max_wait says how many events of it there are, and adds none
// until it is answered. Once all say so, the MEP ends with the fewest, which everybody has; the next one begins with
// the event behind it. Where one unit has all of it already, the others will, and fill it. A unit may ask with no event
// at all, whether others have that MEP: it is told when one has, and gives up what its boards have not sent (EB-C9).
#include <algorithm>

#include "protocol/event_manager.h"

namespace incast::protocol {

using wire::ControlKind;
using wire::ControlView;

void EventManager::on_open(Time now, Peer from, const ControlView& message) {
    const Config& config = port_.config();
    const wire::OpenBody body = message.body<ControlKind::open>();
    Member& sender = member(from);
    const bool known =
        shape_.ru_of_node[static_cast<std::size_t>(from)] != no_index && config.packing > 0 && config.max_wait > 0;
    if (!known || body.mep < sender.available_below || body.events > config.packing) {
        ++port_.counters().bad_messages;
        return;
    }
    on_available(now, from, body.mep);
    if (sender.available_below == body.mep) {  // or it claimed what cannot be
        sender.open = true;
        sender.open_events = body.events;
        asked_ = look_at_open_ = true;
    }
}

void EventManager::close_open() {
    if (!look_at_open_) {
        return;
    }
    look_at_open_ = false;
    MepId lowest = ~MepId{0};
    for (const Shape::Ru& ru : shape_.rus) {
        if (member(ru.node).standing == Standing::in_view) {
            lowest = std::min(lowest, member(ru.node).available_below);
        }
    }
    asked_ = false;
    bool asked = false;  // at the lowest MEP
    bool all = true;
    bool ahead = false;
    std::uint32_t fewest = port_.config().packing;
    for (const Shape::Ru& ru : shape_.rus) {
        const Member& holder = member(ru.node);
        if (holder.standing != Standing::in_view) {
            continue;
        }
        asked_ = asked_ || holder.open;
        if (holder.available_below > lowest) {
            ahead = true;
        } else if (holder.open) {
            asked = true;
            fewest = std::min(fewest, holder.open_events);
        } else {
            all = false;
        }
    }
    // What was decided stays so, even if the unit is lost that was ahead: others may have heard of it.
    const bool decided = lowest < decided_below_;
    const bool nothing = fewest == 0 && !ahead && !decided;  // of some: they only ask whether others have it
    if (!asked || nothing || !(all || ahead || decided) || lowest < next_ || lowest - watermark_ >= window_.size()) {
        return;
    }
    const std::uint64_t first = first_event_of(lowest);
    const bool closes = !ahead && !decided && fewest < events_of(lowest, first);
    if (closes) {
        closed_events_[lowest & (window_.size() - 1)] = fewest;
        closed_below_ = lowest + 1;
        if (port_.config().total_events > 0) {
            const std::uint64_t behind = first + fewest;
            const std::uint64_t left = port_.config().total_events - std::min(port_.config().total_events, behind);
            total_ = lowest + 1 + (left + port_.config().packing - 1) / port_.config().packing;
        }
    }
    decided_below_ = std::max(decided_below_, lowest + 1);
    asked_ = false;
    close_ = {lowest, closes ? fewest : 0, 0};
    ++closes_;
    for (const Shape::Ru& ru : shape_.rus) {
        Member& holder = member(ru.node);
        holder.open = holder.open && holder.available_below > lowest;
        asked_ = asked_ || holder.open;
        due_.set(static_cast<std::size_t>(ru.node));
    }
}

/// Of the next MEP, which is admitted.
void EventManager::count_events(Mep& admitted) {
    admitted.n_events = events_of(next_, next_event_);
    next_event_ += admitted.n_events;
    closed_events_[next_ & (window_.size() - 1)] = 0;
}

/// Of that MEP, which begins with that event; 0 if nobody counts.
std::uint32_t EventManager::events_of(MepId id, std::uint64_t first_event) const {
    const Config& config = port_.config();
    const std::uint32_t closed = closed_events_[id & (window_.size() - 1)];
    const std::uint32_t most = closed > 0 && id < closed_below_ ? closed : config.packing;
    if (config.total_events == 0) {
        return most;
    }
    return static_cast<std::uint32_t>(
        std::min<std::uint64_t>(most, config.total_events - std::min(config.total_events, first_event)));
}

/// Of a MEP from next_ on.
std::uint64_t EventManager::first_event_of(MepId id) const {
    std::uint64_t first = next_event_;
    for (MepId before = next_; before < id; ++before) {
        first += events_of(before, first);
    }
    return first;
}

bool EventManager::flush_close(Peer peer, Member& to) {
    if (to.told_close == closes_) {
        return true;
    }
    auto message = port_.message<ControlKind::close>();
    message.set_body(close_);
    if (!port_.send(peer, message)) {
        return false;
    }
    to.told_close = closes_;
    return true;
}

}  // namespace incast::protocol

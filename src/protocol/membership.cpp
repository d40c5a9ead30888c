// The membership half of the event manager: hello, connections, suspicion, eviction (EB-F4 to EB-F6, EB-C3).
//
// A node is in the view only while it has a data connection with every unit of the other kind in the view. Anything
// worse than lateness ends an incarnation: the node is evicted, and may come back as a new one. So there is one
// recovery path, and no unit is ever reset.
#include <algorithm>

#include "protocol/event_manager.h"

namespace incast::protocol {

using wire::ControlKind;
using wire::ControlView;

void EventManager::on_hello(Time now, Peer from, const ControlView& message) {
    const auto node = static_cast<std::size_t>(from);
    const wire::HelloBody hello = message.body<ControlKind::hello>();
    Member& joiner = member(from);
    if (joiner.standing != Standing::absent || joiner.incarnation >= message.header().incarnation) {
        ++port_.counters().bad_messages;
        return;
    }
    if (hello.config_hash != fingerprint(port_.config()) || hello.roles != port_.config().nodes[node].roles) {
        ++port_.counters().bad_messages;
        evicted_.push_back(from);
        return;
    }
    forget_complaints(node);
    joiner = Member{};
    joiner.standing = Standing::joining;
    joiner.incarnation = message.header().incarnation;
    joiner.last_heard = now;
    joiner.total_meps = hello.total_meps;
    due_.set(node);
    // What this node reported in an earlier incarnation is void; what others report of the new one counts from when
    // they do.
    if (const std::uint32_t bu = shape_.bu_of_node[node]; bu != no_index) {
        Builder& builder = builders_[bu];
        builder.granted = port_.config().credits_before;
        builder.assigned = port_.config().credits_before;
        builder.free.clear();
        builder.assigns.clear();
        builder.verdicts.clear();
        for (std::size_t ru = 0; ru < shape_.rus.size(); ++ru) {
            link(bu, ru).ru_incarnation = 0;
        }
    }
    if (const std::uint32_t ru = shape_.ru_of_node[node]; ru != no_index) {
        for (std::size_t bu = 0; bu < shape_.bus.size(); ++bu) {
            link(bu, ru).bu_incarnation = 0;
        }
    }
    membership_changed_ = true;
}

void EventManager::on_connected(Peer from, const ControlView& message) {
    for (std::uint32_t index = 0; index < message.header().count; ++index) {
        report(from, message.entry<ControlKind::connected>(index), true);
    }
    membership_changed_ = true;
}

void EventManager::on_peer_lost(Time now, Peer from, const ControlView& message) {
    for (std::uint32_t index = 0; index < message.header().count; ++index) {
        const wire::PeerEntry entry = message.entry<ControlKind::peer_lost>(index);
        report(from, entry, false);
        suspect(now, from, entry);
    }
}

void EventManager::report(Peer from, wire::PeerEntry entry, bool up) {
    if (entry.peer >= members_.size()) {
        ++port_.counters().bad_messages;
        return;
    }
    const auto self = static_cast<std::size_t>(from);
    const std::uint32_t incarnation = up ? entry.incarnation : 0;
    if (shape_.bu_of_node[self] != no_index && shape_.ru_of_node[entry.peer] != no_index) {
        link(shape_.bu_of_node[self], shape_.ru_of_node[entry.peer]).ru_incarnation = incarnation;
    }
    if (shape_.ru_of_node[self] != no_index && shape_.bu_of_node[entry.peer] != no_index) {
        link(shape_.bu_of_node[entry.peer], shape_.ru_of_node[self]).bu_incarnation = incarnation;
    }
}

// --- suspicion
// -------------------------------------------------------------------------------------------------------------------

bool EventManager::carries_data(Peer one, Peer other) const {
    const auto a = static_cast<std::size_t>(one);
    const auto b = static_cast<std::size_t>(other);
    return a != b && ((shape_.ru_of_node[a] != no_index && shape_.bu_of_node[b] != no_index) ||
                      (shape_.bu_of_node[a] != no_index && shape_.ru_of_node[b] != no_index));
}

void EventManager::suspect(Time now, Peer reporter, wire::PeerEntry about) {
    if (about.peer >= members_.size()) {
        return;
    }
    if (!carries_data(reporter, Peer{about.peer})) {
        refuse_claim(now, reporter);  // it has no connection with that node that could be lost
        return;
    }
    // The peer may simply be dead; its own connection to the EM will say so within the grace.
    const Time grace = port_.config().suspect_grace;
    const Suspicion suspicion{reporter,         member(reporter).incarnation,
                              Peer{about.peer}, about.incarnation,
                              now + grace,      now + std::max(grace, port_.config().detection_deadline)};
    const std::size_t which = complaint(reporter, suspicion.about);
    if (current(suspicion) && !complaints_.test(which)) {  // a repeat says nothing new
        complaints_.set(which);
        suspicions_.push_back(suspicion);
        next_check_ = std::min(next_check_, suspicion.decide_at);
    }
}

void EventManager::forget_complaints(std::size_t node) {
    if (!complaints_.any()) {
        return;
    }
    for (std::uint32_t other = 0; other < members_.size(); ++other) {
        complaints_.reset(complaint(Peer{static_cast<std::uint32_t>(node)}, Peer{other}));
        complaints_.reset(complaint(Peer{other}, Peer{static_cast<std::uint32_t>(node)}));
    }
}

/// A connection that is lost is lost to both: the other one says so too, or somebody else misses it as well.
bool EventManager::confirmed(const Suspicion& suspicion) const {
    return complaints_.test(complaint(suspicion.about, suspicion.reporter)) ||
           std::ranges::any_of(suspicions_, [&](const Suspicion& other) {
               return other.about == suspicion.about && other.reporter != suspicion.reporter && current(other);
           });
}

bool EventManager::current(const Suspicion& suspicion) const {
    const Member& reporter = member(suspicion.reporter);
    const Member& about = member(suspicion.about);
    return reporter.standing != Standing::absent && reporter.incarnation == suspicion.reporter_incarnation &&
           about.standing != Standing::absent && about.incarnation == suspicion.about_incarnation;
}

void EventManager::decide_suspicions(Time now) {
    for (std::size_t index = 0; index < suspicions_.size();) {
        Suspicion& suspicion = suspicions_[index];
        if (current(suspicion) && suspicion.decide_at <= now && suspicion.settle_at > now && !confirmed(suspicion)) {
            suspicion.decide_at = std::min(now + port_.config().heartbeat, suspicion.settle_at);
        }
        if (current(suspicion) && suspicion.decide_at > now) {
            ++index;
            continue;
        }
        if (current(suspicion)) {
            const Peer leaving = culprit(suspicion);
            ++quarrels_[static_cast<std::size_t>(suspicion.reporter)];
            ++quarrels_[static_cast<std::size_t>(suspicion.about)];
            evict(now, leaving, Cause::cut_off);
        }
        suspicions_[index] = suspicions_.back();
        suspicions_.pop_back();
    }
}

/// This very node was paused: nobody else is to blame for the silence.
void EventManager::forgive(Time now, Time pause) {
    for (Member& each : members_) {
        each.last_heard = std::min(each.last_heard + pause, now);
    }
    for (Suspicion& suspicion : suspicions_) {
        suspicion.decide_at += pause;
    }
    barrier_.shift(pause);
    oldest_.since += pause;
}

/// Two live nodes cannot reach each other: one must go. Who complains, if nobody else does; the one that more nodes
/// complain about, or that complains about more; the one that lost more connections before.
Peer EventManager::culprit(const Suspicion& suspicion) const {
    const Peer a = suspicion.reporter;
    const Peer b = suspicion.about;
    if (!evictable(a) || !evictable(b)) {
        return evictable(a) ? a : b;
    }
    if (member(a).standing != member(b).standing) {
        return member(a).standing == Standing::joining ? a : b;
    }
    if (!confirmed(suspicion) && port_.config().plant != Plant::believed_loss) {
        return a;
    }
    std::size_t score_a = 0;
    std::size_t score_b = 0;
    for (const Suspicion& other : suspicions_) {
        if (current(other)) {
            score_a += other.reporter == a || other.about == a ? 1 : 0;
            score_b += other.reporter == b || other.about == b ? 1 : 0;
        }
    }
    if (score_a != score_b) {
        return score_a > score_b ? a : b;
    }
    const std::uint32_t before_a = quarrels_[static_cast<std::size_t>(a)];
    const std::uint32_t before_b = quarrels_[static_cast<std::size_t>(b)];
    if (before_a != before_b) {
        return before_a > before_b ? a : b;
    }
    // A BU without an RU holds nothing that is not elsewhere: its loss costs no fragment. But one BU must stay.
    const auto builds_only = [this](Peer peer) {
        const auto node = static_cast<std::size_t>(peer);
        return shape_.bu_of_node[node] != no_index && shape_.ru_of_node[node] == no_index;
    };
    std::size_t bus_in_view = 0;
    for (const Peer bu : shape_.bus) {
        bus_in_view += member(bu).standing == Standing::in_view ? 1 : 0;
    }
    if (builds_only(a) != builds_only(b) && bus_in_view > 1) {
        return builds_only(a) ? a : b;
    }
    return builds_only(a) ? b : a;
}

// --- the view
// -------------------------------------------------------------------------------------------------------------------

bool EventManager::linked(std::size_t bu, std::size_t ru) const {
    const Peer bu_node = shape_.bus[bu];
    const Peer ru_node = shape_.rus[ru].node;
    if (bu_node == ru_node) {
        return true;
    }
    const Link& pair = links_[bu * shape_.rus.size() + ru];
    return pair.ru_incarnation == member(ru_node).incarnation && pair.bu_incarnation == member(bu_node).incarnation;
}

/// The run starts when every node of the config is there and every RU is connected with every BU.
void EventManager::form(Time now) {
    for (const Member& each : members_) {
        if (each.standing == Standing::absent) {
            return;
        }
    }
    const std::size_t rus = shape_.rus.size();
    const std::size_t pairs = links_.size();
    // Starting where it failed last keeps the whole start-up linear in the number of pairs.
    for (std::size_t step = 0; step < pairs; ++step) {
        const std::size_t pair = (first_unlinked_ + step) % pairs;
        if (!linked(pair / rus, pair % rus)) {
            first_unlinked_ = pair;
            return;
        }
    }
    formed_ = true;
    for (std::uint32_t node = 0; node < members_.size(); ++node) {
        enter_view(now, Peer{node});
    }
    if (total_ == 0) {
        bool endless = false;
        for (const Shape::Ru& ru : shape_.rus) {
            endless = endless || member(ru.node).total_meps == 0;
            total_ = std::max(total_, member(ru.node).total_meps);
        }
        total_ = endless ? 0 : total_;
    }
}

bool EventManager::linked_with_view(Peer peer) const {
    const auto node = static_cast<std::size_t>(peer);
    if (const std::uint32_t bu = shape_.bu_of_node[node]; bu != no_index) {
        for (std::size_t ru = 0; ru < shape_.rus.size(); ++ru) {
            if (member(shape_.rus[ru].node).standing == Standing::in_view && !linked(bu, ru)) {
                return false;
            }
        }
    }
    if (const std::uint32_t ru = shape_.ru_of_node[node]; ru != no_index) {
        for (std::size_t bu = 0; bu < shape_.bus.size(); ++bu) {
            if (member(shape_.bus[bu]).standing == Standing::in_view && !linked(bu, ru)) {
                return false;
            }
        }
    }
    return true;
}

void EventManager::admit_joining(Time now) {
    for (std::uint32_t node = 0; node < members_.size(); ++node) {
        if (members_[node].standing == Standing::joining && linked_with_view(Peer{node})) {
            enter_view(now, Peer{node});
        }
    }
}

void EventManager::enter_view(Time now, Peer peer) {
    const auto node = static_cast<std::size_t>(peer);
    Member& entering = member(peer);
    entering.standing = Standing::in_view;
    // It takes part from the first MEP on of which the end is not decided: of the others it was not told.
    const MepId from = std::max(next_, closed_below_);
    entering.from_mep = from;
    entering.available_below = from;
    entering.told_released = from;
    entering.told_close = closes_;
    entering.log_cursor = log_head_;
    entering.told_phase = barrier_.phase();  // it is in the next one
    held_known_ = false;
    look_at_open_ = asked_;
    ++port_.view;
    ++port_.counters().views;
    views_.push_back({static_cast<std::uint32_t>(node), entering.incarnation, port_.config().nodes[node].roles,
                      wire::Change::up, from, first_event_of(from)});
    if (const std::uint32_t bu = shape_.bu_of_node[node];
        bu != no_index && (assigns_ahead(port_.config()) || !builders_[bu].free.empty())) {
        bus_with_credit_.set(bu);
    }
    if (ledger_ != nullptr) {
        ledger_->view_changed(now, port_.view, peer, entering.incarnation, wire::Change::up, Cause::joined);
    }
}

void EventManager::evict(Time now, Peer peer, Cause cause) {
    const bool dead = cause == Cause::connection_lost || cause == Cause::silent;
    const wire::Change change = dead                         ? wire::Change::dead
                                : cause == Cause::distrusted ? wire::Change::distrusted
                                                             : wire::Change::unreachable;
    const auto node = static_cast<std::size_t>(peer);
    Member& leaving = member(peer);
    const bool was_in_view = leaving.standing == Standing::in_view;
    leaving.standing = Standing::absent;  // its incarnation stays known: it is never taken again
    claims_.forget(peer);
    evicted_.push_back(peer);
    held_known_ = false;
    look_at_open_ = asked_;
    membership_changed_ = true;  // someone may have waited for a connection with it
    if (!was_in_view) {
        return;
    }
    if (const std::uint32_t ru = shape_.ru_of_node[node]; ru != no_index) {
        barrier_.lose(ru);
    }
    ++port_.view;
    ++port_.counters().views;
    ++port_.counters().evictions;
    views_.push_back(
        {static_cast<std::uint32_t>(node), leaving.incarnation, port_.config().nodes[node].roles, change, next_, 0});
    if (const std::uint32_t bu = shape_.bu_of_node[node]; bu != no_index) {
        bus_with_credit_.reset(bu);
        for (MepId id = watermark_; id < next_; ++id) {
            Mep& built = mep(id);
            if (built.bu != bu || (built.state != MepState::assigned && built.state != MepState::granted)) {
                continue;
            }
            if (port_.config().plant == Plant::forgotten_reassign && !forgot_) {
                forgot_ = true;
                continue;
            }
            reassign(id);
        }
    }
    if (ledger_ != nullptr) {
        ledger_->view_changed(now, port_.view, peer, leaving.incarnation, change, cause);
    }
}

void EventManager::on_connection_lost(Time now, Peer peer, std::uint32_t incarnation) {
    const Member& lost = member(peer);
    if (lost.standing != Standing::absent && lost.incarnation == incarnation) {
        evict(now, peer, Cause::connection_lost);
    }
}

}  // namespace incast::protocol

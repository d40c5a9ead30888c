#include "liar.h"

#include <cstring>

namespace incast::adversary {

using wire::AttemptEntry;
using wire::ControlKind;
using wire::ControlView;

LyingEndpoint::LyingEndpoint(std::unique_ptr<Transport> inner, const Plan& plan, Checker& checker,
                             std::uint32_t incarnation)
    : Forward(std::move(inner)),
      plan_(plan),
      checker_(checker),
      incarnation_(incarnation),
      incarnations_(plan.config.nodes.size()) {}

Post LyingEndpoint::send(Peer peer, Bytes bytes) {
    const std::optional<ControlView> said = ControlView::parse(bytes);
    if (!said || said->kind() != ControlKind::commit_request) return inner().send(peer, bytes);
    if (plan_.lie == Lie::withheld) return Post::done;  // it has them, and will say that they are late
    if (plan_.lie != Lie::missing) return inner().send(peer, bytes);
    auto changed = message<ControlKind::commit_request>();
    for (std::uint32_t index = 0; index < said->header().count; ++index) {
        AttemptEntry entry = said->entry<ControlKind::commit_request>(index);
        if (entry.mep % 2 == 0 && !protocol::two_stages(plan_.config.scheme)) {
            entry.flags = static_cast<std::uint16_t>(entry.flags | wire::attempt_rejected);
        } else {
            ++entry.value;
        }
        changed.add(entry);
    }
    return inner().send(peer, changed.bytes());
}

bool LyingEndpoint::say_late(const AttemptEntry& attempt) {
    auto late = message<ControlKind::late>();
    late.set_body({attempt});
    for (std::uint32_t node = 0; node < plan_.config.nodes.size(); ++node) {
        if ((plan_.config.nodes[node].roles & protocol::role_ru) != 0) late.add({node});
    }
    return say(plan_.config.em, late);
}

void LyingEndpoint::hear(Time now, Bytes bytes) {
    const std::optional<ControlView> heard = ControlView::parse(bytes);
    if (!heard || heard->kind() != ControlKind::assign) return;
    for (std::uint32_t index = 0; index < heard->header().count; ++index) {
        const AttemptEntry entry = heard->entry<ControlKind::assign>(index);
        newest_credit_ = entry.credit;
        if (plan_.lie == Lie::late) say_late(entry);
        if (plan_.lie == Lie::withheld) withheld_.push_back({entry, now + patience(plan_.config, entry.value)});
    }
}

void LyingEndpoint::lie(Time now) {
    std::erase_if(withheld_, [&](const Withheld& each) {
        if (each.until > now) return false;
        // For some it finds no room, and says nothing at all. Where credits come late, that is what a slow sink looks
        // like.
        return say_late(each.attempt) || !protocol::assigns_ahead(plan_.config);
    });
    if (now < next_) return;
    next_ = now + plan_.lie_every;
    const std::uint32_t slots = plan_.config.credits + plan_.config.quarantine_slots + plan_.config.held_slots;
    for (std::uint32_t node = 0; node < plan_.config.nodes.size(); ++node) {
        if (node == plan_.liar || incarnations_[node] == 0) continue;
        const std::uint32_t roles = plan_.config.nodes[node].roles;
        if (plan_.lie == Lie::loss && node == plan_.about) {
            auto lost = message<ControlKind::peer_lost>();
            lost.add({node, incarnations_[node]});
            say(plan_.config.em, lost);
        } else if (plan_.lie == Lie::grant && (roles & protocol::role_ru) != 0) {
            auto grant = message<ControlKind::grant>();
            for (std::uint32_t slot = 0; slot < slots; ++slot)
                grant.add({far_credit + slot, static_cast<std::uint16_t>(slot), 0});
            say(Peer{node}, grant);
        } else if (plan_.lie == Lie::abort && (roles & protocol::role_ru) != 0) {
            auto abort = message<ControlKind::abort>();
            for (std::uint32_t other = 0; other < plan_.config.nodes.size(); ++other) {
                if (other == plan_.liar || (plan_.config.nodes[other].roles & protocol::role_bu) == 0) continue;
                for (std::uint32_t credit = newest_credit_; credit < newest_credit_ + 6; ++credit)
                    abort.add({.mep = 0, .credit = credit, .bu = static_cast<std::uint16_t>(other), .attempt = 1});
            }
            say(Peer{node}, abort);
        }
    }
}

std::size_t LyingEndpoint::poll(Time now, std::span<Event> events) {
    const std::size_t count = inner().poll(now, events);
    for (std::size_t index = 0; index < count; ++index) {
        const Event& event = events[index];
        if (event.kind == Event::Kind::message) {
            hear(now, {event.data, event.size_or_value});
        } else if (event.kind == Event::Kind::peer_up || event.kind == Event::Kind::peer_down) {
            incarnations_[static_cast<std::size_t>(event.peer)] =
                event.kind == Event::Kind::peer_up ? event.incarnation : 0;
        }
    }
    lie(now);
    return count;
}

Time LyingEndpoint::next_deadline() const {
    Time next = std::min(inner().next_deadline(), next_);
    for (const Withheld& each : withheld_)
        next = std::min(next, each.until);
    return next;
}

}  // namespace incast::adversary

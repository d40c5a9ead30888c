#include "protocol/links.h"

#include <algorithm>
#include <span>

namespace incast::protocol {

using wire::ControlKind;

Links::Links(Port& port, const Shape& shape)
    : em_(port.config().em),
      reports_(port.config().nodes.size()),
      links_(port.config().nodes.size()),
      port_(port),
      shape_(shape),
      ways_(links_.size()),
      wanted_(links_.size()) {}

bool Links::carries_data(Peer peer) const {
    const auto self = static_cast<std::size_t>(port_.self());
    const auto other = static_cast<std::size_t>(peer);
    return (shape_.ru_of_node[self] != no_index && shape_.bu_of_node[other] != no_index) ||
           (shape_.bu_of_node[self] != no_index && shape_.ru_of_node[other] != no_index);
}

bool Links::needed(Peer peer) const {
    return peer != port_.self() &&
           (peer == port_.config().em || port_.self() == port_.config().em || carries_data(peer));
}

void Links::want(Peer peer, Time at) {
    link(peer).state = State::wanted;
    way(peer).retry_at = at;
    wanted_.set(static_cast<std::size_t>(peer));
    next_retry_ = std::min(next_retry_, at);
}

void Links::update_peer(Time now, Peer peer, std::uint32_t incarnation, const Blob& address) {
    Link& link = this->link(peer);
    if (!needed(peer) || incarnation <= link.incarnation) {
        return;
    }
    if (link.state == State::up || link.state == State::connecting) {
        port_.transport().disconnect(peer);  // its down event comes first, then this is tried
    }
    link.incarnation = incarnation;
    way(peer).address.assign(reinterpret_cast<const char*>(address.bytes.data()), address.bytes.size());
    // While the earlier one is not fenced, connect() answers `again`, and is retried.
    if (link.state != State::up) {
        want(peer, now);
    }
}

bool Links::on_up(Time now, Peer peer, std::uint32_t incarnation) {
    Link& link = this->link(peer);
    if (link.state != State::connecting || link.incarnation != incarnation) {
        port_.transport().disconnect(peer);
        if (link.state == State::connecting) {
            want(peer, now + port_.config().connect_retry);
        }
        return false;
    }
    link.state = State::up;
    report(peer, Report::connected);
    return true;
}

bool Links::on_down(Time now, Peer peer, std::uint32_t incarnation) {
    Link& link = this->link(peer);
    const bool was_up = link.state == State::up;
    if (was_up && incarnation != link.incarnation) {
        want(peer, now);  // a newer incarnation is known already
        return true;
    }
    if (was_up) {
        link.state = State::lost;
        report(peer, Report::lost);
    } else if (link.state == State::connecting) {
        want(peer, now + port_.config().connect_retry);
    }
    return was_up;
}

void Links::drop(Peer peer, std::uint32_t incarnation) {
    const Link& link = this->link(peer);
    if ((link.state == State::up || link.state == State::connecting) && link.incarnation == incarnation) {
        port_.transport().disconnect(peer);
    }
}

void Links::drop(Peer peer) {
    if (is_up(peer)) {
        port_.transport().disconnect(peer);
    }
}

void Links::connect_wanted(Time now) {
    next_retry_ = time_never;
    for (std::size_t index = wanted_.next(0); index != base::Bitmap::none; index = wanted_.next(index + 1)) {
        const Peer peer{static_cast<std::uint32_t>(index)};
        Link& link = this->link(peer);
        Way& way = this->way(peer);
        if (way.retry_at <= now) {
            const Bytes bytes = std::as_bytes(std::span(way.address));
            const Blob address{{bytes.begin(), bytes.end()}};
            if (port_.transport().connect(peer, address, link.incarnation) == Post::pending) {
                link.state = State::connecting;
                wanted_.reset(index);
                continue;
            }
            way.retry_at = now + port_.config().connect_retry;
        }
        next_retry_ = std::min(next_retry_, way.retry_at);
    }
}

void Links::report(Peer peer, Report what) {
    if (!carries_data(peer)) {
        return;
    }
    Link& link = this->link(peer);
    link.report = what;
    way(peer).report_incarnation = link.incarnation;
    reports_.set(static_cast<std::size_t>(peer));
}

void Links::send_reports() {
    auto connected = port_.message<ControlKind::connected>();
    auto lost = port_.message<ControlKind::peer_lost>();
    base::Bitmap& pending = reports_;
    std::size_t peer = pending.next(0);
    while (peer != base::Bitmap::none) {
        // One message of each kind at a time; what is in them is forgotten only once both are on their way.
        const std::size_t first = peer;
        connected.clear();
        lost.clear();
        for (; peer != base::Bitmap::none && !connected.full() && !lost.full(); peer = pending.next(peer + 1)) {
            const Peer about{static_cast<std::uint32_t>(peer)};
            const wire::PeerEntry entry{static_cast<std::uint32_t>(peer), way(about).report_incarnation};
            if (link(about).report == Report::connected) {
                connected.add(entry);
            } else {
                lost.add(entry);
            }
        }
        const Peer em = port_.config().em;
        // Reports may be repeated, so a half-sent pair is simply sent again.
        if ((connected.count() > 0 && !port_.send(em, connected)) || (lost.count() > 0 && !port_.send(em, lost))) {
            return;
        }
        for (std::size_t told = first;
             told != base::Bitmap::none && told < (peer == base::Bitmap::none ? links_.size() : peer);
             told = pending.next(told + 1)) {
            pending.reset(told);
            link(Peer{static_cast<std::uint32_t>(told)}).report = Report::none;
        }
    }
}

}  // namespace incast::protocol

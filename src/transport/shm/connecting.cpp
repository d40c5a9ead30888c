// The kernel's part of a shm endpoint: sockets, handshakes, deadlines. Seldom looked at while data flows.
#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cstddef>
#include <utility>

#include <sys/socket.h>
#include <unistd.h>

#include "transport/shm/endpoint.h"

namespace incast::transport::shm {

namespace {

constexpr std::ptrdiff_t half_open_max = 64;
constexpr std::ptrdiff_t handed_max = 256;
constexpr Time control_every = ps_per_ms;
constexpr Time dial_retry = 2 * ps_per_ms;

}  // namespace

Post Endpoint::connect(Peer peer, const Blob& blob, std::uint32_t incarnation) {
    Address address;
    if (!is_node(peer) || peer == options_.self || !from_blob(blob, address) || address.node != index(peer)) {
        return Post::refused;
    }
    PeerState& state = peers_[index(peer)];
    if (const auto answer =
            answer_to_connect(state.connection(), state.incarnation, incarnation, [&] { disconnect(peer); })) {
        return *answer;
    }
    state.incarnation = incarnation;
    state.name = address.name;
    state.deadline = time_unset;
    look_at_control_ = true;
    next_deadline_ = time_unset;
    if (index(options_.self) < index(peer)) {
        state.state = PeerState::State::dialling;
        start_dialling(peer);
    } else {
        state.state = PeerState::State::waiting;
        // Who is not there any more will never dial; a dial that says nothing is ignored there.
        if (const Dialled probe = shm::dial(address.name); !probe.socket.is_open() && !probe.again) {
            fail(peer, "nobody is there");
        } else {
            match(peer);
        }
    }
    return Post::pending;
}

void Endpoint::disconnect(Peer peer) {
    if (index(peer) >= peers_.size()) return;
    PeerState& state = peers_[index(peer)];
    switch (state.state) {
        case PeerState::State::idle:
        case PeerState::State::closing:
            return;
        case PeerState::State::waiting:
        case PeerState::State::dialling:
        case PeerState::State::knocking:
        case PeerState::State::draining:
            finish(peer);
            return;
        case PeerState::State::up:
            give_up(peer);
    }
}

void Endpoint::ended(Peer peer, std::uint32_t incarnation) {
    if (!exists(peer)) return;
    const PeerState& state = peers_[index(peer)];
    const bool known = state.state != PeerState::State::idle && state.state != PeerState::State::draining;
    if (known && state.incarnation == incarnation) stopped(peer);
}

Result<Peer> Endpoint::dial_by(os::Descriptor way, const Blob& blob, Bytes greeting) {
    Address address;
    if (!from_blob(blob, address)) return Error{"dial: not an address of the shm transport"};
    if (greeting.size() > max_greeting_bytes) return no_greeting(greeting.size());
    const Peer peer = free_number();
    if (peer == any_peer) return no_number_left(options_.max_dialled);
    PeerState& state = peers_[index(peer)];
    state.taken = true;
    state.node = address.node;
    state.incarnation = 0;    // its answer says it
    state.complained_of = 1;  // of another one
    state.name = address.name;
    state.greeting.assign(greeting.begin(), greeting.end());
    state.socket = std::move(way);
    state.deadline = time_unset;
    look_at_control_ = true;
    next_deadline_ = time_unset;
    state.state = PeerState::State::dialling;
    start_dialling(peer);
    return peer;
}

Post Endpoint::accept(Peer peer) {
    if (is_node(peer) || !exists(peer)) return Post::refused;
    const PeerState::State state = peers_[index(peer)].state;
    if (state == PeerState::State::idle) return Post::pending;  // it is gone, which is still to be polled
    if (state != PeerState::State::knocking) return Post::refused;
    let_in(peer);
    return Post::pending;
}

Peer Endpoint::free_number() const {
    for (std::uint32_t peer = options_.max_peers; peer < peers_.size(); ++peer)
        if (!peers_[peer].taken) return Peer{peer};
    return any_peer;
}

void Endpoint::forget_dialled(Peer peer) {
    imports_.forget(peer);
    for (OwnRegion& region : regions_)
        std::erase_if(region.granted, [&](const OwnRegion::Granted& granted) { return granted.peer == peer; });
    peers_[index(peer)].taken = false;
}

Packet Endpoint::packet(Packet::Kind kind, Peer to) const {
    Packet made;
    made.kind = kind;
    made.run = options_.run;
    made.from = index(options_.self);
    made.from_incarnation = options_.incarnation;
    made.to = index(to);
    made.to_incarnation = peers_[index(to)].incarnation;
    made.peers = shape_.peers;
    made.ring_bytes = shape_.ring_bytes;
    return made;
}

void Endpoint::watch(Peer peer) {
    PeerState& state = peers_[index(peer)];
    state.serial = ++serials_;
    (void)poller_.add(state.socket, EPOLLIN | EPOLLRDHUP,
                      peer_kind | std::uint64_t{state.serial & 0xFFFFFFFU} << 32 | index(peer));
}

void Endpoint::start_dialling(Peer peer) {
    PeerState& state = peers_[index(peer)];
    state.dial_at = time_never;
    if (!state.socket.is_open()) {
        Dialled dialled = shm::dial(state.name);
        if (dialled.again) {
            state.dial_at = time_unset;
            next_deadline_ = time_unset;
            return;
        }
        if (!dialled.socket.is_open()) return fail(peer, "nobody is there");
        state.socket = std::move(dialled.socket);
    }
    Packet hello = packet(is_node(peer) ? Packet::Kind::hello : Packet::Kind::knock, peer);
    hello.token = options_.token;
    if (!send_packet(state.socket, hello, {inbox_memory_.fd.fd(), bell_.fd()}, state.greeting))
        return fail(peer, "the connection was lost at once");
    watch(peer);
}

Verdict Endpoint::judge(const Packet& hello) const {
    volatile std::uint64_t difference = hello.token ^ options_.token;  // in constant time
    if (hello.version != channel_version) return Verdict::wrong_version;
    const bool knocks = hello.kind == Packet::Kind::knock;
    if (!knocks && (hello.kind != Packet::Kind::hello || !is_node(Peer{hello.from}))) return Verdict::malformed;
    if (hello.run != options_.run) return Verdict::wrong_run;
    if (difference != 0) return Verdict::wrong_token;
    if (knocks) return Verdict::accepted;
    if (hello.to != index(options_.self) || hello.to_incarnation != options_.incarnation) return Verdict::wrong_node;
    return hello.from < index(options_.self) ? Verdict::accepted : Verdict::malformed;
}

void Endpoint::refuse(const os::Descriptor& socket, const Packet& hello, Verdict verdict) {
    log(std::string("refused a connection: ") + to_string(verdict));
    Packet answer;
    answer.kind = Packet::Kind::answer;
    answer.verdict = verdict;
    answer.to = hello.from;
    (void)send_packet(socket, answer);
}

void Endpoint::park(Received received, os::Descriptor socket) {
    const Packet& hello = received.packet;
    const Peer peer{hello.from};
    PeerState& state = peers_[hello.from];
    const bool connected = state.state == PeerState::State::up || state.state == PeerState::State::waiting;
    if ((connected && hello.from_incarnation < state.incarnation) ||
        (state.parked.socket.is_open() && hello.from_incarnation < state.parked.hello.from_incarnation)) {
        return refuse(socket, hello, Verdict::stale_incarnation);
    }
    // A node dials only when it has no connection left. That its last one still looks alive here means that its
    // end has not been read yet; the kernel has it in front of this hello.
    if (state.state == PeerState::State::up) receive(peer);
    if (state.state == PeerState::State::waiting && hello.from_incarnation > state.incarnation)
        fail(peer, "a later incarnation of it dialled");
    state.parked = {hello, std::move(socket), std::move(received.fds[0]), std::move(received.fds[1])};
    match(peer);
}

void Endpoint::match(Peer peer) {
    PeerState& state = peers_[index(peer)];
    if (state.state != PeerState::State::waiting || !state.parked.socket.is_open()) return;
    const std::uint32_t theirs = state.parked.hello.from_incarnation;
    if (theirs > state.incarnation) return fail(peer, "a later incarnation of it dialled");
    if (theirs < state.incarnation) {
        const Parked parked = std::move(state.parked);
        return refuse(parked.socket, parked.hello, Verdict::stale_incarnation);
    }
    state.socket = std::move(state.parked.socket);
    watch(peer);
    let_in(peer);
}

void Endpoint::hear_knock(Received received, os::Descriptor socket) {
    const Packet& hello = received.packet;
    const Peer peer = free_number();
    if (peer == any_peer) return refuse(socket, hello, Verdict::no_room);
    PeerState& state = peers_[index(peer)];
    state.taken = true;
    state.node = hello.from;
    state.incarnation = hello.from_incarnation;
    state.state = PeerState::State::knocking;
    state.socket = std::move(socket);
    state.greeting = std::move(received.greeting);
    state.parked = {hello, {}, std::move(received.fds[0]), std::move(received.fds[1])};
    watch(peer);
    Event event = control_event(Event::Kind::knock, peer);
    event.size_or_value = static_cast<std::uint16_t>(state.greeting.size());
    event.data = state.greeting.data();
    own_events_.push_back(event);
}

void Endpoint::let_in(Peer peer) {
    PeerState& state = peers_[index(peer)];
    Parked parked = std::move(state.parked);
    if (!meet(peer, parked.hello, parked.inbox, std::move(parked.bell))) return;
    // Both lanes begin anew, and here: a dialler that gave up an earlier attempt cannot know whether this side, which
    // may have answered it, has stopped writing.
    inbox_.reset_lane(index(peer));
    state.inbox.reset_lane(state.there);
    if (!send_packet(state.socket, packet(Packet::Kind::answer, peer), {inbox_memory_.fd.fd(), bell_.fd()}))
        return fail(peer, "the connection was lost at once");
    go_up(peer);
}

bool Endpoint::meet(Peer peer, const Packet& from_peer, const os::Descriptor& inbox, os::Descriptor bell) {
    PeerState& state = peers_[index(peer)];
    const InboxShape shape{from_peer.peers, from_peer.ring_bytes};
    const bool sound = std::has_single_bit(shape.ring_bytes) && shape.ring_bytes >= 16384 &&
                       shape.peers <= max_peers_limit && from_peer.to < shape.peers && bell.is_open();
    auto mapping = sound ? map_memory(inbox, shape.bytes(), Access::write)
                         : Result<std::shared_ptr<os::Mapping>>(Error{"its inbox makes no sense"});
    if (!mapping) {
        fail(peer, mapping.error().message);
        return false;
    }
    state.inbox_mapping = std::move(*mapping);
    state.inbox = Inbox(state.inbox_mapping->bytes(), shape);
    state.bell = std::move(bell);
    state.there = from_peer.to;
    state.writer = state.inbox.writer(state.there);
    state.reader = inbox_.reader(index(peer));
    return true;
}

void Endpoint::go_up(Peer peer) {
    PeerState& state = peers_[index(peer)];
    state.deadline = time_never;
    state.state = PeerState::State::up;
    own_events_.push_back(control_event(Event::Kind::peer_up, peer));
    active_.set(index(peer));  // it may have written before this side was up
    state.to_tell.clear();
    for (std::size_t number = 0; number < regions_.size(); ++number) {
        if (regions_[number].granted_to(peer) != nullptr || regions_[number].use > 0)
            state.to_tell.push_back(static_cast<std::uint16_t>(number));
    }
    hand_over(peer);
    note_left_over(peer);
}

/// The next poll sets the deadline for what could not be handed over.
void Endpoint::note_left_over(Peer peer) {
    if (peers_[index(peer)].to_tell.empty()) return;
    look_at_control_ = true;
    next_deadline_ = time_unset;
}

/// Something became of that region which that peer is to know.
void Endpoint::tell(std::uint16_t region, Peer whom) {
    for (std::uint32_t peer = 0; peer < peers_.size(); ++peer) {
        if (peers_[peer].state != PeerState::State::up || (whom != any_peer && whom != Peer{peer})) continue;
        peers_[peer].to_tell.push_back(region);
        hand_over(Peer{peer});
        note_left_over(Peer{peer});
    }
}

/// As many regions as the socket has room for (or the user for descriptors on their way); handle_deadlines goes on with
/// the others. Who was granted nothing of a region never gets its descriptor, and so never reaches it.
void Endpoint::hand_over(Peer peer) {
    PeerState& state = peers_[index(peer)];
    for (; !state.to_tell.empty(); state.to_tell.pop_front()) {
        const std::uint16_t number = state.to_tell.front();
        const OwnRegion& region = regions_[number];
        const OwnRegion::Granted* const granted = region.granted_to(peer);
        Packet made = packet(granted == nullptr ? Packet::Kind::released
                             : granted->write   ? Packet::Kind::region
                                                : Packet::Kind::region_to_read,
                             peer);
        made.region = number;
        made.use = region.use;
        made.bytes = region.bytes;
        os::Descriptor to_read;
        if (granted != nullptr && !granted->write) {
            auto opened = os::open_for_reading(region.memory.fd);
            if (!opened) return;  // the user has no more descriptors: later
            to_read = std::move(*opened);
        }
        const int fd = granted == nullptr ? -1 : granted->write ? region.memory.fd.fd() : to_read.fd();
        if (!send_packet(state.socket, made, {fd, -1})) return;
    }
}

void Endpoint::receive(Peer peer) {
    PeerState& state = peers_[index(peer)];
    while (state.socket.is_open()) {
        Received received = receive_packet(state.socket);
        switch (received.what) {
            case Received::What::nothing:
                return;
            case Received::What::end:
                return stopped(peer);
            case Received::What::nonsense:
                log("node " + std::to_string(index(peer)) + " sent nonsense: dropped");
                state.state == PeerState::State::up ? give_up(peer) : fail(peer, "it sent nonsense");
                return;
            case Received::What::packet:
                if (state.state == PeerState::State::dialling) {
                    answered(peer, received);
                } else if (state.state == PeerState::State::up) {
                    take_region(peer, received);
                }
        }
    }
}

void Endpoint::answered(Peer peer, Received& received) {
    if (received.packet.kind != Packet::Kind::answer) return fail(peer, "what answers there is not an Incast node");
    if (received.packet.verdict != Verdict::accepted)
        return fail(peer, std::string("refused: ") + to_string(received.packet.verdict));
    if (!is_node(peer)) peers_[index(peer)].incarnation = received.packet.from_incarnation;
    if (meet(peer, received.packet, received.fds[0], std::move(received.fds[1]))) go_up(peer);
}

void Endpoint::take_region(Peer peer, Received& received) {
    PeerState& state = peers_[index(peer)];
    const Packet& region = received.packet;
    const bool exposed = region.kind == Packet::Kind::region || region.kind == Packet::Kind::region_to_read;
    const bool writable = region.kind == Packet::Kind::region;
    if ((!exposed && region.kind != Packet::Kind::released) || region.region >= max_regions) return;
    PeerRegion now{.mapping = nullptr, .use = region.use, .writable = writable};
    if (exposed) {
        auto mapping = map_memory(received.fds[0], region.bytes, writable ? Access::write : Access::read);
        if (!mapping) return log("node " + std::to_string(index(peer)) + ": " + mapping.error().message);
        now.mapping = std::move(*mapping);
    }
    if (state.regions.size() <= region.region) state.regions.resize(region.region + 1);
    if (state.regions[region.region].mapping != nullptr) {
        for (Import& import : imports_) {
            if (import.peer == peer && import.key.region == region.region) forget(import);
        }
        unmapped_next_.push_back({state.regions[region.region]});  // it may be in view
    }
    state.regions[region.region] = std::move(now);
    give_room(peer);  // somebody may have tried to write to it
}

void Endpoint::stopped(Peer peer) {
    PeerState& state = peers_[index(peer)];
    if (state.state != PeerState::State::up) return finish(peer);
    forget_memory(peer);
    state.state = PeerState::State::draining;
    active_.set(index(peer));
}

void Endpoint::give_up(Peer peer) {
    PeerState& state = peers_[index(peer)];
    publish(state);
    forget_memory(peer);
    state.state = PeerState::State::closing;
    active_.reset(index(peer));
    (void)::shutdown(state.socket.fd(), SHUT_WR);
}

void Endpoint::forget_memory(Peer peer) {
    for (Import& import : imports_) {
        if (import.peer == peer) forget(import);
    }
}

void Endpoint::finish(Peer peer) {
    PeerState& state = peers_[index(peer)];
    forget_memory(peer);
    if (state.socket.is_open()) poller_.remove(state.socket);
    own_events_.push_back(control_event(Event::Kind::peer_down, peer));
    state.socket.close();
    state.bell.close();
    state.inbox_mapping.reset();
    if (state.taken) state.parked = {};
    lingering_.push_back(std::exchange(state.regions, {}));
    state.wants_room = state.streamed = false;
    state.unpublished_bytes = 0;
    state.deadline = state.dial_at = time_never;
    state.state = PeerState::State::idle;
    active_.reset(index(peer));
}

void Endpoint::fail(Peer peer, const std::string& why) {
    PeerState& state = peers_[index(peer)];
    if (std::exchange(state.complained_of, state.incarnation) != state.incarnation)
        log("node " + std::to_string(index(peer)) + ": " + why);
    finish(peer);
}

void Endpoint::look_around(Time now) {
    look_at_control_ = false;
    idle_polls_ = 0;
    next_control_ = now + control_every;
    const std::size_t count = poller_.ready(epoll_events_);
    look_at_control_ = count == epoll_events_.size();
    for (const epoll_event& event : std::span(epoll_events_).first(count)) {
        const std::uint64_t kind = event.data.u64 >> kind_shift << kind_shift;
        const auto number = static_cast<std::uint32_t>(event.data.u64);
        if (kind == bell_kind) {
            hear_bell();
        } else if (kind == listener_kind) {
            accept_all(now);
        } else if (kind == half_open_kind) {
            hear_hello(number);
        } else if (number < peers_.size() &&
                   (peers_[number].serial & 0xFFFFFFFU) == (event.data.u64 >> 32 & 0xFFFFFFFU)) {
            receive(Peer{number});
        }
    }
    handle_deadlines(now);
}

void Endpoint::accept_all(Time now) {
    // Bounded per call: a flood of connections must not keep the endpoint from its peers.
    for (std::ptrdiff_t n = 0; n < half_open_max; ++n) {
        os::Descriptor socket = accept_one(listener_);
        if (!socket.is_open()) {
            if (os::Spare::is_needed_for(errno)) spare_.turn_away(listener_);
            return;
        }
        if (std::ranges::count(half_open_, false, &HalfOpen::is_handed) == half_open_max)
            half_open_.erase(std::ranges::find(half_open_, false, &HalfOpen::is_handed));
        await_hello(std::move(socket), now, false);
    }
}

void Endpoint::await_hello(os::Descriptor socket, Time now, bool is_handed) {
    half_open_.push_back({std::move(socket), ++serials_, now + settings_.hello_timeout, is_handed});
    next_deadline_ = std::min(next_deadline_, half_open_.back().deadline);
    (void)poller_.add(half_open_.back().socket, EPOLLIN | EPOLLRDHUP, half_open_kind | half_open_.back().serial);
}

os::Descriptor Endpoint::way_for_caller(Time now) {
    std::array<int, 2> ends{};
    if (std::ranges::count(half_open_, true, &HalfOpen::is_handed) == handed_max ||
        ::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends.data()) != 0)
        return {};
    await_hello(os::Descriptor(ends[0]), now, true);
    return os::Descriptor(ends[1]);
}

void Endpoint::hear_hello(std::uint32_t serial) {
    const auto found = std::ranges::find(half_open_, serial, &HalfOpen::serial);
    if (found == half_open_.end()) return;
    Received received = receive_packet(found->socket);
    if (received.what == Received::What::nothing) return;
    poller_.remove(found->socket);
    os::Descriptor socket = std::move(found->socket);
    half_open_.erase(found);
    if (received.what == Received::What::end) return;  // a peer that looked whether this endpoint exists
    if (received.what == Received::What::nonsense) {
        log("refused a connection: not an Incast connection");
        return;
    }
    const Verdict verdict = judge(received.packet);
    if (verdict != Verdict::accepted) return refuse(socket, received.packet, verdict);
    if (received.packet.kind == Packet::Kind::knock) return hear_knock(std::move(received), std::move(socket));
    park(std::move(received), std::move(socket));
}

void Endpoint::handle_deadlines(Time now) {
    if (now < next_deadline_) return;  // an endpoint of thousands of possible peers looks around after every sleep
    Time next = time_never;
    std::erase_if(half_open_, [&](const HalfOpen& each) {
        if (now < each.deadline) {
            next = std::min(next, each.deadline);
            return false;
        }
        log("refused a connection: no hello in time");
        return true;
    });
    for (std::uint32_t number = 0; number < peers_.size(); ++number) {
        PeerState& state = peers_[number];
        if (state.deadline == time_unset) state.deadline = now + settings_.connect_timeout;
        if (state.dial_at == time_unset) state.dial_at = now + dial_retry;
        if (now >= state.deadline) {
            fail(Peer{number},
                 state.state == PeerState::State::waiting ? "it did not call in time" : "no answer in time");
        } else if (now >= state.dial_at) {
            start_dialling(Peer{number});
            if (state.dial_at == time_unset) state.dial_at = now + dial_retry;
        }
        next = std::min({next, state.deadline, state.dial_at});
        if (state.state == PeerState::State::up && !state.to_tell.empty()) {
            hand_over(Peer{number});
            next = std::min(next, now + dial_retry);
        }
    }
    next_deadline_ = next;
}

}  // namespace incast::transport::shm

// The connections of a tcp endpoint: dialling, being dialled, letting in, losing.
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>
#include <string>
#include <utility>

#include "transport/tcp/endpoint.h"
#include "transport/tcp/tcp.h"

namespace incast::transport::tcp {

Post Endpoint::connect(Peer peer, const Blob& blob, std::uint32_t incarnation) {
    const std::optional<EndpointAddress> address = SocketAddress::from_blob(blob);
    if (!is_node(peer) || peer == options_.self || !address || address->node != index(peer)) return Post::refused;
    PeerState& state = peers_[index(peer)];
    if (const auto answer =
            answer_to_connect(state.connection(), state.incarnation, incarnation, [&] { disconnect(peer); })) {
        return *answer;
    }
    state.incarnation = incarnation;
    state.address = address->socket;
    state.deadline = deadline_unset;
    ++untimed_;
    if (self() < index(peer)) {
        start_dialling(peer);
    } else {
        state.state = PeerState::State::waiting;
        match(peer);
    }
    return Post::pending;
}

void Endpoint::disconnect(Peer peer) {
    if (index(peer) >= peers_.size()) return;
    const PeerState::State state = peers_[index(peer)].state;
    if (state != PeerState::State::idle && state != PeerState::State::down) lose(peer, Status::cancelled);
}

void Endpoint::ended(Peer peer, std::uint32_t incarnation) {
    if (index(peer) >= peers_.size()) return;
    const PeerState& state = peers_[index(peer)];
    const bool known = state.state != PeerState::State::idle && state.state != PeerState::State::down;
    if (known && state.incarnation == incarnation) lose(peer, Status::peer_lost);
}

bool Endpoint::drained() const {
    return std::ranges::all_of(
        peers_, [](const PeerState& state) { return state.state != PeerState::State::up || state.link->drained(); });
}

Result<Peer> Endpoint::dial(const Blob& blob, Bytes greeting) {
    const std::optional<EndpointAddress> address = SocketAddress::from_blob(blob);
    if (!address) return Error{"dial: not an address of the tcp transport"};
    if (greeting.size() > max_greeting_bytes) return no_greeting(greeting.size());
    const Peer peer = free_number();
    if (peer == any_peer) return no_number_left(options_.max_dialled);
    PeerState& state = peers_[index(peer)];
    state.node = address->node;
    state.incarnation = address->incarnation;
    state.complained_of = 0;
    state.address = address->socket;
    state.greeting.assign(greeting.begin(), greeting.end());
    state.deadline = deadline_unset;
    ++untimed_;
    start_dialling(peer);
    return peer;
}

Post Endpoint::accept(Peer peer) {
    if (is_node(peer) || !exists(peer)) return Post::refused;
    const PeerState& state = peers_[index(peer)];
    if (state.state == PeerState::State::down) return Post::pending;  // it is gone, which is still to be polled
    if (state.state != PeerState::State::knocking || !state.announced) return Post::refused;
    let_in(peer);
    return Post::pending;
}

Peer Endpoint::free_number() const {
    for (std::uint32_t peer = options_.max_peers; peer < peers_.size(); ++peer)
        if (peers_[peer].state == PeerState::State::idle) return Peer{peer};
    return any_peer;
}

void Endpoint::log_lost(Peer peer, std::string_view why) const {
    acceptor_.log(std::string(transport_name) + ": connection to node " + std::to_string(index(peer)) + " at " +
                  peers_[index(peer)].address.to_string() + " lost: " + std::string(why));
}

// --- connecting
// -----------------------------------------------------------------------------------------------------------
std::uint64_t Endpoint::stream_id(Peer peer, std::size_t stream) const {
    return stream_kind | (peers_[index(peer)].serial & serial_mask) << serial_shift |
           (std::uint64_t{index(peer)} * settings_.streams + stream);
}

bool Endpoint::watch(Peer peer, std::size_t stream, const os::Descriptor& socket) {
    return poller_.add(socket, EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET, stream_id(peer, stream));
}

void Endpoint::start_dialling(Peer peer) {
    PeerState& state = peers_[index(peer)];
    state.state = PeerState::State::dialling;
    state.serial = ++serials_;
    state.dials.clear();
    state.dials.resize(is_node(peer) ? settings_.streams : 1);
    for (std::size_t stream = 0; stream < state.dials.size(); ++stream) {
        auto socket = tcp::dial(state.address, settings_.socket);
        if (!socket || !watch(peer, stream, *socket)) {
            fail_dial(peer, socket ? "it cannot be watched" : socket.error().message);
            return;
        }
        state.dials[stream].socket = std::move(*socket);
    }
}

void Endpoint::fail_dial(Peer peer, std::string_view why) {
    PeerState& state = peers_[index(peer)];
    // One line per incarnation, however often its connecting is tried again.
    if (std::exchange(state.complained_of, state.incarnation) != state.incarnation)
        acceptor_.log(std::string(transport_name) + ": cannot connect to node " + std::to_string(index(peer)) + " at " +
                      peers_[index(peer)].address.to_string() + ": " + std::string(why));
    lose(peer, Status::peer_lost);
}

void Endpoint::advance_dial(Peer peer, std::size_t stream) {
    PeerState& state = peers_[index(peer)];
    Dial& dialled = state.dials[stream];
    if (const int error = connect_error(dialled.socket); error != 0) return fail_dial(peer, errno_text(error));
    if (!dialled.said_hello) {
        const Hello hello{.versions = settings_.versions.packed(),
                          .stream = static_cast<std::uint16_t>(stream),
                          .streams = static_cast<std::uint16_t>(state.dials.size()),
                          .knocks = is_node(peer) ? std::uint16_t{0} : std::uint16_t{1},
                          .run = options_.run,
                          .token = options_.token,
                          .group = static_cast<std::uint32_t>(state.serial),
                          .program = base::program_number(),
                          .from = self(),
                          .from_incarnation = options_.incarnation,
                          .to = state.node,
                          .to_incarnation = state.incarnation,
                          .max_posted = options_.max_posted,
                          .greeting_bytes = static_cast<std::uint32_t>(state.greeting.size())};
        const Bytes bytes = std::as_bytes(std::span(&hello, 1));
        std::vector<std::byte> said(bytes.begin(), bytes.end());
        said.insert(said.end(), state.greeting.begin(), state.greeting.end());
        // Not connected yet if this fails without an error on the socket: a later event decides.
        dialled.said_hello = send_small(dialled.socket, said);
    }
    if (dialled.accepted) return;
    const ssize_t count = ::recv(dialled.socket.fd(), dialled.answer.data() + dialled.received,
                                 dialled.answer.size() - dialled.received, MSG_DONTWAIT);
    if (count < 0 && (errno == EAGAIN || errno == EINTR || errno == ENOTCONN)) return;
    // The other side gave up, or went away, before both had called connect: as quiet as any peer_down.
    if (count <= 0) return lose(peer, Status::peer_lost);
    dialled.received += static_cast<std::size_t>(count);
    if (dialled.received < dialled.answer.size()) return;
    Answer answer;
    std::memcpy(&answer, dialled.answer.data(), sizeof answer);
    if (!makes_sense(answer, settings_.versions)) return fail_dial(peer, "what answers there is not an Incast node");
    if (answer.verdict != Verdict::accepted) return fail_dial(peer, "refused: " + reason(answer, settings_.versions));
    dialled.accepted = true;
    if (!std::ranges::all_of(state.dials, &Dial::accepted)) return;
    std::vector<os::Descriptor> sockets;
    sockets.reserve(state.dials.size());
    for (Dial& each : state.dials)
        sockets.push_back(std::move(each.socket));
    state.dials.clear();
    go_up(peer, std::move(sockets), answer.value);
}

void Endpoint::park(Admitted admitted) {
    const Hello& hello = admitted.hello;
    if (hello.knocks != 0) return hear_knock(std::move(admitted));
    const Peer peer{hello.from};
    PeerState& state = peers_[hello.from];
    const bool connected = state.state == PeerState::State::up || state.state == PeerState::State::waiting;
    if (hello.from > self()) return acceptor_.refuse(std::move(admitted.socket), Verdict::malformed);
    if ((connected && hello.from_incarnation < state.incarnation) || is_older(hello, state.parked)) {
        return acceptor_.refuse(std::move(admitted.socket), Verdict::stale_incarnation);
    }
    // A node dials only when it has no connection left, so a connection that still looks alive here is dead.
    if (state.state == PeerState::State::up) lose(peer, Status::peer_lost);
    if (state.state == PeerState::State::waiting && hello.from_incarnation > state.incarnation)
        lose(peer, Status::peer_lost);
    Parked& parked = state.parked;
    if (parked.incarnation != hello.from_incarnation || parked.group != hello.group || parked.sockets.empty()) {
        parked = parked_of(hello);
        parked.sockets.resize(settings_.streams);
    }
    os::Descriptor& place = parked.sockets[hello.stream];
    if (place.is_open()) return acceptor_.refuse(std::move(admitted.socket), Verdict::malformed);
    place = std::move(admitted.socket);
    match(peer);
}

Parked Endpoint::parked_of(const Hello& hello) const {
    return {.incarnation = hello.from_incarnation,
            .max_posted = hello.max_posted,
            .group = hello.group,
            .answer = answer_of(hello, Verdict::accepted, settings_.versions, options_.max_posted),
            .sockets = {}};
}

bool Endpoint::is_older(const Hello& hello, const Parked& parked) {
    if (parked.sockets.empty()) return false;
    return hello.from_incarnation < parked.incarnation ||
           (hello.from_incarnation == parked.incarnation && hello.group < parked.group);
}

void Endpoint::match(Peer peer) {
    PeerState& state = peers_[index(peer)];
    Parked& parked = state.parked;
    if (state.state != PeerState::State::waiting || !parked.complete()) return;
    if (parked.incarnation > state.incarnation) return lose(peer, Status::peer_lost);
    if (parked.incarnation < state.incarnation) {
        for (os::Descriptor& socket : parked.sockets)
            acceptor_.refuse(std::move(socket), Verdict::stale_incarnation);
        parked.sockets.clear();
        return;
    }
    state.serial = ++serials_;
    for (std::size_t stream = 0; stream < parked.sockets.size(); ++stream)
        if (!watch(peer, stream, parked.sockets[stream])) return fail_dial(peer, "it cannot be watched");
    let_in(peer);
}

void Endpoint::hear_knock(Admitted admitted) {
    const Peer peer = free_number();
    if (peer == any_peer) return acceptor_.refuse(std::move(admitted.socket), Verdict::no_room);
    PeerState& state = peers_[index(peer)];
    state.serial = ++serials_;
    if (!watch(peer, 0, admitted.socket)) return;
    state.node = admitted.hello.from;
    state.incarnation = admitted.hello.from_incarnation;
    state.address = SocketAddress::of_peer(admitted.socket);
    state.greeting = std::move(admitted.greeting);
    state.parked = parked_of(admitted.hello);
    state.parked.sockets.push_back(std::move(admitted.socket));
    state.announced = false;
    state.state = PeerState::State::knocking;
    raised_.push_back(peer);
}

void Endpoint::let_in(Peer peer) {
    Parked& parked = peers_[index(peer)].parked;
    std::vector<os::Descriptor> sockets = std::exchange(parked.sockets, {});
    for (const os::Descriptor& socket : sockets) {
        if (!send_small(socket, std::as_bytes(std::span(&parked.answer, 1))))
            return fail_dial(peer, "the connection was lost at once");
    }
    go_up(peer, std::move(sockets), parked.max_posted);
}

void Endpoint::go_up(Peer peer, std::vector<os::Descriptor> sockets, std::uint32_t peer_max_posted) {
    PeerState& state = peers_[index(peer)];
    stop_timing(state);
    const auto streams = static_cast<std::uint32_t>(sockets.size());
    state.link = std::make_unique<Link>(std::move(sockets),
                                        framed::SessionOptions{.self = options_.self,
                                                               .peer = peer,
                                                               .self_incarnation = options_.incarnation,
                                                               .peer_incarnation = state.incarnation,
                                                               .streams = streams,
                                                               .max_posted = options_.max_posted,
                                                               .max_peer_reads = peer_max_posted,
                                                               .staging_bytes = settings_.staging_bytes,
                                                               .copied_bytes = settings_.send_buffer_bytes,
                                                               .copy_below_bytes = settings_.copy_below_bytes},
                                        regions_);
    state.state = PeerState::State::up;
    state.announced = false;
    raised_.push_back(peer);
    activate(peer);
}

void Endpoint::lose(Peer peer, Status status) {
    PeerState& state = peers_[index(peer)];
    stop_timing(state);
    state.dials.clear();
    std::erase(raised_, peer);
    if (!is_node(peer)) {
        state.parked.sockets.clear();
        if (state.state == PeerState::State::knocking && !state.announced) {  // and nobody was told of it
            state.state = PeerState::State::idle;
            return;
        }
    }
    if (state.link != nullptr) state.link->close();
    state.state = PeerState::State::down;
    state.lost_as = status;
    down_.push_back(peer);
}

void Endpoint::announce(framed::EventWriter& events) {
    std::size_t told = 0;
    for (; told < raised_.size() && events.room() > 0; ++told) {
        PeerState& state = peers_[index(raised_[told])];
        state.announced = true;
        Event event = control_event(Event::Kind::peer_up, raised_[told]);
        if (state.state == PeerState::State::knocking) {
            event.kind = Event::Kind::knock;
            event.size_or_value = static_cast<std::uint16_t>(state.greeting.size());
            event.data = state.greeting.data();
        }
        events.push(event);
    }
    raised_.erase(raised_.begin(), raised_.begin() + static_cast<std::ptrdiff_t>(told));
}

void Endpoint::finish_losses(framed::EventWriter& events) {
    std::erase_if(down_, [&](Peer peer) {
        PeerState& state = peers_[index(peer)];
        if (state.link != nullptr && !state.link->session().abandon(state.lost_as, events)) return false;
        if (events.room() == 0) return false;
        events.push(control_event(Event::Kind::peer_down, peer));
        if (state.link != nullptr) copied_for_lost_ += state.link->copied_bytes();
        // Messages of this poll may lie in its memory, and are valid until the next.
        lost_links_.push_back(std::move(state.link));
        state.state = PeerState::State::idle;
        if (!is_node(peer)) {  // whoever gets its number is not taken for it
            imports_.forget(peer);
            regions_.forget(peer);
        }
        return true;
    });
}

// --- progress
// -------------------------------------------------------------------------------------------------------------
void Endpoint::handle_readiness(Time now) {
    const std::size_t count = poller_.ready(epoll_events_);
    for (const epoll_event& event : std::span(epoll_events_).first(count)) {
        const std::uint64_t id = event.data.u64;
        const std::uint64_t kind = id >> kind_shift << kind_shift;
        const auto number = static_cast<std::uint32_t>(id);
        if (kind == listener_kind) {
            acceptor_.accept_all(now);
            next_deadline_ = std::min(next_deadline_, acceptor_.next_deadline());
        } else if (kind == half_open_kind) {
            if (auto admitted = acceptor_.advance(number)) park(std::move(*admitted));
        } else {
            const Peer peer{number / settings_.streams};
            PeerState& state = peers_[index(peer)];
            if ((id >> serial_shift & serial_mask) != (state.serial & serial_mask)) continue;
            const std::size_t stream = number % settings_.streams;
            if (state.state == PeerState::State::dialling) {
                advance_dial(peer, stream);
            } else if (state.state == PeerState::State::knocking) {
                if ((event.events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR)) != 0) lose(peer, Status::peer_lost);
            } else if (state.state == PeerState::State::up) {
                state.link->note(stream, event.events);
                activate(peer);
            }
        }
    }
}

void Endpoint::stop_timing(PeerState& state) {
    if (state.deadline == deadline_unset) --untimed_;
    state.deadline = time_never;
}

void Endpoint::handle_deadlines(Time now) {
    acceptor_.expire(now);
    next_deadline_ = acceptor_.next_deadline();
    for (std::uint32_t i = 0; i < peers_.size(); ++i) {
        PeerState& state = peers_[i];
        if (state.deadline == deadline_unset) {
            state.deadline = now + settings_.connect_timeout;
            --untimed_;
        } else if (now >= state.deadline) {
            fail_dial(Peer{i},
                      state.state == PeerState::State::waiting ? "it did not call in time" : "no answer in time");
        }
        next_deadline_ = std::min(next_deadline_, state.deadline);
    }
}

}  // namespace incast::transport::tcp

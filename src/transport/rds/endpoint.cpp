#include "transport/rds/endpoint.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <system_error>
#include <utility>

#include <sys/random.h>

#include "transport/blob.h"
#include "transport/rds/rds.h"

namespace incast::transport::rds {

namespace {

constexpr Time deadline_unset = -1;          // the next poll, which knows the time, sets it
constexpr Time first_wait = 50 * ps_per_ms;  // for an answer to a hello; then twice as long
constexpr Time longest_wait = 800 * ps_per_ms;
constexpr int calls_per_poll = 64;
constexpr std::uint64_t calls_id = ~std::uint64_t{0};  // of epoll events; others have their peer's number
constexpr std::uint32_t least_message_bytes = 2048;    // below that no kernel's send buffer is

std::uint64_t random_number() {
    std::uint64_t number = 0;
    while (::getrandom(&number, sizeof number, 0) != sizeof number) {
    }
    return number;
}

sockaddr_in& v4(SocketAddress& address) {
    return reinterpret_cast<sockaddr_in&>(address.storage);
}
sockaddr_in6& v6(SocketAddress& address) {
    return reinterpret_cast<sockaddr_in6&>(address.storage);
}

std::optional<SocketAddress> read_address(const Blob& blob, Peer peer) {
    Address wire;
    if (!from_blob(blob, wire) || wire.node != static_cast<std::uint32_t>(peer) || wire.port == 0) return std::nullopt;
    SocketAddress made;
    if (wire.family == 4) {
        made.storage.ss_family = AF_INET;
        std::memcpy(&v4(made).sin_addr, wire.ip.data(), sizeof(in_addr));
    } else if (wire.family == 6) {
        made.storage.ss_family = AF_INET6;
        std::memcpy(&v6(made).sin6_addr, wire.ip.data(), sizeof(in6_addr));
    } else {
        return std::nullopt;
    }
    made.set_port(wire.port);
    return made;
}

}  // namespace

Result<std::unique_ptr<Transport>> Endpoint::make(const EndpointSettings& settings, const EndpointOptions& options) {
    const Result<Ok> fits = framed::check_options(transport_name, options, max_posted_limit);
    if (!fits) return fits.error();
    os::Poller poller;
    if (poller.fd() < 0)
        return Error{std::string(transport_name) + ": epoll: " + std::generic_category().message(errno)};
    SocketAddress address = settings.bind[index(options.self) % settings.bind.size()];
    Result<os::Descriptor> socket = open_at(address, settings.socket);
    if (!socket) return Error{std::string(transport_name) + ": " + socket.error().message};
    if (!poller.add(*socket, EPOLLIN, calls_id))
        return Error{std::string(transport_name) + ": a socket cannot be watched"};
    return std::unique_ptr<Transport>(
        std::make_unique<Endpoint>(settings, options, std::move(poller), address, std::move(*socket)));
}

Endpoint::Endpoint(const EndpointSettings& settings, const EndpointOptions& options, os::Poller poller,
                   const SocketAddress& address, os::Descriptor socket)
    : framed::Endpoint(transport_name, options),
      settings_(settings),
      poller_(std::move(poller)),
      address_(address),
      socket_(std::move(socket)),
      strangers_(options.log),
      epoll_events_(256),
      peers_(options.max_peers) {
    capabilities_.nature = nature;
    capabilities_.max_dialled = 0;
    settings_.message_bytes = std::min(settings_.message_bytes, largest_message(socket_));
    active_.reserve(peers_.size());
    working_.reserve(peers_.size());
    down_.reserve(peers_.size());
    raised_.reserve(peers_.size());
}

Endpoint::~Endpoint() {
    // What was posted before goes out as far as the kernel takes it at once; whoever is connected hears the end.
    for (std::uint32_t at = 0; at < peers_.size(); ++at) {
        std::array<Event, 64> nowhere;
        framed::EventWriter events(nowhere);
        if (is_up(Peer{at})) (void)peers_[at].link->work(last_now_, events, ++poll_number_);
        disconnect(Peer{at});
    }
}

Blob Endpoint::address() const {
    Address wire{.node = self(), .port = address_.port()};
    SocketAddress at = address_;
    wire.family = at.storage.ss_family == AF_INET ? 4 : 6;
    if (wire.family == 4) {
        std::memcpy(wire.ip.data(), &v4(at).sin_addr, sizeof(in_addr));
    } else {
        std::memcpy(wire.ip.data(), &v6(at).sin6_addr, sizeof(in6_addr));
    }
    return to_blob(wire);
}

// --- progress
// -----------------------------------------------------------------------------------------------------------------

std::size_t Endpoint::poll(Time now, std::span<Event> span) {
    framed::EventWriter events(span);
    ++poll_number_;
    last_now_ = now;
    lost_links_.clear();
    if (regions_.has_retired()) [[unlikely]]
        free_retired();
    handle_readiness(now);
    if (now >= next_deadline_ || untimed_ > 0) handle_deadlines(now);
    announce(events);
    work(now, events);
    finish_losses(events);
    return events.count();
}

void Endpoint::work(Time now, framed::EventWriter& events) {
    // Swapped, so that peers that stay busy can list themselves again; the first goes last next time.
    working_.swap(active_);
    for (const Peer peer : working_) {
        PeerState& state = peers_[index(peer)];
        state.listed = false;
        if (state.state != PeerState::State::up) continue;
        if (!state.announced || events.room() == 0) {
            activate(peer);
            continue;
        }
        if (!state.link->work(now, events, poll_number_)) {
            if (!state.link->why_lost().empty()) {
                log(std::string(transport_name) + ": connection to node " + std::to_string(index(peer)) + " at " +
                    state.address.to_string() + " lost: " + state.link->why_lost());
            }
            lose(peer, Status::peer_lost);
            continue;
        }
        if (state.link->busy()) activate(peer);
        next_deadline_ = std::min(next_deadline_, state.link->next_deadline());
    }
    working_.clear();
    if (active_.size() > 1) std::ranges::rotate(active_, active_.begin() + 1);
}

void Endpoint::handle_readiness(Time now) {
    const std::size_t count = poller_.ready(epoll_events_);
    for (const epoll_event& event : std::span(epoll_events_).first(count)) {
        if (event.data.u64 == calls_id) {
            hear_calls(now);
            continue;
        }
        // One of a connection that just ended does no harm to the next one.
        PeerState& state = peers_[event.data.u64];
        if (state.link == nullptr) continue;
        state.link->note(event.events);
        activate(Peer{static_cast<std::uint32_t>(event.data.u64)});
    }
}

bool Endpoint::prepare_wait() {
    // The epoll descriptor is readable as long as an event is pending, so what happens from here on ends the sleep.
    return active_.empty() && down_.empty() && raised_.empty() && untimed_ == 0;
}

std::uint64_t Endpoint::copied_bytes() const {
    std::uint64_t bytes = copied_for_lost_;
    for (const PeerState& state : peers_)
        if (state.link != nullptr) bytes += state.link->copied_bytes();
    return bytes;
}

bool Endpoint::uses(Bytes memory) const {
    return std::ranges::any_of(peers_, [&](const PeerState& state) {
        return state.state == PeerState::State::up && state.link->session().uses(memory);
    });
}

bool Endpoint::drained() const {
    return std::ranges::all_of(
        peers_, [](const PeerState& state) { return state.state != PeerState::State::up || state.link->drained(); });
}

// --- connecting
// -----------------------------------------------------------------------------------------------------------------

Post Endpoint::connect(Peer peer, const Blob& blob, std::uint32_t incarnation) {
    const std::optional<SocketAddress> address = read_address(blob, peer);
    if (!is_node(peer) || peer == options_.self || !address ||
        address->storage.ss_family != address_.storage.ss_family) {
        return Post::refused;
    }
    PeerState& state = peers_[index(peer)];
    if (const auto answer =
            answer_to_connect(state.connection(), state.incarnation, incarnation, [&] { disconnect(peer); })) {
        return *answer;
    }
    state.incarnation = incarnation;
    state.address = *address;
    state.deadline = deadline_unset;
    ++untimed_;
    // One socket for each peer: its buffers are this peer's alone, and so are the kernel's words that they are full.
    SocketAddress own = address_;
    Result<os::Descriptor> socket = open_at(own, settings_.socket);
    if (!socket) {
        fail(peer, socket.error().message);
        return Post::pending;
    }
    const bool calls = self() < index(peer);
    state.state = calls ? PeerState::State::calling : PeerState::State::waiting;
    state.socket = std::move(*socket);
    state.own = {.who = {.run = options_.run,
                         .token = options_.token,
                         .from = self(),
                         .from_incarnation = options_.incarnation,
                         .to = index(peer),
                         .to_incarnation = incarnation},
                 .kind = calls ? CallKind::hello : CallKind::accept,
                 .token = random_number(),
                 .dial = calls ? ++dials_ : 0,
                 .port = own.port(),
                 .max_posted = options_.max_posted,
                 .message_bytes = settings_.message_bytes};
    if (!calls) match(peer);
    return Post::pending;
}

void Endpoint::say(const SocketAddress& to, const Call& call) {
    SocketAddress at = to;
    // What does not go out is said again, or not waited for.
    (void)::sendto(socket_.fd(), &call, sizeof call, MSG_DONTWAIT, at.get(), at.size());
}

void Endpoint::say_hello(Peer peer, Time now) {
    PeerState& state = peers_[index(peer)];
    say(state.address, state.own);
    state.repeat = now + state.wait;
    state.wait = std::min(2 * state.wait, longest_wait);
}

void Endpoint::hear_calls(Time now) {
    for (int left = calls_per_poll; left > 0; --left) {
        std::array<std::byte, sizeof(Call) + 1> bytes;
        SocketAddress from;
        socklen_t size = sizeof from.storage;
        const ssize_t count = ::recvfrom(socket_.fd(), bytes.data(), bytes.size(), MSG_DONTWAIT, from.get(), &size);
        if (count < 0) return;
        if (count == 0) continue;  // a receiver is congested no more
        Call call;
        if (count == sizeof call) std::memcpy(&call, bytes.data(), sizeof call);
        if (count != sizeof call || call.who.magic != decltype(call.who)::expected_magic) {
            strangers_.add(now, std::string(transport_name) + ": refused a message from " + from.to_string() +
                                    ": not of an Incast node");
            continue;
        }
        hear(call, from);
    }
}

void Endpoint::hear(const Call& call, const SocketAddress& from) {
    const bool is_answer = call.kind == CallKind::accept || call.kind == CallKind::refuse;
    if (!is_answer) {
        if (call.kind != CallKind::hello && call.kind != CallKind::give_up) return;
        decltype(call.who) who;
        const Verdict verdict = judge(
            std::as_bytes(std::span(&call.who, 1)),
            {.run = options_.run, .token = options_.token, .self = self(), .self_incarnation = options_.incarnation},
            who);
        return hear_hello(call, from, verdict);
    }
    if (call.who.from >= peers_.size()) return;
    const Peer peer{call.who.from};
    PeerState& state = peers_[call.who.from];
    if (state.state != PeerState::State::calling || state.own.dial != call.dial || call.who.to != self()) return;
    if (call.kind == CallKind::refuse) return fail(peer, std::string("refused: ") + to_string(call.verdict));
    if (call.who.run != options_.run || call.who.token != options_.token ||
        call.who.from_incarnation != state.incarnation)
        return;
    if (call.max_posted == 0 || call.max_posted > max_posted_limit || call.message_bytes < least_message_bytes)
        return fail(peer, "its answer makes no sense");
    go_up(peer, call, from);
}

void Endpoint::refuse(const Call& call, const SocketAddress& to, Verdict verdict) {
    strangers_.add(last_now_, std::string(transport_name) + ": refused connection from " + to.to_string() + ": " +
                                  to_string(verdict));
    say(to, {.who = {.from = self(), .to = call.who.from},
             .kind = CallKind::refuse,
             .verdict = verdict,
             .dial = call.dial});
}

void Endpoint::hear_hello(const Call& call, const SocketAddress& from, Verdict verdict) {
    if (verdict == Verdict::accepted && (call.max_posted == 0 || call.max_posted > max_posted_limit ||
                                         call.message_bytes < least_message_bytes || call.dial == 0))
        verdict = Verdict::malformed;
    if (call.kind == CallKind::hello && verdict != Verdict::accepted) return refuse(call, from, verdict);
    if (verdict != Verdict::accepted) return;
    const Peer peer{call.who.from};
    PeerState& state = peers_[call.who.from];
    const std::uint32_t life = call.who.from_incarnation;
    const bool is_known = life == state.let_in_incarnation && call.dial <= state.let_in_dial;
    const bool is_let_in = is_known && call.dial == state.let_in_dial && state.state == PeerState::State::up;
    if (call.kind == CallKind::give_up) {
        if (state.parked && state.parked->call.token == call.token) state.parked.reset();
        if (is_let_in) lose(peer, Status::peer_lost);  // which it did not hear in time
        return;
    }
    if (is_let_in) return say(from, state.own);
    if (is_known) return;  // it was let in, and that is over
    const bool is_connected = state.state == PeerState::State::up || state.state == PeerState::State::waiting;
    if ((is_connected && life < state.incarnation) || life < state.let_in_incarnation ||
        (state.parked && life < state.parked->call.who.from_incarnation))
        return refuse(call, from, Verdict::stale_incarnation);
    // A node calls only when it has no connection left, so one that still looks alive here is dead.
    if (state.state == PeerState::State::up) lose(peer, Status::peer_lost);
    state.parked = {call, from};
    if (state.state == PeerState::State::waiting) match(peer);
}

void Endpoint::match(Peer peer) {
    PeerState& state = peers_[index(peer)];
    if (!state.parked) return;
    if (state.parked->call.who.from_incarnation > state.incarnation) return lose(peer, Status::peer_lost);
    const PeerState::Parked hello = *state.parked;
    state.parked.reset();
    if (hello.call.who.from_incarnation < state.incarnation)
        return refuse(hello.call, hello.from, Verdict::stale_incarnation);
    state.let_in_incarnation = state.incarnation;
    state.let_in_dial = state.own.dial = hello.call.dial;
    say(hello.from, state.own);
    go_up(peer, hello.call, hello.from);
}

void Endpoint::go_up(Peer peer, const Call& theirs, const SocketAddress& from) {
    PeerState& state = peers_[index(peer)];
    SocketAddress at = from;
    at.set_port(static_cast<std::uint16_t>(theirs.port));
    if (::connect(state.socket.fd(), at.get(), at.size()) != 0)
        return fail(peer, std::generic_category().message(errno));
    if (!poller_.add(state.socket, EPOLLIN | EPOLLOUT | EPOLLET, index(peer)))
        return fail(peer, "a socket cannot be watched");
    stop_timing(state);
    state.address = from;
    state.link =
        std::make_unique<Link>(std::move(state.socket),
                               LinkOptions{.token = state.own.token,
                                           .peer_token = theirs.token,
                                           .message_bytes = settings_.message_bytes,
                                           .peer_bytes = std::min(settings_.message_bytes, theirs.message_bytes),
                                           .deadline = settings_.deadline},
                               framed::SessionOptions{.self = options_.self,
                                                      .peer = peer,
                                                      .self_incarnation = options_.incarnation,
                                                      .peer_incarnation = state.incarnation,
                                                      .streams = 1,
                                                      .max_posted = options_.max_posted,
                                                      .max_peer_reads = theirs.max_posted,
                                                      .staging_bytes = settings_.staging_bytes,
                                                      .copied_bytes = settings_.send_buffer_bytes,
                                                      .copy_below_bytes = settings_.copy_below_bytes},
                               regions_);
    if (self() == 0) tell_carrier(from);
    state.state = PeerState::State::up;
    state.announced = false;
    raised_.push_back(peer);
    activate(peer);
}

void Endpoint::tell_carrier(const SocketAddress& to) {
    const std::string carrier = carrier_between(socket_, address_, to);
    if (carrier.empty() || std::ranges::find(carriers_, carrier) != carriers_.end()) return;
    carriers_.push_back(carrier);
    log(std::string(transport_name) + ": " + carrier + " carries what goes from " + address_.to_string() + " to " +
        to.to_string());
}

// --- losing
// -----------------------------------------------------------------------------------------------------------------

void Endpoint::disconnect(Peer peer) {
    if (!is_node(peer)) return;
    const Connection connection = peers_[index(peer)].connection();
    if (connection == Connection::opening || connection == Connection::up) lose(peer, Status::cancelled);
}

void Endpoint::ended(Peer peer, std::uint32_t incarnation) {
    if (!is_node(peer) || peers_[index(peer)].incarnation != incarnation) return;
    const Connection connection = peers_[index(peer)].connection();
    if (connection == Connection::opening || connection == Connection::up) lose(peer, Status::peer_lost);
}

void Endpoint::fail(Peer peer, std::string_view why) {
    PeerState& state = peers_[index(peer)];
    // One line per incarnation, however often its connecting is tried again.
    if (std::exchange(state.complained_of, state.incarnation) != state.incarnation)
        log(std::string(transport_name) + ": cannot connect to node " + std::to_string(index(peer)) + " at " +
            state.address.to_string() + ": " + std::string(why));
    lose(peer, Status::peer_lost);
}

void Endpoint::lose(Peer peer, Status status) {
    PeerState& state = peers_[index(peer)];
    stop_timing(state);
    std::erase(raised_, peer);
    if (state.state == PeerState::State::calling) {
        state.own.kind = CallKind::give_up;
        say(state.address, state.own);
    }
    state.socket.close();
    if (state.link != nullptr) state.link->close();
    state.state = PeerState::State::down;
    state.lost_as = status;
    down_.push_back(peer);
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
        return true;
    });
}

void Endpoint::announce(framed::EventWriter& events) {
    std::size_t told = 0;
    for (; told < raised_.size() && events.room() > 0; ++told) {
        peers_[index(raised_[told])].announced = true;
        events.push(control_event(Event::Kind::peer_up, raised_[told]));
    }
    raised_.erase(raised_.begin(), raised_.begin() + static_cast<std::ptrdiff_t>(told));
}

Event Endpoint::control_event(Event::Kind kind, Peer peer) const {
    return {.kind = kind,
            .status = Status::ok,
            .size_or_value = 0,
            .peer = peer,
            .incarnation = peers_[index(peer)].incarnation,
            .token = 0};
}

void Endpoint::stop_timing(PeerState& state) {
    if (state.deadline == deadline_unset) --untimed_;
    state.deadline = time_never;
}

void Endpoint::handle_deadlines(Time now) {
    next_deadline_ = time_never;
    for (std::uint32_t at = 0; at < peers_.size(); ++at) {
        const Peer peer{at};
        PeerState& state = peers_[at];
        if (state.deadline == deadline_unset) {
            state.deadline = now + settings_.connect_timeout;
            state.repeat = now;
            state.wait = first_wait;
            --untimed_;
        }
        if (state.state == PeerState::State::up) {
            if (now >= state.link->next_deadline()) {
                activate(peer);  // its work looks what is due
            } else {
                next_deadline_ = std::min(next_deadline_, state.link->next_deadline());
            }
            continue;
        }
        if (now >= state.deadline) {
            fail(peer, state.state == PeerState::State::waiting ? "it did not call in time" : "no answer in time");
        } else if (state.state == PeerState::State::calling) {
            if (now >= state.repeat) say_hello(peer, now);
            next_deadline_ = std::min(next_deadline_, state.repeat);
        }
        next_deadline_ = std::min(next_deadline_, state.deadline);
    }
}

}  // namespace incast::transport::rds

#include "transport/udp/endpoint.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <string>
#include <system_error>
#include <utility>

#include <netinet/in.h>
#include <sys/random.h>

#include "transport/udp/udp.h"

namespace incast::transport::udp {

namespace {

constexpr int batches_per_poll = 4;  // of what is received: a peer's window, and then its acknowledgement
constexpr int send_timeout_us = 2000;

std::uint64_t random_number() {
    std::uint64_t number = 0;
    while (::getrandom(&number, sizeof number, 0) != sizeof number) {
    }
    return number;
}

std::int64_t ns(Time now) {
    return now / ps_per_ns;
}

Time time_of(std::int64_t at_ns) {
    return at_ns >= time_never / ps_per_ns ? time_never : at_ns * ps_per_ns;
}

template <class T>
void set_option(int fd, int level, int option, T value) {
    // Failure costs speed, never correctness, and depends on the rights of the process: not an error.
    (void)::setsockopt(fd, level, option, &value, sizeof value);
}

std::uint32_t receive_buffer_of(int fd) {
    int bytes = 0;
    socklen_t size = sizeof bytes;
    return ::getsockopt(fd, SOL_SOCKET, SO_RCVBUF, &bytes, &size) == 0 ? static_cast<std::uint32_t>(bytes) : 0;
}

void tune(int fd, const EndpointSettings& settings) {
    // As far as anybody may, and then as far as this process may.
    for (const int option : {SO_SNDBUF, SO_RCVBUF, SO_SNDBUFFORCE, SO_RCVBUFFORCE})
        set_option(fd, SOL_SOCKET, option, settings.socket_buffer_bytes);
    // A slow link holds its senders back for a moment. After that, what does not fit counts as lost.
    set_option(fd, SOL_SOCKET, SO_SNDTIMEO, timeval{0, send_timeout_us});
    const int traffic_class = settings.dscp << 2;
    if (traffic_class == 0) return;
    if (settings.bind.is_v6) {
        set_option(fd, IPPROTO_IPV6, IPV6_TCLASS, traffic_class);
    } else {
        set_option(fd, IPPROTO_IP, IP_TOS, traffic_class);
    }
}

}  // namespace

Endpoint::Endpoint(const EndpointSettings& settings, const EndpointOptions& options, os::Descriptor socket)
    : framed::Endpoint(transport_name, options),
      settings_(settings),
      socket_(settings.faults, settings.fault_seed ^ index(options.self) << 16 ^ options.incarnation),
      address_(settings.advertise),
      peers_(std::size_t{options.max_peers} + options.max_dialled),
      cookies_({random_number(), random_number()}),
      strangers_(options.log) {
    (void)socket_.adopt(std::move(socket));
    tune(socket_.fd(), settings_);
    address_.port = socket_.local_port();
    capabilities_.nature = nature;
    capabilities_.lossy_bodies = !settings_.repairs;
    receive_buffer_bytes_ = receive_buffer_of(socket_.fd());
    for (std::uint32_t node = 0; node < options.max_peers; ++node)
        peers_[node].node = node;
    active_.reserve(peers_.size());
    working_.reserve(peers_.size());
    down_.reserve(peers_.size());
    raised_.reserve(peers_.size());
}

Endpoint::~Endpoint() {
    // What was posted before goes out as far as the windows allow; whoever is connected, or dialled, hears the end.
    std::array<Event, 64> nowhere;
    framed::EventWriter events(nowhere);
    send_waiting(last_now_, events);
    for (std::uint32_t i = 0; i < peers_.size(); ++i)
        disconnect(Peer{i});
    socket_.send();
}

std::size_t Endpoint::poll(Time now, std::span<Event> span) {
    framed::EventWriter events(span);
    ++poll_number_;
    last_now_ = now;
    lost_links_.clear();
    if (regions_.has_retired()) [[unlikely]]
        free_retired();
    announce(events);
    receive(now, events);
    // Behind what has come: whoever was stopped itself finds the answers of others and its own deadlines at once.
    if (now >= next_deadline_ || untimed_ > 0) handle_deadlines(now);
    announce(events);
    send_waiting(now, events);
    finish_losses(events);
    return events.count();
}

void Endpoint::receive(Time now, framed::EventWriter& events) {
    if (stuck_ != any_peer) unpack(std::exchange(stuck_, any_peer), events);
    bool has_more = true;
    for (int batches = 0; stuck_ == any_peer;) {
        if (const auto bytes = socket_.take()) {
            handle(now, *bytes, events);
        } else if (has_more && batches++ < batches_per_poll) {
            has_more = socket_.fetch();
        } else {
            break;
        }
    }
    // Behind what had come before: who has ended may have said something until then.
    if (has_more || stuck_ != any_peer || !(socket_.has_refused() || has_slept_)) return;
    has_slept_ = false;
    take_refused();
}

void Endpoint::handle(Time now, Bytes datagram, framed::EventWriter& events) {
    if (const auto packet = reliable::parse(datagram)) [[likely]]
        return take_packet(now, *packet, events);
    if (const auto hello = read_hello(datagram, settings_.versions))
        return take_hello(now, *hello, datagram.subspan(sizeof *hello));
    if (const auto answer = read_answer(datagram)) return take_answer(*answer);
    strangers_.add(now, std::string(transport_name) + ": refused datagram from " + to_string(socket_.from()) +
                            ": not of an Incast node");
}

void Endpoint::take_packet(Time now, const reliable::Packet& packet, framed::EventWriter& events) {
    using reliable::Kind;
    if (packet.kind == Kind::hello || packet.kind == Kind::welcome) return;  // sessions are agreed on by hellos of ours
    if (packet.kind == Kind::unknown) return take_unknown(now, packet);
    const Peer peer{reliable::Connection::index_of(packet.token)};
    if (index(peer) >= peers_.size()) return answer_unknown(packet);
    PeerState& state = peers_[index(peer)];
    if (state.state == PeerState::State::dialling && packet.token == state.hello.session)
        return;  // ahead of its answer
    if (state.state != PeerState::State::up || state.address != socket_.from()) return answer_unknown(packet);
    if (!state.announced) announce(events);
    if (!state.announced) return;  // no room for that event: it comes again
    reliable::Connection& connection = state.link->connection();
    const std::uint64_t strangers = connection.strangers();
    (void)connection.receive(ns(now), 0, packet);
    if (connection.strangers() != strangers) return answer_unknown(packet);
    activate(peer);
    if (packet.kind == Kind::data) [[likely]] {
        moved_bytes_ += packet.body.size();
        return unpack(peer, events);
    }
    look_for_loss(peer);
}

void Endpoint::answer_unknown(const reliable::Packet& packet) {
    std::array<std::byte, reliable::header_bytes> bytes;
    const std::size_t size = reliable::Connection::answer_unknown(packet, bytes);
    if (size > 0) socket_.add(socket_.from(), std::span(bytes).first(size), false);
}

void Endpoint::take_unknown(Time now, const reliable::Packet& packet) {
    for (std::uint32_t i = 0; i < peers_.size(); ++i) {
        PeerState& state = peers_[i];
        if (state.state != PeerState::State::up || state.address != socket_.from()) continue;
        (void)state.link->connection().receive(ns(now), 0, packet);
        look_for_loss(Peer{i});
    }
}

void Endpoint::unpack(Peer peer, framed::EventWriter& events) {
    PeerState& state = peers_[index(peer)];
    if (state.state != PeerState::State::up) return;
    switch (state.link->unpack(events, poll_number_)) {
        case Link::Progress::done:
            break;
        case Link::Progress::stuck:
            stuck_ = peer;
            activate(peer);
            break;
        case Link::Progress::violated:
            log_lost(peer, state.link->session().violation());
            lose(peer, Status::peer_lost);
            break;
    }
}

void Endpoint::look_for_loss(Peer peer) {
    const auto loss = peers_[index(peer)].link->connection().take_loss();
    if (!loss) return;
    if (*loss == reliable::Loss::silent) {
        const double seconds = static_cast<double>(settings_.deadline) / static_cast<double>(ps_per_s);
        log_lost(peer, "no sign of life for " + std::to_string(seconds) + " s");
    }
    lose(peer, Status::peer_lost);
}

void Endpoint::send_waiting(Time now, framed::EventWriter& events) {
    // Swapped, so that peers that stay busy can list themselves again; the first goes last next time.
    working_.swap(active_);
    for (const Peer peer : working_) {
        PeerState& state = peers_[index(peer)];
        state.listed = false;
        if (state.state != PeerState::State::up) continue;
        Link& link = *state.link;
        bool is_busy = link.session().settle(events);
        do {
            is_busy = link.pack(events) || is_busy;
            while (true) {
                const reliable::Datagram datagram = link.connection().next_datagram(ns(now));
                if (datagram.bytes.empty()) break;
                if (datagram.is_stable) moved_bytes_ += datagram.bytes.size() - reliable::header_bytes;
                socket_.add(state.address, datagram.bytes, datagram.is_stable);
            }
        } while (add_pieces(now, state, events));
        is_busy = is_busy || (link.is_body_next() && events.room() == 0);
        is_busy = link.session().settle(events) || is_busy || peer == stuck_;
        next_deadline_ = std::min(next_deadline_, time_of(link.connection().next_deadline_ns()));
        if (is_busy) activate(peer);
    }
    working_.clear();
    if (active_.size() > 1) std::ranges::rotate(active_, active_.begin() + 1);
    socket_.send();
}

bool Endpoint::add_pieces(Time now, PeerState& state, framed::EventWriter& events) {
    bool any = false;
    while (const auto piece = state.link->next_piece(ns(now), events)) {
        any = true;
        moved_bytes_ += piece->rest.size();
        socket_.add(state.address, piece->head, piece->rest);
    }
    return any && !state.link->is_body_next();
}

bool Endpoint::prepare_wait() {
    // The socket is readable as long as a datagram or a report is there, so what happens from here on ends the sleep.
    has_slept_ = true;
    return active_.empty() && down_.empty() && raised_.empty() && untimed_ == 0 && stuck_ == any_peer &&
           !socket_.has_fetched();
}

void Endpoint::handle_deadlines(Time now) {
    next_deadline_ = time_never;
    for (std::uint32_t i = 0; i < peers_.size(); ++i) {
        PeerState& state = peers_[i];
        if (state.deadline == deadline_unset) {
            state.deadline = now + settings_.connect_timeout;
            state.repeat = now;
            --untimed_;
        }
        if (state.state == PeerState::State::up) {
            reliable::Connection& connection = state.link->connection();
            if (ns(now) >= connection.next_deadline_ns()) {
                connection.advance(ns(now));
                activate(Peer{i});
                look_for_loss(Peer{i});
            }
            if (state.state == PeerState::State::up)
                next_deadline_ = std::min(next_deadline_, time_of(connection.next_deadline_ns()));
        } else if (now >= state.deadline) {
            fail_dial(Peer{i},
                      state.state == PeerState::State::waiting ? "it did not call in time" : "no answer in time");
        } else if (state.state == PeerState::State::dialling) {
            if (now >= state.repeat) say_hello(state, now);
            next_deadline_ = std::min(next_deadline_, state.repeat);
        } else if (state.state == PeerState::State::knocking) {
            if (now >= state.parked.heard + settings_.deadline) {
                lose(Peer{i}, Status::peer_lost);
            } else {
                next_deadline_ = std::min(next_deadline_, state.parked.heard + settings_.deadline);
            }
        }
        next_deadline_ = std::min(next_deadline_, state.deadline);
    }
}

bool Endpoint::drained() const {
    return std::ranges::all_of(
        peers_, [](const PeerState& state) { return state.state != PeerState::State::up || state.link->drained(); });
}

bool Endpoint::uses(Bytes memory) const {
    return std::ranges::any_of(peers_, [&](const PeerState& state) {
        return state.state == PeerState::State::up && state.link->session().uses(memory);
    });
}

std::uint64_t Endpoint::copied_bytes() const {
    std::uint64_t bytes = moved_bytes_ + copied_for_lost_;
    for (const PeerState& state : peers_) {
        if (state.link != nullptr) bytes += state.link->copied_bytes();
    }
    return bytes;
}

Datagrams Endpoint::datagrams() const {
    Datagrams sum = counted_for_lost_;
    for (const PeerState& state : peers_) {
        if (state.link != nullptr) sum += state.link->datagrams();
    }
    return sum;
}

Event Endpoint::control_event(Event::Kind kind, Peer peer) const {
    return {.kind = kind,
            .status = Status::ok,
            .size_or_value = 0,
            .peer = peer,
            .incarnation = peers_[index(peer)].incarnation,
            .token = 0};
}

Result<std::unique_ptr<Transport>> make_endpoint(const EndpointSettings& settings, const EndpointOptions& options) {
    const Result<Ok> fits = framed::check_options(transport_name, options, max_posted_limit);
    if (!fits) return fits.error();
    constexpr std::size_t most_peers = 1 << 16;  // what a session's token can name
    if (std::size_t{options.max_peers} + options.max_dialled > most_peers) {
        return Error{std::string(transport_name) + ": " + std::to_string(options.max_peers) + " peers and " +
                     std::to_string(options.max_dialled) + " that dial: at most " + std::to_string(most_peers) +
                     " in all"};
    }
    os::Descriptor socket;
    Address at = settings.bind;
    const Result<Ok> bound = bind_in(settings.ports, to_string(at), [&](std::uint16_t port) {
        at.port = port;
        return datagram::Socket::open(at, socket);
    });
    if (!bound) return Error{std::string(transport_name) + ": " + bound.error().message};
    return std::unique_ptr<Transport>(std::make_unique<Endpoint>(settings, options, std::move(socket)));
}

}  // namespace incast::transport::udp

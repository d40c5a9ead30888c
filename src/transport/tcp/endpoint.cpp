#include "transport/tcp/endpoint.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <span>
#include <string>
#include <utility>

#include "transport/tcp/tcp.h"

namespace incast::transport::tcp {

Endpoint::Endpoint(const EndpointSettings& settings, const EndpointOptions& options, os::Poller poller,
                   os::Descriptor listener)
    : framed::Endpoint(transport_name, options),
      settings_(settings),
      poller_(std::move(poller)),
      peers_(std::size_t{options.max_peers} + options.max_dialled),
      epoll_events_(256),
      address_(settings.advertise),
      acceptor_(with_port(std::move(listener)),
                {.half_open_max = settings.half_open_max,
                 .hello_timeout = settings.hello_timeout,
                 .socket = settings.socket,
                 .expected = {.run = options.run,
                              .token = options.token,
                              .self = index(options.self),
                              .self_incarnation = options.incarnation,
                              .max_peers = options.max_peers,
                              .streams = settings.streams,
                              .versions = settings.versions}},
                poller_, options.log, listener_kind, half_open_kind) {
    capabilities_.nature = nature;
    capabilities_.has_wait_fd = poller_.fd() >= 0;
    for (std::uint32_t node = 0; node < options.max_peers; ++node)
        peers_[node].node = node;
    active_.reserve(peers_.size());
    working_.reserve(peers_.size());
    down_.reserve(peers_.size());
    raised_.reserve(peers_.size());
}

Endpoint::~Endpoint() {
    // What was posted before goes out as far as the kernel takes it at once.
    for (PeerState& peer : peers_) {
        if (peer.state != PeerState::State::up) continue;
        std::array<Event, 64> nowhere;
        framed::EventWriter events(nowhere);
        (void)peer.link->work(events, ++poll_number_);
    }
}

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
        if (!state.link->work(events, poll_number_)) {
            if (!state.link->why_lost().empty()) log_lost(peer, state.link->why_lost());
            lose(peer, Status::peer_lost);
        } else if (state.link->busy()) {
            activate(peer);
        }
    }
    working_.clear();
    if (active_.size() > 1) std::ranges::rotate(active_, active_.begin() + 1);
    finish_losses(events);
    return events.count();
}

bool Endpoint::prepare_wait() {
    // The epoll descriptor is readable as long as an event is pending, so what happens from here on ends the sleep.
    return active_.empty() && down_.empty() && raised_.empty() && untimed_ == 0;
}

std::uint64_t Endpoint::copied_bytes() const {
    std::uint64_t bytes = copied_for_lost_;
    for (const PeerState& state : peers_) {
        if (state.link != nullptr) bytes += state.link->copied_bytes();
    }
    return bytes;
}

bool Endpoint::uses(Bytes memory) const {
    return std::ranges::any_of(peers_, [&](const PeerState& state) {
        return state.state == PeerState::State::up && state.link->session().uses(memory);
    });
}

os::Descriptor Endpoint::with_port(os::Descriptor listener) {
    address_.set_port(SocketAddress::of_self(listener).port());
    return listener;
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
    os::Poller poller(settings.wait);
    if (poller.fd() < 0 && settings.wait == os::Poller::Kind::epoll)
        return Error{std::string(transport_name) + ": epoll: " + errno_text(errno)};
    auto listener = listen_at(settings.bind, settings.ports, settings.socket);
    if (!listener) return Error{std::string(transport_name) + ": " + listener.error().message};
    return std::unique_ptr<Transport>(
        std::make_unique<Endpoint>(settings, options, std::move(poller), std::move(*listener)));
}

}  // namespace incast::transport::tcp

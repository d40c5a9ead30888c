#include "transport/tcp/endpoint.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <span>
#include <string>
#include <utility>

#include "transport/tcp/tcp.h"

namespace incast::transport::tcp {

namespace {

constexpr std::uint32_t max_regions = 1024;
constexpr std::uint32_t max_region_keys = 65536;  // of a peer: what a frame can name

}  // namespace

Endpoint::Endpoint(const EndpointSettings& settings, const EndpointOptions& options, os::Poller poller,
                   os::Descriptor listener)
    : settings_(settings),
      options_(options),
      poller_(std::move(poller)),
      regions_(max_regions, options.shareable),
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
                              .streams = settings.streams}},
                poller_, options.log, listener_kind, half_open_kind) {
    capabilities_ = {.nature = nature,
                     .max_peers = options.max_peers,
                     .max_dialled = options.max_dialled,
                     .max_regions = max_regions,
                     .max_posted = options.max_posted,
                     .read = true,
                     .has_wait_fd = true};
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

Result<Ok> Endpoint::release(Local region) {
    if (!regions_.release(region))
        return Error{"release: there is no region " + std::to_string(static_cast<unsigned>(region))};
    free_retired();
    return Ok{};
}

Result<Blob> Endpoint::expose(Local region, const Grant& grant) {
    if (!regions_.has(region))
        return Error{"expose: there is no region " + std::to_string(static_cast<unsigned>(region))};
    if ((grant.peer != any_peer && !exists(grant.peer)) || !regions_.expose(region, grant)) {
        return Error{"expose: " + std::to_string(grant.count) + " places of " + std::to_string(grant.length) +
                     " bytes at " + std::to_string(grant.offset) + ": not in region " +
                     std::to_string(static_cast<unsigned>(region)) + ", or for no peer"};
    }
    const framed::Key key{.owner = self(),
                          .generation = options_.incarnation,
                          .region = static_cast<std::uint32_t>(region),
                          .use = regions_.use(region),
                          .peer = grant.peer == any_peer ? index(any_peer) : peers_[index(grant.peer)].node,
                          .bytes = regions_.memory(region).size(),
                          .run = options_.run,
                          .write = grant.write ? 1U : 0U};
    return to_blob(key);
}

Result<Remote> Endpoint::import_key(Peer peer, const Blob& blob) {
    if (!exists(peer)) return Error{"import_key: there is no peer " + std::to_string(index(peer))};
    const Result<framed::Key> key = read_key<framed::Key>(blob, Peer{peers_[index(peer)].node}, options_.self,
                                                          options_.run, max_region_keys, transport_name);
    if (!key) return key.error();
    return imports_.add({peer, *key});
}

Post Endpoint::send(Peer peer, Bytes message) {
    if (!is_up(peer) || message.empty() || message.size() > max_message_bytes) return Post::refused;
    return posted(peer, peers_[index(peer)].link->session().send(message));
}

Post Endpoint::write(Peer peer, Bytes head, Slice body, Target target, Notice notice, Token token) {
    if (body.length == 0) return write_from(peer, head, {}, target, notice, token);
    const std::span<std::byte> from = regions_.memory(body.region);
    if (!Regions::inside(from.size(), body.offset, body.length)) return Post::refused;
    return write_from(peer, head, from.subspan(body.offset, body.length), target, notice, token);
}

Post Endpoint::write_from(Peer peer, Bytes head, Bytes body, Target target, Notice notice, Token token) {
    if (!is_up(peer) || head.size() > max_head_bytes || body.size() > max_write_bytes ||
        !imports_.has(target.region, peer)) {
        return Post::refused;
    }
    return posted(peer, peers_[index(peer)].link->session().write(head, body, imports_[target.region].key,
                                                                  target.offset, notice, token));
}

Post Endpoint::read(Peer peer, Target from, Slice into, Token token) {
    const std::span<std::byte> to = regions_.memory(into.region);
    if (!is_up(peer) || into.length > max_write_bytes || !Regions::inside(to.size(), into.offset, into.length) ||
        !imports_.has(from.region, peer)) {
        return Post::refused;
    }
    return posted(peer, peers_[index(peer)].link->session().read(imports_[from.region].key, from.offset,
                                                                 to.subspan(into.offset, into.length), token));
}

Bytes Endpoint::local(Slice where) const {
    const std::span<std::byte> region = regions_.memory(where.region);
    if (!Regions::inside(region.size(), where.offset, where.length)) return {};
    return region.subspan(where.offset, where.length);
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

void Endpoint::free_retired() {
    regions_.sweep([&](Bytes memory) {
        return std::ranges::any_of(peers_, [&](const PeerState& state) {
            return state.state == PeerState::State::up && state.link->session().uses(memory);
        });
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
    if (options.max_peers == 0 || options.max_posted == 0 || options.max_posted > max_posted_limit ||
        static_cast<std::uint32_t>(options.self) >= options.max_peers) {
        return Error{std::string(transport_name) + ": node " +
                     std::to_string(static_cast<std::uint32_t>(options.self)) + " with max_peers " +
                     std::to_string(options.max_peers) + ", max_posted " + std::to_string(options.max_posted) +
                     ": max_posted must be 1.." + std::to_string(max_posted_limit) +
                     " and the node's index below max_peers"};
    }
    os::Poller poller;
    if (poller.fd() < 0) return Error{std::string(transport_name) + ": epoll: " + errno_text(errno)};
    auto listener = listen_at(settings.bind, settings.socket);
    if (!listener) return Error{std::string(transport_name) + ": " + listener.error().message};
    return std::unique_ptr<Transport>(
        std::make_unique<Endpoint>(settings, options, std::move(poller), std::move(*listener)));
}

}  // namespace incast::transport::tcp

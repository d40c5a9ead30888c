#include "transport/tcp/endpoint.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <limits>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "transport/framed/event_writer.h"
#include "transport/framed/frame.h"
#include "transport/imports.h"
#include "transport/regions.h"
#include "transport/tcp/acceptor.h"
#include "transport/tcp/hello.h"
#include "transport/tcp/peer_state.h"
#include "transport/tcp/tcp.h"

namespace incast::transport::tcp {

namespace {

constexpr std::uint32_t max_regions = 1024;
constexpr std::uint32_t max_region_keys = 65536;  // of a peer: what a frame can name
constexpr Time deadline_unset = -1;               // the next poll, which knows the time, sets it

// What an epoll event is about: a kind, a serial number that tells a stale event of a closed stream, and an index.
constexpr std::uint64_t kind_shift = 60;
constexpr std::uint64_t serial_shift = 32;
constexpr std::uint64_t serial_mask = (std::uint64_t{1} << (kind_shift - serial_shift)) - 1;
constexpr std::uint64_t listener_kind = std::uint64_t{1} << kind_shift;
constexpr std::uint64_t half_open_kind = std::uint64_t{2} << kind_shift;
constexpr std::uint64_t stream_kind = std::uint64_t{3} << kind_shift;

struct Import {
    Peer peer{};
    framed::Key key;
};

class Endpoint final : public Transport {
public:
    Endpoint(const EndpointSettings& settings, const EndpointOptions& options, os::Poller poller,
             os::Descriptor listener)
        : settings_(settings),
          options_(options),
          poller_(std::move(poller)),
          regions_(max_regions, options.shareable),
          peers_(options.max_peers),
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
                         .max_regions = max_regions,
                         .max_posted = options.max_posted,
                         .read = true,
                         .has_wait_fd = true};
        active_.reserve(options.max_peers);
        working_.reserve(options.max_peers);
        down_.reserve(options.max_peers);
        raised_.reserve(options.max_peers);
    }

    ~Endpoint() override {
        // What was posted before goes out as far as the kernel takes it at once.
        for (PeerState& peer : peers_) {
            if (peer.state != PeerState::State::up) continue;
            std::array<Event, 64> nowhere;
            framed::EventWriter events(nowhere);
            (void)peer.link->work(events, ++poll_number_);
        }
    }

    [[nodiscard]] const Capabilities& capabilities() const override { return capabilities_; }
    [[nodiscard]] Blob address() const override { return address_.to_blob(self()); }

    Post connect(Peer peer, const Blob& blob, std::uint32_t incarnation) override {
        SocketAddress address;
        std::uint32_t node = 0;
        if (index(peer) >= peers_.size() || peer == options_.self || !SocketAddress::from_blob(blob, address, node) ||
            node != index(peer)) {
            return Post::refused;
        }
        PeerState& state = peers_[index(peer)];
        if (const auto answer =
                answer_to_connect(state.connection(), state.incarnation, incarnation, [&] { disconnect(peer); })) {
            return *answer;
        }
        state.incarnation = incarnation;
        state.address = address;
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

    void disconnect(Peer peer) override {
        if (index(peer) >= peers_.size()) return;
        const PeerState::State state = peers_[index(peer)].state;
        if (state != PeerState::State::idle && state != PeerState::State::down) lose(peer, Status::cancelled);
    }

    Result<Local> allocate(std::size_t bytes) override { return regions_.allocate(bytes); }
    Result<Ok> release(Local region) override {
        if (!regions_.release(region))
            return Error{"release: there is no region " + std::to_string(static_cast<unsigned>(region))};
        free_retired();
        return Ok{};
    }
    Result<Ok> release(Remote import) override { return imports_.release(import); }
    Result<int> share(Local region) override { return regions_.share(region); }
    std::span<std::byte> memory(Local region) override { return regions_.memory(region); }

    Result<Blob> expose(Local region, const Grant& grant) override {
        if (!regions_.has(region))
            return Error{"expose: there is no region " + std::to_string(static_cast<unsigned>(region))};
        if ((grant.peer != any_peer && index(grant.peer) >= peers_.size()) || !regions_.expose(region, grant)) {
            return Error{"expose: " + std::to_string(grant.count) + " places of " + std::to_string(grant.length) +
                         " bytes at " + std::to_string(grant.offset) + ": not in region " +
                         std::to_string(static_cast<unsigned>(region)) + ", or for no peer"};
        }
        const framed::Key key{.owner = self(),
                              .generation = options_.incarnation,
                              .region = static_cast<std::uint32_t>(region),
                              .use = regions_.use(region),
                              .peer = index(grant.peer),
                              .bytes = regions_.memory(region).size(),
                              .run = options_.run,
                              .write = grant.write ? 1U : 0U};
        return to_blob(key);
    }

    Result<Remote> import_key(Peer peer, const Blob& blob) override {
        const Result<framed::Key> key =
            read_key<framed::Key>(blob, peer, options_.self, options_.run, max_region_keys, transport_name);
        if (!key) return key.error();
        return imports_.add({peer, *key});
    }

    Post send(Peer peer, Bytes message) override {
        if (!is_up(peer) || message.empty() || message.size() > max_message_bytes) return Post::refused;
        return posted(peer, peers_[index(peer)].link->session().send(message));
    }

    Post write(Peer peer, Bytes head, Slice body, Target target, Notice notice, Token token) override {
        const std::span<std::byte> from = regions_.memory(body.region);
        if (!is_up(peer) || head.size() > max_head_bytes || body.length > max_write_bytes ||
            (body.length > 0 && !Regions::inside(from.size(), body.offset, body.length)) ||
            !imports_.has(target.region, peer)) {
            return Post::refused;
        }
        const Bytes bytes = body.length > 0 ? from.subspan(body.offset, body.length) : from.first(0);
        return posted(peer, peers_[index(peer)].link->session().write(head, bytes, imports_[target.region].key,
                                                                      target.offset, notice, token));
    }

    Post read(Peer peer, Target from, Slice into, Token token) override {
        const std::span<std::byte> to = regions_.memory(into.region);
        if (!is_up(peer) || into.length > max_write_bytes || !Regions::inside(to.size(), into.offset, into.length) ||
            !imports_.has(from.region, peer)) {
            return Post::refused;
        }
        return posted(peer, peers_[index(peer)].link->session().read(imports_[from.region].key, from.offset,
                                                                     to.subspan(into.offset, into.length), token));
    }

    [[nodiscard]] Bytes local(Slice where) const override {
        const std::span<std::byte> region = regions_.memory(where.region);
        if (!Regions::inside(region.size(), where.offset, where.length)) return {};
        return region.subspan(where.offset, where.length);
    }

    Bytes view(Target, std::uint32_t) override { return {}; }

    std::size_t poll(Time now, std::span<Event> span) override {
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

    [[nodiscard]] Time next_deadline() const override { return untimed_ > 0 ? last_now_ : next_deadline_; }

    bool prepare_wait() override {
        // The epoll descriptor is readable as long as an event is pending, so what happens from here on ends the sleep.
        return active_.empty() && down_.empty() && raised_.empty() && untimed_ == 0;
    }
    [[nodiscard]] int wait_fd() const override { return poller_.fd(); }

    [[nodiscard]] std::uint64_t copied_bytes() const override {
        std::uint64_t bytes = copied_for_lost_;
        for (const PeerState& state : peers_) {
            if (state.link != nullptr) bytes += state.link->copied_bytes();
        }
        return bytes;
    }

private:
    static std::uint32_t index(Peer peer) { return static_cast<std::uint32_t>(peer); }
    [[nodiscard]] std::uint32_t self() const { return index(options_.self); }
    [[nodiscard]] bool is_up(Peer peer) const {
        return index(peer) < peers_.size() && peers_[index(peer)].state == PeerState::State::up;
    }
    /// Memory of released regions that nothing is received into or sent from any more.
    void free_retired() {
        regions_.sweep([&](Bytes memory) {
            return std::ranges::any_of(peers_, [&](const PeerState& state) {
                return state.state == PeerState::State::up && state.link->session().uses(memory);
            });
        });
    }

    os::Descriptor with_port(os::Descriptor listener) {
        address_.set_port(SocketAddress::of_self(listener).port());
        return listener;
    }

    void activate(Peer peer) {
        if (peers_[index(peer)].listed) return;
        peers_[index(peer)].listed = true;
        active_.push_back(peer);
    }

    Post posted(Peer peer, Post post) {
        activate(peer);
        return post;
    }

    void log_lost(Peer peer, std::string_view why) const {
        acceptor_.log(std::string(transport_name) + ": connection to node " + std::to_string(index(peer)) + " at " +
                      peers_[index(peer)].address.to_string() + " lost: " + std::string(why));
    }

    // --- connecting
    // -----------------------------------------------------------------------------------------------------------

    [[nodiscard]] std::uint64_t stream_id(Peer peer, std::size_t stream) const {
        return stream_kind | (peers_[index(peer)].serial & serial_mask) << serial_shift |
               (std::uint64_t{index(peer)} * settings_.streams + stream);
    }

    [[nodiscard]] bool watch(Peer peer, std::size_t stream, const os::Descriptor& socket) {
        return poller_.add(socket, EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET, stream_id(peer, stream));
    }

    void start_dialling(Peer peer) {
        PeerState& state = peers_[index(peer)];
        state.state = PeerState::State::dialling;
        state.serial = ++serials_;
        state.dials.clear();
        state.dials.resize(settings_.streams);
        for (std::size_t stream = 0; stream < state.dials.size(); ++stream) {
            auto socket = dial(state.address, settings_.socket);
            if (!socket || !watch(peer, stream, *socket)) {
                fail_dial(peer, socket ? "it cannot be watched" : socket.error().message);
                return;
            }
            state.dials[stream].socket = std::move(*socket);
        }
    }

    void fail_dial(Peer peer, std::string_view why) {
        PeerState& state = peers_[index(peer)];
        // One line per incarnation, however often its connecting is tried again.
        if (std::exchange(state.complained_of, state.incarnation) != state.incarnation)
            acceptor_.log(std::string(transport_name) + ": cannot connect to node " + std::to_string(index(peer)) +
                          " at " + peers_[index(peer)].address.to_string() + ": " + std::string(why));
        lose(peer, Status::peer_lost);
    }

    void advance_dial(Peer peer, std::size_t stream) {
        PeerState& state = peers_[index(peer)];
        Dial& dialled = state.dials[stream];
        if (const int error = connect_error(dialled.socket); error != 0) return fail_dial(peer, errno_text(error));
        if (!dialled.said_hello) {
            const Hello hello{.version = framed::frame_version,
                              .stream = static_cast<std::uint16_t>(stream),
                              .streams = settings_.streams,
                              .run = options_.run,
                              .token = options_.token,
                              .group = state.serial,
                              .from = self(),
                              .from_incarnation = options_.incarnation,
                              .to = index(peer),
                              .to_incarnation = state.incarnation,
                              .max_posted = options_.max_posted};
            // Not connected yet if this fails without an error on the socket: a later event decides.
            dialled.said_hello = send_small(dialled.socket, std::as_bytes(std::span(&hello, 1)));
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
        if (answer.magic != Answer::expected_magic || answer.max_posted > max_posted_limit ||
            (answer.verdict == Verdict::accepted && answer.max_posted == 0)) {
            return fail_dial(peer, "what answers there is not an Incast node");
        }
        if (answer.verdict != Verdict::accepted)
            return fail_dial(peer, std::string("refused: ") + to_string(answer.verdict));
        dialled.accepted = true;
        if (!std::ranges::all_of(state.dials, &Dial::accepted)) return;
        std::vector<os::Descriptor> sockets;
        sockets.reserve(state.dials.size());
        for (Dial& each : state.dials)
            sockets.push_back(std::move(each.socket));
        state.dials.clear();
        go_up(peer, std::move(sockets), answer.max_posted);
    }

    /// A node of this run dialled.
    void park(Admitted admitted) {
        const Hello& hello = admitted.hello;
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
            parked = {.incarnation = hello.from_incarnation,
                      .max_posted = hello.max_posted,
                      .group = hello.group,
                      .sockets = {}};
            parked.sockets.resize(settings_.streams);
        }
        os::Descriptor& place = parked.sockets[hello.stream];
        if (place.is_open()) return acceptor_.refuse(std::move(admitted.socket), Verdict::malformed);
        place = std::move(admitted.socket);
        match(peer);
    }

    static bool is_older(const Hello& hello, const Parked& parked) {
        if (parked.sockets.empty()) return false;
        return hello.from_incarnation < parked.incarnation ||
               (hello.from_incarnation == parked.incarnation && hello.group < parked.group);
    }

    /// Both have called connect?
    void match(Peer peer) {
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
        const Answer answer{.verdict = Verdict::accepted, .max_posted = options_.max_posted};
        std::vector<os::Descriptor> sockets = std::move(parked.sockets);
        parked.sockets.clear();
        state.serial = ++serials_;
        for (std::size_t stream = 0; stream < sockets.size(); ++stream) {
            if (!send_small(sockets[stream], std::as_bytes(std::span(&answer, 1))) ||
                !watch(peer, stream, sockets[stream])) {
                return fail_dial(peer, "the connection was lost at once");
            }
        }
        go_up(peer, std::move(sockets), parked.max_posted);
    }

    void go_up(Peer peer, std::vector<os::Descriptor> sockets, std::uint32_t peer_max_posted) {
        PeerState& state = peers_[index(peer)];
        stop_timing(state);
        state.link = std::make_unique<Link>(std::move(sockets),
                                            framed::SessionOptions{.self = options_.self,
                                                                   .peer = peer,
                                                                   .self_incarnation = options_.incarnation,
                                                                   .peer_incarnation = state.incarnation,
                                                                   .streams = settings_.streams,
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

    /// Fences the peer: every socket is closed before anything is said about it.
    void lose(Peer peer, Status status) {
        PeerState& state = peers_[index(peer)];
        stop_timing(state);
        state.dials.clear();
        if (state.link != nullptr) state.link->close();
        state.state = PeerState::State::down;
        state.lost_as = status;
        std::erase(raised_, peer);
        down_.push_back(peer);
    }

    void announce(framed::EventWriter& events) {
        std::size_t told = 0;
        for (; told < raised_.size() && events.room() > 0; ++told) {
            peers_[index(raised_[told])].announced = true;
            events.push(control_event(Event::Kind::peer_up, raised_[told]));
        }
        raised_.erase(raised_.begin(), raised_.begin() + static_cast<std::ptrdiff_t>(told));
    }

    void finish_losses(framed::EventWriter& events) {
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

    [[nodiscard]] Event control_event(Event::Kind kind, Peer peer) const {
        return {.kind = kind,
                .status = Status::ok,
                .size_or_value = 0,
                .peer = peer,
                .incarnation = peers_[index(peer)].incarnation,
                .token = 0};
    }

    // --- progress
    // -------------------------------------------------------------------------------------------------------------

    void handle_readiness(Time now) {
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
                } else if (state.state == PeerState::State::up) {
                    state.link->note(stream, event.events);
                    activate(peer);
                }
            }
        }
    }

    void stop_timing(PeerState& state) {
        if (state.deadline == deadline_unset) --untimed_;
        state.deadline = time_never;
    }

    void handle_deadlines(Time now) {
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

    EndpointSettings settings_;
    EndpointOptions options_;
    Capabilities capabilities_;
    os::Poller poller_;
    Regions regions_;
    std::vector<PeerState> peers_;
    Imports<Import> imports_;
    std::vector<epoll_event> epoll_events_;
    SocketAddress address_;
    Acceptor acceptor_;
    std::vector<Peer> active_;                       // have something to move
    std::vector<Peer> working_;                      // those of the poll in progress
    std::vector<Peer> raised_;                       // up, peer_up to be polled
    std::vector<Peer> down_;                         // lost, the rest to be polled
    std::vector<std::unique_ptr<Link>> lost_links_;  // since the last poll
    std::uint64_t serials_ = 0;
    std::uint64_t poll_number_ = 0;
    std::uint32_t untimed_ = 0;  // peers whose deadline is unset
    Time next_deadline_ = time_never;
    Time last_now_ = 0;
    std::uint64_t copied_for_lost_ = 0;  // by links that are gone
};

}  // namespace

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

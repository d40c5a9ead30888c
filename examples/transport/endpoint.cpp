#include "endpoint.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <string>
#include <system_error>
#include <vector>

#include <sys/socket.h>
#include <sys/un.h>

#include "hello.h"
#include "os/poller.h"
#include "transport/blob.h"
#include "transport/connect_rule.h"
#include "transport/framed/link.h"
#include "transport/imports.h"

namespace unix_sockets {

using namespace incast;
using namespace incast::transport;
using framed::EventWriter;

namespace {

constexpr std::uint32_t max_regions = 1024;
constexpr std::size_t half_open_max = 64;
constexpr Time unset = -1;  // a deadline that the next poll sets: it knows the time

// What an epoll event is about: the listener, a connection without a hello by its descriptor, or the connection of a
// peer by its index, with a serial number that tells late events of an earlier one.
constexpr std::uint64_t listener_id = ~std::uint64_t{0};
constexpr std::uint64_t half_open_id = std::uint64_t{1} << 63;
constexpr unsigned serial_shift = 32;

struct Import {
    Peer peer{};
    framed::Key key;
};

struct PeerState {
    Connection connection = Connection::none;
    bool told = false;    // peer_up was polled
    bool listed = false;  // in active_
    Status lost_as = Status::peer_lost;
    std::uint32_t incarnation = 0;
    std::uint32_t serial = 0;
    Time deadline = time_never;  // of connecting
    os::Descriptor dialled;      // waits for the answer
    os::Descriptor parked;       // said hello, waits for connect() here
    Hello hello;                 // that of `parked`
    std::unique_ptr<framed::Link> link;
};

template <class T>
bool send_whole(const os::Descriptor& socket, const T& value) {
    return ::send(socket.fd(), &value, sizeof value, MSG_NOSIGNAL | MSG_DONTWAIT) == sizeof value;
}
/// A T, which its sender sent at once. Nothing: not yet, or (`end`) never.
template <class T>
std::optional<T> receive_whole(const os::Descriptor& socket, bool& end) {
    T value;
    const ssize_t count = ::recv(socket.fd(), &value, sizeof value, MSG_DONTWAIT);
    end = count >= 0 ? count != sizeof value : errno != EAGAIN && errno != EINTR;
    return count == sizeof value ? std::optional(value) : std::nullopt;
}

class Endpoint final : public Transport {
public:
    Endpoint(const EndpointSettings& settings, const EndpointOptions& options, os::Poller poller,
             os::Descriptor listener, const Address& address)
        : settings_(settings),
          options_(options),
          capabilities_{.nature = nature,
                        .max_peers = options.max_peers,
                        .max_regions = max_regions,
                        .max_posted = options.max_posted,
                        .read = true,
                        .has_wait_fd = true},
          address_(address),
          poller_(std::move(poller)),
          listener_(std::move(listener)),
          regions_(max_regions, options.shareable),
          peers_(options.max_peers),
          epoll_events_(256) {
        active_.reserve(options.max_peers);
        working_.reserve(options.max_peers);
    }

    [[nodiscard]] const Capabilities& capabilities() const override { return capabilities_; }
    [[nodiscard]] Blob address() const override { return to_blob(address_); }

    Post connect(Peer peer, const Blob& blob, std::uint32_t incarnation) override {
        Address address;
        if (index(peer) >= peers_.size() || peer == options_.self || !from_blob(blob, address) ||
            address.node != index(peer) || !address.is_proper()) {
            return Post::refused;
        }
        PeerState& state = of(peer);
        if (const auto answer =
                answer_to_connect(state.connection, state.incarnation, incarnation, [&] { disconnect(peer); })) {
            return *answer;
        }
        state.connection = Connection::opening;
        state.incarnation = incarnation;
        state.deadline = unset;
        next_deadline_ = 0;
        if (peer > options_.self) {
            dial(peer, address);
        } else {
            match(peer);
        }
        return Post::pending;
    }
    void disconnect(Peer peer) override {
        if (index(peer) >= peers_.size()) return;
        const Connection now = of(peer).connection;
        if (now == Connection::opening || now == Connection::up) lose(peer, Status::cancelled);
    }

    void ended(Peer peer, std::uint32_t incarnation) override {
        if (index(peer) >= peers_.size() || of(peer).incarnation != incarnation) return;
        const Connection now = of(peer).connection;
        if (now == Connection::opening || now == Connection::up) lose(peer, Status::peer_lost);
    }
    [[nodiscard]] bool drained() const override {
        return std::ranges::all_of(
            peers_, [](const PeerState& state) { return state.connection != Connection::up || state.link->drained(); });
    }

    Result<Local> allocate(std::size_t bytes) override { return regions_.allocate(bytes); }
    std::span<std::byte> memory(Local region) override { return regions_.memory(region); }
    Result<int> share(Local region) override { return regions_.share(region); }
    Result<Ok> release(Remote import) override { return imports_.release(import); }
    Result<Ok> release(Local region) override {
        return regions_.release(region) ? Result<Ok>(Ok{}) : no_region("release", region);  // its memory goes in poll
    }
    Result<Blob> expose(Local region, const Grant& grant) override {
        if (!regions_.has(region)) return no_region("expose", region);
        if ((grant.peer != any_peer && index(grant.peer) >= peers_.size()) || !regions_.expose(region, grant))
            return no_region("expose: no such node, or not inside", region);
        return to_blob(framed::Key{.owner = index(options_.self),
                                   .generation = options_.incarnation,
                                   .region = static_cast<std::uint32_t>(region),
                                   .use = regions_.use(region),
                                   .peer = index(grant.peer),
                                   .bytes = regions_.memory(region).size(),
                                   .run = options_.run,
                                   .write = grant.write ? 1U : 0U});
    }
    Result<Remote> import_key(Peer peer, const Blob& blob) override {
        const auto key = read_key<framed::Key>(blob, peer, options_.self, options_.run, max_regions, transport_name);
        return key ? Result<Remote>(imports_.add({peer, *key})) : key.error();
    }

    Post send(Peer peer, Bytes message) override {
        if (!is_up(peer) || message.empty() || message.size() > max_message_bytes) return Post::refused;
        return posted(peer).send(message);
    }
    Post write(Peer peer, Bytes head, Slice body, Target target, Notice notice, Token token) override {
        const Bytes bytes = local(body);
        if (!is_up(peer) || head.size() > max_head_bytes || bytes.size() != body.length ||
            body.length > max_write_bytes || !imports_.has(target.region, peer)) {
            return Post::refused;
        }
        return posted(peer).write(head, bytes, imports_[target.region].key, target.offset, notice, token);
    }
    Post read(Peer peer, Target from, Slice into, Token token) override {
        const std::span<std::byte> to = regions_.memory(into.region);
        if (!is_up(peer) || into.length > max_write_bytes || !Regions::inside(to.size(), into.offset, into.length) ||
            !imports_.has(from.region, peer)) {
            return Post::refused;
        }
        return posted(peer).read(imports_[from.region].key, from.offset, to.subspan(into.offset, into.length), token);
    }
    [[nodiscard]] Bytes local(Slice where) const override {
        const std::span<std::byte> region = regions_.memory(where.region);
        if (!Regions::inside(region.size(), where.offset, where.length)) return {};
        return region.subspan(where.offset, where.length);
    }
    Bytes view(Target, std::uint32_t) override { return {}; }

    std::size_t poll(Time now, std::span<Event> span) override {
        EventWriter events(span);
        ++poll_number_;
        lost_links_.clear();
        if (regions_.has_retired()) free_retired();
        handle_readiness();
        if (now >= next_deadline_) handle_deadlines(now);
        // Swapped, so that peers that stay busy can list themselves again; the first goes last next time.
        working_.swap(active_);
        for (const Peer peer : working_) {
            of(peer).listed = false;
            if (work(peer, events)) activate(peer);
        }
        working_.clear();
        if (active_.size() > 1) std::ranges::rotate(active_, active_.begin() + 1);
        return events.count();
    }
    [[nodiscard]] Time next_deadline() const override { return next_deadline_; }
    // The epoll descriptor is readable as long as an event is pending: what happens from here on ends the sleep.
    bool prepare_wait() override { return active_.empty() && next_deadline_ > 0; }
    [[nodiscard]] int wait_fd() const override { return poller_.fd(); }

    [[nodiscard]] std::uint64_t copied_bytes() const override {
        std::uint64_t bytes = copied_for_lost_;
        for (const PeerState& state : peers_)
            bytes += state.link != nullptr ? state.link->copied_bytes() : 0;
        return bytes;
    }

private:
    static std::uint32_t index(Peer peer) { return static_cast<std::uint32_t>(peer); }
    static Error no_region(const std::string& what, Local region) {
        return Error{what + ": there is no region " + std::to_string(static_cast<unsigned>(region))};
    }
    [[nodiscard]] PeerState& of(Peer peer) { return peers_[index(peer)]; }
    [[nodiscard]] bool is_up(Peer peer) { return index(peer) < peers_.size() && of(peer).connection == Connection::up; }
    void log(const std::string& line) const {
        if (options_.log) options_.log(std::string(transport_name) + ": " + line);
    }
    void activate(Peer peer) {
        if (!std::exchange(of(peer).listed, true)) active_.push_back(peer);
    }
    framed::Session& posted(Peer peer) {
        activate(peer);
        return of(peer).link->session();
    }

    // --- connecting

    bool watch(Peer peer, const os::Descriptor& socket) {
        of(peer).serial = ++serials_ & 0x3FFF'FFFF;
        return poller_.add(socket, EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET,
                           std::uint64_t{of(peer).serial} << serial_shift | index(peer));
    }

    void dial(Peer peer, const Address& address) {
        PeerState& state = of(peer);
        state.dialled = os::Descriptor(::socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
        sockaddr_un to{.sun_family = AF_UNIX, .sun_path = {}};
        std::memcpy(to.sun_path, address.name.data(), address.name_bytes);
        const auto bytes = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + address.name_bytes);
        const Hello hello{.run = options_.run,
                          .token = options_.token,
                          .from = index(options_.self),
                          .from_incarnation = options_.incarnation,
                          .to = index(peer),
                          .to_incarnation = state.incarnation,
                          .max_posted = options_.max_posted};
        if (::connect(state.dialled.fd(), reinterpret_cast<sockaddr*>(&to), bytes) != 0 ||
            !send_whole(state.dialled, hello) || !watch(peer, state.dialled)) {
            lose(peer, Status::peer_lost);
        }
    }

    void hear_answer(Peer peer) {
        bool end = false;
        const auto answer = receive_whole<Answer>(of(peer).dialled, end);
        if (answer && answer->is_proper()) {
            go_up(peer, std::move(of(peer).dialled), answer->max_posted);
        } else if (answer || end) {
            lose(peer, Status::peer_lost);
        }
    }

    /// One at a time: a flood of strangers must not keep the endpoint from its peers.
    void accept_one() {
        os::Descriptor socket(::accept4(listener_.fd(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
        if (!socket.is_open()) return;
        if (half_open_.size() == half_open_max) {  // a node says hello at once: the oldest is none
            log("refused connection: it says no hello");
            half_open_.erase(half_open_.begin());
        }
        if (poller_.add(socket, EPOLLIN, half_open_id | static_cast<std::uint64_t>(socket.fd())))
            half_open_.push_back(std::move(socket));
    }

    void hear_hello(int fd) {
        const auto found = std::ranges::find(half_open_, fd, &os::Descriptor::fd);
        if (found == half_open_.end()) return;
        bool end = false;
        const auto hello = receive_whole<Hello>(*found, end);
        if (!hello && !end) return;
        poller_.remove(*found);
        os::Descriptor socket = std::move(*found);
        half_open_.erase(found);
        if (const char* fault = hello ? fault_of(*hello, options_) : "no hello"; fault != nullptr)
            return log(std::string("refused connection: ") + fault);
        const Peer peer{hello->from};
        PeerState& state = of(peer);
        if (hello->from_incarnation < state.incarnation)
            return log("refused connection: a later incarnation of that node is known");
        // A node dials only when it has no connection left, so one that still looks alive here is dead.
        if (state.connection == Connection::up) lose(peer, Status::peer_lost);
        state.parked = std::move(socket);
        state.hello = *hello;
        match(peer);
    }

    /// Both have called connect?
    void match(Peer peer) {
        PeerState& state = of(peer);
        if (state.connection != Connection::opening || !state.parked.is_open()) return;
        if (state.hello.from_incarnation > state.incarnation) return lose(peer, Status::peer_lost);
        os::Descriptor socket = std::move(state.parked);
        // Else it is of an earlier incarnation, or gave up meanwhile: it dials again.
        if (state.hello.from_incarnation == state.incarnation &&
            send_whole(socket, Answer{.max_posted = options_.max_posted}) && watch(peer, socket)) {
            go_up(peer, std::move(socket), state.hello.max_posted);
        }
    }

    void go_up(Peer peer, os::Descriptor socket, std::uint32_t peer_max_posted) {
        PeerState& state = of(peer);
        const framed::SessionOptions session{.self = options_.self,
                                             .peer = peer,
                                             .self_incarnation = options_.incarnation,
                                             .peer_incarnation = state.incarnation,
                                             .max_posted = options_.max_posted,
                                             .max_peer_reads = peer_max_posted,
                                             .copied_bytes = settings_.send_buffer_bytes};
        std::vector<os::Descriptor> streams(1);
        streams[0] = std::move(socket);
        state.link = std::make_unique<framed::Link>(std::move(streams), session, regions_);
        state.connection = Connection::up;
        state.deadline = time_never;
        state.told = false;
        activate(peer);
    }

    /// Fences the peer: its socket is closed before anything is said about it.
    void lose(Peer peer, Status status) {
        PeerState& state = of(peer);
        state.dialled.close();
        if (state.link != nullptr) state.link->close();
        state.connection = Connection::ending;
        state.deadline = time_never;
        state.lost_as = status;
        activate(peer);
    }

    // --- progress

    /// True: there is more to do at once.
    bool work(Peer peer, EventWriter& events) {
        PeerState& state = of(peer);
        if (state.connection == Connection::up) {
            if (!state.told && !(state.told = tell(Event::Kind::peer_up, peer, events))) return true;
            if (state.link->work(events, poll_number_)) return state.link->busy();
            if (const std::string& why = state.link->why_lost(); !why.empty())
                log("connection to node " + std::to_string(index(peer)) + " lost: " + why);
            lose(peer, Status::peer_lost);
        }
        if (state.connection != Connection::ending) return false;
        if (state.link != nullptr && !state.link->session().abandon(state.lost_as, events)) return true;
        if (!tell(Event::Kind::peer_down, peer, events)) return true;
        if (state.link != nullptr) {
            copied_for_lost_ += state.link->copied_bytes();
            // Messages of this poll may lie in its memory, and are valid until the next.
            lost_links_.push_back(std::move(state.link));
        }
        state.connection = Connection::none;
        return false;
    }

    bool tell(Event::Kind kind, Peer peer, EventWriter& events) {
        if (events.room() == 0) return false;
        events.push({.kind = kind,
                     .status = Status::ok,
                     .size_or_value = 0,
                     .peer = peer,
                     .incarnation = of(peer).incarnation,
                     .token = 0});
        return true;
    }

    void handle_readiness() {
        const std::size_t count = poller_.ready(epoll_events_);
        for (const epoll_event& event : std::span(epoll_events_).first(count)) {
            const std::uint64_t id = event.data.u64;
            const Peer peer{static_cast<std::uint32_t>(id)};
            if (id == listener_id) {
                accept_one();
            } else if ((id & half_open_id) != 0) {
                hear_hello(static_cast<int>(id & ~half_open_id));
            } else if (id >> serial_shift == of(peer).serial && of(peer).dialled.is_open()) {
                hear_answer(peer);
            } else if (id >> serial_shift == of(peer).serial && is_up(peer)) {
                of(peer).link->note(0, event.events);
                activate(peer);
            }
        }
    }

    void handle_deadlines(Time now) {
        next_deadline_ = time_never;
        for (std::uint32_t i = 0; i < peers_.size(); ++i) {
            PeerState& state = peers_[i];
            if (state.deadline == unset) state.deadline = now + settings_.connect_timeout;
            if (now >= state.deadline) lose(Peer{i}, Status::peer_lost);
            next_deadline_ = std::min(next_deadline_, state.deadline);
        }
    }

    /// Memory of released regions that nothing is received into or sent from any more.
    void free_retired() {
        regions_.sweep([&](Bytes memory) {
            return std::ranges::any_of(peers_, [&](const PeerState& state) {
                return state.connection == Connection::up && state.link->session().uses(memory);
            });
        });
    }

    EndpointSettings settings_;
    EndpointOptions options_;
    Capabilities capabilities_;
    Address address_;
    os::Poller poller_;
    os::Descriptor listener_;
    std::vector<os::Descriptor> half_open_;  // accepted, without a hello so far; the oldest first
    Regions regions_;
    Imports<Import> imports_;
    std::vector<PeerState> peers_;
    std::vector<epoll_event> epoll_events_;
    std::vector<Peer> active_;                               // have something to do
    std::vector<Peer> working_;                              // those of the poll in progress
    std::vector<std::unique_ptr<framed::Link>> lost_links_;  // since the last poll
    std::uint32_t serials_ = 0;
    std::uint64_t poll_number_ = 0;
    std::uint64_t copied_for_lost_ = 0;  // by links that are gone
    Time next_deadline_ = time_never;    // 0: at the next poll
};

}  // namespace

Result<std::unique_ptr<Transport>> make_endpoint(const EndpointSettings& settings, const EndpointOptions& options) {
    const auto self = static_cast<std::uint32_t>(options.self);
    const std::string name(transport_name);
    if (self >= options.max_peers || options.max_posted == 0 || options.max_posted > max_posted_limit) {
        return Error{name + ": node " + std::to_string(self) + " with max_posted " +
                     std::to_string(options.max_posted) + ": its index must be below " +
                     std::to_string(options.max_peers) + ", max_posted 1.." + std::to_string(max_posted_limit)};
    }
    os::Poller poller;
    os::Descriptor listener(::socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    // Bound to no name, it gets one that nobody has.
    sockaddr_un bound{.sun_family = AF_UNIX, .sun_path = {}};
    socklen_t bytes = sizeof bound;
    auto* const where = reinterpret_cast<sockaddr*>(&bound);
    if (poller.fd() < 0 || ::bind(listener.fd(), where, sizeof bound.sun_family) != 0 ||
        ::listen(listener.fd(), SOMAXCONN) != 0 || ::getsockname(listener.fd(), where, &bytes) != 0 ||
        !poller.add(listener, EPOLLIN, listener_id)) {
        return Error{name + ": cannot listen: " + std::generic_category().message(errno)};
    }
    Address address{.node = self};
    address.name_bytes = bytes - static_cast<std::uint32_t>(offsetof(sockaddr_un, sun_path));
    std::memcpy(address.name.data(), bound.sun_path, std::min<std::size_t>(address.name_bytes, address.name.size()));
    return std::unique_ptr<Transport>(
        std::make_unique<Endpoint>(settings, options, std::move(poller), std::move(listener), address));
}

}  // namespace unix_sockets

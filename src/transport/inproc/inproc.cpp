#include "transport/inproc/inproc.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <deque>
#include <memory>
#include <utility>
#include <vector>

#include "transport/blob.h"
#include "transport/connect_rule.h"
#include "transport/copy_head.h"
#include "transport/imports.h"
#include "transport/inproc/peer_state.h"
#include "transport/inproc/queue.h"
#include "transport/regions.h"
#include "transport/settings.h"

namespace incast::transport::inproc {

namespace {

constexpr std::uint32_t max_regions = 1024;
constexpr std::size_t biggest_record = EventQueue::message_bytes(max_message_bytes);
// What one pair may have queued at the receiver, in bytes: small messages of this size on average count as one
// operation.
constexpr std::size_t typical_record = EventQueue::message_bytes(64);
// knock, peer_up, peer_down and room: at most one of each is queued per peer.
constexpr std::size_t control_bytes_per_peer = 4 * EventQueue::other_bytes;
constexpr std::size_t queue_bytes_goal = std::size_t{32} << 20;

std::size_t peers_of(const EndpointOptions& options) {
    return std::size_t{options.max_peers} + options.max_dialled;
}

std::size_t pair_bytes(const EndpointOptions& options) {
    return std::clamp<std::size_t>(options.max_posted * typical_record, 2 * biggest_record,
                                   std::max(2 * biggest_record, queue_bytes_goal / peers_of(options)));
}

std::size_t queue_bytes(const EndpointOptions& options) {
    return peers_of(options) * (pair_bytes(options) + control_bytes_per_peer) + 2 * biggest_record;
}

}  // namespace

class alignas(64) Endpoint final : public Transport {
public:
    /// Precondition: queue_bytes(options) <= EventQueue::max_capacity_bytes.
    Endpoint(std::shared_ptr<Hub> hub, const EndpointOptions& options)
        : queue_(queue_bytes(options)),
          self_(options.self),
          pair_bytes_(static_cast<std::uint32_t>(pair_bytes(options))),
          control_bytes_(static_cast<std::uint32_t>(peers_of(options) * control_bytes_per_peer)),
          queued_bytes_(std::make_unique<std::uint32_t[]>(peers_of(options))),
          peers_(peers_of(options)),
          greetings_(options.max_dialled),
          regions_(std::make_shared<Regions>(max_regions, options.shareable)),
          hub_(std::move(hub)),
          options_(options),
          id_(static_cast<std::uint32_t>(hub_->endpoints.size())) {
        capabilities_ = {.nature = nature,
                         .max_peers = options.max_peers,
                         .max_dialled = options.max_dialled,
                         .max_regions = max_regions,
                         .max_posted = static_cast<std::uint32_t>(
                             std::min<std::size_t>(options.max_posted, pair_bytes_ / typical_record)),
                         .read = true,
                         .view = true,
                         .one_thread = true};
        waiting_.reserve(peers_.size());
        hub_->endpoints.push_back(this);
    }

    ~Endpoint() override {
        hub_->endpoints[id_] = nullptr;
        for (Endpoint* other : hub_->endpoints) {
            if (other != nullptr) other->lost(self_, id_);
        }
    }

    [[nodiscard]] const Capabilities& capabilities() const override { return capabilities_; }

    [[nodiscard]] Blob address() const override {
        return to_blob(
            Address{.peer = self(), .hub = hub_->id, .endpoint = id_, .run = options_.run, .token = options_.token});
    }

    Post connect(Peer peer, const Blob& blob, std::uint32_t incarnation) override {
        Address address;
        if (index(peer) >= options_.max_peers || peer == self_ || !is_here(blob, address) ||
            address.peer != index(peer)) {
            return Post::refused;
        }
        PeerState& state = peers_[index(peer)];
        switch (state.state) {
            case PeerState::State::down:
                return Post::again;
            case PeerState::State::up:
            case PeerState::State::connecting:
            case PeerState::State::knocking:
                if (incarnation > state.incarnation) {
                    disconnect(peer);
                    return Post::again;
                }
                return incarnation == state.incarnation && state.state == PeerState::State::connecting ? Post::pending
                                                                                                       : Post::refused;
            case PeerState::State::idle:
                break;
        }
        state.incarnation = incarnation;
        state.remote_id = static_cast<std::uint32_t>(address.endpoint);
        state.state = PeerState::State::connecting;
        Endpoint* other = hub_->endpoints[address.endpoint];
        if (other == nullptr || other->options_.incarnation != incarnation || !is_of_this_run(*other) ||
            self() >= other->options_.max_peers) {
            go_down(peer);
            return Post::pending;
        }
        PeerState& theirs = other->peers_[self()];
        if (theirs.state == PeerState::State::connecting && theirs.remote_id == id_) {
            go_up(peer, *other, self_);
            other->go_up(self_, *this, peer);
        } else if (theirs.state != PeerState::State::idle && theirs.incarnation > options_.incarnation) {
            go_down(peer);  // the peer knows a later incarnation of this node
        }
        return Post::pending;
    }

    void disconnect(Peer peer) override {
        if (index(peer) >= peers_.size()) return;
        PeerState& state = peers_[index(peer)];
        if (state.state == PeerState::State::idle || state.state == PeerState::State::down) return;
        Endpoint* other = state.remote;
        go_down(peer);
        if (other != nullptr) other->go_down(Peer{state.there});
    }

    Result<Peer> dial(const Blob& blob, Bytes greeting) override {
        Address address;
        if (!is_here(blob, address)) return Error{"dial: not an address of this inproc hub"};
        if (greeting.size() > max_greeting_bytes) return no_greeting(greeting.size());
        const Peer peer = free_number();
        if (peer == any_peer) return no_number_left(options_.max_dialled);
        Endpoint* const other = hub_->endpoints[address.endpoint];
        PeerState& state = peers_[index(peer)];
        state.remote_id = static_cast<std::uint32_t>(address.endpoint);
        state.incarnation = other == nullptr ? 0 : other->options_.incarnation;
        state.state = PeerState::State::connecting;
        if (other == nullptr || !is_of_this_run(*other) || !other->hear_knock(*this, peer, greeting)) go_down(peer);
        return peer;
    }

    [[nodiscard]] bool drained() const override { return true; }  // what is posted is there

    Post accept(Peer peer) override {
        if (index(peer) >= peers_.size()) return Post::refused;
        const PeerState& state = peers_[index(peer)];
        if (state.state == PeerState::State::down) return Post::pending;
        if (state.state != PeerState::State::knocking) return Post::refused;
        Endpoint& other = *state.remote;
        const Peer there{state.there};
        go_up(peer, other, there);
        other.go_up(there, *this, peer);
        return Post::pending;
    }

    Result<Local> allocate(std::size_t bytes) override { return regions_->allocate(bytes); }
    Result<Ok> release(Local region) override {
        if (!regions_->release(region))
            return Error{"release: there is no region " + std::to_string(static_cast<unsigned>(region))};
        for (Endpoint* other : hub_->endpoints) {
            if (other != nullptr) other->forget(id_, static_cast<std::uint32_t>(region));
        }
        regions_->sweep([](Bytes) { return false; });
        return Ok{};
    }
    Result<Ok> release(Remote import) override { return imports_.release(import); }
    Result<int> share(Local region) override { return regions_->share(region); }

    std::span<std::byte> memory(Local region) override { return regions_->memory(region); }

    Result<Blob> expose(Local region, const Grant& /*grant*/) override {
        if (!regions_->expose(region, {})) {
            return Error{"expose: there is no region " + std::to_string(static_cast<unsigned>(region))};
        }
        return to_blob(Key{.region = static_cast<std::uint32_t>(region),
                           .use = regions_->use(region),
                           .hub = hub_->id,
                           .endpoint = id_});
    }

    Result<Remote> import_key(Peer peer, const Blob& blob) override {
        Key key;
        if (!from_blob(blob, key) || key.hub != hub_->id || key.endpoint >= hub_->endpoints.size()) {
            return Error{"import_key: not a key of this inproc hub"};
        }
        const Endpoint* other = hub_->endpoints[key.endpoint];
        // A region that is gone is imported all the same: what is written there faults, as with any other transport.
        const bool there = other != nullptr && other->regions_->is_use(key.region, static_cast<std::uint16_t>(key.use));
        return imports_.add({peer, there ? static_cast<std::uint32_t>(key.endpoint) : nobody, key.region,
                             there ? other->regions_->exposed(key.region) : std::span<std::byte>{}});
    }

    Post send(Peer peer, Bytes message) override {
        if (message.empty() || message.size() > max_message_bytes || !is_up(peer)) return Post::refused;
        const PeerState& state = peers_[index(peer)];
        return state.remote->accept_message(Peer{state.there}, message) ? Post::done : Post::again;
    }

    Post write(Peer peer, Bytes head, Slice body, Target target, Notice notice, Token token) override {
        if (body.length == 0) return write_from(peer, head, {}, target, notice, token);
        const std::span<std::byte> region = regions_->memory(body.region);
        if (!Regions::inside(region.size(), body.offset, body.length)) return Post::refused;
        return write_from(peer, head, region.subspan(body.offset, body.length), target, notice, token);
    }

    Post write_from(Peer peer, Bytes head, Bytes body, Target target, Notice notice, Token token) override {
        if (!is_up(peer) || head.size() > max_head_bytes || body.size() > max_write_bytes ||
            !imports_.has(target.region, peer)) {
            return Post::refused;
        }
        const Import& to = imports_[target.region];
        PeerState& state = peers_[index(peer)];
        if (to.remote_id != state.remote_id ||
            !Regions::inside(to.memory.size(), target.offset, head.size() + body.size())) {
            return fault(state, peer, token);
        }
        if (notice.has_value() && !state.remote->accept_notice(Peer{state.there}, *notice)) return Post::again;
        std::byte* place = to.memory.data() + target.offset;
        copy_head(place, head);
        if (!body.empty()) {
            std::memcpy(place + head.size(), body.data(), body.size());
            copied_bytes_ += body.size();
        }
        return Post::done;
    }

    Post read(Peer peer, Target from, Slice into, Token token) override {
        const std::span<std::byte> to = regions_->memory(into.region);
        if (!is_up(peer) || into.length > max_write_bytes || !Regions::inside(to.size(), into.offset, into.length) ||
            !imports_.has(from.region, peer)) {
            return Post::refused;
        }
        const Import& source = imports_[from.region];
        PeerState& state = peers_[index(peer)];
        if (source.remote_id != state.remote_id || !Regions::inside(source.memory.size(), from.offset, into.length)) {
            return fault(state, peer, token);
        }
        if (into.length > 0) {
            std::memcpy(to.data() + into.offset, source.memory.data() + from.offset, into.length);
            copied_bytes_ += into.length;
        }
        return Post::done;
    }

    [[nodiscard]] Bytes local(Slice where) const override {
        const std::span<std::byte> region = regions_->memory(where.region);
        if (!Regions::inside(region.size(), where.offset, where.length)) return {};
        return region.subspan(where.offset, where.length);
    }

    Bytes view(Target where, std::uint32_t length) override {
        const Import* source = imports_.find(where.region);
        if (source == nullptr || !is_up(source->peer) || peers_[index(source->peer)].remote_id != source->remote_id ||
            !Regions::inside(source->memory.size(), where.offset, length)) {
            return {};
        }
        return source->memory.subspan(where.offset, length);
    }

    std::size_t poll(Time, std::span<Event> events) override {
        queue_.release();
        if (lingers_) [[unlikely]] {
            released_.clear();
            lingers_ = !lingering_.empty();
        }
        std::size_t count = 0;
        while (count < events.size() && !queue_.empty()) {
            Event event = queue_.take();
            switch (event.kind) {
                case Event::Kind::message:
                    queued_bytes_[index(event.peer)] -=
                        static_cast<std::uint32_t>(EventQueue::message_bytes(event.size_or_value));
                    break;
                case Event::Kind::notice:
                    queued_bytes_[index(event.peer)] -= static_cast<std::uint32_t>(EventQueue::notice_bytes);
                    break;
                case Event::Kind::completed:
                    queued_bytes_[index(event.peer)] -= static_cast<std::uint32_t>(EventQueue::other_bytes);
                    break;
                case Event::Kind::peer_down:
                    peers_[index(event.peer)].state = PeerState::State::idle;
                    if (index(event.peer) >= options_.max_peers) imports_.forget(event.peer);
                    released_.push_back(std::move(lingering_.front()));
                    lingering_.pop_front();
                    lingers_ = true;
                    break;
                case Event::Kind::room:
                    peers_[index(event.peer)].room_queued = false;
                    break;
                case Event::Kind::peer_up:
                    break;
                case Event::Kind::knock:
                    event.data = greetings_[index(event.peer) - options_.max_peers].data();
                    break;
            }
            events[count++] = event;
        }
        if (room_owed_) [[unlikely]]
            give_room();
        return count;
    }

    [[nodiscard]] Time next_deadline() const override { return time_never; }
    bool prepare_wait() override { return queue_.empty(); }
    [[nodiscard]] int wait_fd() const override { return -1; }
    [[nodiscard]] std::uint64_t copied_bytes() const override { return copied_bytes_; }

private:
    static std::uint32_t index(Peer peer) { return static_cast<std::uint32_t>(peer); }
    [[nodiscard]] std::uint32_t self() const { return index(self_); }
    [[nodiscard]] bool is_up(Peer peer) const {
        return index(peer) < peers_.size() && peers_[index(peer)].state == PeerState::State::up;
    }
    [[nodiscard]] bool is_here(const Blob& blob, Address& address) const {
        return from_blob(blob, address) && address.hub == hub_->id && address.endpoint < hub_->endpoints.size();
    }
    [[nodiscard]] bool is_of_this_run(const Endpoint& other) const {
        return other.options_.run == options_.run && other.options_.token == options_.token;
    }
    /// any_peer: there is none.
    [[nodiscard]] Peer free_number() const {
        for (std::uint32_t peer = options_.max_peers; peer < peers_.size(); ++peer)
            if (peers_[peer].state == PeerState::State::idle) return Peer{peer};
        return any_peer;
    }
    /// False: there is no room.
    bool hear_knock(Endpoint& from, Peer there, Bytes greeting) {
        const Peer peer = free_number();
        if (peer == any_peer) return false;
        PeerState& state = peers_[index(peer)];
        state.remote_id = from.id_;
        state.incarnation = from.options_.incarnation;
        state.state = PeerState::State::knocking;
        meet(peer, from, there);
        from.meet(there, *this, peer);
        greetings_[index(peer) - options_.max_peers].assign(greeting.begin(), greeting.end());
        queue_control(Event::Kind::knock, peer, static_cast<std::uint16_t>(greeting.size()));
        return true;
    }
    /// That region of that endpoint is released.
    void forget(std::uint32_t endpoint, std::uint32_t region) {
        for (Import& import : imports_) {
            if (import.remote_id != endpoint || import.region != region) continue;
            import.remote_id = nobody;
            import.memory = {};
        }
    }

    void queue_control(Event::Kind kind, Peer peer, std::uint16_t size = 0) {
        queue_.push_event({.kind = kind,
                           .status = Status::ok,
                           .size_or_value = size,
                           .peer = peer,
                           .incarnation = peers_[index(peer)].incarnation,
                           .token = 0});
    }

    void queue_room(Peer peer) {
        if (std::exchange(peers_[index(peer)].room_queued, true)) return;
        queue_control(Event::Kind::room, peer);
    }

    void meet(Peer peer, Endpoint& remote, Peer there) {
        peers_[index(peer)].remote = &remote;
        peers_[index(peer)].there = index(there);
    }

    void go_up(Peer peer, Endpoint& remote, Peer there) {
        peers_[index(peer)].state = PeerState::State::up;
        meet(peer, remote, there);
        queue_control(Event::Kind::peer_up, peer);
    }

    void go_down(Peer peer) {
        PeerState& state = peers_[index(peer)];
        state.state = PeerState::State::down;
        lingering_.push_back(state.remote == nullptr ? nullptr : state.remote->regions_);
        lingers_ = true;
        state.remote = nullptr;
        state.peer_waits = state.self_waits = false;
        queue_control(Event::Kind::peer_down, peer);
    }

    /// Endpoint `id` of node `node` ceased to exist.
    void lost(Peer node, std::uint32_t id) {
        const auto look_at = [&](std::uint32_t peer) {
            const PeerState& state = peers_[peer];
            const bool concerned = state.state != PeerState::State::idle && state.state != PeerState::State::down;
            if (concerned && state.remote_id == id) go_down(Peer{peer});
        };
        if (index(node) < options_.max_peers) look_at(index(node));
        for (std::uint32_t peer = options_.max_peers; peer < peers_.size(); ++peer)
            look_at(peer);
    }

    [[nodiscard]] bool may_queue(Peer peer, std::size_t record) const {
        return queued_bytes_[index(peer)] + record <= pair_bytes_ && queue_.fits(record + control_bytes_);
    }

    void wait_for_room(PeerState& state, Peer peer) {
        if (state.listed) return;
        state.listed = true;
        waiting_.push_back(peer);
        room_owed_ = true;
    }

    /// A record on account of that peer. False: no room; the peer is owed a room event.
    bool admit(Peer from, std::size_t record) {
        if (!may_queue(from, record)) [[unlikely]] {
            PeerState& state = peers_[index(from)];
            state.peer_waits = true;
            wait_for_room(state, from);
            return false;
        }
        queued_bytes_[index(from)] += static_cast<std::uint32_t>(record);
        return true;
    }
    bool accept_message(Peer from, Bytes message) {
        if (!admit(from, EventQueue::message_bytes(message.size()))) return false;
        queue_.push_message(from, message);
        return true;
    }
    bool accept_notice(Peer from, std::uint16_t notice) {
        if (!admit(from, EventQueue::notice_bytes)) return false;
        queue_.push_notice(from, notice);
        return true;
    }

    Post fault(PeerState& state, Peer peer, Token token) {
        if (token == 0) return Post::done;
        if (!may_queue(peer, EventQueue::other_bytes)) {
            state.self_waits = true;
            wait_for_room(state, peer);
            return Post::again;
        }
        queued_bytes_[index(peer)] += static_cast<std::uint32_t>(EventQueue::other_bytes);
        queue_.push_event({.kind = Event::Kind::completed,
                           .status = Status::remote_fault,
                           .size_or_value = 0,
                           .peer = peer,
                           .incarnation = state.incarnation,
                           .token = token});
        return Post::pending;
    }

    /// Room events for those whose share of the queue is half free again: later than possible, so that they come back
    /// with a batch.
    void give_room() {
        std::size_t kept = 0;
        for (const Peer peer : waiting_) {
            PeerState& state = peers_[index(peer)];
            if (state.state == PeerState::State::up && queued_bytes_[index(peer)] > pair_bytes_ / 2) {
                waiting_[kept++] = peer;
                continue;
            }
            if (state.peer_waits) state.remote->queue_room(Peer{state.there});
            if (state.self_waits) queue_room(peer);
            state.peer_waits = state.self_waits = state.listed = false;
        }
        waiting_.resize(kept);
        room_owed_ = kept > 0;
    }

    // With many endpoints in one thread each is cold when its turn comes. One cache line is what a poll looks at, and a
    // peer that sends here; the next one what an own post needs.
    EventQueue queue_;
    Peer self_;
    std::uint32_t pair_bytes_;
    std::uint32_t control_bytes_;
    bool room_owed_ = false;  // waiting_ is not empty
    bool lingers_ = false;    // lingering_ or released_ is not
    // By peer, in the own queue on its account. Apart, so that a thousand peers' notices touch few cache lines.
    std::unique_ptr<std::uint32_t[]> queued_bytes_;

    std::vector<PeerState> peers_;
    std::vector<std::vector<std::byte>> greetings_;  // of those that dialled
    Imports<Import> imports_;
    std::shared_ptr<Regions> regions_;

    std::vector<Peer> waiting_;
    std::vector<std::shared_ptr<Regions>> released_;  // see lingering_
    std::uint64_t copied_bytes_ = 0;
    std::shared_ptr<Hub> hub_;
    EndpointOptions options_;
    std::uint32_t id_;
    Capabilities capabilities_;
    /// A view of a peer's memory may be looked at until the poll after its peer_down: for each peer_down that is queued
    /// what that peer had, and in released_ what those of the last poll had.
    std::deque<std::shared_ptr<Regions>> lingering_;
};

namespace {

class Inproc final : public Medium {
public:
    Inproc() {
        // Tells the hubs of a process apart in addresses and keys. A hub serves one thread, but several threads may
        // have theirs.
        static std::atomic<std::uint64_t> hubs = 0;
        hub_->id = ++hubs;
    }

    Result<std::unique_ptr<Transport>> endpoint(const EndpointOptions& options) override {
        if (options.max_peers == 0 || options.max_posted == 0 ||
            static_cast<std::uint32_t>(options.self) >= options.max_peers) {
            return Error{std::string(transport_name) + ": node " +
                         std::to_string(static_cast<std::uint32_t>(options.self)) + " with max_peers " +
                         std::to_string(options.max_peers) + ", max_posted " + std::to_string(options.max_posted) +
                         ": both must be at least 1, and the node's index below max_peers"};
        }
        if (queue_bytes(options) > EventQueue::max_capacity_bytes) {
            return Error{std::string(transport_name) + ": max_peers " + std::to_string(options.max_peers) +
                         ", max_dialled " + std::to_string(options.max_dialled) + " need a queue of " +
                         std::to_string(queue_bytes(options)) + " bytes; at most " +
                         std::to_string(EventQueue::max_capacity_bytes) + " are possible"};
        }
        return std::unique_ptr<Transport>(std::make_unique<Endpoint>(hub_, options));
    }

private:
    std::shared_ptr<Hub> hub_ = std::make_shared<Hub>();
};

}  // namespace

std::span<const base::Setting> settings() {
    return {};
}

Result<std::unique_ptr<Medium>> make(const Settings& given) {
    if (const Result<Values> values = Values::read(transport_name, settings(), given); !values) return values.error();
    return std::unique_ptr<Medium>(std::make_unique<Inproc>());
}

}  // namespace incast::transport::inproc

// What endpoints share whose library has one-sided writes: who may post what where, credits, notices of what was
// released, welcomes, events of their own, deadlines.
//
// `Own` is the endpoint; it says how its library does it (`register_region`, `push`, `lose`, ...). `Types` has its
// State (a rma::PeerState), Key (a RegionKey), Import (a rma::Import) and Registration.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/bitmap.h"
#include "base/fifo.h"
#include "os/poller.h"
#include "transport/blob.h"
#include "transport/calls/calls.h"
#include "transport/imports.h"
#include "transport/medium.h"
#include "transport/regions.h"
#include "transport/rma/peer_state.h"
#include "transport/rma/wire.h"

namespace incast::transport::rma {

struct Import {
    Peer peer{};
    std::uint64_t address = 0;
    std::uint64_t bytes = 0;
    std::uint64_t key = 0;
    std::uint32_t generation = 0;
    std::uint16_t region = 0;
    std::uint16_t use = 0;
    bool may_write = false;
    bool is_gone = false;  // its owner released it
};

/// A region that was released: its memory stays until the last peer has heard of it.
template <class Registration>
struct Retired {
    Change name;
    Registration registration;
    std::span<std::byte> memory;
    base::Bitmap waits_for;
};

/// What every endpoint of this kind is told.
struct Common {
    std::string_view transport;   // its name
    std::uint32_t receives = 0;   // messages and notices that a peer may have on the way here
    std::uint32_t transfers = 0;  // under way to each peer
    Time connect_timeout = 0;
};

template <class Own, class Types>
class Endpoint : public Transport {
public:
    ~Endpoint() override = default;
    [[nodiscard]] const Capabilities& capabilities() const final { return capabilities_; }
    void disconnect(Peer peer) final {
        if (index(peer) >= peers_.size()) return;
        State& state = peers_[index(peer)];
        if (state.state == PeerState::State::idle || state.state == PeerState::State::ending) return;
        state.is_silent = true;
        own().lose(peer, Status::cancelled);
    }
    Result<Local> allocate(std::size_t bytes) final;
    std::span<std::byte> memory(Local region) final { return regions_.memory(region); }
    Result<Blob> expose(Local region, const Grant& grant) final;
    Result<int> share(Local region) final { return regions_.share(region); }
    Result<Remote> import_key(Peer peer, const Blob& blob) final;
    Result<Ok> release(Local region) final;
    Result<Ok> release(Remote import) final { return imports_.release(import); }
    [[nodiscard]] Bytes local(Slice where) const final {
        const std::span<std::byte> region = regions_.memory(where.region);
        if (!Regions::inside(region.size(), where.offset, where.length)) return {};
        return region.subspan(where.offset, where.length);
    }
    Bytes view(Target /*from*/, std::uint32_t /*bytes*/) final { return {}; }

    /// Regions, which several endpoints of a node may share.
    struct Pool {
        explicit Pool(bool shareable, std::unique_ptr<Regions::Source> source = {})
            : regions(max_regions, shareable, std::move(source)) {}
        Regions regions;
        std::vector<const Endpoint*> users;
    };

    /// The region is about to be released: peers are told, and its registration goes when they heard.
    void retire(Local region);

protected:
    using State = typename Types::State;
    using Import = typename Types::Import;
    using Registration = typename Types::Registration;

    static constexpr Time time_unset = -1;  // a deadline that the next poll, which knows the time, sets
    // A system call: whoever sleeps looks whenever it wakes, and who does not, this often.
    static constexpr Time look_every = ps_per_ms;
    static constexpr Time ending_timeout = ps_per_s;  // what is under way ends by then, or nobody waits for it
    // What the poller's events are of; smaller ones are the endpoint's own. From `calls_id` on, the number of a call or
    // a peer is in the lower half.
    static constexpr std::uint64_t listener_id = 16;
    static constexpr std::uint64_t calls_id = std::uint64_t{1} << 32;
    static constexpr std::uint64_t parked_id = std::uint64_t{2} << 32;
    static constexpr std::uint64_t peers_id = std::uint64_t{3} << 32;

    // NOLINTNEXTLINE(bugprone-crtp-constructor-accessibility): CallingEndpoint stands between it and `Own`
    Endpoint(const Common& common, const EndpointOptions& options, os::Poller poller, Calls calls,
             std::shared_ptr<Pool> pool)
        : common_(common),
          options_(options),
          poller_(std::move(poller)),
          calls_(std::move(calls)),
          pool_(std::move(pool)),
          regions_(pool_->regions),
          registrations_(max_regions),
          peers_(options.max_peers),
          untold_limit_(static_cast<std::uint16_t>(common.receives / 2)),
          own_events_(std::size_t{options.max_peers} * (common.transfers + options.max_posted + 8)),
          busy_(options.max_peers),
          ending_(options.max_peers) {
        pool_->users.push_back(this);
    }
    /// Before anything is made. Nothing: they are sane.
    static Result<Ok> check(std::string_view transport, const EndpointOptions& options) {
        if (options.max_peers > 0 && options.max_posted > 0 && index(options.self) < options.max_peers) return Ok{};
        return Error{std::string(transport) + ": " + node_name(options.self) + " with max_peers " +
                     std::to_string(options.max_peers) + ", max_posted " + std::to_string(options.max_posted) +
                     ": max_posted must be 1 or more, and the node's index below max_peers"};
    }
    /// At the end of the endpoint's destructor: what is registered goes before what it is registered with.
    void forget_all() {
        std::erase(pool_->users, this);
        peers_.clear();
        retired_.clear();
        registrations_.clear();
    }

    static std::uint32_t index(Peer peer) { return static_cast<std::uint32_t>(peer); }
    [[nodiscard]] bool is_up(Peer peer) const {
        return index(peer) < peers_.size() && peers_[index(peer)].state == PeerState::State::up;
    }
    void log(const std::string& line) const {
        if (options_.log) options_.log(line);
    }
    [[nodiscard]] static std::string node_name(Peer peer) { return "node " + std::to_string(index(peer)); }
    /// "node 3 at 127.0.0.1:4567"
    [[nodiscard]] std::string place_of(Peer peer) const {
        return node_name(peer) + " at " + own().calls_of(peers_[index(peer)]).to_string();
    }
    [[nodiscard]] Event control_event(Event::Kind kind, Peer peer) const {
        return {.kind = kind,
                .status = Status::ok,
                .size_or_value = 0,
                .peer = peer,
                .incarnation = peers_[index(peer)].incarnation,
                .token = 0};
    }

    // --- posting

    Post back_pressure(Peer peer, std::uint32_t transfers) {
        State& state = peers_[index(peer)];
        state.wanted = state.wants_room ? std::max(state.wanted, transfers) : transfers;
        state.wants_room = true;
        return Post::again;
    }
    Post fault(Peer peer, Token token) {
        if (token == 0) return Post::done;
        if (peers_[index(peer)].unpolled >= capabilities_.max_posted) return back_pressure(peer, 1);
        completed(peer, token, Status::remote_fault);
        return Post::pending;
    }
    void completed(Peer peer, Token token, Status status) {
        Event event = control_event(Event::Kind::completed, peer);
        event.status = status;
        event.token = token;
        ++peers_[index(peer)].unpolled;
        own_events_.must_push(event);
    }
    void give_room(Peer peer) {
        State& state = peers_[index(peer)];
        if (!state.wants_room || state.state != PeerState::State::up || state.credits() == 0 ||
            state.unpolled >= capabilities_.max_posted || !own().has_room_again(state)) {
            return;
        }
        state.wants_room = false;
        own_events_.must_push(control_event(Event::Kind::room, peer));
    }
    /// What a write goes to. Null: `answer` is what to say.
    const Import* to_write(Peer peer, Bytes head, const Slice& body, const Target& target, Token token, Post& answer);
    /// What a read comes from; the same.
    const Import* to_read(Peer peer, const Target& from, const Slice& into, Token token, Post& answer);

    // --- what was released

    void forget_waiting(Peer peer) {
        for (Retired<Registration>& each : retired_)
            each.waits_for.reset(index(peer));
        drop_retired();
    }

    // --- polling

    std::size_t take_own(std::span<Event> events);
    /// The number of receives that the peer gets back grows by one.
    void count_back(Peer peer) {
        State& state = peers_[index(peer)];
        ++state.returned;
        if (static_cast<std::uint16_t>(state.returned - state.announced) >= untold_limit_) busy_.set(index(peer));
    }
    void hear_credits(Peer peer, std::uint16_t returned) {
        State& state = peers_[index(peer)];
        const auto allowed = static_cast<std::uint16_t>(state.granted + returned);
        if (allowed == state.allowed) return;
        state.allowed = allowed;
        if (state.wants_room) give_room(peer);
        if (state.has_changes) [[unlikely]]
            busy_.set(index(peer));
    }
    /// What a peer sent that is heard: how many events it gave, 0 or 1. `counts_for`: set to whom the receive counts
    /// for.
    std::size_t hear_send(Peer peer, const Header& header, Bytes rest, std::uint32_t& counts_for, Event& event);
    /// What the peer is still to be told is posted, as far as there is room.
    void push_untold(State& state);
    /// There is something of that kind.
    [[nodiscard]] bool has_untold(const State& state) const {
        return state.has_changes || static_cast<std::uint16_t>(state.returned - state.announced) >= untold_limit_;
    }
    void push_welcome(Peer peer);

    // --- connecting and losing

    /// `is_caller`: this side calls.
    void begin_connecting(State& state, std::uint32_t incarnation, bool is_caller) {
        if (state.incarnation != incarnation) state.uses.clear();
        state.incarnation = incarnation;
        state.is_silent = state.was_welcomed = state.has_hung_up = false;
        start_timing(state);
        state.state = is_caller ? PeerState::State::dialling : PeerState::State::waiting;
    }
    void hear_socket(std::uint64_t id, Time now);
    /// A call of an older incarnation than what is known here.
    [[nodiscard]] static bool is_stale(const State& state, std::uint32_t incarnation) {
        const bool is_known = state.has_connection() || state.state == PeerState::State::joining ||
                              state.state == PeerState::State::waiting;
        return (is_known && incarnation < state.incarnation) ||
               (state.parked.is_there() && incarnation < state.parked.incarnation);
    }
    /// A node calls only when it has no connection left, so one that still looks alive here is dead.
    void make_way(Peer peer, std::uint32_t incarnation) {
        State& state = peers_[index(peer)];
        if (state.has_connection() || state.state == PeerState::State::joining ||
            (state.state == PeerState::State::waiting && incarnation > state.incarnation)) {
            state.has_hung_up = true;
            own().lose(peer, Status::peer_lost);
        }
    }
    void match(Peer peer);
    void fail(Peer peer, const std::string& why) {
        State& state = peers_[index(peer)];
        // One line per incarnation, however often its connecting is tried again.
        if (std::exchange(state.complained_of, state.incarnation) != state.incarnation)
            log(std::string(common_.transport) + ": cannot connect to " + place_of(peer) + ": " + why);
        own().lose(peer, Status::peer_lost);
    }
    void break_off(Peer peer, const std::string& why) {
        State& state = peers_[index(peer)];
        if (!state.has_connection()) return;
        log(std::string(common_.transport) + ": connection to " + place_of(peer) + " lost: " + why);
        state.is_silent = true;
        own().lose(peer, Status::peer_lost);
    }
    /// The part of losing that needs no library. `looks`: for what peers sent, so far.
    void give_up(Peer peer, Status status, std::uint64_t looks) {
        State& state = peers_[index(peer)];
        state.state = PeerState::State::ending;
        state.lost_as = status;
        state.wants_room = false;
        state.is_overdue = false;
        state.to_tell.clear();
        state.to_answer.clear();
        state.has_changes = false;
        state.ended_at = looks;
        busy_.reset(index(peer));
        ending_.set(index(peer));
        stop_timing(state);
        start_timing(state);
    }
    /// The same of what follows when all has ended.
    void be_down(Peer peer) {
        State& state = peers_[index(peer)];
        stop_timing(state);
        forget_waiting(peer);
        ending_.reset(index(peer));
        state.is_silent = state.was_welcomed = false;
        state.state = PeerState::State::idle;
        own_events_.must_push(control_event(Event::Kind::peer_down, peer));
    }
    void start_timing(State& state) {
        if (std::exchange(state.deadline, time_unset) != time_unset) ++untimed_;
    }
    void stop_timing(State& state) {
        if (std::exchange(state.deadline, time_never) == time_unset) --untimed_;
    }
    void handle_deadlines(Time now);

    Common common_;
    EndpointOptions options_;
    Capabilities capabilities_;
    os::Poller poller_;
    Calls calls_;
    std::shared_ptr<Pool> pool_;
    Regions& regions_;
    std::vector<Registration> registrations_;  // by the number of the region
    std::size_t regions_made_ = 0;             // numbers below were used
    std::vector<Retired<Registration>> retired_;
    std::vector<State> peers_;
    Imports<Import> imports_;
    std::uint16_t untold_limit_;    // so many receives are given back to a peer by a send of their own
    base::Fifo<Event> own_events_;  // connections, completions, room
    base::Bitmap busy_;             // something is to be handed to the library
    base::Bitmap ending_;
    bool look_ = true;
    std::uint32_t untimed_ = 0;  // peers whose deadline is unset
    Time last_now_ = 0;
    Time next_look_ = 0;
    Time next_deadline_ = time_never;

private:
    friend Own;
    Own& own() { return static_cast<Own&>(*this); }
    const Own& own() const { return static_cast<const Own&>(*this); }

    [[nodiscard]] static std::string no_region(Local region) {
        return "there is no region " + std::to_string(static_cast<unsigned>(region));
    }
    void sweep() {
        regions_.sweep([&](std::span<std::byte> memory) {
            return std::ranges::any_of(pool_->users, [&](const Endpoint* user) {
                return std::ranges::any_of(user->retired_,
                                           [&](const auto& each) { return each.memory.data() == memory.data(); });
            });
        });
    }
    void drop_retired() {
        if (std::erase_if(retired_, [](const auto& each) { return !each.waits_for.any(); }) > 0) sweep();
    }
    void push_changes(State& state, std::vector<Change>& changes, Header::Kind kind);
    void hear_welcome(Peer peer, const Header& header, Bytes rest);
    void hear_released(Peer peer, std::span<const Change> changes);
    void hear_answered(Peer peer, std::span<const Change> changes);
    /// Imports of what the peer has released.
    template <class IsGone>
    void mark_gone(Peer peer, IsGone is_gone) {
        const State& state = peers_[index(peer)];
        for (Import& each : imports_)
            if (each.peer == peer && each.generation == state.incarnation && is_gone(each)) each.is_gone = true;
    }
};

// --- posting
// ------------------------------------------------------------------------------------------------------------

template <class Own, class Types>
const typename Types::Import* Endpoint<Own, Types>::to_write(Peer peer, Bytes head, const Slice& body,
                                                             const Target& target, Token token, Post& answer) {
    const Import* const to = is_up(peer) ? imports_.find(target.region, peer) : nullptr;
    if (to == nullptr || head.size() > max_head_bytes || body.length > max_write_bytes ||
        (body.length > 0 && !Regions::inside(regions_.memory(body.region).size(), body.offset, body.length)))
        [[unlikely]] {
        answer = Post::refused;
        return nullptr;
    }
    if (to->generation == peers_[index(peer)].incarnation && to->may_write && !to->is_gone &&
        Regions::inside(to->bytes, target.offset, head.size() + body.length)) [[likely]] {
        return to;
    }
    answer = fault(peer, token);
    return nullptr;
}

template <class Own, class Types>
const typename Types::Import* Endpoint<Own, Types>::to_read(Peer peer, const Target& from, const Slice& into,
                                                            Token token, Post& answer) {
    const Import* const source = is_up(peer) ? imports_.find(from.region, peer) : nullptr;
    if (source == nullptr || into.length > max_write_bytes ||
        !Regions::inside(regions_.memory(into.region).size(), into.offset, into.length)) {
        answer = Post::refused;
        return nullptr;
    }
    if (source->generation == peers_[index(peer)].incarnation && !source->is_gone &&
        Regions::inside(source->bytes, from.offset, into.length)) {
        answer = Post::done;
        return into.length == 0 ? nullptr : source;
    }
    answer = fault(peer, token);
    return nullptr;
}

// --- polling
// ------------------------------------------------------------------------------------------------------------

template <class Own, class Types>
std::size_t Endpoint<Own, Types>::take_own(std::span<Event> events) {
    std::size_t count = 0;
    while (count < events.size() && !own_events_.empty()) {
        const Event event = own_events_.front();
        own_events_.pop();
        if (event.kind == Event::Kind::completed) {
            State& state = peers_[index(event.peer)];
            --state.unpolled;
            if (state.wants_room) give_room(event.peer);
        }
        events[count++] = event;
    }
    return count;
}

template <class Own, class Types>
void Endpoint<Own, Types>::push_changes(State& state, std::vector<Change>& changes, Header::Kind kind) {
    while (!changes.empty() && state.credits() > 0 && own().has_send(state, 2)) {
        const std::size_t many = std::min(changes.size(), max_changes);
        // What was posted with the old keys, reads among it, ends before an answer leaves.
        std::byte* const to = own().push(state, {.kind = kind, .value = static_cast<std::uint16_t>(many)},
                                         many * sizeof(Change), kind == Header::Kind::heard);
        if (to == nullptr) return;
        std::memcpy(to, changes.data(), many * sizeof(Change));
        changes.erase(changes.begin(), changes.begin() + static_cast<std::ptrdiff_t>(many));
        ++state.used;
    }
}

template <class Own, class Types>
void Endpoint<Own, Types>::push_untold(State& state) {
    if (state.state != PeerState::State::up) return;
    if (state.has_changes) [[unlikely]] {
        push_changes(state, state.to_tell, Header::Kind::released);
        push_changes(state, state.to_answer, Header::Kind::heard);
        state.has_changes = !state.to_tell.empty() || !state.to_answer.empty();
    }
    const auto untold = static_cast<std::uint16_t>(state.returned - state.announced);
    if (untold >= untold_limit_ && own().has_send(state, 1))
        (void)own().push(state, {.kind = Header::Kind::credits}, 0, false);
}

template <class Own, class Types>
void Endpoint<Own, Types>::push_welcome(Peer peer) {
    State& state = peers_[index(peer)];
    const auto many = static_cast<std::uint16_t>(regions_made_);
    const Welcome welcome{.receives = common_.receives};
    std::byte* const to =
        own().push(state, {.kind = Header::Kind::welcome, .value = many}, sizeof welcome + 2 * regions_made_, false);
    if (to == nullptr) return break_off(peer, "no room for its welcome");
    std::memcpy(to, &welcome, sizeof welcome);
    for (std::uint16_t region = 0; region < many; ++region) {
        const std::uint16_t use = regions_.use(Local{region});
        std::memcpy(to + sizeof welcome + 2 * std::size_t{region}, &use, sizeof use);
    }
    state.was_welcomed = true;
    busy_.set(index(peer));
}

template <class Own, class Types>
std::size_t Endpoint<Own, Types>::hear_send(Peer peer, const Header& header, Bytes rest, std::uint32_t& counts_for,
                                            Event& event) {
    State& state = peers_[index(peer)];
    const bool is_welcome = header.kind == Header::Kind::welcome;
    if (is_welcome != (state.state == PeerState::State::greeting)) {
        break_off(peer, is_welcome ? "a second welcome" : "it sent something before its welcome");
        return 0;
    }
    if (is_welcome) {
        hear_welcome(peer, header, rest);
        return 0;
    }
    if (is_nonsense(header, rest.size())) {
        break_off(peer, "it sent what is no message of this transport");
        return 0;
    }
    if (header.kind != Header::Kind::credits) counts_for = index(peer);
    hear_credits(peer, header.credits);
    switch (header.kind) {
        case Header::Kind::message:
            event = control_event(Event::Kind::message, peer);
            event.size_or_value = static_cast<std::uint16_t>(rest.size());
            event.data = rest.data();
            return 1;
        case Header::Kind::notice:
            event = control_event(Event::Kind::notice, peer);
            event.size_or_value = header.value;
            return 1;
        case Header::Kind::released:
        case Header::Kind::heard: {
            std::vector<Change> changes(header.value);
            std::memcpy(changes.data(), rest.data(), rest.size());
            header.kind == Header::Kind::released ? hear_released(peer, changes) : hear_answered(peer, changes);
            return 0;
        }
        default:
            return 0;
    }
}

template <class Own, class Types>
void Endpoint<Own, Types>::hear_welcome(Peer peer, const Header& header, Bytes rest) {
    State& state = peers_[index(peer)];
    Welcome welcome;
    if (rest.size() != sizeof welcome + 2 * std::size_t{header.value} || header.value > max_regions)
        return break_off(peer, "its welcome is malformed");
    std::memcpy(&welcome, rest.data(), sizeof welcome);
    if (welcome.receives == 0 || welcome.receives > max_receives) return break_off(peer, "its welcome is malformed");
    state.granted = state.allowed = static_cast<std::uint16_t>(welcome.receives);
    state.uses.assign(header.value, 0);
    if (header.value > 0) std::memcpy(state.uses.data(), rest.data() + sizeof welcome, 2 * std::size_t{header.value});
    mark_gone(peer, [&](const Import& each) {
        return each.region < state.uses.size() && each.use < state.uses[each.region];
    });
    if (!state.was_welcomed) own().push_welcome(peer);
    if (state.state != PeerState::State::greeting) return;
    if (!state.has_hung_up) stop_timing(state);
    state.state = PeerState::State::up;
    own_events_.must_push(control_event(Event::Kind::peer_up, peer));
}

// --- connecting
// ---------------------------------------------------------------------------------------------------------

template <class Own, class Types>
void Endpoint<Own, Types>::hear_socket(std::uint64_t id, Time now) {
    if (id == listener_id) {
        calls_.accept_all(poller_, now);
        next_deadline_ = std::min(next_deadline_, calls_.next_deadline());
        return;
    }
    const auto number = static_cast<std::uint32_t>(id);
    const std::uint64_t kind = id - number;
    if (kind == calls_id) {
        if (auto whole = calls_.advance(poller_, number)) own().hear_call(std::move(*whole));
        return;
    }
    if (kind == 0) return;
    const Peer peer{number};
    State& state = peers_[number];
    if (kind == parked_id) {
        if (state.parked.socket.is_open() && has_ended(state.parked.socket)) state.parked = {};
    } else if (!state.socket.is_open()) {
        return;
    } else if (state.state == PeerState::State::dialling) {
        own().advance_dial(peer);
    } else if (has_ended(state.socket)) {
        own().hang_up(peer);
    }
}

template <class Own, class Types>
void Endpoint<Own, Types>::match(Peer peer) {
    State& state = peers_[index(peer)];
    if (state.state != PeerState::State::waiting || !state.parked.is_there()) return;
    if (state.parked.incarnation > state.incarnation) return own().lose(peer, Status::peer_lost);
    if (state.parked.incarnation < state.incarnation)
        return own().refuse(std::exchange(state.parked, {}), Verdict::stale_incarnation);
    own().let_in(peer);
}

template <class Own, class Types>
void Endpoint<Own, Types>::handle_deadlines(Time now) {
    calls_.expire(now);
    next_deadline_ = calls_.next_deadline();
    for (std::uint32_t number = 0; number < peers_.size(); ++number) {
        State& state = peers_[number];
        const bool is_ending = state.state == PeerState::State::ending;
        if (state.deadline == time_unset) {
            state.deadline = now + (is_ending || state.has_hung_up ? ending_timeout : common_.connect_timeout);
            --untimed_;
        } else if (now >= state.deadline && is_ending) {
            state.is_overdue = true;
            state.deadline = time_never;
        } else if (now >= state.deadline && state.has_hung_up) {
            own().lose(Peer{number}, Status::peer_lost);
        } else if (now >= state.deadline) {
            fail(Peer{number},
                 state.state == PeerState::State::waiting ? "it did not call in time" : "no answer in time");
        }
        next_deadline_ = std::min(next_deadline_, state.deadline);
    }
    if (untimed_ > 0) next_deadline_ = now;
}

}  // namespace incast::transport::rma

#include "transport/rma/memory.h"  // the rest of it

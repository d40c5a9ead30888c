// Connecting and losing peers by calls beside the fabric (libfabric, UCX). The node with the lower number calls the
// other one over TCP and says its hello; who is called answers once its owner has called connect(). Then they meet on
// the fabric. Each side sends a welcome, and a peer is up for whoever has received it. The TCP connection stays,
// without a word: its end says that the peer is gone, or lets go, whatever the library finds out by itself.
//
// Where the endpoint can be fenced it is closed by who gives its peer up, and nothing of the peer lands from then on.
// Elsewhere nobody can be kept from writing: who gives up ends its half of the TCP connection when nothing of its own
// is under way, and a peer is down once its half has ended.
#pragma once

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <system_error>
#include <utility>

#include "transport/calls/hello.h"
#include "transport/rma/endpoint.h"

namespace incast::transport::rma {

/// The first bytes of a call. `attempt`: of this connection alone.
template <std::uint32_t number>
struct BasicCall {
    BasicHello<number> hello;
    std::uint64_t attempt = 0;
};
static_assert(sizeof(BasicCall<0>) == 48);

template <std::uint32_t number>
struct BasicAnswer {
    static constexpr std::uint32_t expected_magic = number;
    std::uint32_t magic = expected_magic;
    Verdict verdict = Verdict::malformed;
};
static_assert(sizeof(BasicAnswer<0>) == 8);

/// Who called, and is to be let in or turned away.
struct Caller {
    os::Descriptor socket;
    std::uint64_t attempt = 0;
    std::uint32_t incarnation = 0;
    [[nodiscard]] bool is_there() const { return socket.is_open(); }
};

struct CalledPeer : PeerState {
    bool has_said_bye = false;  // to it: nothing of this side lands there any more
    std::uint64_t attempt = 0;  // the connection's number
    std::array<std::byte, sizeof(BasicAnswer<0>)> answer{};
    Caller parked;  // this side has not called connect() yet
};

/// `Types` has Call (a BasicCall) and Answer (a BasicAnswer), too.
template <class Own, class Types>
class CallingEndpoint : public Endpoint<Own, Types> {
    using Base = Endpoint<Own, Types>;

public:
    void ended(Peer peer, std::uint32_t incarnation) final {
        if (index(peer) >= peers_.size()) return;
        State& state = peers_[index(peer)];
        if (state.state == PeerState::State::idle || state.incarnation != incarnation) return;
        state.has_hung_up = true;
        if (state.state == PeerState::State::ending) {
            state.ended_at = own().looks();
        } else {
            lose(peer, Status::peer_lost);
        }
    }

protected:
    using State = typename Types::State;
    using Base::index;
    using Base::options_;
    using Base::peers_;
    using Base::poller_;
    using typename Base::Pool;

    /// This node's number at that peer.
    [[nodiscard]] std::uint32_t self_at(Peer /*peer*/) const { return index(options_.self); }

    /// After begin_connecting(): calls, or looks who has.
    void start_connecting(Peer peer) {
        State& state = peers_[index(peer)];
        state.has_said_bye = false;
        state.state == PeerState::State::dialling ? call(peer) : Base::match(peer);
    }
    void greet(Peer peer) { peers_[index(peer)].state = PeerState::State::greeting; }
    void advance_dial(Peer peer);
    void hear_call(Calls::Whole whole);
    static void refuse(Caller caller, Verdict verdict) {
        const typename Types::Answer answer{.verdict = verdict};
        (void)say(caller.socket, std::as_bytes(std::span(&answer, 1)));
    }
    void let_in(Peer peer);
    void hang_up(Peer peer);
    void lose(Peer peer, Status status);
    /// Of one that was given up.
    [[nodiscard]] bool is_over(const State& state) const {
        return state.has_hung_up && (own().is_quiet(state) || state.is_overdue) && own().looks_empty() > state.ended_at;
    }
    void finish_ended();
    /// Once all of it has ended: for the caller to give its completions before.
    void be_down(Peer peer) {
        peers_[index(peer)].socket.close();
        Base::be_down(peer);
    }

private:
    friend Base;
    friend Own;
    CallingEndpoint(const Common& common, const EndpointOptions& options, Time ack_deadline, os::Poller poller,
                    os::Descriptor listener, std::shared_ptr<Pool> pool)
        : Base(common, options, std::move(poller),
               Calls({.transport = common.transport, .magic = call_magic, .bytes = sizeof(typename Types::Call)},
                     std::move(listener), common.connect_timeout, options.log),
               std::move(pool)),
          ack_deadline_(ack_deadline) {}

    static constexpr std::uint32_t call_magic = decltype(Types::Call::hello)::expected_magic;

    Own& own() { return static_cast<Own&>(*this); }
    const Own& own() const { return static_cast<const Own&>(*this); }
    static std::string reason(int error) { return std::generic_category().message(error); }

    void watch(Peer peer) {
        // By edges: nothing of it is left to be read when an event has been heard.
        if (!poller_.add(peers_[index(peer)].socket, EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET,
                         Base::peers_id + index(peer)))
            Base::fail(peer, "its connection cannot be watched: " + reason(errno));
    }
    void call(Peer peer);
    void hear_answer(Peer peer);
    void say_bye(State& state) {
        if (state.has_said_bye || state.has_hung_up || !own().is_quiet(state)) return;
        state.has_said_bye = true;
        (void)::shutdown(state.socket.fd(), SHUT_WR);
    }

    Time ack_deadline_;
    std::uint64_t attempts_ = 0;
};

// --- calling, and being called
// -----------------------------------------------------------------------------------------------------------

template <class Own, class Types>
void CallingEndpoint<Own, Types>::call(Peer peer) {
    State& state = peers_[index(peer)];
    state.has_called = false;
    state.answered = 0;
    const std::uint64_t number = (options_.run + ++attempts_ + (std::uint64_t{options_.incarnation} << 32) +
                                  (std::uint64_t{index(options_.self)} << 48)) *
                                 0x9E3779B97F4A7C15;
    state.attempt = number ^ number >> 32;
    auto socket = transport::dial(own().calls_of(state));
    if (!socket) return Base::fail(peer, socket.error().message);
    state.socket = std::move(*socket);
    keep_alive(state.socket, ack_deadline_);
    watch(peer);
}

template <class Own, class Types>
void CallingEndpoint<Own, Types>::advance_dial(Peer peer) {
    State& state = peers_[index(peer)];
    if (const int error = connect_error(state.socket); error != 0)
        return Base::fail(peer, error == ECONNREFUSED ? "nobody listens there" : reason(error));
    if (!state.has_called) {
        const typename Types::Call call{.hello = {.run = options_.run,
                                                  .token = options_.token,
                                                  .from = index(options_.self),
                                                  .from_incarnation = options_.incarnation,
                                                  .to = index(peer),
                                                  .to_incarnation = state.incarnation},
                                        .attempt = state.attempt};
        // Not connected yet if this fails without an error of the socket: a later event decides.
        state.has_called = say(state.socket, std::as_bytes(std::span(&call, 1)));
    }
    switch (transport::hear_answer(state.socket, state.answer, state.answered)) {
        case Answered::not_yet:
            return;
        case Answered::ended:
            return lose(peer, Status::peer_lost);  // it gave up, as quiet as any end
        case Answered::whole:
            return hear_answer(peer);
    }
}

template <class Own, class Types>
void CallingEndpoint<Own, Types>::hear_answer(Peer peer) {
    State& state = peers_[index(peer)];
    typename Types::Answer answer;
    std::memcpy(&answer, state.answer.data(), sizeof answer);
    if (answer.magic != Types::Answer::expected_magic || answer.verdict > Verdict::unfit)
        return Base::fail(peer, "what answers there is no node of this transport");
    if (answer.verdict != Verdict::accepted)
        return Base::fail(peer, std::string("refused: ") + to_string(answer.verdict));
    state.state = PeerState::State::joining;
    if (!own().begin(peer)) return;
    own().meet(peer);
    if (has_ended(state.socket)) hang_up(peer);
}

template <class Own, class Types>
void CallingEndpoint<Own, Types>::hear_call(Calls::Whole whole) {
    typename Types::Call call;
    const Verdict verdict =
        judge(whole.bytes, {options_.run, options_.token, index(options_.self), options_.incarnation}, call.hello);
    std::memcpy(&call, whole.bytes.data(), sizeof call);
    Caller caller{
        .socket = std::move(whole.socket), .attempt = call.attempt, .incarnation = call.hello.from_incarnation};
    if (verdict != Verdict::accepted) {
        Base::log(std::string(Base::common_.transport) + ": a connection from " + whole.from +
                  " was refused: " + to_string(verdict));
        return refuse(std::move(caller), verdict);
    }
    const Peer peer{call.hello.from};
    if (Base::is_stale(peers_[index(peer)], caller.incarnation) || own().is_useless())
        return refuse(std::move(caller), Verdict::stale_incarnation);
    if (!poller_.add(caller.socket, EPOLLIN | EPOLLRDHUP, Base::parked_id + index(peer))) return;
    Base::make_way(peer, caller.incarnation);
    peers_[index(peer)].parked = std::move(caller);
    Base::match(peer);
}

template <class Own, class Types>
void CallingEndpoint<Own, Types>::let_in(Peer peer) {
    State& state = peers_[index(peer)];
    Caller caller = std::exchange(state.parked, {});
    poller_.remove(caller.socket);
    state.attempt = caller.attempt;
    state.socket = std::move(caller.socket);
    keep_alive(state.socket, ack_deadline_);
    watch(peer);
    if (state.state != PeerState::State::waiting) return;
    state.state = PeerState::State::joining;
    if (!own().begin(peer)) return;
    if (!own().is_fenced()) greet(peer);
    const typename Types::Answer answer{.verdict = Verdict::accepted};
    if (!say(state.socket, std::as_bytes(std::span(&answer, 1)))) hang_up(peer);
}

// --- losing
// -------------------------------------------------------------------------------------------------------------

template <class Own, class Types>
void CallingEndpoint<Own, Types>::hang_up(Peer peer) {
    State& state = peers_[index(peer)];
    if (std::exchange(state.has_hung_up, true)) return;
    if (state.state == PeerState::State::ending) {
        state.ended_at = own().looks();  // it may have written until now
        return;
    }
    if (!own().is_fenced() || !state.has_connection()) return lose(peer, Status::peer_lost);
    // What it had sent is heard first: the connection on the fabric ends behind it.
    Base::stop_timing(state);
    Base::start_timing(state);
}

template <class Own, class Types>
void CallingEndpoint<Own, Types>::lose(Peer peer, Status status) {
    State& state = peers_[index(peer)];
    if (state.state == PeerState::State::ending) return;
    if (state.state != PeerState::State::up) state.is_silent = true;
    // Elsewhere a peer that this side never met writes nothing.
    if (own().is_fenced() || !state.has_connection()) state.has_hung_up = true;
    Base::give_up(peer, status, own().looks());
    own().cut(peer);
    if (state.has_hung_up) state.socket.close();
}

template <class Own, class Types>
void CallingEndpoint<Own, Types>::finish_ended() {
    auto& ending = Base::ending_;
    for (std::size_t number = ending.next(0); number != base::Bitmap::none; number = ending.next(number + 1)) {
        say_bye(peers_[number]);
        if (is_over(peers_[number])) own().finish(Peer{static_cast<std::uint32_t>(number)});
    }
}

}  // namespace incast::transport::rma

// Connections by exchanged addresses, where rdma_cm cannot be used: who dials says its hello and the address of its
// queue pair over TCP, and gets the other one's. The TCP connection stays, without a word: its end says that the peer
// is gone, as rdma_cm would.
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <span>
#include <string>
#include <utility>

#include "transport/verbs/descriptor/descriptor.h"
#include "transport/verbs/endpoint.h"

namespace incast::transport::verbs {

bool Endpoint::watch_exchange() {
    epoll_event event{.events = EPOLLIN, .data = {.u64 = device_id}};
    return ::epoll_ctl(poller_.fd(), EPOLL_CTL_ADD, device_.opened->async_fd, &event) == 0 &&
           calls_.watch(poller_, listener_id, calls_id);
}

void Endpoint::hear_device() {
    ibv_async_event event{};
    while (ibv_get_async_event(device_.context(), &event) == 0) {
        ibv_ack_async_event(&event);
        if (event.event_type == IBV_EVENT_DEVICE_FATAL) remove_device();
    }
}

PairAddress Endpoint::address_of(const PeerState& state) {
    // Another first packet for each connection: late ones of an earlier one are none of it.
    const std::uint64_t mixed = (options_.run + pairs_made_ + (std::uint64_t{options_.incarnation} << 32) +
                                 (std::uint64_t{index(options_.self)} << 48)) *
                                0x9E3779B97F4A7C15;
    return {.gid = device_.port.gid,
            .pair = state.pair_number,
            .psn = static_cast<std::uint32_t>(mixed >> 40),
            .lid = device_.port.lid,
            .mtu = device_.port.mtu,
            .link = device_.port.link,
            .gid_type = device_.port.gid_type,
            .responder_reads = device_.responder_reads,
            .initiator_reads = device_.initiator_reads};
}

// --- dialling
// -----------------------------------------------------------------------------------------------------------

void Endpoint::dial_by_exchange(Peer peer) {
    PeerState& state = peers_[index(peer)];
    state.has_called = false;
    state.answered = 0;
    auto socket = transport::dial(state.address);
    if (!socket) return fail(peer, socket.error().message);
    state.socket = std::move(*socket);
    // By edges: nothing of it is left to be read when an event has been heard.
    if (!poller_.add(state.socket, EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET, peers_id + index(peer)))
        fail(peer, "its connection cannot be watched: " + reason(errno));
}

void Endpoint::advance_dial(Peer peer) {
    PeerState& state = peers_[index(peer)];
    if (const int error = connect_error(state.socket); error != 0)
        return fail(peer, error == ECONNREFUSED ? "nobody listens there" : reason(error));
    if (!state.has_called) {
        if (state.pair == nullptr) {
            if (!make_pair(peer)) return;
            state.own = address_of(state);
            state.own.ece = ece_of(state.pair);
        }
        const Call call{.hello = hello_for(peer), .from = state.own};
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

void Endpoint::hear_answer(Peer peer) {
    PeerState& state = peers_[index(peer)];
    Answer answer;
    if (!read_answer(state.answer, answer)) return fail(peer, "what answers there is no node of this transport");
    if (answer.verdict != Verdict::accepted) return fail(peer, std::string("refused: ") + to_string(answer.verdict));
    if (const std::string why = unfit(device_.port, answer.from); !why.empty()) return fail(peer, why);
    if (const Ece ece = answer.from.ece; ece.vendor != 0) {
        const int error = set_ece(state.pair, ece);
        if (error != 0) {
            return fail(peer, device_.name() + " does not take the ECE options " + std::to_string(ece.options) +
                                  " of vendor " + std::to_string(ece.vendor) +
                                  " that were accepted there: " + reason(error));
        }
    }
    const auto connected = connect_pair(state.pair, settings_.path, device_.port, state.own, answer.from);
    if (!connected) return fail(peer, connected.error().message);
    greet(peer);
    push_welcome(peer);
    if (state.socket.is_open() && has_ended(state.socket)) lose(peer, Status::peer_lost);
}

// --- being dialled
// ------------------------------------------------------------------------------------------------------

void Endpoint::hear_call(Calls::Whole whole) {
    Call call;
    Caller caller;
    const Verdict verdict = judge_call(whole.bytes, expected(whole.bytes), call);
    caller.socket = std::move(whole.socket);
    caller.from = call.from;
    if (verdict != Verdict::accepted) {
        log(std::string(transport_name) + ": a connection from " + whole.from + " was refused: " + to_string(verdict));
        return refuse(std::move(caller), verdict);
    }
    if (poller_.add(caller.socket, EPOLLIN | EPOLLRDHUP, parked_id + call.hello.from))
        admit(std::move(caller), call.hello);
}

void Endpoint::let_in_by_exchange(Peer peer) {
    PeerState& state = peers_[index(peer)];
    Caller caller = std::exchange(state.parked, {});
    if (const std::string why = unfit(device_.port, caller.from); !why.empty()) {
        refuse(std::move(caller), Verdict::unfit);
        return fail(peer, why);
    }
    state.socket = std::move(caller.socket);
    poller_.remove(state.socket);
    if (!poller_.add(state.socket, EPOLLIN | EPOLLRDHUP, peers_id + index(peer)))
        return fail(peer, "its connection cannot be watched: " + reason(errno));
    if (!make_pair(peer)) return;
    state.own = address_of(state);
    // Of another vendor's device nothing is accepted.
    const bool has_ece = caller.from.ece.vendor != 0 && set_ece(state.pair, caller.from.ece) == 0;
    const auto connected = connect_pair(state.pair, settings_.path, device_.port, state.own, caller.from);
    if (!connected) return fail(peer, connected.error().message);
    if (has_ece) state.own.ece = ece_of(state.pair);
    const Answer answer{.verdict = Verdict::accepted, .from = state.own};
    if (!say(state.socket, std::as_bytes(std::span(&answer, 1)))) return lose(peer, Status::peer_lost);
    greet(peer);
}

}  // namespace incast::transport::verbs

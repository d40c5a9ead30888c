// Connecting and losing peers. The node with the lower number at the other one dials, by rdma_cm or by a TCP
// connection, and says its hello with that; who is dialled lets it in once its owner has called connect(). Then each
// side sends a welcome, and a peer is up for whoever has received it. What ends a connection moves its queue pair to
// the error state first: from then on nothing of the peer lands.
#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <tuple>
#include <utility>

#include "transport/verbs/descriptor/descriptor.h"
#include "transport/verbs/endpoint.h"

namespace incast::transport::verbs {

namespace {

constexpr std::uint32_t least_invitation = std::uint32_t{1} << 31U;  // above the number of any node

}  // namespace

Post Endpoint::connect(Peer peer, const Blob& blob, std::uint32_t incarnation) {
    const std::optional<Address> address = address_in(blob, rail_);
    if (index(peer) >= peers_.size() || peer == options_.self || !address) return Post::refused;
    PeerState& state = peers_[index(peer)];
    const bool is_for_one = address->invitation != 0;
    if (is_for_one ? state.invitation == 0 : address->node != index(peer)) return Post::refused;
    if (const auto answer =
            answer_to_connect(state.connection(), state.incarnation, incarnation, [&] { disconnect(peer); })) {
        return *answer;
    }
    if (is_for_one) state.uses.clear();
    if (!is_for_one) state.invitation = 0;
    state.invited_to = address->invitation;
    state.there = is_for_one ? address->node : index(options_.self);
    state.address = address->socket();
    begin_connecting(state, incarnation, dials(peer));
    if (device_is_gone_) {
        lose(peer, Status::peer_lost);
    } else if ((address->by_exchange != 0) != exchanges()) {
        const std::array<const char*, 2> ways{"rdma_cm", "exchanged addresses"};
        fail(peer, std::string("it connects by ") + ways[exchanges() ? 0 : 1] + ", and this node by " +
                       ways[exchanges() ? 1 : 0] + ": set transport.verbs.connect alike");
    } else if (address->rails != settings_.rails) {
        fail(peer, "it has " + std::to_string(address->rails) + " rails, and this node " +
                       std::to_string(settings_.rails) + ": set transport.verbs.device or bind alike");
    } else if (state.state == PeerState::State::dialling) {
        start_dialling(peer);
    } else {
        match(peer);
    }
    return Post::pending;
}

void Endpoint::ended(Peer peer, std::uint32_t incarnation) {
    if (index(peer) >= peers_.size()) return;
    const PeerState& state = peers_[index(peer)];
    const bool is_known = state.state != PeerState::State::idle && state.state != PeerState::State::ending;
    if (is_known && state.incarnation == incarnation) lose(peer, Status::peer_lost);
}

// --- dialling, and being dialled
// -----------------------------------------------------------------------------------------------------------

Address Endpoint::own_address() const {
    Address made(index(options_.self), device_.address);
    made.by_exchange = exchanges() ? 1 : 0;
    made.rails = settings_.rails;
    return made;
}

Blob Endpoint::address() const {
    return to_blob(own_address());
}

Blob Endpoint::address_for(Peer peer) {
    if (peer == options_.self || !is_idle(peer)) return {};
    PeerState& state = peers_[index(peer)];
    drop(state.parked);  // who had the number before
    state.complained_of = 0;
    std::random_device random;
    state.invitation = least_invitation | random();
    Address made = own_address();
    made.node = index(peer);
    made.invitation = state.invitation;
    return to_blob(made);
}

bool Endpoint::dials(Peer peer) const {
    const PeerState& state = peers_[index(peer)];
    if (state.there != index(peer)) return state.there < index(peer);
    const Address here(0, device_.address);
    const Address there(0, state.address);
    return std::tie(here.ip, here.port) < std::tie(there.ip, there.port);
}

void Endpoint::start_dialling(Peer peer) {
    exchanges() ? dial_by_exchange(peer) : dial_by_cm(peer);
}

Hello Endpoint::hello_for(Peer peer) const {
    const PeerState& state = peers_[index(peer)];
    return {.run = options_.run,
            .token = options_.token,
            .from = state.there,
            .from_incarnation = options_.incarnation,
            .to = state.invited_to != 0 ? state.invited_to : index(peer),
            .to_incarnation = state.incarnation};
}

Expected Endpoint::expected(Bytes bytes) const {
    Expected made{options_.run, options_.token, index(options_.self), options_.incarnation};
    Hello said;
    if (bytes.size() < sizeof said) return made;
    std::memcpy(&said, bytes.data(), sizeof said);
    if (said.from < peers_.size() && peers_[said.from].invitation != 0) made.self = peers_[said.from].invitation;
    return made;
}

/// An errno.
int Endpoint::create_pair(PeerState& state, ibv_qp_init_attr& wanted) {
    if (state.id != nullptr) {
        const bool is_made = rdma_create_qp(state.id, device_.domain.get(), &wanted) == 0;
        state.pair = state.id->qp;
        return is_made ? 0 : errno;
    }
    state.pair = ibv_create_qp(device_.domain.get(), &wanted);
    return state.pair == nullptr ? errno : begin_pair(state.pair, device_.port);
}

void Endpoint::destroy_pair(PeerState& state) {
    if (state.pair == nullptr) return;
    if (state.id != nullptr) {
        rdma_destroy_qp(state.id);
    } else {
        (void)ibv_destroy_qp(state.pair);
    }
    state.pair = nullptr;
}

/// And all that a connection begins with.
bool Endpoint::make_pair(Peer peer) {
    PeerState& state = peers_[index(peer)];
    if (state.id != nullptr && state.id->verbs != device_.context()) {
        fail(peer, "it is reached by another device than " + device_.name());
        return false;
    }
    if (const auto taken = take_share(peer); !taken) {
        fail(peer, taken.error().message);
        return false;
    }
    // The device says only when asked how much fits into a request.
    int failed = 0;
    for (const std::uint32_t inline_bytes : std::array<std::uint32_t, 3>{settings_.inline_bytes, 64, 0}) {
        if (inline_bytes > settings_.inline_bytes) continue;
        ibv_qp_init_attr wanted{};
        wanted.send_cq = device_.sent.get();
        wanted.recv_cq = device_.received.get();
        wanted.srq = device_.receives.get();
        wanted.qp_type = IBV_QPT_RC;
        wanted.cap.max_send_wr = settings_.send_queue;
        wanted.cap.max_send_sge = 2;
        wanted.cap.max_inline_data = inline_bytes;
        failed = create_pair(state, wanted);
        if (failed != 0) {
            destroy_pair(state);
            continue;
        }
        state.inline_bytes = std::min(wanted.cap.max_inline_data, settings_.inline_bytes);
        break;
    }
    if (failed != 0) {
        fail(peer, device_.name() + " makes no queue pair: " + reason(failed));
        return false;
    }
    state.pair_number = state.pair->qp_num;
    pairs_.add(state.pair_number, index(peer));
    state.share.out->start();
    state.clear_credits();
    state.was_welcomed = state.is_wedged = false;
    ++pairs_made_;
    return true;
}

void Endpoint::greet(Peer peer) {
    PeerState& state = peers_[index(peer)];
    state.state = PeerState::State::greeting;
    connected_.set(index(peer));
}

void Endpoint::refuse(Caller caller, Verdict verdict) {
    if (caller.id != nullptr) {
        const Refusal refusal{.verdict = verdict};
        (void)rdma_reject(caller.id, &refusal, sizeof refusal);
        (void)rdma_destroy_id(caller.id);
    } else {
        Answer answer;
        answer.verdict = verdict;
        (void)say(caller.socket, std::as_bytes(std::span(&answer, 1)));
    }
}

void Endpoint::drop(Caller& caller) {
    caller.socket.close();
    rdma_cm_id* const id = std::exchange(caller.id, nullptr);
    if (id == nullptr) return;
    (void)rdma_reject(id, nullptr, 0);
    (void)rdma_destroy_id(id);
}

void Endpoint::admit(Caller caller, const Hello& hello) {
    const Peer peer{hello.from};
    PeerState& state = peers_[hello.from];
    if (is_stale(state, hello.from_incarnation) || device_is_gone_)
        return refuse(std::move(caller), Verdict::stale_incarnation);
    make_way(peer, hello.from_incarnation);
    drop(state.parked);
    state.parked = std::move(caller);
    state.parked.incarnation = hello.from_incarnation;
    match(peer);
}

// --- losing
// -------------------------------------------------------------------------------------------------------------

void Endpoint::lose(Peer peer, Status status) {
    PeerState& state = peers_[index(peer)];
    give_up(peer, status, receive_polls_);
    connected_.reset(index(peer));
    if (state.pair != nullptr) {
        // The fence. rdma_cm would do so too, but only for what it takes for connected.
        ibv_qp_attr error{};
        error.qp_state = IBV_QPS_ERR;
        (void)ibv_modify_qp(state.pair, &error, IBV_QP_STATE);
        if (state.id != nullptr) (void)rdma_disconnect(state.id);
    }
    state.socket.close();
}

void Endpoint::finish_ended() {
    for (std::size_t number = ending_.next(0); number != base::Bitmap::none; number = ending_.next(number + 1)) {
        const PeerState& state = peers_[number];
        const bool has_pair = state.pair != nullptr && !device_is_gone_;
        const bool is_quiet = !has_pair || (state.share.out->is_quiet() && seen_empty_ > state.ended_at);
        if (is_quiet || state.is_overdue) finish(Peer{static_cast<std::uint32_t>(number)});
    }
}

void Endpoint::finish(Peer peer) {
    PeerState& state = peers_[index(peer)];
    if (state.share.out != nullptr) {
        state.share.out->end_all([&](Token token, bool) { completed(peer, token, state.lost_as); });
    }
    if (state.pair != nullptr) pairs_.remove(state.pair_number);
    destroy_pair(state);
    if (state.id != nullptr) (void)rdma_destroy_id(std::exchange(state.id, nullptr));
    be_down(peer);
}

void Endpoint::remove_device() {
    if (std::exchange(device_is_gone_, true)) return;
    settings_.removed->set(device_.name());  // its owner makes another endpoint, and is told then
    if (settings_.rails > 1) {
        log(std::string(transport_name) + ": the RDMA device " + device_.name() + " was removed: rail " +
            std::to_string(rail_ + 1) + " of " + std::to_string(settings_.rails) + " is lost with the peers on it");
    }
    for (std::uint32_t number = 0; number < peers_.size(); ++number) {
        const Connection how = peers_[number].connection();
        if (how == Connection::up || how == Connection::opening) lose(Peer{number}, Status::peer_lost);
        drop(peers_[number].parked);
    }
}

}  // namespace incast::transport::verbs

// Connecting and losing peers. The node with the lower number dials, by rdma_cm; its hello is the private data of that,
// and who is dialled lets it in once its owner has called connect(). Then each side sends a welcome, and a peer is up
// for whoever has received it. What ends a connection moves its queue pair to the error state first: from then on
// nothing of the peer lands.
#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <optional>
#include <string>
#include <utility>

#include "transport/verbs/descriptor/descriptor.h"
#include "transport/verbs/endpoint.h"

namespace incast::transport::verbs {

namespace {

constexpr int resolve_timeout_ms = 2000;
constexpr Time ending_timeout = ps_per_s;  // the device says what became of requests by then, or it is not asked
// Reasons of a rejection that are no refusal of the peer's: from InfiniBand's connection manager, and from iWARP's.
constexpr int nobody_listens = 8;
constexpr int consumer_rejects = 28;

void* context_of(Peer peer) {
    // rdma_cm keeps a pointer, which is a number here. NOLINTNEXTLINE(performance-no-int-to-ptr)
    return reinterpret_cast<void*>(static_cast<std::uintptr_t>(peer) + 1);
}

std::string why_rejected(const rdma_cm_event& event) {
    Refusal refusal;
    if (event.param.conn.private_data != nullptr && event.param.conn.private_data_len >= sizeof refusal) {
        std::memcpy(&refusal, event.param.conn.private_data, sizeof refusal);
        if (refusal.magic == Refusal::expected_magic) return std::string("refused: ") + to_string(refusal.verdict);
    }
    if (event.status == nobody_listens || event.status == -ECONNREFUSED || event.status == ECONNREFUSED)
        return "nobody listens there";
    if (event.status == consumer_rejects || event.status == -ECONNRESET) return {};  // it gave up, as quiet as any end
    return "rejected, with status " + std::to_string(event.status);
}

}  // namespace

Post Endpoint::connect(Peer peer, const Blob& blob, std::uint32_t incarnation) {
    Address address;
    if (index(peer) >= peers_.size() || peer == options_.self || !from_blob(blob, address) ||
        address.node != index(peer)) {
        return Post::refused;
    }
    PeerState& state = peers_[index(peer)];
    if (const auto answer =
            answer_to_connect(state.connection(), state.incarnation, incarnation, [&] { disconnect(peer); })) {
        return *answer;
    }
    if (state.incarnation != incarnation) state.uses.clear();
    state.incarnation = incarnation;
    state.address = address.socket();
    start_timing(state);
    state.state = index(options_.self) < index(peer) ? PeerState::State::dialling : PeerState::State::waiting;
    if (device_is_gone_) {
        lose(peer, Status::peer_lost);
    } else if (state.state == PeerState::State::dialling) {
        start_dialling(peer);
    } else {
        match(peer);
    }
    return Post::pending;
}

void Endpoint::disconnect(Peer peer) {
    if (index(peer) >= peers_.size()) return;
    PeerState& state = peers_[index(peer)];
    if (state.state == PeerState::State::idle || state.state == PeerState::State::ending) return;
    state.is_silent = true;
    lose(peer, Status::cancelled);
}

void Endpoint::ended(Peer peer, std::uint32_t incarnation) {
    if (index(peer) >= peers_.size()) return;
    const PeerState& state = peers_[index(peer)];
    const bool is_known = state.state != PeerState::State::idle && state.state != PeerState::State::ending;
    if (is_known && state.incarnation == incarnation) lose(peer, Status::peer_lost);
}

// --- dialling
// -----------------------------------------------------------------------------------------------------------

void Endpoint::start_dialling(Peer peer) {
    PeerState& state = peers_[index(peer)];
    if (rdma_create_id(device_.events.get(), &state.id, context_of(peer), RDMA_PS_TCP) != 0) {
        state.id = nullptr;
        return fail(peer, "no id of rdma_cm: " + reason(errno));
    }
    SocketAddress from = device_.address;
    from.set_port(0);
    if (rdma_resolve_addr(state.id, from.get(), state.address.get(), resolve_timeout_ms) != 0)
        fail(peer, "its address: " + reason(errno));
}

/// Before a connection is made or accepted.
void Endpoint::set_options(rdma_cm_id* id) {
    std::uint8_t timeout = settings_.ack_timeout;
    const int error = rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, &timeout, sizeof timeout);
    if (error != 0 && !device_.is_iwarp && !std::exchange(said_no_ack_timeout_, true)) {
        log(std::string(transport_name) + ": " + device_.name() + " keeps its own ACK timeout (" + reason(errno) +
            "): a lost packet may cost seconds");
    }
    if (settings_.traffic_class == 0) return;
    std::uint8_t traffic_class = settings_.traffic_class;
    if (rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, &traffic_class, sizeof traffic_class) != 0)
        log(std::string(transport_name) + ": " + device_.name() + " takes no traffic class: " + reason(errno));
}

/// A queue pair for its id, and all that a connection begins with.
bool Endpoint::make_pair(Peer peer) {
    PeerState& state = peers_[index(peer)];
    if (state.id->verbs != device_.context()) {
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
        failed = rdma_create_qp(state.id, device_.domain.get(), &wanted) != 0 ? errno : 0;
        if (failed != 0) continue;
        state.inline_bytes = std::min(wanted.cap.max_inline_data, settings_.inline_bytes);
        break;
    }
    if (failed != 0) {
        fail(peer, device_.name() + " makes no queue pair: " + reason(failed));
        return false;
    }
    state.pair_number = state.id->qp->qp_num;
    pairs_.add(state.pair_number, index(peer));
    state.share.out->start();
    state.granted = state.allowed = state.used = state.returned = state.announced = 0;
    state.was_welcomed = state.is_wedged = false;
    set_options(state.id);
    return true;
}

void Endpoint::call(Peer peer) {
    if (!make_pair(peer)) return;
    PeerState& state = peers_[index(peer)];
    const Hello hello{.run = options_.run,
                      .token = options_.token,
                      .from = index(options_.self),
                      .from_incarnation = options_.incarnation,
                      .to = index(peer),
                      .to_incarnation = state.incarnation};
    rdma_conn_param with{};
    with.private_data = &hello;
    with.private_data_len = sizeof hello;
    with.responder_resources = device_.responder_reads;
    with.initiator_depth = device_.initiator_reads;
    with.retry_count = settings_.retry;
    with.rnr_retry_count = settings_.rnr_retry;
    if (rdma_connect(state.id, &with) != 0) fail(peer, "connecting: " + reason(errno));
}

void Endpoint::established(Peer peer) {
    PeerState& state = peers_[index(peer)];
    if (state.state != PeerState::State::dialling) return;  // let in: its welcome says so
    state.state = PeerState::State::greeting;
    connected_.set(index(peer));
    push_welcome(peer);
}

// --- being dialled
// ------------------------------------------------------------------------------------------------------

void Endpoint::refuse(rdma_cm_id* id, Verdict verdict) {
    const Refusal refusal{.verdict = verdict};
    (void)rdma_reject(id, &refusal, sizeof refusal);
    (void)rdma_destroy_id(id);
}

void Endpoint::drop_parked(PeerState& state) {
    rdma_cm_id* const id = std::exchange(state.parked, nullptr);
    if (id == nullptr) return;
    (void)rdma_reject(id, nullptr, 0);
    (void)rdma_destroy_id(id);
}

void Endpoint::hear_request(rdma_cm_id* id, const rdma_conn_param& said) {
    const Bytes bytes(static_cast<const std::byte*>(said.private_data), said.private_data_len);
    Hello hello;
    Verdict verdict = judge(bytes, {options_.run, options_.token, index(options_.self), options_.incarnation}, hello);
    if (verdict != Verdict::accepted) {
        log(std::string(transport_name) + ": a connection was refused: " + to_string(verdict));
        return refuse(id, verdict);
    }
    const Peer peer{hello.from};
    PeerState& state = peers_[hello.from];
    const bool is_known = state.has_connection() || state.state == PeerState::State::waiting;
    if ((is_known && hello.from_incarnation < state.incarnation) ||
        (state.parked != nullptr && hello.from_incarnation < state.parked_incarnation) || device_is_gone_) {
        return refuse(id, Verdict::stale_incarnation);
    }
    // A node dials only when it has no connection left, so a connection that still looks alive here is dead.
    if (state.has_connection()) lose(peer, Status::peer_lost);
    if (state.state == PeerState::State::waiting && hello.from_incarnation > state.incarnation)
        lose(peer, Status::peer_lost);
    drop_parked(state);
    id->context = context_of(peer);
    state.parked = id;
    state.parked_incarnation = hello.from_incarnation;
    state.parked_responder = std::min(said.responder_resources, device_.responder_reads);
    state.parked_initiator = std::min(said.initiator_depth, device_.initiator_reads);
    match(peer);
}

void Endpoint::match(Peer peer) {
    PeerState& state = peers_[index(peer)];
    if (state.state != PeerState::State::waiting || state.parked == nullptr) return;
    if (state.parked_incarnation > state.incarnation) return lose(peer, Status::peer_lost);
    if (state.parked_incarnation < state.incarnation)
        return refuse(std::exchange(state.parked, nullptr), Verdict::stale_incarnation);
    let_in(peer);
}

void Endpoint::let_in(Peer peer) {
    PeerState& state = peers_[index(peer)];
    state.id = std::exchange(state.parked, nullptr);
    if (!make_pair(peer)) return;
    state.state = PeerState::State::greeting;
    connected_.set(index(peer));
    rdma_conn_param with{};
    with.responder_resources = state.parked_responder;
    with.initiator_depth = state.parked_initiator;
    with.retry_count = settings_.retry;
    with.rnr_retry_count = settings_.rnr_retry;
    if (rdma_accept(state.id, &with) != 0) fail(peer, "accepting: " + reason(errno));
}

// --- events of rdma_cm
// --------------------------------------------------------------------------------------------------

void Endpoint::hear_event(const rdma_cm_event& event) {
    if (event.event == RDMA_CM_EVENT_DEVICE_REMOVAL) return remove_device();
    if (event.event == RDMA_CM_EVENT_CONNECT_REQUEST) return hear_request(event.id, event.param.conn);
    const auto number = reinterpret_cast<std::uintptr_t>(event.id->context);
    if (number == 0) return;  // of the listener
    const Peer peer{static_cast<std::uint32_t>(number - 1)};
    PeerState& state = peers_[index(peer)];
    if (event.id == state.parked) {
        if (event.event != RDMA_CM_EVENT_ESTABLISHED) drop_parked(state);
    } else if (event.id == state.id && state.connection() != Connection::ending) {
        hear_event_of(peer, event);
    }
}

void Endpoint::hear_event_of(Peer peer, const rdma_cm_event& event) {
    PeerState& state = peers_[index(peer)];
    switch (event.event) {
        case RDMA_CM_EVENT_ADDR_RESOLVED:
            if (rdma_resolve_route(state.id, resolve_timeout_ms) != 0) fail(peer, "its route: " + reason(errno));
            return;
        case RDMA_CM_EVENT_ROUTE_RESOLVED:
            return call(peer);
        case RDMA_CM_EVENT_ESTABLISHED:
            return established(peer);
        case RDMA_CM_EVENT_REJECTED: {
            const std::string why = why_rejected(event);
            return why.empty() ? lose(peer, Status::peer_lost) : fail(peer, why);
        }
        case RDMA_CM_EVENT_ADDR_ERROR:
        case RDMA_CM_EVENT_ROUTE_ERROR:
        case RDMA_CM_EVENT_CONNECT_ERROR:
        case RDMA_CM_EVENT_UNREACHABLE:
            return fail(peer, std::string(rdma_event_str(event.event)) + ", status " + std::to_string(event.status));
        case RDMA_CM_EVENT_DISCONNECTED:
            return lose(peer, Status::peer_lost);
        default:
            return;
    }
}

// --- losing
// -------------------------------------------------------------------------------------------------------------

void Endpoint::fail(Peer peer, const std::string& why) {
    PeerState& state = peers_[index(peer)];
    // One line per incarnation, however often its connecting is tried again.
    if (std::exchange(state.complained_of, state.incarnation) != state.incarnation) {
        log(std::string(transport_name) + ": cannot connect to " + node_name(peer) + " at " +
            state.address.to_string() + ": " + why);
    }
    lose(peer, Status::peer_lost);
}

void Endpoint::break_off(Peer peer, const std::string& why) {
    PeerState& state = peers_[index(peer)];
    if (!state.has_connection()) return;
    log(std::string(transport_name) + ": connection to " + node_name(peer) + " at " + state.address.to_string() +
        " lost: " + why);
    state.is_silent = true;
    lose(peer, Status::peer_lost);
}

void Endpoint::lose(Peer peer, Status status) {
    PeerState& state = peers_[index(peer)];
    state.state = PeerState::State::ending;
    state.lost_as = status;
    state.wants_room = false;
    state.is_overdue = false;
    state.to_tell.clear();
    state.to_answer.clear();
    state.has_changes = false;
    state.ended_at = receive_polls_;
    connected_.reset(index(peer));
    busy_.reset(index(peer));
    ending_.set(index(peer));
    start_timing(state);
    if (state.id == nullptr || state.id->qp == nullptr) return;
    // The fence. rdma_cm would do so too, but only for what it takes for connected.
    ibv_qp_attr error{};
    error.qp_state = IBV_QPS_ERR;
    (void)ibv_modify_qp(state.id->qp, &error, IBV_QP_STATE);
    (void)rdma_disconnect(state.id);
}

void Endpoint::finish_ended() {
    for (std::size_t number = ending_.next(0); number != base::Bitmap::none; number = ending_.next(number + 1)) {
        const PeerState& state = peers_[number];
        const bool has_pair = state.id != nullptr && state.id->qp != nullptr && !device_is_gone_;
        const bool is_quiet = !has_pair || (state.share.out->is_quiet() && seen_empty_ > state.ended_at);
        if (is_quiet || state.is_overdue) finish(Peer{static_cast<std::uint32_t>(number)});
    }
}

void Endpoint::finish(Peer peer) {
    PeerState& state = peers_[index(peer)];
    if (state.share.out != nullptr) {
        state.share.out->end_all([&](Token token, bool) { completed(peer, token, state.lost_as); });
    }
    if (state.id != nullptr) {
        if (state.id->qp != nullptr) {
            pairs_.remove(state.pair_number);
            rdma_destroy_qp(state.id);
        }
        (void)rdma_destroy_id(std::exchange(state.id, nullptr));
    }
    stop_timing(state);
    forget_waiting(peer);
    ending_.reset(index(peer));
    state.is_silent = false;
    state.was_welcomed = false;
    state.state = PeerState::State::idle;
    own_events_.must_push(control_event(Event::Kind::peer_down, peer));
}

void Endpoint::handle_deadlines(Time now) {
    next_deadline_ = time_never;
    for (std::uint32_t number = 0; number < peers_.size(); ++number) {
        PeerState& state = peers_[number];
        const bool is_ending = state.state == PeerState::State::ending;
        if (state.deadline == time_unset) {
            state.deadline = now + (is_ending ? ending_timeout : settings_.connect_timeout);
            --untimed_;
        } else if (now >= state.deadline && is_ending) {
            state.is_overdue = true;
            state.deadline = time_never;
        } else if (now >= state.deadline) {
            fail(Peer{number},
                 state.state == PeerState::State::waiting ? "it did not call in time" : "no answer in time");
        }
        next_deadline_ = std::min(next_deadline_, state.deadline);
    }
    if (untimed_ > 0) next_deadline_ = now;
}

void Endpoint::remove_device() {
    if (std::exchange(device_is_gone_, true)) return;
    settings_.removed->set(device_.name());  // its owner makes another endpoint, and is told then
    for (std::uint32_t number = 0; number < peers_.size(); ++number) {
        const Connection how = peers_[number].connection();
        if (how == Connection::up || how == Connection::opening) lose(Peer{number}, Status::peer_lost);
        drop_parked(peers_[number]);
    }
}

}  // namespace incast::transport::verbs

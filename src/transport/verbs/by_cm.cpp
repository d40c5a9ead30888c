// Connections by rdma_cm: the hello is the private data of a request to connect.
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>
#include <utility>

#include "transport/verbs/descriptor/descriptor.h"
#include "transport/verbs/endpoint.h"

namespace incast::transport::verbs {

namespace {

constexpr int resolve_timeout_ms = 2000;
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

void Endpoint::dial_by_cm(Peer peer) {
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
    std::uint8_t timeout = settings_.path.ack_timeout;
    const int error = rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, &timeout, sizeof timeout);
    if (error != 0 && !device_.is_iwarp && !std::exchange(said_no_ack_timeout_, true)) {
        log(std::string(transport_name) + ": " + device_.name() + " keeps its own ACK timeout (" + reason(errno) +
            "): a lost packet may cost seconds");
    }
    if (settings_.path.traffic_class == 0) return;
    std::uint8_t traffic_class = settings_.path.traffic_class;
    if (rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, &traffic_class, sizeof traffic_class) != 0)
        log(std::string(transport_name) + ": " + device_.name() + " takes no traffic class: " + reason(errno));
}

void Endpoint::call_by_cm(Peer peer) {
    if (!make_pair(peer)) return;
    PeerState& state = peers_[index(peer)];
    set_options(state.id);
    const Hello hello = hello_for(peer);
    rdma_conn_param with{};
    with.private_data = &hello;
    with.private_data_len = sizeof hello;
    with.responder_resources = device_.responder_reads;
    with.initiator_depth = device_.initiator_reads;
    with.retry_count = settings_.path.retry;
    with.rnr_retry_count = settings_.path.rnr_retry;
    if (rdma_connect(state.id, &with) != 0) fail(peer, "connecting: " + reason(errno));
}

void Endpoint::hear_request(rdma_cm_id* id, const rdma_conn_param& said) {
    const Bytes bytes(static_cast<const std::byte*>(said.private_data), said.private_data_len);
    Caller caller;
    caller.id = id;
    caller.responder = std::min(said.responder_resources, device_.responder_reads);
    caller.initiator = std::min(said.initiator_depth, device_.initiator_reads);
    Hello hello;
    const Verdict verdict = judge(bytes, expected(bytes), hello);
    if (verdict != Verdict::accepted) {
        log(std::string(transport_name) + ": a connection was refused: " + to_string(verdict));
        return refuse(std::move(caller), verdict);
    }
    id->context = context_of(Peer{hello.from});
    admit(std::move(caller), hello);
}

void Endpoint::let_in_by_cm(Peer peer) {
    PeerState& state = peers_[index(peer)];
    const Caller caller = std::exchange(state.parked, {});
    state.id = caller.id;
    if (!make_pair(peer)) return;
    set_options(state.id);
    greet(peer);
    rdma_conn_param with{};
    with.responder_resources = caller.responder;
    with.initiator_depth = caller.initiator;
    with.retry_count = settings_.path.retry;
    with.rnr_retry_count = settings_.path.rnr_retry;
    if (rdma_accept(state.id, &with) != 0) fail(peer, "accepting: " + reason(errno));
}

void Endpoint::hear_event(const rdma_cm_event& event) {
    if (event.event == RDMA_CM_EVENT_DEVICE_REMOVAL) return remove_device();
    if (event.event == RDMA_CM_EVENT_CONNECT_REQUEST) return hear_request(event.id, event.param.conn);
    const auto number = reinterpret_cast<std::uintptr_t>(event.id->context);
    if (number == 0) return;  // of the listener
    const Peer peer{static_cast<std::uint32_t>(number - 1)};
    PeerState& state = peers_[index(peer)];
    if (event.id == state.parked.id) {
        if (event.event != RDMA_CM_EVENT_ESTABLISHED) drop(state.parked);
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
            return call_by_cm(peer);
        case RDMA_CM_EVENT_ESTABLISHED:
            if (state.state != PeerState::State::dialling) return;  // let in: its welcome says so
            greet(peer);
            return push_welcome(peer);
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

}  // namespace incast::transport::verbs

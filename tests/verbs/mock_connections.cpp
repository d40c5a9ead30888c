// The mock device: rdma_cm, and what tests do to the device.
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <iterator>
#include <utility>

#include <netinet/in.h>
#include <sys/eventfd.h>

#include "mock_objects.h"

namespace incast::mock_verbs {

namespace {

constexpr std::size_t max_request_data = 56;
constexpr std::size_t max_reject_data = 148;

std::uint16_t port_of(const sockaddr* address) {
    return ntohs(address->sa_family == AF_INET6 ? reinterpret_cast<const sockaddr_in6*>(address)->sin6_port
                                                : reinterpret_cast<const sockaddr_in*>(address)->sin_port);
}

std::size_t bytes_of(const sockaddr* address) {
    return address->sa_family == AF_INET6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in);
}

int failed(int error) {
    errno = error;
    return -1;
}

/// The other end hears that this one is gone.
void part(Id& id) {
    Id* const other = std::exchange(id.other, nullptr);
    if (other == nullptr) return;
    other->other = nullptr;
    const Id::State was = std::exchange(other->state, Id::State::ended);
    if (was == Id::State::connected) {
        raise(*other, RDMA_CM_EVENT_DISCONNECTED, 0, nullptr, 0);
    } else if (was == Id::State::requested) {
        raise(*other, RDMA_CM_EVENT_CONNECT_ERROR, -ECONNRESET, nullptr, 0);
    } else if (was == Id::State::connecting) {
        raise(*other, RDMA_CM_EVENT_REJECTED, 28, nullptr, 0);
    }
}

}  // namespace

void raise(Id& id, rdma_cm_event_type kind, int status, const void* said, std::size_t bytes) {
    auto event = std::make_unique<Event>();
    static_cast<rdma_cm_event&>(*event) = {};
    event->id = &id;
    event->event = kind;
    event->status = status;
    if (said != nullptr) {
        std::memcpy(event->said.data(), said, bytes);
        // Devices hand out more than was said, with zeroes behind it.
        event->param.conn.private_data = event->said.data();
        event->param.conn.private_data_len =
            static_cast<std::uint8_t>(kind == RDMA_CM_EVENT_CONNECT_REQUEST ? max_request_data
                                      : kind == RDMA_CM_EVENT_REJECTED      ? max_reject_data
                                                                            : bytes);
    }
    event->param.conn.responder_resources = 16;
    event->param.conn.initiator_depth = 16;
    auto& channel = static_cast<EventChannel&>(*id.channel);
    channel.events.push_back(std::move(event));
    channel.signal.set(true);
}

const char* to_string(Rule rule) {
    constexpr const char* names[] = {"send queue full",
                                     "a send queue of requests that are never signalled",
                                     "receive queue full",
                                     "completion queue overflow",
                                     "too many parts",
                                     "inline data too large",
                                     "local key",
                                     "remote key",
                                     "message too long",
                                     "state of a queue pair",
                                     "attributes of a state",
                                     "receiver not ready",
                                     "private data",
                                     "still in use"};
    return names[static_cast<std::size_t>(rule)];
}

void reset() {
    const Entered entered;
    World& here = world();
    here.device.transport_type = IBV_TRANSPORT_IB;
    here.limits = {};
    here.counts = {};
    here.violations.clear();
    here.is_cut = here.holds = here.misses_first = here.is_removed = false;
    here.failing_registrations = here.failing_pairs = here.failing_paths = here.failing_rates = here.reject_status = 0;
    here.port = {};
    here.devices_opened = 0;
    here.path = {};
}
void set_port(const Port& port) {
    const Entered entered;
    world().port = port;
}
Path last_path() {
    const Entered entered;
    return world().path;
}
void fail_paths(int many, int error) {
    const Entered entered;
    world().failing_paths = many;
    world().path_error = error;
}
void set_limits(const Limits& limits) {
    const Entered entered;
    world().limits = limits;
}
void set_iwarp(bool is_iwarp) {
    const Entered entered;
    world().device.transport_type = is_iwarp ? IBV_TRANSPORT_IWARP : IBV_TRANSPORT_IB;
}
void keep_violations(bool keep) {
    const Entered entered;
    world().keeps_violations = keep;
}
std::vector<Rule> violations() {
    const Entered entered;
    return world().violations;
}
Counts counts() {
    const Entered entered;
    return world().counts;
}
void fail_registrations(int many, int error) {
    const Entered entered;
    world().failing_registrations = many;
    world().registration_error = error;
}
void fail_pairs(int many, int error) {
    const Entered entered;
    world().failing_pairs = many;
    world().pair_error = error;
}
void fail_rates(int many, int error) {
    const Entered entered;
    world().failing_rates = many;
    world().rate_error = error;
}
void break_pairs() {
    const Entered entered;
    for (const auto& [number, pair] : world().pairs)
        to_error(*pair);
}
void cut(bool is_cut) {
    const Entered entered;
    world().is_cut = is_cut;
}
void miss_first(bool misses) {
    const Entered entered;
    world().misses_first = misses;
}
void hold(bool holds) {
    const Entered entered;
    world().holds = holds;
    for (const auto& [number, pair] : world().pairs)
        carry_out(*pair);
}
void remove_device() {
    const Entered entered;
    for (const auto& [number, pair] : world().pairs)
        to_error(*pair);
    world().is_removed = true;
    for (Id* id : world().ids)
        raise(*id, RDMA_CM_EVENT_DEVICE_REMOVAL, 0, nullptr, 0);
    for (Opened* device : world().opened)
        device->signal.set(true);
}
void end_device(std::size_t number) {
    const Entered entered;
    const auto found = std::ranges::find(world().opened, number, &Opened::number);
    if (found == world().opened.end()) return;
    (*found)->is_ended = true;
    for (const auto& [pair_number, pair] : world().pairs)
        if (pair->context == &(*found)->context) to_error(*pair);
    (*found)->signal.set(true);
}
std::vector<std::size_t> pairs_of_domains() {
    const Entered entered;
    std::map<const ibv_pd*, std::size_t> counts;
    for (const auto& [number, pair] : world().pairs)
        ++counts[pair->pd];
    std::vector<std::size_t> made;
    for (const auto& [domain, count] : counts)
        made.push_back(count);
    std::ranges::sort(made);
    return made;
}
void set_ece(std::size_t number, std::uint32_t vendor, std::uint32_t options) {
    const Entered entered;
    const auto found = std::ranges::find(world().opened, number, &Opened::number);
    if (found == world().opened.end()) return;
    (*found)->ece_vendor = vendor;
    (*found)->ece_options = options;
}
std::vector<std::uint32_t> eces() {
    const Entered entered;
    std::vector<std::uint32_t> made;
    for (const auto& [number, pair] : world().pairs)
        made.push_back(pair->ece);
    return made;
}
std::vector<std::uint32_t> rates() {
    const Entered entered;
    std::vector<std::uint32_t> made;
    for (const auto& [number, pair] : world().pairs)
        made.push_back(pair->rate);
    return made;
}
void reject_all(int status) {
    const Entered entered;
    world().reject_status = status;
}
void lose_memory() {
    const Entered entered;
    auto& all = world().registrations;
    if (all.empty()) return;
    const ibv_pd* const domain = all.rbegin()->second->pd;
    std::erase_if(all, [&](const auto& each) {
        return each.second->pd == domain && (each.second->access & IBV_ACCESS_REMOTE_READ) != 0;
    });
}
void lose_receives() {
    const Entered entered;
    for (SharedQueue* each : world().shared)
        each->receives.clear();
}

}  // namespace incast::mock_verbs

// --- librdmacm
// ----------------------------------------------------------------------------------------------------------
using namespace incast::mock_verbs;

extern "C" {

rdma_event_channel* rdma_create_event_channel() {
    auto* const made = new EventChannel{};
    made->fd = made->signal.fd;
    return made;
}

void rdma_destroy_event_channel(rdma_event_channel* channel) {
    delete static_cast<EventChannel*>(channel);
}

int rdma_create_id(rdma_event_channel* channel, rdma_cm_id** to, void* context, rdma_port_space space) {
    const Entered entered;
    auto* const made = new Id{};
    made->channel = channel;
    made->context = context;
    made->ps = space;
    world().ids.insert(made);
    *to = made;
    return 0;
}

int rdma_destroy_id(rdma_cm_id* which) {
    const Entered entered;
    auto& id = static_cast<Id&>(*which);
    auto& channel = static_cast<EventChannel&>(*id.channel);
    if (id.qp != nullptr) world().broke(Rule::in_use, "the queue pair of an id that is given back");
    if (std::ranges::any_of(channel.unacknowledged, [&](const rdma_cm_event* each) { return each->id == &id; }))
        world().broke(Rule::in_use, "an id with an event that is not acknowledged");
    part(id);
    std::erase_if(channel.events, [&](const auto& each) { return each->id == &id; });
    channel.signal.set(!channel.events.empty());
    std::erase_if(world().listeners, [&](const auto& each) { return each.second == &id; });
    world().ids.erase(&id);
    delete &id;
    return 0;
}

int rdma_bind_addr(rdma_cm_id* id, sockaddr* address) {
    const Entered entered;
    if (world().is_removed) return failed(ENODEV);
    std::memcpy(&id->route.addr.src_storage, address, bytes_of(address));
    std::uint16_t port = port_of(address);
    if (port == 0) port = world().next_port++;
    auto& v4 = reinterpret_cast<sockaddr_in&>(id->route.addr.src_storage);
    v4.sin_port = htons(port);  // at the same place in an IPv6 address
    id->verbs = &world().context;
    id->port_num = 1;
    return 0;
}

int rdma_listen(rdma_cm_id* id, int) {
    const Entered entered;
    auto& own = static_cast<Id&>(*id);
    own.state = Id::State::listening;
    world().listeners[port_of(&id->route.addr.src_addr)] = &own;
    return 0;
}

__be16 rdma_get_src_port(rdma_cm_id* id) {
    return htons(port_of(&id->route.addr.src_addr));
}

int rdma_resolve_addr(rdma_cm_id* id, sockaddr*, sockaddr* to, int) {
    const Entered entered;
    std::memcpy(&id->route.addr.dst_storage, to, bytes_of(to));
    id->verbs = &world().context;
    raise(static_cast<Id&>(*id), RDMA_CM_EVENT_ADDR_RESOLVED, 0, nullptr, 0);
    return 0;
}

int rdma_resolve_route(rdma_cm_id* id, int) {
    const Entered entered;
    raise(static_cast<Id&>(*id), RDMA_CM_EVENT_ROUTE_RESOLVED, 0, nullptr, 0);
    return 0;
}

int rdma_create_qp(rdma_cm_id* id, ibv_pd* domain, ibv_qp_init_attr* wanted) {
    const Entered entered;
    id->qp = create_pair(domain, *wanted);
    return id->qp != nullptr ? 0 : -1;
}

void rdma_destroy_qp(rdma_cm_id* id) {
    const Entered entered;
    (void)destroy_pair(static_cast<Pair*>(id->qp));
    id->qp = nullptr;
}

int rdma_set_option(rdma_cm_id*, int, int, void*, std::size_t) {
    return world().device.transport_type == IBV_TRANSPORT_IWARP ? failed(ENOSYS) : 0;
}

int rdma_connect(rdma_cm_id* id, rdma_conn_param* with) {
    const Entered entered;
    auto& own = static_cast<Id&>(*id);
    if (with->private_data_len > max_request_data) {
        world().broke(Rule::private_data, std::to_string(with->private_data_len) + " bytes of a request to connect");
        return failed(EINVAL);
    }
    const auto found = world().listeners.find(port_of(&id->route.addr.dst_addr));
    if (found == world().listeners.end() || world().reject_status != 0) {
        const int status = world().reject_status != 0 ? world().reject_status : 8;
        raise(own, RDMA_CM_EVENT_REJECTED, status, nullptr, 0);
        return 0;
    }
    own.state = Id::State::connecting;
    own.rnr_retry = with->rnr_retry_count;
    Id& listener = *found->second;
    auto* const made = new Id{};
    made->channel = listener.channel;
    made->context = listener.context;
    made->verbs = &world().context;
    made->port_num = 1;
    made->state = Id::State::requested;
    made->other = &own;
    own.other = made;
    world().ids.insert(made);
    raise(*made, RDMA_CM_EVENT_CONNECT_REQUEST, 0, with->private_data, with->private_data_len);
    return 0;
}

int rdma_accept(rdma_cm_id* id, rdma_conn_param* with) {
    const Entered entered;
    auto& own = static_cast<Id&>(*id);
    if (own.state != Id::State::requested || own.other == nullptr) return failed(EINVAL);
    Id& other = *own.other;
    if (own.qp == nullptr || other.qp == nullptr) return failed(EINVAL);
    auto& pair = static_cast<Pair&>(*own.qp);
    auto& peer = static_cast<Pair&>(*other.qp);
    connect_pairs(pair, peer);
    pair.misses_next = world().misses_first;
    pair.rnr_retry = with->rnr_retry_count;
    peer.rnr_retry = other.rnr_retry;
    own.state = other.state = Id::State::connected;
    raise(own, RDMA_CM_EVENT_ESTABLISHED, 0, nullptr, 0);
    raise(other, RDMA_CM_EVENT_ESTABLISHED, 0, nullptr, 0);
    return 0;
}

int rdma_reject(rdma_cm_id* id, const void* said, std::uint8_t bytes) {
    const Entered entered;
    auto& own = static_cast<Id&>(*id);
    if (bytes > max_reject_data) {
        world().broke(Rule::private_data, std::to_string(bytes) + " bytes of a rejection");
        return failed(EINVAL);
    }
    Id* const other = std::exchange(own.other, nullptr);
    own.state = Id::State::ended;
    if (other == nullptr) return failed(EINVAL);
    other->other = nullptr;
    other->state = Id::State::ended;
    raise(*other, RDMA_CM_EVENT_REJECTED, 28, said, bytes);
    return 0;
}

int rdma_disconnect(rdma_cm_id* id) {
    const Entered entered;
    auto& own = static_cast<Id&>(*id);
    if (own.qp != nullptr) to_error(static_cast<Pair&>(*own.qp));
    if (own.state != Id::State::connected) return failed(EINVAL);
    own.state = Id::State::ended;
    part(own);
    return 0;
}

int rdma_get_cm_event(rdma_event_channel* from, rdma_cm_event** to) {
    const Entered entered;
    auto& channel = static_cast<EventChannel&>(*from);
    if (channel.events.empty()) return failed(EAGAIN);
    *to = channel.events.front().release();
    channel.events.pop_front();
    channel.signal.set(!channel.events.empty());
    channel.unacknowledged.insert(*to);
    return 0;
}

int rdma_ack_cm_event(rdma_cm_event* event) {
    const Entered entered;
    static_cast<EventChannel&>(*event->id->channel).unacknowledged.erase(event);
    delete static_cast<Event*>(event);
    return 0;
}

const char* rdma_event_str(rdma_cm_event_type event) {
    switch (event) {
        case RDMA_CM_EVENT_ADDR_ERROR:
            return "RDMA_CM_EVENT_ADDR_ERROR";
        case RDMA_CM_EVENT_ROUTE_ERROR:
            return "RDMA_CM_EVENT_ROUTE_ERROR";
        case RDMA_CM_EVENT_UNREACHABLE:
            return "RDMA_CM_EVENT_UNREACHABLE";
        case RDMA_CM_EVENT_CONNECT_ERROR:
            return "RDMA_CM_EVENT_CONNECT_ERROR";
        default:
            return "another event of rdma_cm";
    }
}

}  // extern "C"

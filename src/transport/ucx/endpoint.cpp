#include "transport/ucx/endpoint.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <thread>
#include <utility>

#include "transport/copy_head.h"
#include "transport/ucx/descriptor/descriptor.h"

namespace incast::transport::ucx {

namespace {

constexpr auto longest_farewell = std::chrono::milliseconds(100);

}  // namespace

Endpoint::Endpoint(const EndpointSettings& settings, const EndpointOptions& options, Library library, os::Poller poller,
                   Allocator& allocator, std::shared_ptr<Pool> pool)
    : Calling({.transport = transport_name,
               .receives = settings.receives,
               .transfers = settings.send_queue,
               .connect_timeout = settings.connect_timeout},
              options, settings.ack_deadline, std::move(poller), std::move(library.calls), std::move(pool)),
      settings_(settings),
      library_(std::move(library)),
      allocator_(&allocator),
      unsettled_(options.max_peers) {
    capabilities_ = {.nature = nature,
                     .max_peers = options.max_peers,
                     .max_regions = rma::max_regions,
                     .max_posted = std::min({options.max_posted, settings.receives, settings.send_queue / 2}),
                     .read = library_.reads,
                     .survives_peer_loss = library_.tells,
                     .fences_live_peer = false,
                     .has_wait_fd = true};
}

Result<std::unique_ptr<Transport>> Endpoint::make(const EndpointSettings& settings, const EndpointOptions& options) {
    if (const auto checked = check(transport_name, options); !checked) return checked.error();
    auto library = Library::open(settings, index(options.self), options.max_peers);
    if (!library) return library.error();
    auto allocator = std::make_unique<Allocator>(library->context);
    Allocator& kept = *allocator;
    auto pool = std::make_shared<Pool>(options.shareable, std::move(allocator));
    std::unique_ptr<Endpoint> made(
        new Endpoint(settings, options, std::move(*library), os::Poller(), kept, std::move(pool)));
    if (const auto watched = made->watch(); !watched) return watched.error();
    return std::unique_ptr<Transport>(std::move(made));
}

Result<Ok> Endpoint::watch() {
    epoll_event event{.events = EPOLLIN, .data = {.u64 = worker_id}};
    if (poller_.fd() < 0 || ::epoll_ctl(poller_.fd(), EPOLL_CTL_ADD, library_.wait_fd, &event) != 0 ||
        !calls_.watch(poller_, listener_id, calls_id)) {
        return Error{std::string(transport_name) + ": epoll: " + std::generic_category().message(errno)};
    }
    ucp_am_handler_param_t handler{};
    handler.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_FLAGS |
                         UCP_AM_HANDLER_PARAM_FIELD_CB | UCP_AM_HANDLER_PARAM_FIELD_ARG;
    handler.id = message_id;
    handler.flags = UCP_AM_FLAG_WHOLE_MSG | UCP_AM_FLAG_PERSISTENT_DATA;
    handler.cb = hear_message;
    handler.arg = this;
    const ucs_status_t status = ucp_worker_set_am_recv_handler(library_.worker.get(), &handler);
    if (status == UCS_OK) return Ok{};
    return Error{std::string(transport_name) + ": no active messages: " + meaning(status)};
}

Endpoint::~Endpoint() {
    // What was posted arrives, if the peer takes it in a moment.
    options_.log = {};
    const auto wait_for = [&](auto is_done) {
        const auto until = std::chrono::steady_clock::now() + longest_farewell;
        while (!is_done() && std::chrono::steady_clock::now() < until) {
            flush();
            settle();
            if (!progress()) std::this_thread::yield();
        }
    };
    wait_for([&] { return drained(); });
    wait_for([&] { return !progress(); });
    for (PeerState& state : peers_)
        if (state.endpoint != nullptr && state.closing == nullptr) close(state);
    const auto are_closed = [&] { return std::ranges::all_of(peers_, is_closed); };
    wait_for(are_closed);
    const bool has_unclosed = has_unclosed_ || !are_closed();
    for (PeerState& state : peers_)
        forget_closing(state);
    for (const Held& each : held_)
        if (each.data != nullptr) ucp_am_data_release(library_.worker.get(), each.data);
    for (const Spent& each : spent_)
        if (each.data != nullptr) ucp_am_data_release(library_.worker.get(), each.data);
    imports_ = {};
    for (const PeerState& state : peers_)
        if (state.out != nullptr) state.out->destroy_all_keys();
    for (const std::unique_ptr<Outgoing>& out : left_behind_)
        out->destroy_all_keys();
    if (has_unclosed) {
        abandon(std::move(library_.worker), library_.context);
    } else {
        library_.worker.reset();  // and with it all that it has of peers
    }
    forget_all();
}

bool Endpoint::drained() const {
    return std::ranges::none_of(peers_,
                                [](const PeerState& state) { return state.has_connection() && state.out->has_work(); });
}

// --- memory
// -------------------------------------------------------------------------------------------------------------

Result<Ok> Endpoint::register_region(Local region) {
    const auto number = static_cast<std::size_t>(region);
    if (options_.shareable) {
        auto made = Mapping::make(library_.context, regions_.memory(region));
        if (!made) return made.error();
        registrations_[number] = std::move(*made);
    }
    regions_made_ = std::max(regions_made_, number + 1);
    return Ok{};
}

ucp_mem_h Endpoint::handle_of(Local region) const {
    if (options_.shareable) return registrations_[static_cast<std::size_t>(region)].handle();
    return allocator_->handle_of(regions_.memory(region).data());
}

Result<Blob> Endpoint::complete(Key& key, Local region) {
    void* packed = nullptr;
    std::size_t bytes = 0;
    const ucs_status_t status = ucp_rkey_pack(library_.context.get(), handle_of(region), &packed, &bytes);
    if (status != UCS_OK) return Error{"expose: UCX makes no key: " + meaning(status)};
    const bool fits = bytes <= key.rkey.size();
    if (fits) std::memcpy(key.rkey.data(), packed, bytes);
    ucp_rkey_buffer_release(packed);
    if (!fits) {
        return Error{"expose: the key has " + std::to_string(bytes) + " bytes, and at most " +
                     std::to_string(key.rkey.size()) + " are possible: allow UCX fewer devices (UCX_NET_DEVICES)"};
    }
    key.rkey_bytes = static_cast<std::uint32_t>(bytes);
    return to_blob(key);
}

// --- posting
// ------------------------------------------------------------------------------------------------------------

bool Endpoint::has_room_again(const PeerState& state) const {
    const bool half_is_free = 2 * (state.out->transfers() + state.unpolled) <= settings_.send_queue;
    return half_is_free && state.out->has_record(records / 2) && has_room(state, state.wanted);
}

std::byte* Endpoint::push(PeerState& state, rma::Header header, std::size_t bytes, bool /*is_fenced: all are*/) {
    header.from = static_cast<std::uint16_t>(index(options_.self));
    header.credits = state.announced = state.returned;
    const Frame frame{.header = header, .attempt = static_cast<std::uint32_t>(state.attempt), .number = state.pushed++};
    std::byte* const to = state.out->memory(state.out->make_record(bytes));
    std::memcpy(to, &frame, sizeof frame);
    return to + sizeof frame;
}

Post Endpoint::send(Peer peer, Bytes message) {
    if (!is_up(peer) || message.empty() || message.size() > max_message_bytes) return Post::refused;
    PeerState& state = peers_[index(peer)];
    if (state.credits() == 0 || !state.out->has_record(1 + spare_receives)) return back_pressure(peer, 0);
    std::memcpy(push(state, {.kind = rma::Header::Kind::message}, message.size(), false), message.data(),
                message.size());
    ++state.used;
    busy_.set(index(peer));
    return Post::done;
}

ucp_rkey_h Endpoint::rkey_of(Peer peer, const Import& import) {
    PeerState& state = peers_[index(peer)];
    if (import.rkey != nullptr && import.attempt == state.attempt) [[likely]]
        return import.rkey.get();
    ucp_rkey_h made = nullptr;
    const ucs_status_t status = ucp_ep_rkey_unpack(state.endpoint, import.packed.data(), &made);
    if (status != UCS_OK) {
        state.is_broken = has_broken_ = true;
        state.why = status;
        return nullptr;
    }
    import.rkey = {made, DestroyKey{state.out.get()}};
    import.attempt = state.attempt;
    return made;
}

ucp_request_param_t Endpoint::param_of(Outgoing::Operation& operation) {
    ucp_request_param_t param{};
    param.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
    param.cb.send = ended_part;
    param.user_data = &operation;
    return param;
}

void Endpoint::started(Outgoing::Operation& operation, ucs_status_ptr_t request) {
    if (request == nullptr) return back(operation);
    if (!UCS_PTR_IS_ERR(request)) return operation.owner->left();
    PeerState& state = peers_[operation.owner->peer()];
    state.is_broken = has_broken_ = true;
    state.why = UCS_PTR_STATUS(request);
}

void Endpoint::ended_part(void* request, ucs_status_t status, void* given) {
    ucp_request_free(request);
    auto& operation = *static_cast<Outgoing::Operation*>(given);
    operation.owner->returned();
    Endpoint& endpoint = operation.owner->of();
    PeerState& state = endpoint.peers_[operation.owner->peer()];
    if (state.out.get() != operation.owner) return;  // it was given up long ago
    if (status != UCS_OK) {
        state.is_broken = endpoint.has_broken_ = true;
        state.why = status;
    } else if (state.has_connection()) {
        endpoint.back(operation);
    }
}

void Endpoint::back(Outgoing::Operation& operation) {
    const Peer peer{operation.owner->peer()};
    PeerState& state = peers_[index(peer)];
    operation.owner->back(operation, [&](Token token) { completed(peer, token, Status::ok); });
    if (state.wants_room) give_room(peer);
    if (has_untold(state) || state.out->has_unposted()) busy_.set(index(peer));
}

Post Endpoint::write(Peer peer, Bytes head, Slice body, Target target, Notice notice, Token token) {
    Post answer{};
    const Import* const to = to_write(peer, head, body, target, token, answer);
    if (to == nullptr) [[unlikely]]
        return answer;
    PeerState& state = peers_[index(peer)];
    const std::uint64_t bytes = head.size() + body.length;
    const bool notifies = notice.has_value();
    if (bytes == 0 && !notifies) return Post::done;
    if (!has_room(state, 1) || (notifies && (state.credits() == 0 || !state.out->has_record(1 + spare_receives))))
        return back_pressure(peer, 1);
    busy_.set(index(peer));
    if (bytes > 0) {
        ucp_rkey_h const rkey = rkey_of(peer, *to);
        if (rkey == nullptr) return Post::refused;
        std::byte* const staged = state.out->next_head();
        if (!head.empty()) copy_head(staged, head);
        Outgoing::Operation& made = state.out->make_transfer((head.empty() ? 0U : 1U) + (body.length > 0 ? 1U : 0U));
        made.token = body.length > 0 ? token : 0;
        const ucp_request_param_t param = param_of(made);
        const std::uint64_t at = to->address + target.offset;
        if (!head.empty()) started(made, ucp_put_nbx(state.endpoint, staged, head.size(), at, rkey, &param));
        if (body.length > 0) {
            const std::byte* const from = regions_.memory(body.region).data() + body.offset;
            started(made, ucp_put_nbx(state.endpoint, from, body.length, at + head.size(), rkey, &param));
        }
        copied_bytes_ += state.copies * body.length;
    }
    if (notifies) {
        ++state.used;
        (void)push(state, {.kind = rma::Header::Kind::notice, .value = *notice}, 0, false);
    }
    return body.length == 0 ? Post::done : Post::pending;
}

Post Endpoint::read(Peer peer, Target from, Slice into, Token token) {
    if (!library_.reads) return Post::refused;
    Post answer{};
    const Import* const source = to_read(peer, from, into, token, answer);
    if (source == nullptr) return answer;
    PeerState& state = peers_[index(peer)];
    if (!has_room(state, 1)) return back_pressure(peer, 1);
    ucp_rkey_h const rkey = rkey_of(peer, *source);
    if (rkey == nullptr) return Post::refused;
    Outgoing::Operation& made = state.out->make_transfer(1);
    made.token = token;
    const ucp_request_param_t param = param_of(made);
    std::byte* const to = regions_.memory(into.region).data() + into.offset;
    busy_.set(index(peer));
    copied_bytes_ += state.copies * into.length;
    started(made, ucp_get_nbx(state.endpoint, to, into.length, source->address + from.offset, rkey, &param));
    return Post::pending;
}

}  // namespace incast::transport::ucx

#include "transport/ofi/endpoint.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <thread>
#include <utility>

#include "transport/copy_head.h"
#include "transport/ofi/descriptor/descriptor.h"

namespace incast::transport::ofi {

namespace {

constexpr auto longest_farewell = std::chrono::milliseconds(100);

}  // namespace

Endpoint::Endpoint(const EndpointSettings& settings, const EndpointOptions& options, Fabric fabric, os::Poller poller)
    : Calling({.transport = transport_name,
               .receives = settings.receives,
               .transfers = settings.send_queue,
               .connect_timeout = settings.connect_timeout},
              options, settings.ack_deadline, std::move(poller), std::move(fabric.calls),
              std::make_shared<Pool>(options.shareable)),
      settings_(settings),
      fabric_(std::move(fabric)),
      stalled_(options.max_peers) {
    capabilities_ = {.nature = nature,
                     .max_peers = options.max_peers,
                     .max_regions = rma::max_regions,
                     .max_posted = std::min({options.max_posted, settings.receives, settings.send_queue / 2}),
                     .read = true,
                     .survives_peer_loss = !fabric_.is_shm(),
                     .fences_live_peer = fabric_.is_connected(),
                     .has_wait_fd = fabric_.wait_fd >= 0,
                     .many_per_process = !fabric_.is_shm()};
}

Result<std::unique_ptr<Transport>> Endpoint::make(const EndpointSettings& settings, const EndpointOptions& options) {
    if (const auto checked = check(transport_name, options); !checked) return checked.error();
    auto fabric = Fabric::open(settings, index(options.self), options.max_peers);
    if (!fabric) return fabric.error();
    std::unique_ptr<Endpoint> made(new Endpoint(settings, options, std::move(*fabric), os::Poller()));
    if (!made->watch()) return Error{std::string(transport_name) + ": epoll: " + meaning(errno)};
    return std::unique_ptr<Transport>(std::move(made));
}

bool Endpoint::watch() {
    const auto add = [&](int fd) {
        epoll_event event{.events = EPOLLIN, .data = {.u64 = queue_id}};
        return fd < 0 || ::epoll_ctl(poller_.fd(), EPOLL_CTL_ADD, fd, &event) == 0;
    };
    return poller_.fd() >= 0 && add(fabric_.wait_fd) && add(fabric_.events_fd) &&
           calls_.watch(poller_, listener_id, calls_id);
}

Endpoint::~Endpoint() {
    // What was posted arrives, if the peer takes it in a moment.
    options_.log = {};
    const auto until = std::chrono::steady_clock::now() + longest_farewell;
    do {
        held_at_ = held_end_ = 0;
        flush();
        for (read_queue(); held_end_ > 0; read_queue()) {
            for (const fi_cq_data_entry& each : std::span(held_).first(held_end_))
                if ((each.flags & (FI_RECV | FI_REMOTE_WRITE | FI_REMOTE_READ)) == 0)
                    back(*static_cast<Outgoing::Operation*>(static_cast<Context*>(each.op_context)));
        }
        if (drained()) break;
        std::this_thread::yield();
    } while (std::chrono::steady_clock::now() < until);
    for (PeerState& state : peers_) {
        if (state.endpoint != nullptr) (void)fi_shutdown(state.endpoint.get(), 0);
        state.endpoint.reset();
    }
    fabric_.datagrams.reset();  // nothing uses memory from here on
    forget_all();
}

bool Endpoint::drained() const {
    return std::ranges::none_of(
        peers_, [](const PeerState& state) { return state.has_connection() && state.sending.out->has_work(); });
}

bool Endpoint::has_room_again(const PeerState& state) const {
    const Outgoing& out = *state.sending.out;
    const bool half_is_free = 2 * (out.transfers() + state.unpolled) <= settings_.send_queue;
    return half_is_free && out.has_record(records / 2) && has_room(state, state.wanted);
}

std::byte* Endpoint::push(PeerState& state, rma::Header header, std::size_t bytes, bool is_fenced) {
    header.from = static_cast<std::uint16_t>(index(options_.self));
    header.credits = state.announced = state.returned;
    const Frame frame{.header = header, .attempt = state.attempt};
    Outgoing::Operation& made = state.sending.out->make_record(sizeof frame + bytes);
    made.is_fenced = is_fenced;
    auto* const to = static_cast<std::byte*>(made.parts[0].iov_base);
    std::memcpy(to, &frame, sizeof frame);
    return to + sizeof frame;
}

Post Endpoint::send(Peer peer, Bytes message) {
    if (!is_up(peer) || message.empty() || message.size() > max_message_bytes) return Post::refused;
    PeerState& state = peers_[index(peer)];
    if (state.credits() == 0 || !state.sending.out->has_record(1 + spare_receives)) return back_pressure(peer, 0);
    std::memcpy(push(state, {.kind = rma::Header::Kind::message}, message.size(), false), message.data(),
                message.size());
    ++state.used;
    busy_.set(index(peer));
    return Post::done;
}

Outgoing::Operation& Endpoint::place(PeerState& state, Bytes head, const Slice& body, std::uint64_t address,
                                     std::uint64_t key, bool is_read) {
    Outgoing& out = *state.sending.out;
    std::byte* const memory = regions_.memory(body.region).data();
    void* const descriptor = body.length > 0 && fabric_.has_memory_mode(FI_MR_LOCAL)
                                 ? fi_mr_desc(registrations_[static_cast<std::size_t>(body.region)].get())
                                 : nullptr;
    std::uint64_t at = 0;
    for (std::uint64_t before = head.size();; before = 0) {
        const std::uint64_t bytes = std::min<std::uint64_t>(body.length - at, fabric_.piece - before);
        std::byte* const staged = out.next_head();
        if (before > 0) copy_head(staged, head);
        Outgoing::Operation& made = out.make_transfer();
        made.is_read = is_read;
        // Where there is nothing to move, an empty part is moved.
        if (before > 0 || bytes == 0) {
            made.descriptors[made.count] = out.descriptor();
            made.parts[made.count++] = {staged, before};
        }
        if (bytes > 0) {
            made.descriptors[made.count] = descriptor;
            made.parts[made.count++] = {memory + body.offset + at, bytes};
        }
        made.remote = {.addr = address, .len = before + bytes, .key = key};
        at += bytes;
        address += before + bytes;
        if (at == body.length) return made;
    }
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
    const auto transfers = static_cast<std::uint32_t>(1 + bytes / fabric_.piece);
    const bool by_send = notifies && (!fabric_.is_ordered || bytes == 0);
    if (!has_room(state, transfers) || (notifies && state.credits() == 0) ||
        (by_send && !state.sending.out->has_record(1 + spare_receives))) {
        return back_pressure(peer, transfers);
    }
    busy_.set(index(peer));
    if (notifies) ++state.used;
    Outgoing::Operation* last = nullptr;
    if (bytes > 0) last = &place(state, head, body, to->address + target.offset, to->key, false);
    if (by_send) {
        (void)push(state, {.kind = rma::Header::Kind::notice, .value = *notice}, 0, false);
    } else if (notifies) {
        last->notifies = true;
        last->notice = *notice;
    }
    copied_bytes_ += fabric_.copies(body.length);
    if (body.length == 0) return Post::done;
    last->token = token;
    return Post::pending;
}

Post Endpoint::read(Peer peer, Target from, Slice into, Token token) {
    Post answer{};
    const Import* const source = to_read(peer, from, into, token, answer);
    if (source == nullptr) return answer;
    PeerState& state = peers_[index(peer)];
    const auto transfers = static_cast<std::uint32_t>(1 + into.length / fabric_.piece);
    if (!has_room(state, transfers)) return back_pressure(peer, transfers);
    place(state, {}, into, source->address + from.offset, source->key, true).token = token;
    copied_bytes_ += fabric_.copies(into.length);
    busy_.set(index(peer));
    return Post::pending;
}

}  // namespace incast::transport::ofi

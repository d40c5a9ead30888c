#include "transport/verbs/endpoint.h"

#include <algorithm>
#include <bit>
#include <chrono>
#include <cstring>
#include <thread>
#include <utility>

#include <arpa/inet.h>

#include "transport/copy_head.h"
#include "transport/verbs/descriptor/descriptor.h"

namespace incast::transport::verbs {

namespace {

bool watch(os::Poller& poller, int fd, std::uint64_t id) {
    epoll_event event{.events = EPOLLIN, .data = {.u64 = id}};
    return ::epoll_ctl(poller.fd(), EPOLL_CTL_ADD, fd, &event) == 0;
}

}  // namespace

PairTable::PairTable(std::size_t pairs) : mask_(std::bit_ceil(4 * pairs) - 1), places_(mask_ + 1) {}

void PairTable::add(std::uint32_t number, std::uint32_t peer) {
    std::size_t at = number & mask_;
    while (places_[at].peer != none)
        at = (at + 1) & mask_;
    places_[at] = {number, peer};
}

void PairTable::remove(std::uint32_t number) {
    std::size_t hole = number & mask_;
    while (places_[hole].peer != none && places_[hole].number != number)
        hole = (hole + 1) & mask_;
    if (places_[hole].peer == none) return;
    // Those behind it move up, if they may.
    for (std::size_t at = (hole + 1) & mask_; places_[at].peer != none; at = (at + 1) & mask_) {
        if (((at - (places_[at].number & mask_)) & mask_) < ((at - hole) & mask_)) continue;
        places_[hole] = places_[at];
        hole = at;
    }
    places_[hole] = {};
}

Endpoint::Endpoint(const EndpointSettings& settings, const EndpointOptions& options, Device device, os::Poller poller,
                   std::uint32_t rail, std::shared_ptr<Pool> pool)
    : Base({.transport = transport_name,
            .receives = settings.receives,
            .transfers = settings.send_queue,
            .connect_timeout = settings.connect_timeout},
           options, std::move(poller),
           Calls({.transport = transport_name, .magic = Hello::expected_magic, .bytes = sizeof(Call)},
                 std::move(device.calls), settings.connect_timeout, options.log),
           std::move(pool)),
      settings_(settings),
      device_(std::move(device)),
      rail_(rail),
      lkeys_(max_regions),
      pairs_(options.max_peers),
      receives_(std::size_t{options.max_peers} * (settings.receives + spare_receives)),
      connected_(options.max_peers) {
    capabilities_ = {.nature = nature,
                     .max_peers = options.max_peers,
                     .max_regions = max_regions,
                     .max_posted = std::min({options.max_posted, settings.receives, settings.send_queue / 2}),
                     .read = true,
                     .has_wait_fd = true};
    for (PeerState& state : peers_)
        state.there = index(options_.self);
    spent_.reserve(receives_.size());
}

Result<std::unique_ptr<Transport>> Endpoint::make(const EndpointSettings& settings, const EndpointOptions& options) {
    auto made = make_rail(settings, options, 0, std::make_shared<Pool>(options.shareable));
    if (!made) return made.error();
    return std::unique_ptr<Transport>(std::move(*made));
}

Result<std::unique_ptr<Endpoint>> Endpoint::make_rail(const EndpointSettings& settings, const EndpointOptions& options,
                                                      std::uint32_t rail, const std::shared_ptr<Pool>& pool) {
    if (const auto checked = check(transport_name, options); !checked) return checked.error();
    auto device = Device::open(settings, rail, index(options.self), options.max_peers);
    if (!device) return device.error();
    os::Poller poller;
    if (poller.fd() < 0 || !watch(poller, device->completions->fd, completions_id) ||
        (device->events != nullptr && !watch(poller, device->events->fd, events_id))) {
        return Error{std::string(transport_name) + ": epoll: " + reason(errno)};
    }
    std::unique_ptr<Endpoint> made(new Endpoint(settings, options, std::move(*device), std::move(poller), rail, pool));
    if (made->exchanges() && !made->watch_exchange())
        return Error{std::string(transport_name) + ": epoll: " + reason(errno)};
    return made;
}

Endpoint::~Endpoint() {
    // What was posted arrives: a queue pair that goes takes with it what has not left. A peer that does not answer
    // costs a second.
    const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(1);
    options_.log = {};
    while (!drained() && std::chrono::steady_clock::now() < until) {
        poll_sent();
        flush();
        std::this_thread::yield();
    }
    for (PeerState& state : peers_) {
        drop(state.parked);
        if (state.id != nullptr && state.pair != nullptr) (void)rdma_disconnect(state.id);
        destroy_pair(state);
        state.socket.close();
        if (state.id != nullptr) (void)rdma_destroy_id(state.id);
    }
    device_.receives.reset();
    for (PeerState& state : peers_) {
        state.share.registration.reset();
        if (state.share.memory != nullptr) ::munmap(state.share.memory, state.share.bytes);
    }
    forget_all();
}

bool Endpoint::drained() const {
    for (std::size_t peer = connected_.next(0); peer != base::Bitmap::none; peer = connected_.next(peer + 1)) {
        const SendQueue& out = *peers_[peer].share.out;
        if (out.under_way() > 0) return false;
    }
    return true;
}

bool Endpoint::has_room_again(const PeerState& state) const {
    const SendQueue& out = *state.share.out;
    const bool half_is_free = 2 * (out.under_way() + state.unpolled) <= settings_.send_queue;
    return half_is_free && out.has_stage(buffer_bytes) && has_room(state, state.wanted);
}

std::byte* Endpoint::push(PeerState& state, Header header, std::size_t bytes, bool is_fenced) {
    SendQueue& out = *state.share.out;
    std::byte* const place = out.stage(sizeof header + bytes);
    if (place == nullptr) return nullptr;
    header.credits = state.announced = state.returned;
    std::memcpy(place, &header, sizeof header);
    const auto whole = static_cast<std::uint32_t>(sizeof header + bytes);
    SendQueue::Request& request =
        out.make(IBV_WR_SEND, (is_fenced ? unsigned{IBV_SEND_FENCE} : 0U) |
                                  (whole <= state.inline_bytes ? unsigned{IBV_SEND_INLINE} : 0U));
    request.parts[0] = {reinterpret_cast<std::uintptr_t>(place), whole, out.lkey()};
    request.wr.num_sge = 1;
    return place + sizeof header;
}

Post Endpoint::send(Peer peer, Bytes message) {
    if (!is_up(peer) || message.empty() || message.size() > max_message_bytes) return Post::refused;
    PeerState& state = peers_[index(peer)];
    if (state.credits() == 0 || !has_room(state, 1)) return back_pressure(peer, 1);
    std::byte* const to = push(state, {.kind = Header::Kind::message}, message.size(), false);
    if (to == nullptr) return back_pressure(peer, 1);
    std::memcpy(to, message.data(), message.size());
    ++state.used;
    busy_.set(index(peer));
    return Post::done;
}

SendQueue::Request& Endpoint::place(PeerState& state, ibv_wr_opcode all, ibv_wr_opcode last, const std::byte* head,
                                    std::uint32_t head_bytes, const Slice& body, std::uint64_t address,
                                    std::uint32_t rkey) {
    SendQueue& out = *state.share.out;
    std::uint32_t at = 0;
    for (std::uint32_t before = head_bytes;; before = 0) {
        const auto bytes =
            static_cast<std::uint32_t>(std::min<std::uint64_t>(body.length - at, device_.piece - before));
        const bool is_last = at + bytes == body.length;
        SendQueue::Request& request = out.make(is_last ? last : all);
        std::size_t parts = 0;
        if (before > 0) request.parts[parts++] = {reinterpret_cast<std::uintptr_t>(head), before, out.lkey()};
        if (bytes > 0) request.parts[parts++] = part_of(body, at, bytes);
        request.wr.num_sge = static_cast<int>(parts);
        request.wr.wr.rdma = {address, rkey};
        if (is_last) return request;
        at += bytes;
        address += before + bytes;
    }
}

Post Endpoint::write(Peer peer, Bytes head, Slice body, Target target, Notice notice, Token token) {
    Post answer{};
    const Import* const to = to_write(peer, head, body, target, token, answer);
    if (to == nullptr) [[unlikely]]
        return answer;
    PeerState& state = peers_[index(peer)];
    const std::uint64_t bytes = head.size() + body.length;
    const auto rkey = static_cast<std::uint32_t>(to->key);
    const bool notifies = notice.has_value();
    if (bytes == 0 && !notifies) [[unlikely]]
        return Post::done;
    const bool is_one = bytes <= device_.piece;
    const std::uint32_t requests = 2 + (is_one ? 0U : static_cast<std::uint32_t>((bytes - 1) / device_.piece));
    if (!has_room(state, requests) || (notifies && state.credits() == 0)) return back_pressure(peer, requests);
    SendQueue& out = *state.share.out;
    const bool by_send = notifies && !device_.immediates;
    if (by_send && !out.has_stage(max_head_bytes + SendQueue::stage_unit)) return back_pressure(peer, requests);
    std::byte* staged = nullptr;
    if (!head.empty()) {
        staged = out.stage(head.size());
        if (staged == nullptr) return back_pressure(peer, requests);
        copy_head(staged, head);
    }
    busy_.set(index(peer));
    const ibv_wr_opcode last = notifies && !by_send ? IBV_WR_RDMA_WRITE_WITH_IMM : IBV_WR_RDMA_WRITE;
    const std::uint64_t address = to->address + target.offset;
    const auto head_bytes = static_cast<std::uint32_t>(head.size());
    SendQueue::Request* request = nullptr;
    if (is_one && (bytes > 0 || !by_send)) [[likely]] {
        request = &out.make(last, bytes <= state.inline_bytes ? unsigned{IBV_SEND_INLINE} : 0U);
        std::size_t parts = 0;
        if (head_bytes > 0)
            request->parts[parts++] = {reinterpret_cast<std::uintptr_t>(staged), head_bytes, out.lkey()};
        if (body.length > 0) request->parts[parts++] = part_of(body, 0, body.length);
        request->wr.num_sge = static_cast<int>(parts);
        request->wr.wr.rdma = {address, rkey};
    } else if (bytes > 0) {
        request = &place(state, IBV_WR_RDMA_WRITE, last, staged, head_bytes, body, address, rkey);
    }
    if (notifies) {
        ++state.used;
        if (by_send) {
            (void)push(state, {.kind = Header::Kind::notice, .value = *notice}, 0, false);
        } else {
            request->wr.imm_data = ::htonl(to_immediate(*notice, state.announced = state.returned));
        }
    }
    if (body.length == 0) return Post::done;
    request->token = token;
    return Post::pending;
}

Post Endpoint::read(Peer peer, Target from, Slice into, Token token) {
    Post answer{};
    const Import* const source = to_read(peer, from, into, token, answer);
    if (source == nullptr) return answer;
    PeerState& state = peers_[index(peer)];
    const auto pieces = static_cast<std::uint32_t>((into.length + device_.piece - 1) / device_.piece);
    if (!has_room(state, pieces)) return back_pressure(peer, pieces);
    place(state, IBV_WR_RDMA_READ, IBV_WR_RDMA_READ, nullptr, 0, into, source->address + from.offset,
          static_cast<std::uint32_t>(source->key))
        .token = token;
    busy_.set(index(peer));
    return Post::pending;
}

}  // namespace incast::transport::verbs

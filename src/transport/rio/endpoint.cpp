#include "transport/rio/endpoint.h"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <random>
#include <system_error>
#include <thread>

#include <fcntl.h>
#include <softrio.h>

#include "base/bitmap.h"
#include "base/cache.h"
#include "transport/copy_head.h"
#include "transport/rio/descriptor/descriptor.h"
#include "transport/rio/rio.h"

namespace incast::transport::rio {

namespace {

constexpr std::uint32_t max_peers_limit = 256;  // processes that may write to one endpoint of SoftRIO
constexpr std::size_t rotate_bytes = 16384;     // smaller bodies stay on one DMA channel
constexpr std::size_t stream_unit = 8;
constexpr std::uint16_t max_doorbells = 1024;
constexpr std::uint32_t max_transfers = 3000;  // asynchronous ones of all peers that are remembered

/// As the setting `fabric`: each node's own environment says which.
constexpr std::string_view fabric_variable = "RIO_FABRIC";

bool inside(std::uint64_t size, std::uint64_t offset, std::uint64_t length) {
    return offset <= size && length <= size - offset;
}

}  // namespace

Endpoint::Endpoint(const EndpointSettings& settings, const EndpointOptions& options, api::MasterPort port,
                   std::uint16_t doorbell, std::uint64_t addresses, api::Memory slots_memory, api::Mapping slots,
                   api::Window slots_window)
    : settings_(settings),
      options_(options),
      port_(std::move(port)),
      doorbell_(doorbell),
      slots_memory_(std::move(slots_memory)),
      slots_(std::move(slots)),
      slots_window_(std::move(slots_window)),
      regions_(port_, settings_.layout, addresses + window_gap),
      active_(options.max_peers),
      busy_(options.max_peers),
      known_(options.max_peers),
      dialling_(options.max_peers),
      attempts_(addresses) {
    constexpr auto typical_record = static_cast<std::uint32_t>(record_bytes(64));
    capabilities_ = {.nature = nature,
                     .max_peers = options.max_peers,
                     .max_regions = max_regions,
                     .max_posted = std::min({options.max_posted, settings.ring_bytes / typical_record,
                                             std::max(8U, max_transfers * settings.dma_channels / options.max_peers)}),
                     .read = true,
                     .fences_live_peer = false,
                     .has_wait_fd = true};
    if (!regions_.has_guards()) capabilities_.nature.bounds = Bounds::trusted;
    peers_.reserve(options.max_peers);
    for (std::uint32_t number = 0; number < options.max_peers; ++number)
        peers_.emplace_back(settings.ring_bytes, std::max(16U, capabilities_.max_posted)).there = index(options.self);
    touched_.reserve(options.max_peers);
}

Result<std::unique_ptr<Transport>> Endpoint::make(const EndpointSettings& settings, const EndpointOptions& options) {
    if (options.max_peers == 0 || options.max_peers > max_peers_limit || options.max_posted == 0 ||
        index(options.self) >= options.max_peers) {
        return Error{std::string(transport_name) + ": node " + std::to_string(index(options.self)) +
                     " with max_peers " + std::to_string(options.max_peers) + ", max_posted " +
                     std::to_string(options.max_posted) + ": max_peers must be 1.." + std::to_string(max_peers_limit) +
                     ", max_posted at least 1, and the node's index below max_peers"};
    }
    std::string fabric = settings.fabric;
    if (fabric.empty()) fabric = "shm:incast-" + std::to_string(options.run);
    if (fabric == fabric_variable) {
        // NOLINTNEXTLINE(concurrency-mt-unsafe): nobody changes it
        const char* named = std::getenv(fabric_variable.data());
        if (named == nullptr || *named == '\0')
            return Error{std::string(transport_name) + ": fabric: RIO_FABRIC is not set for node " +
                         std::to_string(index(options.self))};
        fabric = named;
    }
    if (!settings.fabric_options.empty())
        fabric += (fabric.find('?') == std::string::npos ? '?' : '&') + settings.fabric_options;
    auto port = api::MasterPort::join(fabric, O_NONBLOCK | SOFTRIO_ON_DEMAND);
    if (!port) return Error{std::string(transport_name) + ": " + port.error().message};
    // The first that is free: on a port of the kernel a process that was killed leaves its own taken (docs/rapidio.md).
    std::uint16_t doorbell = 0;
    std::error_code error = port->listen(doorbell, doorbell);
    while (error == std::errc::device_or_resource_busy && ++doorbell < max_doorbells)
        error = port->listen(doorbell, doorbell);
    if (error) return Error{std::string(transport_name) + ": doorbells: " + error.message()};
    // An endpoint that comes after this one, perhaps with the same destination id, has its windows elsewhere, so that
    // what was meant for this one never lands there.
    std::random_device random;
    const std::uint64_t addresses = std::uint64_t{random() & 0x3FFFFFF} << 37;
    const std::uint64_t bytes = api::whole_pages(options.max_peers * slot_bytes(settings.ring_bytes));
    auto memory = api::Memory::allocate(*port, bytes);
    if (!memory) return Error{std::string(transport_name) + ": slots for the peers: " + memory.error().message};
    // In this order: a master port of the kernel shows nothing that was mapped before.
    auto window = api::Window::open(*port, *memory, 0, bytes, addresses);
    if (!window) return Error{std::string(transport_name) + ": slots for the peers: " + window.error().message};
    auto mapping = api::Mapping::of(*port, *memory, 0, bytes);
    if (!mapping) return Error{std::string(transport_name) + ": slots for the peers: " + mapping.error().message};
    EndpointSettings own = settings;
    if (options.shareable) own.layout.pool_bytes = 0;
    std::unique_ptr<Endpoint> made(new Endpoint(own, options, std::move(*port), doorbell, addresses, std::move(*memory),
                                                std::move(*mapping), std::move(*window)));
    for (std::uint32_t channel = 1; channel < settings.dma_channels; ++channel) {
        auto more = made->port_.again(O_NONBLOCK | SOFTRIO_ON_DEMAND);
        if (!more)
            return Error{std::string(transport_name) + ": DMA channel " + std::to_string(channel) + ": " +
                         more.error().message};
        made->more_ports_.push_back(std::move(*more));
    }
    if (settings.notice == NoticeKind::cm) {
        auto office = PostOffice::open(made->port_);
        if (!office) return Error{std::string(transport_name) + ": " + office.error().message};
        made->post_office_ = std::move(*office);
    }
    return std::unique_ptr<Transport>(std::move(made));
}

Endpoint::~Endpoint() {
    // Transfers under way use this memory until the fabric has ended them. Nothing else is waited for: what is not sent
    // by now is dropped, and a bye is one more transfer. No answer of a peer is needed.
    for (std::size_t peer = known_.next(0); peer != base::Bitmap::none; peer = known_.next(peer + 1)) {
        give_up(Peer{static_cast<std::uint32_t>(peer)});
        peers_[peer].lane.drop_unsent();
        peers_[peer].owes_doorbell = false;  // whoever owes one has a full queue of them, which wakes it
    }
    for (bool waits = true; waits; std::this_thread::yield()) {
        waits = false;
        for (std::size_t peer = busy_.next(0); peer != base::Bitmap::none; peer = busy_.next(peer + 1)) {
            work(Peer{static_cast<std::uint32_t>(peer)});
            waits = waits || has_transfers(peers_[peer]);
        }
    }
}

Address Endpoint::own_address() const {
    return {.node = index(options_.self),
            .destid = port_.destid(),
            .peers = options_.max_peers,
            .ring_bytes = settings_.ring_bytes,
            .notice = settings_.notice,
            .slots = slots_window_.address(),
            .doorbell = doorbell_};
}

Blob Endpoint::address() const {
    return to_blob(own_address());
}

Result<Blob> Endpoint::expose(Local region, const Grant& grant) {
    const std::uint64_t bytes = regions_.memory(region).size();
    const std::uint64_t last = grant.count > 0 ? grant.count - 1 : 0;
    const std::uint64_t length =
        grant.length == to_the_end && last == 0 ? bytes - std::min(bytes, grant.offset) : grant.length;
    if (bytes != 0 &&
        ((grant.peer != any_peer && index(grant.peer) >= peers_.size()) || !inside(bytes, grant.offset, length) ||
         (last > 0 && grant.stride > (bytes - length - grant.offset) / last))) {
        return Error{"expose: " + std::to_string(grant.count) + " places of " + std::to_string(grant.length) +
                     " bytes at " + std::to_string(grant.offset) + ": not in region " +
                     std::to_string(static_cast<unsigned>(region)) + ", or for no peer"};
    }
    const auto place = regions_.expose(region, grant);
    if (!place) return place.error();
    for (std::size_t peer = known_.next(0); peer != base::Bitmap::none; peer = known_.next(peer + 1)) {
        const Peer known{static_cast<std::uint32_t>(peer)};
        if (grant.peer != any_peer && grant.peer != known) continue;
        if (const std::error_code error = regions_.permit(region, known, peers_[peer].destid))
            return Error{"expose: node " + std::to_string(peer) + " cannot be told of it: " + error.message()};
    }
    Key key;
    key.owner = grant.peer == any_peer ? index(options_.self) : peers_[index(grant.peer)].there;
    key.generation = options_.incarnation;
    key.region = static_cast<std::uint32_t>(region);
    key.use = regions_.use(region);
    key.peer = index(grant.peer);
    key.write = grant.write ? 1 : 0;
    key.bytes = bytes;
    key.run = options_.run;
    key.place = *place;
    return to_blob(key);
}

Result<int> Endpoint::share(Local region) {
    if (!options_.shareable) return Error{"share: the regions of this endpoint are not shareable"};
    return regions_.share(region);
}

Result<Remote> Endpoint::import_key(Peer peer, const Blob& blob) {
    const Peer there = index(peer) < peers_.size() ? Peer{peers_[index(peer)].there} : options_.self;
    const Result<Key> key = read_key<Key>(blob, peer, there, options_.run, max_regions, transport_name);
    if (!key) return key.error();
    if (key->place.segment_bytes < api::page_bytes) return Error{"import_key: not a key of the rio transport"};
    return imports_.add({peer, *key});
}

Result<Ok> Endpoint::release(Remote remote) {
    if (const Import* import = imports_.find(remote); import != nullptr && import->written)
        written_bytes_ -= import->key.bytes;
    return imports_.release(remote);
}

void Endpoint::see_read(Peer peer) {
    PeerState& state = peers_[index(peer)];
    const std::uint64_t read = slot(index(peer)).read.load(std::memory_order_acquire);
    if (read > state.peer_read && read <= state.lane.sent()) state.peer_read = read;
    while (!state.letters.empty() && state.letters.front() <= state.peer_read)
        state.letters.pop();
}

bool Endpoint::has_room(Peer peer, std::size_t payload) {
    const PeerState& state = peers_[index(peer)];
    if (state.lane.has_room(payload, state.peer_read)) return true;
    see_read(peer);
    return state.lane.has_room(payload, state.peer_read);
}

bool Endpoint::has_dma_room(const PeerState& state, std::uint64_t pieces) {
    return state.dmas.size() + pieces <= state.dmas.capacity();
}

Post Endpoint::back_pressure(Peer peer) {
    peers_[index(peer)].wants_room = true;
    return Post::again;
}

Post Endpoint::fault(Peer peer, Token token) {
    if (token == 0) return Post::done;
    if (peers_[index(peer)].faults >= capabilities_.max_posted) return back_pressure(peer);
    completed(peer, token, Status::remote_fault);
    return Post::pending;
}

Post Endpoint::lost_with(Peer peer, Token token) {
    if (token != 0) completed(peer, token, Status::peer_lost);
    lost(peer);
    return token != 0 ? Post::pending : Post::done;
}

void Endpoint::push(Peer peer, Record record, Bytes message) {
    peers_[index(peer)].lane.push(record, message);
    busy_.set(index(peer));
    unsent_ = true;
}

Post Endpoint::send(Peer peer, Bytes message) {
    if (!is_up(peer) || message.empty() || message.size() > max_message_bytes) return Post::refused;
    if (!has_room(peer, message.size())) return back_pressure(peer);
    push(peer, {Record::Kind::message, 0, static_cast<std::uint32_t>(message.size())}, message);
    return Post::done;
}

std::uint32_t Endpoint::next_port(std::size_t bytes) {
    if (bytes < rotate_bytes || more_ports_.empty()) return 0;
    port_turn_ = (port_turn_ + 1) % settings_.dma_channels;
    return port_turn_;
}

Bytes Endpoint::keep_head(Peer peer, Bytes head) {
    PeerState& state = peers_[index(peer)];
    std::byte* const place = state.heads.get() + state.next_head++ % state.dmas.capacity() * max_head_bytes;
    copy_head(place, head);
    return {place, head.size()};
}

/// The response to the body, which goes the same way behind it, stands for the head too.
bool Endpoint::write_head(Peer peer, const Place& place, std::uint64_t offset, Bytes head, std::uint32_t number) {
    const PeerState& state = peers_[index(peer)];
    while (!head.empty()) {
        const Bytes part =
            head.first(std::min<std::uint64_t>(head.size(), place.segment_bytes - offset % place.segment_bytes));
        head = head.subspan(part.size());
        if (port(number).post(state.destid, place.address + offset, part)) return false;
        offset += part.size();
    }
    return true;
}

template <class Start>
std::optional<Post> Endpoint::transfer(Peer peer, const Place& place, std::uint64_t offset, std::size_t bytes,
                                       Token token, std::uint32_t number, Start start) {
    PeerState& state = peers_[index(peer)];
    std::size_t waiting = 0;
    for (std::size_t at = 0; at < bytes;) {
        const std::size_t part =
            std::min<std::uint64_t>(bytes - at, place.segment_bytes - (offset + at) % place.segment_bytes);
        api::Cookie cookie = 0;
        const bool started = !start(place.address + offset + at, at, part, cookie);
        const auto ended = started ? port(number).ended(cookie) : std::nullopt;
        const bool refused = ended && was_refused(place, *ended);
        if (refused && waiting == 0) return std::nullopt;
        if (!started || (ended && *ended)) {
            if (waiting == 0) return lost_with(peer, token);
            if (!refused) lost(peer);
            state.dmas[state.dmas.size() - 1].refused = refused;
            break;  // the pieces under way end first
        }
        if (!ended) {
            state.dmas.must_push({.cookie = cookie, .port = number, .is_guarded = place.is_guarded != 0});
            state.gate.enter(state.lane.written());
            ++waiting;
        }
        at += part;
    }
    copied_bytes_ += bytes;
    if (waiting == 0) return Post::done;
    Dma& last = state.dmas[state.dmas.size() - 1];  // it is the last one to be seen to have ended
    last.token = token;
    last.is_last = true;
    busy_.set(index(peer));
    return Post::pending;
}

void Endpoint::note_written(Import& import) {
    if (std::exchange(import.written, true)) return;
    written_bytes_ += import.key.bytes;
    using Stores = EndpointSettings::Stores;
    streams_ = settings_.stores == Stores::streaming ||
               (settings_.stores == Stores::automatic && base::slots_exceed(written_bytes_, settings_.cache_bytes));
}

std::error_code Endpoint::start_body(Peer peer, std::uint32_t number, std::uint64_t address, Bytes bytes,
                                     api::Cookie& cookie) {
    const api::Destid destid = peers_[index(peer)].destid;
    const std::size_t odd = bytes.size() % stream_unit;
    if (!streams_ || bytes.size() < rotate_bytes || address % stream_unit != 0)
        return port(number).start_write(destid, address, bytes, cookie);
    const std::size_t even = bytes.size() - odd;
    if (odd != 0) {
        if (const auto error = port(number).write(destid, address + even, bytes.subspan(even), api::Completion::left)) {
            return error;
        }
    }
    return port(number).start_write(destid, address, bytes.first(even), cookie, api::Stores::streaming);
}

Post Endpoint::write(Peer peer, Bytes head, Slice body, Target target, Notice notice, Token token) {
    const std::span<std::byte> from = regions_.memory(body.region);
    Import* const to = is_up(peer) ? imports_.find(target.region, peer) : nullptr;
    if (to == nullptr || head.size() > max_head_bytes || body.length > max_write_bytes ||
        (body.length > 0 && !inside(from.size(), body.offset, body.length))) {
        return Post::refused;
    }
    PeerState& state = peers_[index(peer)];
    const Place& place = to->key.place;
    if (!inside(to->key.bytes, target.offset, head.size() + body.length) || to->key.generation != state.incarnation ||
        to->key.write == 0) {
        return fault(peer, token);
    }
    const std::uint64_t pieces = body.length / place.segment_bytes + 2;
    if (!has_dma_room(state, pieces) || (notice.has_value() && !has_room(peer, 0))) return back_pressure(peer);
    const std::uint32_t number = next_port(body.length);
    note_written(*to);
    const Bytes kept = head.empty() ? head : keep_head(peer, head);
    std::optional<Post> post;
    if (body.length == 0) {
        post = transfer(peer, place, target.offset, kept.size(), token, number,
                        [&](std::uint64_t address, std::size_t at, std::size_t bytes, api::Cookie& cookie) {
                            return port(number).start_write(state.destid, address, kept.subspan(at, bytes), cookie);
                        });
    } else {
        if (!write_head(peer, place, target.offset, kept, number)) return lost_with(peer, token);
        post = transfer(peer, place, target.offset + head.size(), body.length, token, number,
                        [&](std::uint64_t address, std::size_t at, std::size_t bytes, api::Cookie& cookie) {
                            return start_body(peer, number, address, from.subspan(body.offset + at, bytes), cookie);
                        });
    }
    if (!post) return fault(peer, token);
    if (notice.has_value() && is_up(peer)) push(peer, {Record::Kind::notice, *notice, 0});
    return *post;
}

Post Endpoint::read(Peer peer, Target from, Slice into, Token token) {
    const std::span<std::byte> to = regions_.memory(into.region);
    const Import* const source = is_up(peer) ? imports_.find(from.region, peer) : nullptr;
    if (source == nullptr || into.length > max_write_bytes || !inside(to.size(), into.offset, into.length))
        return Post::refused;
    PeerState& state = peers_[index(peer)];
    const Place& place = source->key.place;
    if (!inside(source->key.bytes, from.offset, into.length) || source->key.generation != state.incarnation)
        return fault(peer, token);
    if (!has_dma_room(state, into.length / place.segment_bytes + 2)) return back_pressure(peer);
    const std::uint32_t number = next_port(into.length);
    const auto start = [&](std::uint64_t address, std::size_t at, std::size_t bytes, api::Cookie& cookie) {
        return port(number).start_read(state.destid, address, to.subspan(into.offset + at, bytes), cookie);
    };
    const std::optional<Post> post = transfer(peer, place, from.offset, into.length, token, number, start);
    return post ? *post : fault(peer, token);
}

Bytes Endpoint::local(Slice where) const {
    const std::span<std::byte> region = regions_.memory(where.region);
    if (!inside(region.size(), where.offset, where.length)) return {};
    return region.subspan(where.offset, where.length);
}

}  // namespace incast::transport::rio

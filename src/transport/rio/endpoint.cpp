#include "transport/rio/endpoint.h"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <random>
#include <system_error>
#include <thread>

#include <fcntl.h>
#include <softrio.h>

#include "transport/copy_head.h"

namespace incast::transport::rio {

namespace {

constexpr std::uint32_t max_peers_limit = 256;    // processes that may write to one endpoint of SoftRIO
constexpr std::uint16_t look_doorbell = 0;        // the only one: look into my slot
constexpr std::size_t doorbells_per_poll = 1024;  // twice a queue
constexpr std::size_t rotate_bytes = 16384;       // smaller bodies stay on one DMA channel
constexpr std::size_t stream_unit = 8;
constexpr std::uint32_t max_transfers = 3000;   // asynchronous ones of all peers that are remembered
constexpr std::size_t letters_at_a_time = 100;  // CM waits at 128 unread ones
constexpr std::uint32_t report_letters = 32;
constexpr Time settle_every = 50 * ps_per_us;  // whether something under way has ended
constexpr std::uint64_t window_gap = std::uint64_t{1} << 32;

/// Of a message of CM; records follow.
struct LetterHead {
    std::uint64_t start = 0;  // position of the first
    std::uint32_t bytes = 0;
    std::uint32_t zero = 0;
};

template <class T>
Bytes bytes_of(const T& value) {
    return std::as_bytes(std::span(&value, 1));
}

bool inside(std::uint64_t size, std::uint64_t offset, std::uint64_t length) {
    return offset <= size && length <= size - offset;
}

}  // namespace

Endpoint::Endpoint(const EndpointSettings& settings, const EndpointOptions& options, api::Port port,
                   std::uint64_t addresses, api::Memory slots_memory, api::Mapping slots, api::Window slots_window)
    : settings_(settings),
      options_(options),
      port_(std::move(port)),
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
    capabilities_ = {.max_peers = options.max_peers,
                     .max_regions = max_regions,
                     .max_posted = std::min({options.max_posted, settings.ring_bytes / typical_record,
                                             std::max(8U, max_transfers * settings.dma_channels / options.max_peers)}),
                     .read = true,
                     .fences_live_peer = false,
                     .has_wait_fd = true};
    peers_.reserve(options.max_peers);
    for (std::uint32_t number = 0; number < options.max_peers; ++number)
        peers_.emplace_back(settings.ring_bytes, std::max(16U, capabilities_.max_posted));
    touched_.reserve(options.max_peers);
}

Result<std::unique_ptr<Transport>> Endpoint::make(const EndpointSettings& settings, const EndpointOptions& options) {
    if (options.max_peers == 0 || options.max_peers > max_peers_limit || options.max_posted == 0 ||
        index(options.self) >= options.max_peers) {
        return Error{"rio: node " + std::to_string(index(options.self)) + " with max_peers " +
                     std::to_string(options.max_peers) + ", max_posted " + std::to_string(options.max_posted) +
                     ": max_peers must be 1.." + std::to_string(max_peers_limit) +
                     ", max_posted at least 1, and the node's index below max_peers"};
    }
    std::string fabric = settings.fabric;
    if (fabric.empty()) fabric = "shm:incast-" + std::to_string(options.run);
    if (!settings.fabric_options.empty())
        fabric += (fabric.find('?') == std::string::npos ? '?' : '&') + settings.fabric_options;
    auto port = api::Port::join(fabric, O_NONBLOCK | SOFTRIO_ON_DEMAND);
    if (!port) return Error{"rio: " + port.error().message};
    if (const std::error_code error = port->listen(look_doorbell, look_doorbell))
        return Error{"rio: doorbells: " + error.message()};
    // An endpoint that comes after this one, perhaps with the same destination id, has its windows elsewhere, so that
    // what was meant for this one never lands there.
    std::random_device random;
    const std::uint64_t addresses = std::uint64_t{random() & 0x3FFFFFF} << 37;
    const std::uint64_t bytes = api::whole_pages(options.max_peers * slot_bytes(settings.ring_bytes));
    auto memory = api::Memory::allocate(*port, bytes);
    if (!memory) return Error{"rio: slots for the peers: " + memory.error().message};
    auto mapping = api::Mapping::of(*port, *memory, 0, bytes);
    if (!mapping) return Error{"rio: slots for the peers: " + mapping.error().message};
    auto window = api::Window::open(*port, *memory, 0, bytes, addresses);
    if (!window) return Error{"rio: slots for the peers: " + window.error().message};
    EndpointSettings own = settings;
    if (options.shareable) own.layout.pool_bytes = 0;
    std::unique_ptr<Endpoint> made(new Endpoint(own, options, std::move(*port), addresses, std::move(*memory),
                                                std::move(*mapping), std::move(*window)));
    for (std::uint32_t channel = 1; channel < settings.dma_channels; ++channel) {
        auto more = made->port_.again(O_NONBLOCK | SOFTRIO_ON_DEMAND);
        if (!more) return Error{"rio: DMA channel " + std::to_string(channel) + ": " + more.error().message};
        made->more_ports_.push_back(std::move(*more));
    }
    if (settings.notice == NoticeKind::cm) {
        auto office = PostOffice::open(made->port_);
        if (!office) return Error{"rio: " + office.error().message};
        made->post_office_ = std::move(*office);
    }
    return std::unique_ptr<Transport>(std::move(made));
}

Endpoint::~Endpoint() {
    // What poll had taken up arrives, and nothing of this endpoint lands after its bye. A peer that lives says nothing
    // to this; one whose fabric does not answer costs a second.
    const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(1);
    for (std::size_t peer = known_.next(0); peer != base::Bitmap::none; peer = known_.next(peer + 1))
        give_up(Peer{static_cast<std::uint32_t>(peer)});
    while (busy_.any() && std::chrono::steady_clock::now() < until) {
        for (std::size_t peer = busy_.next(0); peer != base::Bitmap::none; peer = busy_.next(peer + 1))
            work(Peer{static_cast<std::uint32_t>(peer)});
        std::this_thread::yield();
    }
}

Blob Endpoint::address() const {
    return to_blob(Address{.node = index(options_.self),
                           .destid = port_.destid(),
                           .peers = options_.max_peers,
                           .ring_bytes = settings_.ring_bytes,
                           .notice = settings_.notice,
                           .slots = slots_window_.address()});
}

Result<Blob> Endpoint::expose(Local region) {
    const auto place = regions_.expose(region);
    if (!place) return place.error();
    Key key;
    key.owner = index(options_.self);
    key.generation = options_.incarnation;
    key.region = static_cast<std::uint32_t>(region);
    key.bytes = regions_.memory(region).size();
    key.run = options_.run;
    key.place = *place;
    return to_blob(key);
}

Result<int> Endpoint::share(Local region) {
    if (!options_.shareable) return Error{"share: the regions of this endpoint are not shareable"};
    return regions_.share(region);
}

Result<Remote> Endpoint::import_key(Peer peer, const Blob& blob) {
    const Result<Key> key = read_key<Key>(blob, peer, options_.run, max_regions, "rio");
    if (!key) return key.error();
    if (key->place.segment_bytes < api::page_bytes) return Error{"import_key: not a key of the rio transport"};
    imports_.push_back({peer, *key});
    return Remote{static_cast<std::uint32_t>(imports_.size() - 1)};
}

// --- posting

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
    if (peers_[index(peer)].faults == capabilities_.max_posted) return back_pressure(peer);
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
Post Endpoint::transfer(Peer peer, const Place& place, std::uint64_t offset, std::size_t bytes, Token token,
                        std::uint32_t number, Start start) {
    PeerState& state = peers_[index(peer)];
    std::size_t waiting = 0;
    for (std::size_t at = 0; at < bytes;) {
        const std::size_t part =
            std::min<std::uint64_t>(bytes - at, place.segment_bytes - (offset + at) % place.segment_bytes);
        api::Cookie cookie = 0;
        if (start(place.address + offset + at, at, part, cookie)) return lost_with(peer, token);
        const auto ended = port(number).ended(cookie);
        if (ended && *ended) return lost_with(peer, token);
        if (!ended) {
            state.dmas.push({.cookie = cookie, .port = number, .token = 0, .lane_end = state.lane.written()});
            ++waiting;
        }
        at += part;
    }
    copied_bytes_ += bytes;
    if (waiting == 0) return Post::done;
    state.dmas[state.dmas.size() - 1].token = token;  // it is the last one to be seen to have ended
    busy_.set(index(peer));
    return Post::pending;
}

void Endpoint::note_written(Import& import) {
    if (std::exchange(import.written, true)) return;
    written_bytes_ += import.key.bytes;
    using Stores = EndpointSettings::Stores;
    streams_ = settings_.stores == Stores::streaming ||
               (settings_.stores == Stores::automatic && written_bytes_ > settings_.cache_bytes);
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
    Import* const to = is_up(peer) ? imported(target.region, peer) : nullptr;
    if (to == nullptr || head.size() > max_head_bytes || body.length > max_write_bytes ||
        (body.length > 0 && !inside(from.size(), body.offset, body.length))) {
        return Post::refused;
    }
    PeerState& state = peers_[index(peer)];
    const Place& place = to->key.place;
    if (!inside(to->key.bytes, target.offset, head.size() + body.length) || to->key.generation != state.incarnation) {
        return fault(peer, token);
    }
    const std::uint64_t pieces = body.length / place.segment_bytes + 2;
    if (!has_dma_room(state, pieces) || (notice.has_value() && !has_room(peer, 0))) return back_pressure(peer);
    const std::uint32_t number = next_port(body.length);
    note_written(*to);
    const Bytes kept = head.empty() ? head : keep_head(peer, head);
    Post post = Post::done;
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
    if (notice.has_value() && is_up(peer)) push(peer, {Record::Kind::notice, *notice, 0});
    return post;
}

Post Endpoint::read(Peer peer, Target from, Slice into, Token token) {
    const std::span<std::byte> to = regions_.memory(into.region);
    const Import* const source = is_up(peer) ? imported(from.region, peer) : nullptr;
    if (source == nullptr || into.length > max_write_bytes || !inside(to.size(), into.offset, into.length))
        return Post::refused;
    PeerState& state = peers_[index(peer)];
    const Place& place = source->key.place;
    if (!inside(source->key.bytes, from.offset, into.length) || source->key.generation != state.incarnation)
        return fault(peer, token);
    if (!has_dma_room(state, into.length / place.segment_bytes + 2)) return back_pressure(peer);
    const std::uint32_t number = next_port(into.length);
    return transfer(peer, place, from.offset, into.length, token, number,
                    [&](std::uint64_t address, std::size_t at, std::size_t bytes, api::Cookie& cookie) {
                        return port(number).start_read(state.destid, address, to.subspan(into.offset + at, bytes),
                                                       cookie);
                    });
}

Bytes Endpoint::local(Slice where) const {
    const std::span<std::byte> region = regions_.memory(where.region);
    if (!inside(region.size(), where.offset, where.length)) return {};
    return region.subspan(where.offset, where.length);
}

// --- what is under way to a peer

template <class T>
void Endpoint::put(Peer peer, Cell& cell, T& out, const T& value, std::uint64_t offset, bool ring) {
    PeerState& state = peers_[index(peer)];
    if (state.gone) return;
    cell.ring = cell.ring || ring;
    if (cell.cookie) {
        cell.again = true;
        return;
    }
    out = value;
    api::Cookie cookie = 0;
    if (port_.start_write(state.destid, state.slot_address + offset, bytes_of(out), cookie)) return lost(peer);
    cell.cookie = cookie;
    settle(peer, cell, out, value, offset);
    if (cell.cookie) busy_.set(index(peer));
}

template <class T>
void Endpoint::settle(Peer peer, Cell& cell, T& out, const T& value, std::uint64_t offset) {
    if (!cell.cookie) return;
    const auto ended = port_.ended(*cell.cookie);
    if (!ended) return;
    const bool ring = cell.ring;
    const bool again = cell.again;
    cell = {};
    if (*ended) return lost(peer);
    if (ring) this->ring(peer);
    if (again) put(peer, cell, out, value, offset, ring);
}

void Endpoint::put_hello(Peer peer) {
    PeerState& state = peers_[index(peer)];
    put(peer, state.hello_cell, state.hello, state.next_hello, offsetof(Slot, hello), true);
}

void Endpoint::put_written(Peer peer, bool ring) {
    PeerState& state = peers_[index(peer)];
    put(peer, state.written_cell, state.written, state.announced, offsetof(Slot, written), ring);
}

void Endpoint::settle_cells(Peer peer) {
    PeerState& state = peers_[index(peer)];
    settle(peer, state.hello_cell, state.hello, state.next_hello, offsetof(Slot, hello));
    settle(peer, state.written_cell, state.written, state.announced, offsetof(Slot, written));
    settle(peer, state.read_cell, state.read, state.reported, offsetof(Slot, read));
    settle(peer, state.beat_cell, state.beat, state.beat, offsetof(Slot, beat));
}

void Endpoint::settle_dmas(Peer peer) {
    PeerState& state = peers_[index(peer)];
    while (!state.dmas.empty()) {
        const Dma dma = state.dmas.front();
        const auto ended = port(dma.port).ended(dma.cookie);
        if (!ended) return;
        state.dmas.pop();
        if (dma.token != 0) completed(peer, dma.token, *ended ? Status::peer_lost : Status::ok);
        if (*ended) lost(peer);
    }
}

/// Records leave when every body that was posted before them is placed. The ring and the word that says how far it is
/// written go by one DMA channel, and so in order; a doorbell or message would overtake them, so it comes after the
/// response (T3).
void Endpoint::send_records(Peer peer) {
    PeerState& state = peers_[index(peer)];
    const std::uint64_t end = state.dmas.empty() ? state.lane.written() : state.dmas.front().lane_end;
    if (settings_.notice == NoticeKind::cm) {
        if (!send_letters(peer, end)) return lost(peer);
    } else {
        while (state.lane.sent() != end) {
            const Bytes bytes = state.lane.bytes(end);
            const std::uint64_t at = offsetof(Slot, ring_start) + (state.lane.sent() & (settings_.ring_bytes - 1));
            if (port_.post(state.destid, state.slot_address + at, bytes)) return lost(peer);
            state.lane.sent(state.lane.sent() + bytes.size());
        }
    }
    if (state.announced == state.lane.sent()) return;
    state.announced = state.lane.sent();
    put_written(peer, settings_.notice != NoticeKind::memory);
}

bool Endpoint::send_letters(Peer peer, std::uint64_t end) {
    PeerState& state = peers_[index(peer)];
    while (state.lane.sent() != end && state.letters.size() < letters_at_a_time) {
        const std::span<std::byte> payload = out_letter_.payload();
        LetterHead head;
        const Bytes records = state.lane.records(end, payload.size() - sizeof head, head.start);
        head.bytes = static_cast<std::uint32_t>(records.size());
        std::memcpy(payload.data(), &head, sizeof head);
        std::memcpy(payload.data() + sizeof head, records.data(), records.size());
        if (state.socket.send(out_letter_, sizeof head + records.size())) return false;
        state.lane.sent(head.start + records.size());
        state.letters.push(state.lane.sent());
    }
    return true;
}

void Endpoint::ring(Peer peer) {
    PeerState& state = peers_[index(peer)];
    if (state.gone) return;
    const std::error_code error = port_.ring(state.destid, look_doorbell);
    // A full queue wakes the peer as well as one more would; but it may have looked at this slot already.
    state.owes_doorbell = error == std::errc::resource_unavailable_try_again;
    if (state.owes_doorbell) {
        busy_.set(index(peer));
    } else if (error) {
        lost(peer);
    }
}

bool Endpoint::is_under_way(const PeerState& state) const {
    const bool unsent = state.lane.sent() != state.lane.written() && !state.gone &&
                        state.letters.size() < letters_at_a_time &&
                        (state.state == PeerState::State::up || state.state == PeerState::State::closing);
    return unsent || !state.dmas.empty() || state.owes_doorbell || state.hello_cell.cookie.has_value() ||
           state.written_cell.cookie.has_value() || state.read_cell.cookie.has_value() ||
           state.beat_cell.cookie.has_value();
}

void Endpoint::work(Peer peer) {
    PeerState& state = peers_[index(peer)];
    if (state.owes_doorbell) ring(peer);
    settle_cells(peer);
    settle_dmas(peer);
    if (!state.gone && (state.state == PeerState::State::up || state.state == PeerState::State::closing))
        send_records(peer);
    give_room(peer);
    finish_if_quiet(peer);
    if (!is_under_way(state)) busy_.reset(index(peer));
}

// --- polling

std::size_t Endpoint::poll(Time now, std::span<Event> events) {
    last_now_ = now;
    release_read();
    hear_doorbells();
    unsent_ = false;
    for (std::size_t peer = busy_.next(0); peer != base::Bitmap::none; peer = busy_.next(peer + 1))
        work(Peer{static_cast<std::uint32_t>(peer)});
    if (now >= next_look_) {
        next_look_ = now + settings_.look_every;
        look_at_all_ = true;
        for (std::size_t peer = known_.next(0); peer != base::Bitmap::none; peer = known_.next(peer + 1)) {
            PeerState& state = peers_[peer];
            if (!state.beat_cell.cookie)
                put(Peer{static_cast<std::uint32_t>(peer)}, state.beat_cell, state.beat, state.beat + 1,
                    offsetof(Slot, beat), false);
        }
    }
    if (settings_.notice == NoticeKind::memory || std::exchange(look_at_all_, false)) look_at_all();
    for (std::size_t peer = active_.next(0); peer != base::Bitmap::none; peer = active_.next(peer + 1))
        look_at(Peer{static_cast<std::uint32_t>(peer)});
    if (dialling_.any()) look_for_letters();
    if (unset_deadlines_ || now >= next_deadline_) handle_deadlines(now);
    std::size_t count = take_own(events);
    if (own_events_.empty()) count += read_lanes(events.subspan(count));
    if (!own_events_.empty()) count += take_own(events.subspan(count));
    return count;
}

Time Endpoint::next_deadline() const {
    if (unset_deadlines_) return last_now_;
    Time next = next_deadline_;
    if (known_.any()) next = std::min(next, next_look_);
    if (busy_.any()) next = std::min(next, last_now_ + settle_every);
    if (dialling_.any()) next = std::min(next, last_now_ + ps_per_ms);
    if (known_.any() && settings_.notice == NoticeKind::memory) next = std::min(next, last_now_ + settings_.poll_every);
    return next;
}

bool Endpoint::prepare_wait() {
    if (!own_events_.empty() || active_.any() || unsent_ || unset_deadlines_) return false;
    if (settings_.notice == NoticeKind::memory) {
        look_at_all();
        if (active_.any()) return false;
    }
    return port_.arm();
}

void Endpoint::release_read() {
    for (const Peer peer : touched_) {
        PeerState& state = peers_[index(peer)];
        if (state.state != PeerState::State::up) continue;
        if (state.reader.read() - state.reported < settings_.ring_bytes / 4 &&
            state.letters_unreported < report_letters) {
            continue;
        }
        state.reported = state.reader.read();
        state.letters_unreported = 0;
        put(peer, state.read_cell, state.read, state.reported, offsetof(Slot, read),
            settings_.notice != NoticeKind::memory);
    }
    touched_.clear();
}

void Endpoint::hear_doorbells() {
    for (std::size_t heard = 0; heard < doorbells_per_poll; ++heard) {
        const auto doorbell = port_.hear();
        if (!doorbell) return;
        const auto found = by_destid_.find(doorbell->source);
        if (found == by_destid_.end()) {
            look_at_all_ = true;
        } else {
            active_.set(index(found->second));
        }
    }
}

bool Endpoint::has_news(std::uint32_t peer) const {
    const PeerState& state = peers_[peer];
    Slot& its = slot(peer);
    return std::atomic_ref(its.hello.check).load(std::memory_order_acquire) != state.heard ||
           its.written.load(std::memory_order_acquire) != state.reader.read() ||
           (state.wants_room && its.read.load(std::memory_order_acquire) != state.peer_read);
}

void Endpoint::look_at_all() {
    for (std::size_t peer = known_.next(0); peer != base::Bitmap::none; peer = known_.next(peer + 1)) {
        if (has_news(static_cast<std::uint32_t>(peer))) active_.set(peer);
    }
}

void Endpoint::look_at(Peer peer) {
    PeerState& state = peers_[index(peer)];
    if (std::atomic_ref(slot(index(peer)).hello.check).load(std::memory_order_acquire) != state.heard) hear(peer);
    if (state.state != PeerState::State::up && state.state != PeerState::State::closing) return;
    see_read(peer);
    if (state.lane.sent() != state.lane.written()) busy_.set(index(peer));
    give_room(peer);
}

void Endpoint::give_room(Peer peer) {
    PeerState& state = peers_[index(peer)];
    if (!state.wants_room || state.state != PeerState::State::up) return;
    if (!has_room(peer, max_message_bytes) || state.dmas.size() > state.dmas.capacity() / 2 ||
        state.faults == capabilities_.max_posted) {
        return;
    }
    state.wants_room = false;
    own_events_.push_back(control_event(Event::Kind::room, peer));
}

void Endpoint::completed(Peer peer, Token token, Status status) {
    Event event = control_event(Event::Kind::completed, peer);
    event.status = status;
    event.token = token;
    ++peers_[index(peer)].faults;
    own_events_.push_back(event);
}

std::size_t Endpoint::take_own(std::span<Event> events) {
    std::size_t count = 0;
    while (count < events.size() && !own_events_.empty()) {
        const Event event = own_events_.front();
        own_events_.pop_front();
        if (event.kind == Event::Kind::completed) {
            --peers_[index(event.peer)].faults;
            give_room(event.peer);
        }
        events[count++] = event;
    }
    return count;
}

std::size_t Endpoint::read_lanes(std::span<Event> events) {
    // Round robin, so that a busy one does not starve the others; each at most once.
    std::size_t count = 0;
    const std::size_t lanes = active_.count();
    for (std::size_t turn = 0; turn < lanes && count < events.size() && active_.any(); ++turn) {
        const std::size_t peer = active_.next_cyclic(first_lane_);
        first_lane_ = peer + 1;
        count += read_lane(Peer{static_cast<std::uint32_t>(peer)}, events.subspan(count));
    }
    return count;
}

/// False: one is announced, and not there yet.
bool Endpoint::receive_letter(Peer peer) {
    PeerState& state = peers_[index(peer)];
    if (state.reader.has_taken() || slot(index(peer)).written.load(std::memory_order_acquire) == state.reader.read())
        return true;
    // It was sent before the doorbell that says so, so this hardly ever waits.
    constexpr std::uint32_t moment_ms = 1;
    const std::error_code error = state.socket.receive(state.letter, moment_ms);
    if (error == std::errc::timed_out) return false;
    const std::span<const std::byte> payload = state.letter.payload();
    LetterHead head;
    std::memcpy(&head, payload.data(), sizeof head);
    if (error || head.bytes > payload.size() - sizeof head ||
        !state.reader.take(head.start, payload.subspan(sizeof head, head.bytes), settings_.ring_bytes)) {
        ended(peer, true);
        return true;
    }
    ++state.letters_unreported;
    return true;
}

LaneReader::Got Endpoint::next_record(Peer peer, Record& record, Bytes& message) {
    PeerState& state = peers_[index(peer)];
    if (settings_.notice == NoticeKind::cm) return state.reader.next_taken(record, message);
    Slot& its = slot(index(peer));
    return state.reader.next(its.ring(), settings_.ring_bytes, its.written.load(std::memory_order_acquire), record,
                             message);
}

std::size_t Endpoint::read_lane(Peer peer, std::span<Event> events) {
    PeerState& state = peers_[index(peer)];
    const auto may_read = [&] {
        return state.state == PeerState::State::up || state.state == PeerState::State::draining;
    };
    if (settings_.notice == NoticeKind::cm && may_read() && !receive_letter(peer)) return 0;
    if (!may_read()) {
        active_.reset(index(peer));
        return 0;
    }
    std::size_t count = 0;
    bool more = true;
    while (more && count < events.size()) {
        Record record;
        Bytes message;
        const LaneReader::Got got = next_record(peer, record, message);
        more = got == LaneReader::Got::record;
        if (more) {
            Event event = control_event(Event::Kind::notice, peer);
            event.size_or_value = record.value;
            if (record.kind == Record::Kind::message) {
                event.kind = Event::Kind::message;
                event.size_or_value = static_cast<std::uint16_t>(record.size);
                event.data = message.data();
            }
            events[count++] = event;
        } else if (got == LaneReader::Got::nonsense) {
            log("node " + std::to_string(index(peer)) + " wrote nonsense into its lane: dropped");
            active_.reset(index(peer));
            give_up(peer);
        } else if (settings_.notice != NoticeKind::cm ||
                   slot(index(peer)).written.load(std::memory_order_acquire) == state.reader.read() || state.gone) {
            active_.reset(index(peer));
            if (state.state == PeerState::State::draining) give_up(peer);
        }
    }
    if (count > 0) touched_.push_back(peer);
    return count;
}

Event Endpoint::control_event(Event::Kind kind, Peer peer) const {
    return {.kind = kind,
            .status = Status::ok,
            .size_or_value = 0,
            .peer = peer,
            .incarnation = peers_[index(peer)].incarnation,
            .token = 0};
}

}  // namespace incast::transport::rio

#include "transport/shm/endpoint.h"

#include <algorithm>
#include <bit>
#include <cerrno>
#include <system_error>

#include <sys/eventfd.h>
#include <unistd.h>

#include "base/cache.h"
#include "base/stream_copy.h"
#include "transport/copy_head.h"
#include "transport/regions.h"
#include "transport/shm/shm.h"

namespace incast::transport::shm {

namespace {

constexpr std::size_t stream_from_bytes = 1024;    // of shorter bodies little is whole lines
constexpr std::uint64_t publish_bytes = 64 << 10;  // a peer is told that early, whatever else is posted
constexpr int idle_polls_before_control = 64;

}  // namespace

Endpoint::Endpoint(const EndpointSettings& settings, const EndpointOptions& options, const SocketName& name,
                   os::Descriptor listener, os::Descriptor bell, Memory inbox)
    : settings_(settings),
      options_(options),
      shape_{options.max_peers + options.max_dialled, settings.ring_bytes},
      name_(name),
      listener_(std::move(listener)),
      bell_(std::move(bell)),
      inbox_memory_(std::move(inbox)),
      inbox_(inbox_memory_.bytes(), shape_),
      peers_(shape_.peers),
      active_(shape_.peers),
      epoll_events_(64) {
    constexpr std::uint32_t typical_record = record_bytes(64);
    capabilities_ = {.nature = nature,
                     .max_peers = options.max_peers,
                     .max_dialled = options.max_dialled,
                     .max_regions = max_regions,
                     .max_posted = std::min(options.max_posted, settings.ring_bytes / typical_record),
                     .read = true,
                     .view = true,
                     .fences_live_peer = false,
                     .has_wait_fd = true};
    new (&inbox_.header()) InboxHeader;
    (void)poller_.add(listener_, EPOLLIN, listener_kind);
    (void)poller_.add(bell_, EPOLLIN, bell_kind);
    for (std::uint32_t node = 0; node < options.max_peers; ++node) {
        peers_[node].node = node;
        peers_[node].there = index(options.self);
    }
    unpublished_.reserve(peers_.size());
    touched_.reserve(peers_.size());
}

Result<Local> Endpoint::allocate(std::size_t bytes) {
    if (bytes == 0) return Error{"region of 0 bytes: at least 1 is needed"};
    if (regions_.size() == max_regions && released_.empty()) {
        return Error{"region of " + std::to_string(bytes) + " bytes: all " + std::to_string(max_regions) +
                     " regions of this endpoint are in use"};
    }
    auto memory = make_private_memory(bytes);
    if (!memory) return Error{"region of " + std::to_string(bytes) + " bytes: " + memory.error().message};
    if (!released_.empty()) {
        const std::uint16_t number = released_.front();
        released_.pop_front();
        regions_[number].memory = std::move(*memory);
        regions_[number].bytes = bytes;
        return Local{number};
    }
    regions_.push_back({.memory = std::move(*memory), .bytes = bytes, .granted = {}});
    return Local{static_cast<std::uint16_t>(regions_.size() - 1)};
}

/// What nobody else may see needs no descriptor, and gets larger pages.
Result<Ok> Endpoint::be_shared(std::size_t region) {
    Memory& memory = regions_[region].memory;
    return memory.fd.is_open() ? Result<Ok>(Ok{}) : make_shared(memory);
}

Result<int> Endpoint::share(Local region) {
    const auto number = static_cast<std::size_t>(region);
    if (!has(number)) return Error{"share: there is no region " + std::to_string(number)};
    if (auto shared = be_shared(number); !shared) return shared.error();
    auto file = os::open_for_reading(regions_[number].memory.fd);
    return file ? Result<int>(file->release()) : Result<int>(file.error());
}

const OwnRegion::Granted* OwnRegion::granted_to(Peer peer) const {
    const auto found = [&](Peer whom) {
        const auto at = std::ranges::find(granted, whom, &Granted::peer);
        return at == granted.end() ? nullptr : &*at;
    };
    const Granted* const own = found(peer);
    const Granted* const any = found(any_peer);
    return own == nullptr || (any != nullptr && any->write) ? any : own;
}

Result<Blob> Endpoint::expose(Local region, const Grant& grant) {
    const auto number = static_cast<std::size_t>(region);
    if (!has(number)) return Error{"expose: there is no region " + std::to_string(number)};
    OwnRegion& own = regions_[number];
    const std::uint64_t last = grant.count > 0 ? grant.count - 1 : 0;
    const std::uint64_t length =
        grant.length == to_the_end && last == 0 ? own.bytes - std::min(own.bytes, grant.offset) : grant.length;
    if ((grant.peer != any_peer && !exists(grant.peer)) || !Regions::inside(own.bytes, grant.offset, length) ||
        (last > 0 && grant.stride > (own.bytes - length - grant.offset) / last)) {
        return Error{"expose: " + std::to_string(grant.count) + " places of " + std::to_string(grant.length) +
                     " bytes at " + std::to_string(grant.offset) + ": not in region " + std::to_string(number) +
                     ", or for no peer"};
    }
    if (auto shared = be_shared(number); !shared) return shared.error();
    const bool something = grant.read || grant.write;
    const auto known = std::ranges::find(own.granted, grant.peer, &OwnRegion::Granted::peer);
    if (known == own.granted.end() && something) {
        own.granted.push_back({grant.peer, grant.write});
        tell(static_cast<std::uint16_t>(number), grant.peer);
    } else if (known != own.granted.end() && grant.write && !known->write) {
        known->write = true;
        tell(static_cast<std::uint16_t>(number), grant.peer);
    }
    return to_blob(Key{.owner = index(options_.self),
                       .generation = options_.incarnation,
                       .region = static_cast<std::uint32_t>(number),
                       .use = own.use,
                       .peer = grant.peer == any_peer ? index(any_peer) : peers_[index(grant.peer)].node,
                       .bytes = own.bytes,
                       .run = options_.run,
                       .write = grant.write ? 1U : 0U});
}

Result<Remote> Endpoint::import_key(Peer peer, const Blob& blob) {
    if (!exists(peer)) return Error{"import_key: there is no peer " + std::to_string(index(peer))};
    const Result<Key> key =
        read_key<Key>(blob, Peer{peers_[index(peer)].node}, options_.self, options_.run, max_regions, transport_name);
    if (!key) return key.error();
    return imports_.add({.peer = peer, .key = *key, .memory = {}, .written = false});
}

/// Who has mapped it may still write into the memory, which then is nobody's; and is told.
Result<Ok> Endpoint::release(Local region) {
    const auto number = static_cast<std::size_t>(region);
    if (!has(number)) return Error{"release: there is no region " + std::to_string(number)};
    OwnRegion& own = regions_[number];
    own = {.memory = {}, .bytes = 0, .use = own.use + 1, .granted = {}};
    released_.push_back(static_cast<std::uint16_t>(number));
    tell(static_cast<std::uint16_t>(number), any_peer);
    return Ok{};
}

Result<Ok> Endpoint::release(Remote remote) {
    if (Import* import = imports_.find(remote)) forget(*import);
    return imports_.release(remote);
}

Post Endpoint::send(Peer peer, Bytes message) {
    if (!is_up(peer) || message.empty() || message.size() > max_message_bytes) return Post::refused;
    PeerState& state = peers_[index(peer)];
    if (!state.writer.has_room(message.size())) [[unlikely]] {
        return back_pressure(peer);
    }
    state.writer.push({Record::Kind::message, 0, static_cast<std::uint32_t>(message.size())}, message);
    posted(peer, state, record_bytes(message.size()));
    return Post::done;
}

Post Endpoint::write(Peer peer, Bytes head, Slice body, Target target, Notice notice, Token token) {
    if (body.length == 0) return write_from(peer, head, {}, target, notice, token);
    const std::span<std::byte> from = own(body.region);
    if (!Regions::inside(from.size(), body.offset, body.length)) return Post::refused;
    return write_from(peer, head, from.subspan(body.offset, body.length), target, notice, token);
}

Post Endpoint::write_from(Peer peer, Bytes head, Bytes body, Target target, Notice notice, Token token) {
    if (!is_up(peer) || head.size() > max_head_bytes || body.size() > max_write_bytes ||
        !imports_.has(target.region, peer)) {
        return Post::refused;
    }
    Import& to = imports_[target.region];
    PeerState& state = peers_[index(peer)];
    if (!Regions::inside(to.key.bytes, target.offset, head.size() + body.size()) ||
        to.key.generation != state.incarnation || to.key.write == 0) {
        return fault(peer, token);
    }
    if (to.memory.empty()) [[unlikely]] {
        const Found found = find(to);
        if (found == Found::gone) return fault(peer, token);
        if (found == Found::coming) return back_pressure(peer);  // its descriptor is still under way
    }
    if (notice.has_value() && !state.writer.has_room(0)) [[unlikely]] {
        return back_pressure(peer);
    }
    if (!to.written) [[unlikely]] {
        note_written(to);
    }
    std::byte* place = to.memory.data() + target.offset;
    copy_head(place, head);
    if (!body.empty()) {
        copied_bytes_ += body.size();
        if (streams_ && body.size() >= stream_from_bytes) {
            base::copy_streaming(place + head.size(), body.data(), body.size());
            state.streamed = true;
        } else {
            std::memcpy(place + head.size(), body.data(), body.size());
        }
    }
    if (notice.has_value()) state.writer.push({Record::Kind::notice, *notice, 0});
    posted(peer, state, body.size());
    return Post::done;
}

Post Endpoint::read(Peer peer, Target from, Slice into, Token token) {
    const std::span<std::byte> to = own(into.region);
    if (!is_up(peer) || into.length > max_write_bytes || !Regions::inside(to.size(), into.offset, into.length) ||
        !imports_.has(from.region, peer)) {
        return Post::refused;
    }
    Import& source = imports_[from.region];
    if (!Regions::inside(source.key.bytes, from.offset, into.length) ||
        source.key.generation != peers_[index(peer)].incarnation) {
        return fault(peer, token);
    }
    if (source.memory.empty()) {
        const Found found = find(source);
        if (found == Found::gone) return fault(peer, token);
        if (found == Found::coming) return back_pressure(peer);
    }
    if (into.length > 0) {
        std::memcpy(to.data() + into.offset, source.memory.data() + from.offset, into.length);
        copied_bytes_ += into.length;
    }
    return Post::done;
}

Bytes Endpoint::local(Slice where) const {
    const auto number = static_cast<std::size_t>(where.region);
    const std::size_t bytes = number < regions_.size() ? regions_[number].bytes : 0;
    if (!Regions::inside(bytes, where.offset, where.length) || bytes == 0) return {};
    return regions_[number].memory.bytes().subspan(where.offset, where.length);
}

Bytes Endpoint::view(Target where, std::uint32_t length) {
    Import* const source = imports_.find(where.region);
    if (source == nullptr || !is_up(source->peer) ||
        source->key.generation != peers_[index(source->peer)].incarnation ||
        !Regions::inside(source->key.bytes, where.offset, length) ||
        (source->memory.empty() && find(*source) != Found::here)) {
        return {};
    }
    return source->memory.subspan(where.offset, length);
}

void Endpoint::hear_bell() {
    std::uint64_t rung = 0;
    (void)!::read(bell_.fd(), &rung, sizeof rung);
}

std::size_t Endpoint::poll(Time now, std::span<Event> events) {
    release_read();
    unmapped_next_.clear();
    publish_all();
    if (std::exchange(armed_, false)) {
        // Who rings resets the mark first. Where nobody rang, a connection may have woken this side; where both did, it
        // sleeps no more until it has looked at that, too.
        if (inbox_.header().asleep.exchange(0, std::memory_order_relaxed) == 0)
            hear_bell();
        else
            look_at_control_ = true;
    }
    if (look_at_control_ || now >= next_control_ || ++idle_polls_ >= idle_polls_before_control) look_around(now);
    take_bits();
    std::size_t count = take_own(events);
    if (own_events_.empty()) count += read_lanes(events.subspan(count));
    if (!own_events_.empty()) count += take_own(events.subspan(count));
    if (count > 0) idle_polls_ = 0;
    return count;
}

bool Endpoint::prepare_wait() {
    if (!own_events_.empty() || active_.any() || !unpublished_.empty() || look_at_control_) return false;
    armed_ = true;
    inbox_.header().asleep.store(1, std::memory_order_seq_cst);
    for (std::size_t word = 0; word < inbox_.words(); ++word) {
        if (inbox_.header().dirty.any(word) || inbox_.header().room.any(word)) return false;
    }
    return true;
}

/// No connection has woken this side. Who rings now finds it awake.
void Endpoint::cancel_wait() {
    if (std::exchange(armed_, false) && inbox_.header().asleep.exchange(0, std::memory_order_relaxed) == 0) hear_bell();
}

void Endpoint::posted(Peer peer, PeerState& state, std::uint64_t bytes) {
    if (!std::exchange(state.unpublished, true)) unpublished_.push_back(peer);
    state.unpublished_bytes += bytes;
    if (state.unpublished_bytes >= publish_bytes) publish(state);
}

void Endpoint::publish(PeerState& state) {
    state.unpublished_bytes = 0;
    if (!state.writer.unpublished()) return;
    if (std::exchange(state.streamed, false)) base::fence_streams();
    state.writer.publish();
    state.inbox.header().dirty.set(state.there);
    ring(state);
}

void Endpoint::publish_all() {
    for (const Peer peer : unpublished_) {
        PeerState& state = peers_[index(peer)];
        state.unpublished = false;
        if (state.state == PeerState::State::up) publish(state);
    }
    unpublished_.clear();
}

void Endpoint::ring(PeerState& state) {
    std::atomic<std::uint32_t>& asleep = state.inbox.header().asleep;
    if (asleep.load(std::memory_order_seq_cst) == 0 || asleep.exchange(0, std::memory_order_seq_cst) == 0) return;
    // The one system call of a transfer, and only for a peer that sleeps.
    const std::uint64_t one = 1;
    (void)!::write(state.bell.fd(), &one, sizeof one);
}

Post Endpoint::back_pressure(Peer peer) {
    peers_[index(peer)].wants_room = true;
    // What fills the lane has to be seen before it can be read.
    publish(peers_[index(peer)]);
    return Post::again;
}

Post Endpoint::fault(Peer peer, Token token) {
    PeerState& state = peers_[index(peer)];
    if (token == 0) return Post::done;
    if (state.faults == capabilities_.max_posted) {
        state.wants_room = true;
        return Post::again;
    }
    ++state.faults;
    Event event = control_event(Event::Kind::completed, peer);
    event.status = Status::remote_fault;
    event.token = token;
    own_events_.push_back(event);
    return Post::pending;
}

Endpoint::Found Endpoint::find(Import& import) {
    PeerState& state = peers_[index(import.peer)];
    const Key& key = import.key;
    const auto heard_of = [&] {
        return key.region < state.regions.size() &&
               (state.regions[key.region].mapping != nullptr || state.regions[key.region].use > key.use);
    };
    if (!heard_of()) receive(import.peer);
    if (state.state != PeerState::State::up || !heard_of()) return Found::coming;
    const PeerRegion& region = state.regions[key.region];
    if (region.use > key.use) return Found::gone;
    if (region.use < key.use || region.mapping->bytes().size() != key.bytes || (key.write != 0 && !region.writable))
        return Found::coming;
    import.memory = region.mapping->bytes();
    return Found::here;
}

void Endpoint::forget(Import& import) {
    if (import.written) written_bytes_ -= import.memory.size();
    import.memory = {};
    import.written = false;
}

void Endpoint::note_written(Import& import) {
    import.written = true;
    written_bytes_ += import.memory.size();
    using Stores = EndpointSettings::Stores;
    streams_ = settings_.stores == Stores::streaming ||
               (settings_.stores == Stores::automatic && base::slots_exceed(written_bytes_, settings_.cache_bytes));
}

void Endpoint::release_read() {
    for (const Peer peer : touched_) {
        PeerState& state = peers_[index(peer)];
        if (state.state != PeerState::State::up || !state.reader.release()) continue;
        state.inbox.header().room.set(state.there);
        ring(state);
    }
    touched_.clear();
}

void Endpoint::take_bits() {
    for (std::size_t word = 0; word < inbox_.words(); ++word) {
        for (std::uint64_t bits = inbox_.header().dirty.take(word); bits != 0; bits &= bits - 1) {
            const std::size_t peer = word * 64 + static_cast<std::size_t>(std::countr_zero(bits));
            if (peer < peers_.size()) active_.set(peer);
        }
        for (std::uint64_t bits = inbox_.header().room.take(word); bits != 0; bits &= bits - 1) {
            const std::size_t peer = word * 64 + static_cast<std::size_t>(std::countr_zero(bits));
            if (peer < peers_.size()) give_room(Peer{static_cast<std::uint32_t>(peer)});
        }
    }
}

std::size_t Endpoint::take_own(std::span<Event> events) {
    std::size_t count = 0;
    while (count < events.size() && !own_events_.empty()) {
        const Event event = own_events_.front();
        own_events_.pop_front();
        PeerState& state = peers_[index(event.peer)];
        if (event.kind == Event::Kind::peer_down) {
            unmapped_next_.push_back(std::move(lingering_.front()));
            lingering_.pop_front();
            if (state.taken) forget_dialled(event.peer);
        }
        if (event.kind == Event::Kind::completed && state.faults-- == capabilities_.max_posted) give_room(event.peer);
        events[count++] = event;
    }
    return count;
}

std::size_t Endpoint::read_lanes(std::span<Event> events) {
    std::size_t count = 0;
    for (std::size_t peer = active_.next_cyclic(first_lane_); peer != base::Bitmap::none && count < events.size();
         peer = active_.next_cyclic(peer + 1)) {
        first_lane_ = peer + 1;
        count += read_lane(Peer{static_cast<std::uint32_t>(peer)}, events.subspan(count));
    }
    return count;
}

std::size_t Endpoint::read_lane(Peer peer, std::span<Event> events) {
    PeerState& state = peers_[index(peer)];
    if (state.state != PeerState::State::up && state.state != PeerState::State::draining) {
        active_.reset(index(peer));
        return 0;
    }
    std::size_t count = 0;
    while (count < events.size()) {
        Record record;
        Bytes message;
        switch (state.reader.next(record, message)) {
            case LaneReader::Got::record: {
                Event event = control_event(Event::Kind::notice, peer);
                event.size_or_value = record.value;
                if (record.kind == Record::Kind::message) {
                    event.kind = Event::Kind::message;
                    event.size_or_value = static_cast<std::uint16_t>(record.size);
                    event.data = message.data();
                }
                events[count++] = event;
                continue;
            }
            case LaneReader::Got::nonsense:
                log("node " + std::to_string(index(peer)) + " wrote nonsense into its lane: dropped");
                state.state == PeerState::State::draining ? finish(peer) : give_up(peer);
                break;
            case LaneReader::Got::nothing:
                active_.reset(index(peer));
                if (state.state == PeerState::State::draining) finish(peer);
        }
        break;
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

Result<std::unique_ptr<Transport>> make_endpoint(const EndpointSettings& settings, const EndpointOptions& options) {
    if (options.max_peers == 0 || options.max_peers > max_peers_limit ||
        options.max_dialled > max_peers_limit - options.max_peers || options.max_posted == 0 ||
        static_cast<std::uint32_t>(options.self) >= options.max_peers) {
        return Error{std::string(transport_name) + ": node " +
                     std::to_string(static_cast<std::uint32_t>(options.self)) + " with max_peers " +
                     std::to_string(options.max_peers) + ", max_dialled " + std::to_string(options.max_dialled) +
                     ", max_posted " + std::to_string(options.max_posted) +
                     ": max_peers and max_dialled together must be 1.." + std::to_string(max_peers_limit) +
                     ", max_posted at least 1, and the node's index below max_peers"};
    }
    const SocketName name = random_name();
    auto listener = listen_at(name);
    if (!listener) return Error{std::string(transport_name) + ": " + listener.error().message};
    os::Descriptor bell(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    if (!bell.is_open())
        return Error{std::string(transport_name) + ": eventfd: " + std::generic_category().message(errno)};
    auto inbox = make_memory(InboxShape{options.max_peers + options.max_dialled, settings.ring_bytes}.bytes());
    if (!inbox) return Error{std::string(transport_name) + ": " + inbox.error().message};
    return std::unique_ptr<Transport>(
        std::make_unique<Endpoint>(settings, options, name, std::move(*listener), std::move(bell), std::move(*inbox)));
}

}  // namespace incast::transport::shm

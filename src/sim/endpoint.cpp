#include "sim/endpoint.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <memory>
#include <string>

#include "base/prefetch.h"
#include "sim/world.h"
#include "transport/blob.h"

namespace incast::sim {
namespace {

// What addresses and keys carry. Both never leave the process.
struct AddressBlob {
    static constexpr std::uint32_t expected_magic = 0x494D4953;  // "SIMI"
    std::uint32_t magic = expected_magic;
    EndpointId endpoint = nil;
};
struct KeyBlob {
    static constexpr std::uint32_t expected_magic = 0x4B4D4953;  // "SIMK"
    std::uint32_t magic = expected_magic;
    EndpointId endpoint = nil;
    std::uint64_t bytes = 0;
    std::uint32_t region = 0;
    std::uint32_t use = 0;  // of that number
};

constexpr std::size_t regions_max = std::numeric_limits<std::uint16_t>::max();

}  // namespace

Endpoint::Endpoint(World& world, EndpointId id, const transport::EndpointOptions& options,
                   const Capabilities& capabilities)
    : world_(&world), id_(id), contact_of_(options.max_peers, nil), options_(options), capabilities_(capabilities) {}

Endpoint::~Endpoint() {
    if (world_ == nullptr) return;
    world_->removed(*this);
    release_polled();
    while (inbox_head_ != nil)
        pop_arrival();
    release_polled();
}

Blob Endpoint::address() const {
    return transport::to_blob(AddressBlob{.endpoint = id_});
}

Post Endpoint::connect(Peer peer, const Blob& address, std::uint32_t incarnation) {
    AddressBlob there;
    if (static_cast<std::size_t>(peer) >= contact_of_.size() || !transport::from_blob(address, there) ||
        there.endpoint >= world_->endpoint_count() || world_->options(there.endpoint).self != peer) {
        return Post::refused;
    }
    return world_->connect(*this, peer, there.endpoint, incarnation);
}

void Endpoint::disconnect(Peer peer) {
    world_->disconnect(*this, peer);
}

bool Endpoint::drained() const {
    return std::ranges::all_of(contacts_, [&](const Contact& contact) {
        if (!contact.known || contact.connection == nil) return true;
        const Channel& channel = world_->connection(contact.connection).channel[contact.side];
        return channel.ordered.head == nil && channel.unlanded.head == nil;
    });
}

Result<Local> Endpoint::allocate(std::size_t bytes) {
    if (bytes == 0) return Error{"region of 0 bytes: at least 1 is needed"};
    if (!released_.empty()) {
        const std::uint16_t number = released_.back();
        released_.pop_back();
        regions_[number].bytes = bytes;
        regions_[number].there = true;
        return Local{number};
    }
    if (regions_.size() == regions_max)
        return Error{"all " + std::to_string(regions_max) + " regions of this endpoint are in use"};
    regions_.push_back({.bytes = bytes, .areas = {}});
    return Local{static_cast<std::uint16_t>(regions_.size() - 1)};
}

Result<Ok> Endpoint::release(Local region) {
    const auto index = static_cast<std::uint16_t>(region);
    if (!has(index)) return Error{"release: there is no region " + std::to_string(index)};
    Region& gone = regions_[index];
    gone.bytes = 0;
    std::destroy_at(&gone.areas);
    std::construct_at(&gone.areas);
    ++gone.use;
    gone.there = false;
    released_.push_back(index);
    return Ok{};
}

std::span<std::byte> Endpoint::memory(Local /*region*/) {
    return {};
}

Result<Blob> Endpoint::expose(Local region, const Grant& /*grant*/) {
    const auto index = static_cast<std::uint16_t>(region);
    if (!has(index)) return Error{"region " + std::to_string(index) + " does not exist"};
    return transport::to_blob(
        KeyBlob{.endpoint = id_, .bytes = regions_[index].bytes, .region = index, .use = regions_[index].use});
}

Result<Remote> Endpoint::import_key(Peer peer, const Blob& key) {
    KeyBlob there;
    if (!transport::from_blob(key, there) || there.endpoint >= world_->endpoint_count() ||
        there.region >= regions_max) {
        return Error{"not a region key of this simulated world"};
    }
    if (world_->options(there.endpoint).self != peer) {
        return Error{"region key of node " +
                     std::to_string(static_cast<std::uint32_t>(world_->options(there.endpoint).self)) +
                     ", expected one of node " + std::to_string(static_cast<std::uint32_t>(peer))};
    }
    return remotes_.add({there.endpoint, static_cast<std::uint16_t>(there.region), there.use, there.bytes, peer});
}

Endpoint::Contact* Endpoint::up(Peer peer) {
    const auto index = static_cast<std::size_t>(peer);
    if (index >= contact_of_.size() || contact_of_[index] == nil) return nullptr;
    Contact& contact = contacts_[contact_of_[index]];
    if (!contact.known || contact.connection == nil) return nullptr;
    return world_->connection(contact.connection).channel[contact.side].side == Connection::Side::up ? &contact
                                                                                                     : nullptr;
}

Endpoint::Contact& Endpoint::contact(Peer peer) {
    std::uint32_t& index = contact_of_[static_cast<std::size_t>(peer)];
    if (index == nil) {
        index = static_cast<std::uint32_t>(contacts_.size());
        contacts_.emplace_back();
    }
    return contacts_[index];
}

Post Endpoint::send(Peer peer, Bytes message) {
    const Contact* contact = up(peer);
    if (contact == nullptr || message.empty() || message.size() > max_message_bytes) return Post::refused;
    if (!world_->has_room(contact->connection, contact->side)) return Post::again;
    const TransferId id = world_->new_transfer();
    Transfer& transfer = world_->transfer(id);
    transfer.connection = contact->connection;
    transfer.direction = contact->side;
    transfer.bytes = message.size();
    transfer.message = world_->buffers().take(message.size());
    transfer.message_owned = true;
    std::memcpy(transfer.message.bytes, message.data(), message.size());
    world_->post(id);
    return Post::done;
}

Post Endpoint::write(Peer peer, Bytes head, Slice body, Target target, Notice notice, Token token) {
    const Contact* contact = up(peer);
    const RemoteRegion* remote = remotes_.find(target.region, peer);
    if (contact == nullptr || head.size() > max_head_bytes || body.length > max_write_bytes || remote == nullptr ||
        !inside_own(body)) {
        return Post::refused;
    }
    if (!world_->has_room(contact->connection, contact->side)) return Post::again;
    const TransferId id = world_->new_transfer();
    Transfer& transfer = world_->transfer(id);
    transfer.connection = contact->connection;
    transfer.direction = contact->side;
    transfer.is_write = true;
    transfer.noticed = notice.has_value();
    transfer.notice = notice.value_or(0);
    transfer.silent = token == 0;
    transfer.token = token;
    transfer.bytes = head.size() + body.length;
    transfer.body = body;
    transfer.region = remote->region;
    transfer.use = remote->use;
    transfer.offset = target.offset;
    transfer.head_bytes = static_cast<std::uint8_t>(head.size());
    if (!head.empty()) std::memcpy(transfer.head.data(), head.data(), head.size());
    transfer.faulty = !reaches(*contact, *remote, target.offset, transfer.bytes);
    return world_->post(id);
}

Post Endpoint::read(Peer peer, Target from, Slice into, Token token) {
    const Contact* contact = up(peer);
    const RemoteRegion* remote = remotes_.find(from.region, peer);
    if (contact == nullptr || into.length > max_write_bytes || remote == nullptr || !inside_own(into)) {
        return Post::refused;
    }
    if (!world_->has_room(contact->connection, contact->side)) return Post::again;
    const TransferId id = world_->new_transfer();
    Transfer& transfer = world_->transfer(id);
    transfer.connection = contact->connection;
    transfer.direction = contact->side;
    transfer.is_read = true;
    transfer.silent = token == 0;
    transfer.token = token;
    transfer.bytes = into.length;
    transfer.body = into;
    transfer.region = remote->region;
    transfer.use = remote->use;
    transfer.offset = from.offset;
    transfer.faulty = !reaches(*contact, *remote, from.offset, into.length);
    return world_->post(id);
}

bool Endpoint::inside_own(const Slice& bytes) const {
    const auto region = static_cast<std::size_t>(bytes.region);
    return bytes.length == 0 || (region < regions_.size() && bytes.offset <= regions_[region].bytes &&
                                 bytes.length <= regions_[region].bytes - bytes.offset);
}

bool Endpoint::reaches(const Contact& contact, const RemoteRegion& there, std::uint64_t offset, std::uint64_t bytes) {
    return there.endpoint == contact.target && offset <= there.bytes && bytes <= there.bytes - offset;
}

Bytes Endpoint::local(Slice where) const {
    const Area* found = area(static_cast<std::uint16_t>(where.region), where.offset);
    if (found == nullptr || found->head_write == 0) return {};
    return {found->head.data(), std::min<std::size_t>(found->head_bytes, where.length)};
}

const Area* Endpoint::area(std::uint16_t region, std::uint64_t offset) const {
    return region < regions_.size() ? regions_[region].areas.find(offset) : nullptr;
}

Bytes Endpoint::view(Target /*where*/, std::uint32_t /*length*/) {
    return {};
}

std::size_t Endpoint::poll(Time now, std::span<Event> events) {
    if (actor_ == nil && now >= world_->now()) world_->run_until(now);
    release_polled();
    std::size_t count = 0;
    while (count < events.size() && inbox_head_ != nil)
        events[count++] = pop_arrival().event;
    return count;
}

/// The oldest; a message's buffer is given back with those of this poll.
Arrival Endpoint::pop_arrival() {
    Pool<Arrival>& arrivals = world_->arrivals();
    const Arrival arrival = arrivals[inbox_head_];
    arrivals.give_back(inbox_head_);
    inbox_head_ = arrival.next;
    if (arrival.message_class != Arrival::no_message)
        polled_.push_back(
            {const_cast<std::byte*>(arrival.event.data), arrival.event.size_or_value, arrival.message_class});
    return arrival;
}

Time Endpoint::next_deadline() const {
    return actor_ == nil ? world_->next_time() : time_never;
}

bool Endpoint::prepare_wait() {
    return inbox_head_ == nil;
}

void Endpoint::put(const Arrival& arrival) {
    Pool<Arrival>& arrivals = world_->arrivals();
    const std::uint32_t index = arrivals.take();
    arrivals[index] = arrival;
    (inbox_head_ == nil ? inbox_head_ : arrivals[inbox_tail_].next) = index;
    inbox_tail_ = index;
    world_->mark_ready(actor_);
}

void Endpoint::put_simple(Event::Kind kind, Peer peer, Status status, std::uint32_t incarnation, Token token) {
    Event event{};
    event.kind = kind;
    event.status = status;
    event.peer = peer;
    event.incarnation = incarnation;
    event.token = token;
    put({.event = event});
}

void Endpoint::prefetch(unsigned level) const {
    if (level == 0) return base::prefetch(this, often_used_bytes);
    constexpr unsigned first_arrivals = 3;
    const Pool<Arrival>& arrivals = world_->arrivals();
    std::uint32_t index = inbox_head_;
    for (unsigned count = 0; count < first_arrivals && index != nil; ++count, index = arrivals[index].next) {
        const Arrival& arrival = arrivals[index];
        if (level == 1) {
            base::prefetch(arrival);
            break;
        }
        if (arrival.event.kind == Event::Kind::message) {
            // Who asks is likely answered.
            const std::uint32_t contact = contact_of_[static_cast<std::size_t>(arrival.event.peer)];
            if (level == 2) {
                __builtin_prefetch(arrival.event.data);
                __builtin_prefetch(&contacts_[contact]);
            } else if (contacts_[contact].connection != nil) {
                world_->prefetch(contacts_[contact].connection);
            }
        } else if (arrival.event.kind == Event::Kind::notice && arrival.region < regions_.size()) {
            const AreaMap& areas = regions_[arrival.region].areas;
            level == 2 ? areas.prefetch_slot(arrival.offset) : areas.prefetch_area(arrival.offset);
        }
    }
}

void Endpoint::release_polled() {
    for (const BufferPool::Buffer& buffer : polled_)
        world_->buffers().give_back(buffer);
    polled_.clear();
}

}  // namespace incast::sim

// The part of a World that transfers are: posted, taken, landed, delivered, completed.
#include <algorithm>
#include <cstring>

#include "base/prefetch.h"
#include "base/prng.h"
#include "sim/endpoint.h"
#include "sim/transfer_list.h"
#include "sim/world.h"

namespace incast::sim {
namespace {

using Side = Connection::Side;

}  // namespace

EndpointId World::sender(const Transfer& transfer) const {
    return connections_[transfer.connection].endpoint[transfer.direction];
}

EndpointId World::receiver(const Transfer& transfer) const {
    return connections_[transfer.connection].endpoint[1 - transfer.direction];
}

/// The region that it writes to, or reads from, was not released since.
bool World::is_there(EndpointId owner, const Transfer& transfer) const {
    const Endpoint* const endpoint = find(owner);
    return endpoint != nullptr && endpoint->regions_[transfer.region].use == transfer.use;
}

void World::prefetch(TransferId id, bool lands, unsigned level) const {
    const Transfer& item = transfers_[id];
    if (level == 0) return base::prefetch(item);
    const Connection& link = connections_[item.connection];
    if (level == 1) return base::prefetch(link);
    const Endpoint* const endpoint = find(link.endpoint[lands ? 1 - item.direction : item.direction]);
    if (endpoint == nullptr) return;
    if (level == 2) return base::prefetch(endpoint, Endpoint::often_used_bytes);
    if (!lands || !item.is_write || item.region >= endpoint->regions_.size()) return;
    const Endpoint::Region& region = endpoint->regions_[item.region];
    if (level == 3) return base::prefetch(region);
    if (level == 4) {
        region.areas.prefetch_slot(item.offset);
    } else {
        region.areas.prefetch_area(item.offset);
    }
}

TransferId World::new_transfer() {
    const TransferId id = transfers_.take();
    transfers_[id].number = ++transfer_number_;
    transfers_[id].posted = now_;
    return id;
}

bool World::has_room(ConnectionId id, std::uint8_t side) {
    Channel& channel = connection(id).channel[side];
    if (channel.posted >= endpoints_[connection(id).endpoint[side]].options.max_posted) {
        channel.room_wanted = true;
        return false;
    }
    if (const Time at = model_->room_at(*this, id, side); at > 0) {
        channel.room_wanted = true;
        if (!channel.room_scheduled) {
            channel.room_scheduled = true;
            queue_.push({.time = at,
                         .port = connection(id).endpoint[side],
                         .subject = id,
                         .kind = static_cast<std::uint16_t>(Kind::room),
                         .detail = side});
        }
        return false;
    }
    return true;
}

void World::give_room(Connection& link, std::uint8_t side) {
    Channel& channel = link.channel[side];
    Endpoint* endpoint = find(link.endpoint[side]);
    if (!channel.room_wanted || channel.room_scheduled || endpoint == nullptr || link.channel[side].side != Side::up ||
        channel.posted >= endpoint->options().max_posted) {
        return;
    }
    channel.room_wanted = false;
    trace(traced_room, link.endpoint[side], link.endpoint[1 - side]);
    endpoint->put_simple(Event::Kind::room, endpoints_[link.endpoint[1 - side]].options.self, Status::ok, 0);
}

Post World::post(TransferId id) {
    Transfer& item = transfers_[id];
    Channel& channel = connection(item.connection).channel[item.direction];
    const EndpointId from = sender(item);
    const EndpointId to = receiver(item);
    trace(traced_post, item.number, item.bytes);
    statistics_.bytes_posted += item.bytes;
    item.scheduled = 1;  // keeps the record while it is being posted
    append<&Transfer::pending>(transfers_, channel.pending, id);
    ++channel.posted;
    // A receiver that is down already takes nothing; the sender has not heard of it yet.
    if (!channel.fenced && !item.faulty) {
        if (item.is_message() || item.noticed) append<&Transfer::ordered>(transfers_, channel.ordered, id);
        if (item.is_write) append<&Transfer::unlanded>(transfers_, channel.unlanded, id);
    }
    if (item.is_write) {
        ++statistics_.writes;
        if (observer_ != nullptr) observer_->write_posted(now_, from, to, item);
    } else if (item.is_read) {
        ++statistics_.reads;
        if (observer_ != nullptr) observer_->read_posted(now_, from, to, item);
    } else {
        ++statistics_.messages;
        item.silent = true;
        std::uint64_t content = 0;
        for (std::size_t at = 0; at < item.message.size; at += sizeof content) {
            std::uint64_t word = 0;
            std::memcpy(&word, item.message.bytes + at, std::min(sizeof word, item.message.size - at));
            content = base::mix64(content ^ word);
        }
        trace(traced_post, content, item.bytes);
        if (observer_ != nullptr) observer_->message_posted(now_, from, to, {item.message.bytes, item.message.size});
    }
    const Post answer = model_->posted(*this, id);
    if (answer == Post::done) {
        item.silent = true;
        item.bytes_free = true;
        if (item.is_read) finish_pending(id, Status::ok);
    }
    --item.scheduled;
    recycle_if_over(id);
    return answer;
}

bool World::body_in_use(EndpointId id, const Slice& bytes) const {
    for (const Endpoint::Contact& contact : endpoints_[id].endpoint->contacts_) {
        if (!contact.known || contact.connection == nil) continue;
        const Channel& channel = connections_[contact.connection].channel[contact.side];
        for (TransferId at = channel.pending.head; at != nil; at = transfers_[at].pending.next) {
            const Transfer& item = transfers_[at];
            if ((item.is_write || item.is_read) && !item.bytes_free && item.body.region == bytes.region &&
                item.body.offset < bytes.offset + bytes.length && bytes.offset < item.body.offset + item.body.length) {
                return true;
            }
        }
    }
    return false;
}

void World::lose(TransferId id, std::uint8_t parts) {
    Transfer& item = transfers_[id];
    Channel& channel = connection(item.connection).channel[item.direction];
    item.lost = parts;
    channel.damaged = channel.damaged || parts != 0;
    if (!item.noticed) return;
    item.damaged = channel.damaged;
    channel.damaged = false;
}

void World::schedule(Time time, EndpointId port, TransferId id, std::uint16_t step) {
    ++transfers_[id].scheduled;
    queue_.push(
        {.time = time, .port = port, .subject = id, .kind = static_cast<std::uint16_t>(Kind::step), .detail = step});
}

void World::complete(TransferId id) {
    const Transfer& item = transfers_[id];
    if (!item.pending.linked) return;
    Status status = Status::ok;
    if (item.is_read) {
        take(id, part_all);  // where it finds that the region was released, the read is faulty
        if (!item.faulty) {
            land(id, part_all);
            if (item.landed != part_all) return;
        }
        if (item.faulty) status = Status::remote_fault;
        // Whoever has left is told that it was cancelled, though it may have landed.
        if (connection(item.connection).channel[item.direction].side == Side::leaving) status = Status::cancelled;
    } else if (item.faulty) {
        status = Status::remote_fault;
    }
    finish_pending(id, status);
}

void World::finish_pending(TransferId id, Status status) {
    Transfer& item = transfers_[id];
    Connection& link = connection(item.connection);
    Channel& channel = link.channel[item.direction];
    unlink<&Transfer::pending>(transfers_, channel.pending, id);
    --channel.posted;
    item.bytes_free = true;
    if (item.is_read && observer_ != nullptr)
        observer_->read_completed(now_, sender(item), receiver(item), item, status);
    if (!item.silent) {
        trace(traced_complete, item.number, static_cast<std::uint64_t>(status));
        if (Endpoint* endpoint = find(sender(item)); endpoint != nullptr) {
            endpoint->put_simple(Event::Kind::completed, endpoints_[receiver(item)].options.self, status, 0,
                                 item.token);
        }
    }
    const std::uint8_t side = item.direction;
    recycle_if_over(id);
    give_room(link, side);
}

bool World::can_take(TransferId id) const {
    const Transfer& item = transfers_[id];
    return item.pending.linked && !connections_[item.connection].channel[item.direction].fenced;
}

void World::take(TransferId id, std::uint8_t parts) {
    Transfer& item = transfers_[id];
    parts = static_cast<std::uint8_t>(parts & ~item.taken);
    if (parts == 0 || item.faulty || !can_take(id)) return;
    const EndpointId owner = receiver(item);
    trace(traced_take, item.number, parts);
    if (!is_there(owner, item)) {
        item.faulty = true;
        return;
    }
    const Area* area = find(owner)->area(item.region, item.offset);
    if ((parts & part_head) != 0 && area != nullptr && area->head_write != 0) {
        item.head_bytes = static_cast<std::uint8_t>(std::min<std::uint64_t>(area->head_bytes, item.bytes));
        std::memcpy(item.head.data(), area->head.data(), item.head_bytes);
    }
    item.taken = static_cast<std::uint8_t>(item.taken | parts);
    if (observer_ != nullptr) observer_->read_taken(now_, sender(item), owner, item, parts);
}

void World::land_read(TransferId id, std::uint8_t parts) {
    Transfer& item = transfers_[id];
    parts = static_cast<std::uint8_t>(parts & item.taken & ~item.landed);
    if (parts == 0 || !item.pending.linked) return;
    const EndpointId reader = sender(item);
    trace(traced_land, item.number, parts);
    if (item.body.length > 0) {
        Area& area = find(reader)->regions_[static_cast<std::size_t>(item.body.region)].areas.at(item.body.offset);
        if ((parts & part_head) != 0) {
            // Where the peer has no head, what lay here is overwritten by bytes that the simulation does not know.
            std::memcpy(area.head.data(), item.head.data(), item.head_bytes);
            area.head_bytes = item.head_bytes;
            area.head_write = item.head_bytes > 0 ? item.number : 0;
        }
        if ((parts & part_first_half) != 0) area.body_write[0] = item.number;
        if ((parts & part_second_half) != 0) area.body_write[1] = item.number;
    }
    item.landed = static_cast<std::uint8_t>(item.landed | parts);
    if (item.landed == part_all) statistics_.bytes_delivered += item.bytes;
    if (observer_ != nullptr) observer_->read_landed(now_, reader, receiver(item), item, parts);
}

void World::land(TransferId id, std::uint8_t parts) {
    Transfer& item = transfers_[id];
    if (item.is_read) return land_read(id, parts);
    parts = static_cast<std::uint8_t>(parts & ~item.landed);
    if (!item.unlanded.linked || parts == 0) return;
    const EndpointId to = receiver(item);
    trace(traced_land, item.number, parts);
    if ((item.head_bytes > 0 || item.body.length > 0) && is_there(to, item)) {
        Area& area = find(to)->regions_[item.region].areas.at(item.offset);
        if ((parts & part_head) != 0 && item.head_bytes > 0) {
            std::memcpy(area.head.data(), item.head.data(), item.head_bytes);
            area.head_bytes = item.head_bytes;
            area.head_write = item.number;
        }
        const auto here = static_cast<std::uint8_t>(parts & ~item.lost);
        if ((here & part_first_half) != 0) area.body_write[0] = item.number;
        if ((here & part_second_half) != 0) area.body_write[1] = item.number;
    }
    item.landed = static_cast<std::uint8_t>(item.landed | parts);
    if (observer_ != nullptr) observer_->landed(now_, sender(item), to, item, parts);
    if (item.landed == part_all) {
        statistics_.bytes_delivered += item.bytes;
        unlink<&Transfer::unlanded>(transfers_, connection(item.connection).channel[item.direction].unlanded, id);
        recycle_if_over(id);
    }
}

void World::deliver(TransferId id) {
    const Transfer& due = transfers_[id];
    if (due.faulty) return;
    const ConnectionId connection_id = due.connection;
    Connection& link = connection(connection_id);
    Channel& channel = link.channel[due.direction];
    if (channel.ordered.head == nil) return;  // fenced
    const std::uint8_t to_side = link.receiver(due.direction);
    const TransferId first = channel.ordered.head;
    Transfer& item = transfers_[first];
    if (item.noticed) {
        while (channel.unlanded.head != nil && transfers_[channel.unlanded.head].number <= item.number)
            land(channel.unlanded.head, part_all);
    }
    if (link.channel[to_side].side == Side::connecting) side_up(connection_id, to_side);
    unlink<&Transfer::ordered>(transfers_, channel.ordered, first);
    Endpoint& endpoint = *find(receiver(item));
    const EndpointId from = sender(item);
    trace(traced_deliver, item.number, endpoint.id());
    Event event{};
    event.peer = endpoints_[from].options.self;
    if (item.is_write) {
        event.kind = Event::Kind::notice;
        event.status = item.damaged ? Status::damaged : Status::ok;
        event.size_or_value = item.notice;
        if (observer_ != nullptr) observer_->notice_delivered(now_, from, endpoint.id(), item);
    } else {
        event.kind = Event::Kind::message;
        event.size_or_value = item.message.size;
        event.data = item.message.bytes;
        statistics_.bytes_delivered += item.bytes;
        if (observer_ != nullptr)
            observer_->message_delivered(now_, from, endpoint.id(), {item.message.bytes, item.message.size});
    }
    // Who left wants to hear nothing more, though what was written landed.
    if (link.channel[to_side].side == Side::up && (item.is_message() || is_there(endpoint.id(), item))) {
        Arrival arrival{.event = event};
        if (item.is_write) {
            arrival.region = item.region;
            arrival.offset = item.offset;
        } else {
            arrival.message_class = item.message.size_class;
        }
        endpoint.put(arrival);
        item.message_owned = false;
    }
    recycle_if_over(first);
}

void World::recycle_if_over(TransferId id) {
    Transfer& item = transfers_[id];
    if (item.ordered.linked || item.unlanded.linked || item.pending.linked || item.scheduled > 0 || item.number == 0)
        return;
    if (item.message_owned) buffers_.give_back(item.message);
    item.number = 0;
    transfers_.give_back(id);
}

void World::trace(Traced what, std::uint64_t one, std::uint64_t two) {
    const std::uint64_t entry =
        base::mix64(static_cast<std::uint64_t>(now_) + what) ^ base::mix64(one) * 3 ^ base::mix64(two) * 5;
    trace_hash_ = base::mix64(trace_hash_ ^ entry);
}

}  // namespace incast::sim

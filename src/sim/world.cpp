#include "sim/world.h"

#include <algorithm>
#include <cstring>

#include "base/prng.h"
#include "sim/endpoint.h"

namespace incast::sim {
namespace {

using Side = Connection::Side;

/// An actor that has stepped this often in one instant waits for the next: no program is infinitely fast, and a loop
/// cannot stop the clock.
constexpr std::uint32_t steps_per_instant_max = 100'000;
constexpr std::uint32_t actor_port = 0x8000'0000;  // actors' wake-ups come after all arrivals of the same instant

enum Traced : std::uint64_t {
    traced_post = 1,
    traced_land,
    traced_deliver,
    traced_complete,
    traced_up,
    traced_down,
    traced_room,
    traced_take
};

template <TransferLink Transfer::* link>
void append(Pool<Transfer>& pool, TransferList& list, TransferId id) {
    TransferLink& own = pool[id].*link;
    own = {list.tail, nil, true};
    if (list.tail == nil) {
        list.head = id;
    } else {
        (pool[list.tail].*link).next = id;
    }
    list.tail = id;
}

template <TransferLink Transfer::* link>
void unlink(Pool<Transfer>& pool, TransferList& list, TransferId id) {
    TransferLink& own = pool[id].*link;
    (own.previous == nil ? list.head : (pool[own.previous].*link).next) = own.next;
    (own.next == nil ? list.tail : (pool[own.next].*link).previous) = own.previous;
    own = {};
}

}  // namespace

World::World(std::unique_ptr<Model> model) : model_(std::move(model)) {}

World::~World() {
    for (const EndpointRecord& record : endpoints_) {
        if (record.endpoint != nullptr) record.endpoint->world_ = nullptr;
    }
}

// --- driving
// -----------------------------------------------------------------------------------------------------------------

ActorId World::add_actor(Actor& actor) {
    actors_.push_back({.actor = &actor});
    const auto id = static_cast<ActorId>(actors_.size() - 1);
    mark_ready(id);
    return id;
}

void World::remove_actor(ActorId actor) {
    actors_[actor].actor = nullptr;
    for (EndpointRecord& record : endpoints_) {
        if (record.endpoint != nullptr && record.endpoint->actor_ == actor) record.endpoint->actor_ = nil;
    }
}

void World::bind(Transport& endpoint, ActorId actor) {
    dynamic_cast<Endpoint&>(endpoint).actor_ = actor;
    mark_ready(actor);
}

void World::wake(ActorId actor) {
    mark_ready(actor);
}

void World::mark_ready(ActorId actor) {
    if (actor == nil || actors_[actor].actor == nullptr || actors_[actor].ready) return;
    actors_[actor].ready = true;
    runnable_.push(actor);
}

bool World::advance() {
    if (runnable_.empty()) {
        if (queue_.empty()) return false;
        now_ = queue_.next_time();
    }
    while (queue_.next_time() <= now_ && !queue_.empty())
        happen(queue_.pop());
    run_actors();
    return true;
}

void World::run_until(Time limit) {
    while (next_time() <= limit && advance()) {
    }
    now_ = std::max(now_, limit);
}

void World::run_actors() {
    while (!runnable_.empty())
        run_actor(runnable_.pop());
}

void World::run_actor(ActorId id) {
    actors_[id].ready = false;
    Actor* actor = actors_[id].actor;
    if (actor == nullptr) return;
    if (actors_[id].stepped_at != now_) {
        actors_[id].stepped_at = now_;
        actors_[id].steps = 0;
    }
    ++actors_[id].steps;
    ++statistics_.steps;
    bool more = actor->step(now_);
    if (actors_[id].actor == nullptr) return;  // it ended itself
    Time deadline = time_never;
    if (!more) {
        deadline = actor->next_deadline();
        more = deadline <= now_;
    }
    if (!more) {
        if (deadline != time_never) schedule_wake(id, deadline);
    } else if (actors_[id].steps < steps_per_instant_max) {
        mark_ready(id);
    } else {
        ++statistics_.spins;
        schedule_wake(id, now_ + ps_per_ns);
    }
}

void World::schedule_wake(ActorId id, Time time) {
    // An earlier wake-up that is already scheduled asks for the deadline again.
    if (time >= actors_[id].wake_at) return;
    actors_[id].wake_at = time;
    queue_.push({.time = time, .port = actor_port | id, .subject = id, .kind = static_cast<std::uint16_t>(Kind::wake)});
}

void World::happen(const Scheduled& event) {
    ++statistics_.events;
    switch (static_cast<Kind>(event.kind)) {
        case Kind::step: {
            model_->due(*this, event.subject, event.detail);
            --transfers_[event.subject].scheduled;
            recycle_if_over(event.subject);
            break;
        }
        case Kind::wake: {
            ActorRecord& record = actors_[event.subject];
            if (record.wake_at != event.time) break;
            record.wake_at = time_never;
            if (record.actor == nullptr) break;
            const Time deadline = record.actor->next_deadline();
            if (deadline <= now_) {
                mark_ready(event.subject);
            } else if (deadline != time_never) {
                schedule_wake(event.subject, deadline);
            }
            break;
        }
        case Kind::up:
            side_up(event.subject, static_cast<std::uint8_t>(event.detail));
            break;
        case Kind::down:
            side_down(event.subject, static_cast<std::uint8_t>(event.detail & 1),
                      static_cast<Status>(event.detail >> 1));
            break;
        case Kind::give_up: {
            Endpoint* endpoint = find(event.port);
            if (endpoint == nullptr) break;
            const Endpoint::Contact& contact = endpoint->contacts_[event.subject];
            if (contact.known && contact.connection == nil &&
                static_cast<std::uint16_t>(contact.attempt) == event.detail) {
                give_up(*endpoint, event.subject);
            }
            break;
        }
        case Kind::room: {
            Connection& link = connection(event.subject);
            const auto side = static_cast<std::uint8_t>(event.detail);
            link.channel[side].room_scheduled = false;
            give_room(link, side);
            break;
        }
    }
}

// --- endpoints
// ---------------------------------------------------------------------------------------------------------------

Result<std::unique_ptr<Transport>> World::endpoint(const transport::EndpointOptions& options) {
    if (options.max_posted == 0) return Error{"max_posted = 0: an endpoint must be able to post something"};
    const auto id = static_cast<EndpointId>(endpoints_.size());
    Capabilities capabilities = model_->capabilities();
    capabilities.max_peers = options.max_peers;
    capabilities.max_posted = options.max_posted;
    auto made = std::make_unique<Endpoint>(*this, id, options, capabilities);
    endpoints_.push_back({made.get(), options});
    model_->endpoint_added(*this, id);
    return std::unique_ptr<Transport>(std::move(made));
}

void World::removed(Endpoint& endpoint) {
    const EndpointId id = endpoint.id();
    endpoints_[id].endpoint = nullptr;
    for (const Endpoint::Contact& contact : endpoint.contacts_) {
        if (!contact.known || contact.connection == nil) continue;
        Connection& link = connection(contact.connection);
        if (link.side[contact.side] == Side::down) continue;
        side_down(contact.connection, contact.side, Status::cancelled);
        model_->ended(*this, contact.connection, contact.side);
    }
    // Whoever still tries to connect to it learns in time that nobody answers.
    const auto self = static_cast<std::size_t>(endpoint.options().self);
    for (const EndpointRecord& record : endpoints_) {
        Endpoint* other = record.endpoint;
        if (other == nullptr || self >= other->contact_of_.size() || other->contact_of_[self] == nil) continue;
        Endpoint::Contact& contact = other->contacts_[other->contact_of_[self]];
        if (!contact.known || contact.target != id || contact.connection != nil || contact.refused) continue;
        contact.refused = true;
        queue_.push({.time = now_ + model_->give_up_after(*this),
                     .port = other->id(),
                     .subject = other->contact_of_[self],
                     .kind = static_cast<std::uint16_t>(Kind::give_up),
                     .detail = static_cast<std::uint16_t>(contact.attempt)});
    }
}

Post World::connect(Endpoint& from, Peer peer, EndpointId to, std::uint32_t incarnation) {
    Endpoint::Contact& contact = from.contact(peer);
    if (contact.known) {
        if (incarnation < contact.incarnation) return Post::refused;
        if (incarnation > contact.incarnation) disconnect(from, peer);
        if (contact.target != to || contact.incarnation != incarnation) return Post::again;
        if (contact.connection == nil) return Post::pending;
        const Side side = connection(contact.connection).side[contact.side];
        return side == Side::connecting ? Post::pending : side == Side::leaving ? Post::again : Post::refused;
    }
    if (model_->connect_again(*this, from.id())) return Post::again;
    const transport::EndpointOptions& theirs = endpoints_[to].options;
    const transport::EndpointOptions& ours = from.options();
    const bool answers = find(to) != nullptr && theirs.incarnation == incarnation && theirs.run == ours.run &&
                         theirs.token == ours.token && static_cast<std::uint32_t>(ours.self) < theirs.max_peers;
    contact = {.known = true, .target = to, .incarnation = incarnation, .attempt = contact.attempt + 1};
    contact.refused = !answers || model_->refuses_connect(*this, from.id());
    if (contact.refused) {
        queue_.push({.time = now_ + model_->give_up_after(*this),
                     .port = from.id(),
                     .subject = from.contact_of_[static_cast<std::size_t>(peer)],
                     .kind = static_cast<std::uint16_t>(Kind::give_up),
                     .detail = static_cast<std::uint16_t>(contact.attempt)});
    } else {
        match(from, peer);
    }
    return Post::pending;
}

/// Makes the connection if the other side wants it too.
void World::match(Endpoint& one, Peer peer) {
    Endpoint::Contact& ours = one.contact(peer);
    Endpoint& two = *find(ours.target);
    Endpoint::Contact& theirs = two.contact(one.options().self);
    if (!theirs.known || theirs.refused || theirs.target != one.id() ||
        theirs.incarnation != one.options().incarnation || theirs.connection != nil) {
        return;
    }
    const auto id = static_cast<ConnectionId>(connections_.size());
    connections_.push_back(std::make_unique<Connection>());
    connections_.back()->endpoint = {two.id(), one.id()};
    theirs.connection = id;
    theirs.side = 0;
    ours.connection = id;
    ours.side = connections_.back()->loopback() ? 0 : 1;
    model_->connecting(*this, id);
}

void World::disconnect(Endpoint& from, Peer peer) {
    const auto index = static_cast<std::size_t>(peer);
    if (index >= from.contact_of_.size() || from.contact_of_[index] == nil) return;
    Endpoint::Contact& contact = from.contacts_[from.contact_of_[index]];
    if (!contact.known) return;
    if (contact.connection == nil) {
        give_up(from, from.contact_of_[index]);
        return;
    }
    Connection& link = connection(contact.connection);
    Side& side = link.side[contact.side];
    if (side == Side::leaving) return;
    side = Side::leaving;
    for (TransferId id = link.channel[contact.side].pending.head; id != nil;) {
        const TransferId next = transfers_[id].pending.next;
        // What is being read may go on landing: a read completes in its own time, at the latest right before peer_down.
        if (!transfers_[id].is_read) finish_pending(id, Status::cancelled);
        id = next;
    }
    model_->disconnecting(*this, contact.connection, contact.side);
}

void World::give_up(Endpoint& endpoint, std::uint32_t contact_index) {
    Endpoint::Contact& contact = endpoint.contacts_[contact_index];
    contact.known = false;
    trace(traced_down, endpoint.id(), contact.target);
    endpoint.put_simple(Event::Kind::peer_down, endpoints_[contact.target].options.self, Status::peer_lost,
                        contact.incarnation);
    if (observer_ != nullptr) observer_->peer_down(now_, endpoint.id(), contact.target);
}

// --- connections
// -------------------------------------------------------------------------------------------------------------

void World::schedule_up(Time time, ConnectionId id, std::uint8_t side) {
    if (side == 1 && connection(id).loopback()) return;
    queue_.push({.time = time,
                 .port = connection(id).endpoint[side],
                 .subject = id,
                 .kind = static_cast<std::uint16_t>(Kind::up),
                 .detail = side});
}

void World::schedule_down(Time time, ConnectionId id, std::uint8_t side, Status status) {
    if (side == 1 && connection(id).loopback()) return;
    queue_.push({.time = time,
                 .port = connection(id).endpoint[side],
                 .subject = id,
                 .kind = static_cast<std::uint16_t>(Kind::down),
                 .detail = static_cast<std::uint16_t>(side | static_cast<unsigned>(status) << 1)});
}

void World::side_up(ConnectionId id, std::uint8_t side) {
    Connection& link = connection(id);
    Endpoint* endpoint = find(link.endpoint[side]);
    if (link.side[side] != Side::connecting || endpoint == nullptr) return;
    link.side[side] = Side::up;
    const EndpointId other = link.endpoint[1 - side];
    trace(traced_up, endpoint->id(), other);
    endpoint->put_simple(Event::Kind::peer_up, endpoints_[other].options.self, Status::ok,
                         endpoints_[other].options.incarnation);
    if (observer_ != nullptr) observer_->peer_up(now_, endpoint->id(), other);
}

void World::side_down(ConnectionId id, std::uint8_t side, Status status) {
    Connection& link = connection(id);
    if (link.side[side] == Side::down) return;
    link.side[side] = Side::down;
    const EndpointId other = link.endpoint[1 - side];
    trace(traced_down, link.endpoint[side], other);
    fence(link.channel[link.loopback() ? side : 1 - side]);
    Channel& outgoing = link.channel[side];
    while (outgoing.pending.head != nil)
        finish_pending(outgoing.pending.head, status);
    outgoing.room_wanted = false;
    if (Endpoint* endpoint = find(link.endpoint[side]); endpoint != nullptr) {
        const Peer peer = endpoints_[other].options.self;
        endpoint->contact(peer).known = false;
        endpoint->put_simple(Event::Kind::peer_down, peer, Status::peer_lost, endpoints_[other].options.incarnation);
    }
    if (observer_ != nullptr) observer_->peer_down(now_, link.endpoint[side], other);
}

void World::fence(Channel& channel) {
    channel.fenced = true;
    while (channel.ordered.head != nil) {
        const TransferId id = channel.ordered.head;
        unlink<&Transfer::ordered>(transfers_, channel.ordered, id);
        recycle_if_over(id);
    }
    while (channel.unlanded.head != nil) {
        const TransferId id = channel.unlanded.head;
        unlink<&Transfer::unlanded>(transfers_, channel.unlanded, id);
        recycle_if_over(id);
    }
}

// --- transfers
// ---------------------------------------------------------------------------------------------------------------

EndpointId World::sender(const Transfer& transfer) const {
    return connections_[transfer.connection]->endpoint[transfer.direction];
}

EndpointId World::receiver(const Transfer& transfer) const {
    return connections_[transfer.connection]->endpoint[1 - transfer.direction];
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
    if (!channel.room_wanted || channel.room_scheduled || endpoint == nullptr || link.side[side] != Side::up ||
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
        const Channel& channel = connections_[contact.connection]->channel[contact.side];
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

void World::schedule(Time time, EndpointId port, TransferId id, std::uint16_t step) {
    ++transfers_[id].scheduled;
    queue_.push(
        {.time = time, .port = port, .subject = id, .kind = static_cast<std::uint16_t>(Kind::step), .detail = step});
}

void World::complete(TransferId id) {
    const Transfer& item = transfers_[id];
    if (!item.pending.linked) return;
    Status status = item.faulty ? Status::remote_fault : Status::ok;
    if (item.is_read) {
        if (!item.faulty) {
            take(id, part_all);
            land(id, part_all);
            if (item.landed != part_all) return;
        }
        // Whoever has left is told that it was cancelled, though it may have landed.
        if (connection(item.connection).side[item.direction] == Side::leaving) status = Status::cancelled;
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
    return item.pending.linked && !connections_[item.connection]->channel[item.direction].fenced;
}

void World::take(TransferId id, std::uint8_t parts) {
    Transfer& item = transfers_[id];
    parts = static_cast<std::uint8_t>(parts & ~item.taken);
    if (parts == 0 || item.faulty || !can_take(id)) return;
    const EndpointId owner = receiver(item);
    trace(traced_take, item.number, parts);
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
    if (item.head_bytes > 0 || item.body.length > 0) {
        Area& area = find(to)->regions_[item.region].areas.at(item.offset);
        if ((parts & part_head) != 0 && item.head_bytes > 0) {
            std::memcpy(area.head.data(), item.head.data(), item.head_bytes);
            area.head_bytes = item.head_bytes;
            area.head_write = item.number;
        }
        if ((parts & part_first_half) != 0) area.body_write[0] = item.number;
        if ((parts & part_second_half) != 0) area.body_write[1] = item.number;
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
    if (link.side[to_side] == Side::connecting) side_up(connection_id, to_side);
    unlink<&Transfer::ordered>(transfers_, channel.ordered, first);
    Endpoint& endpoint = *find(receiver(item));
    const EndpointId from = sender(item);
    trace(traced_deliver, item.number, endpoint.id());
    Event event{};
    event.peer = endpoints_[from].options.self;
    if (item.is_write) {
        event.kind = Event::Kind::notice;
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
    if (link.side[to_side] == Side::up) {
        endpoint.put(event, item.message);
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

void World::trace(std::uint64_t what, std::uint64_t one, std::uint64_t two) {
    const std::uint64_t entry =
        base::mix64(static_cast<std::uint64_t>(now_) + what) ^ base::mix64(one) * 3 ^ base::mix64(two) * 5;
    trace_hash_ = base::mix64(trace_hash_ ^ entry);
}

}  // namespace incast::sim

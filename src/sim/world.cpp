#include "sim/world.h"

#include <algorithm>

#include "sim/endpoint.h"
#include "sim/transfer_list.h"

namespace incast::sim {
namespace {

using Side = Connection::Side;

/// An actor that has stepped this often in one instant waits for the next: no program is infinitely fast, and a loop
/// cannot stop the clock.
constexpr std::uint32_t steps_per_instant_max = 100'000;
constexpr unsigned endpoints_first_level = 2;      // prefetching: their levels are fewer than those of actors
constexpr std::uint32_t actor_port = 0x8000'0000;  // actors' wake-ups come after all arrivals of the same instant

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
    auto& mine = dynamic_cast<Endpoint&>(endpoint);
    mine.actor_ = actor;
    actors_[actor].endpoint = mine.id();
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

bool World::advance_until(Time limit) {
    const Time look = runnable_.empty() ? time_never : next_look(now_);
    if (look > now_) {
        const Time scheduled = std::min(queue_.next_time(), look);
        // While somebody waits for the next look, what arrives before that is for then, too.
        const Time arrived = model_->run_network(std::min(scheduled, limit), look == time_never);
        if (arrived == time_never && (scheduled == time_never || scheduled > limit)) return false;
        now_ = std::max(now_, std::min(arrived, scheduled));
    }
    model_->arrivals(*this);
    while (queue_.next_time() <= now_ && !queue_.empty())
        happen(queue_.pop());
    if (next_look(now_) == now_) run_actors();
    return true;
}

void World::run_until(Time limit) {
    while (next_time() <= limit && advance_until(limit)) {
    }
    now_ = std::max(now_, limit);
}

void World::run_actors() {
    while (!runnable_.empty()) {
        const ActorId id = runnable_.pop();
        for (unsigned level = 0; level < Actor::prefetch_levels; ++level) {
            const unsigned ahead = Actor::prefetch_levels - 1 - level;
            if (ahead >= runnable_.size()) continue;
            const ActorRecord& next = actors_[runnable_[ahead]];
            if (next.actor != nullptr) next.actor->prefetch(level);
            if (next.endpoint == nil || level < endpoints_first_level) continue;
            if (const Endpoint* endpoint = find(next.endpoint); endpoint != nullptr)
                endpoint->prefetch(level - endpoints_first_level);
        }
        run_actor(id);
    }
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
    Time& deadline = actors_[id].deadline;
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
        deadline = now_ + ps_per_ns;
        schedule_wake(id, deadline);
    }
}

void World::schedule_wake(ActorId id, Time time) {
    time = next_look(time);
    // An earlier wake-up that is already scheduled looks at the deadline again.
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
            if (record.deadline <= now_) {
                mark_ready(event.subject);
            } else if (record.deadline != time_never) {
                schedule_wake(event.subject, record.deadline);
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
    if (const Result<Ok> admitted = model_->admits(options); !admitted) return admitted.error();
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
        if (link.channel[contact.side].side == Side::down) continue;
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
        const Side side = connection(contact.connection).channel[contact.side].side;
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
    connections_.emplace_back().endpoint = {two.id(), one.id()};
    theirs.connection = id;
    theirs.side = 0;
    ours.connection = id;
    ours.side = connections_.back().loopback() ? 0 : 1;
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
    if (link.channel[contact.side].side == Side::leaving) return;
    link.channel[contact.side].side = Side::leaving;
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
    if (link.channel[side].side != Side::connecting || endpoint == nullptr) return;
    link.channel[side].side = Side::up;
    const EndpointId other = link.endpoint[1 - side];
    trace(traced_up, endpoint->id(), other);
    endpoint->put_simple(Event::Kind::peer_up, endpoints_[other].options.self, Status::ok,
                         endpoints_[other].options.incarnation);
    if (observer_ != nullptr) observer_->peer_up(now_, endpoint->id(), other);
}

void World::side_down(ConnectionId id, std::uint8_t side, Status status) {
    Connection& link = connection(id);
    if (link.channel[side].side == Side::down) return;
    link.channel[side].side = Side::down;
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

}  // namespace incast::sim

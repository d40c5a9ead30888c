// A simulated world: a clock, the events to come, endpoints that keep the transport contract, and the actors that own
// them.
//
// A World is single-threaded and has no globals: several may run in parallel threads. Time is virtual and moves only in
// advance(), run_until() and, for endpoints without an actor, poll(now). The same actors, model and seed give the same
// trace_hash(), bit by bit.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include <incast/transport.h>

#include "base/fifo.h"
#include "base/prefetch.h"
#include "sim/event_queue.h"
#include "sim/model.h"
#include "sim/pool.h"
#include "sim/records.h"
#include "transport/medium.h"

namespace incast::sim {

class Endpoint;

/// Whoever owns endpoints in a world: called when one of them has something to poll, or its deadline has come.
class Actor {
public:
    Actor() = default;
    Actor(const Actor&) = delete;
    Actor& operator=(const Actor&) = delete;
    virtual ~Actor() = default;
    /// True if anything happened: it is called again in the same instant.
    virtual bool step(Time now) = 0;
    /// When step must be called even if nothing arrives; time_never if not. Asked after each step: who changes it at
    /// another time wakes the actor.
    [[nodiscard]] virtual Time next_deadline() const = 0;
    /// A hint: step() is near, and what it reads first may come from memory meanwhile. That is found through pointers,
    /// so it is called for level 0, 1, .. prefetch_levels - 1, and between two of them another actor steps.
    virtual void prefetch(unsigned /*level*/) const {}
    static constexpr unsigned prefetch_levels = 7;
};

struct Statistics {
    std::uint64_t events = 0;
    std::uint64_t steps = 0;
    std::uint64_t messages = 0;
    std::uint64_t writes = 0;
    std::uint64_t reads = 0;
    std::uint64_t bytes_posted = 0;     // messages, heads and bodies, and what is read
    std::uint64_t bytes_delivered = 0;  // of messages delivered, writes and reads wholly landed
    std::uint64_t spins = 0;  // times that an actor stepped so often in one instant that it had to wait for the next
};

class World {
public:
    explicit World(std::unique_ptr<Model> model);
    World(const World&) = delete;
    World& operator=(const World&) = delete;
    /// Endpoints may outlive the world only to be destroyed.
    ~World();

    // --- driving
    // ---------------------------------------------------------------------------------------------------------
    [[nodiscard]] Time now() const { return now_; }
    /// The actor is called first at the next advance().
    ActorId add_actor(Actor& actor);
    /// It is not called any more; endpoints bound to it are without an actor.
    void remove_actor(ActorId actor);
    /// `endpoint` must be of this world, and not a decorator around one (std::bad_cast). It wakes the actor from now
    /// on.
    void bind(Transport& endpoint, ActorId actor);
    /// The actor is called in this instant, or at the next advance().
    void wake(ActorId actor);
    /// One instant: all events of the next time at which anything happens, then every actor with work. False if nothing
    /// will ever happen.
    bool advance() { return advance_until(time_never); }
    /// All instants up to and including `limit`; the clock then stands at `limit`.
    void run_until(Time limit);
    /// When something happens next; now() if an actor is waiting to be called, time_never if nothing will.
    [[nodiscard]] Time next_time() const {
        return std::min(queue_.next_time(), runnable_.empty() ? model_->network_time() : next_look(now_));
    }
    /// Actors are called only at whole multiples of this time, as software that polls, or hardware that gathers
    /// interrupts: with many nodes most of the work of a simulation is to call them. 0, and at first: in the instant in
    /// which something arrived.
    void poll_every(Time interval) { poll_interval_ = interval; }

    void observe(Observer* observer) { observer_ = observer; }
    /// Over every post, arrival and change of a connection so far.
    [[nodiscard]] std::uint64_t trace_hash() const { return trace_hash_; }
    [[nodiscard]] const Statistics& statistics() const { return statistics_; }

    // --- endpoints
    // -------------------------------------------------------------------------------------------------------
    Result<std::unique_ptr<Transport>> endpoint(const transport::EndpointOptions& options);
    /// nullptr once it is destroyed.
    [[nodiscard]] Endpoint* find(EndpointId id) const { return endpoints_[id].endpoint; }
    [[nodiscard]] const transport::EndpointOptions& options(EndpointId id) const { return endpoints_[id].options; }
    /// True while an operation of that endpoint that is neither done nor completed needs these bytes: a write that
    /// takes its body from them, or a read that puts its bytes there.
    [[nodiscard]] bool body_in_use(EndpointId id, const Slice& bytes) const;
    [[nodiscard]] std::size_t endpoint_count() const { return endpoints_.size(); }
    [[nodiscard]] Model& model() { return *model_; }

    // --- for models
    // ------------------------------------------------------------------------------------------------------
    [[nodiscard]] Transfer& transfer(TransferId id) { return transfers_[id]; }
    [[nodiscard]] Connection& connection(ConnectionId id) { return connections_[id]; }
    [[nodiscard]] std::size_t connection_count() const { return connections_.size(); }
    /// A hint that it will be completed soon, or that it will land and be delivered. What that touches is found step by
    /// step, so this is called for level 0, 1, .. prefetch_levels - 1, with time in between.
    void prefetch(TransferId id, bool lands, unsigned level) const;
    void prefetch(ConnectionId id) const { base::prefetch(connections_[id]); }
    static constexpr unsigned prefetch_levels = 6;
    [[nodiscard]] EndpointId sender(const Transfer& transfer) const;
    [[nodiscard]] EndpointId receiver(const Transfer& transfer) const;
    [[nodiscard]] bool is_there(EndpointId owner, const Transfer& transfer) const;
    /// Model::due(transfer, step) will be called at `time`, at the port of endpoint `port`.
    void schedule(Time time, EndpointId port, TransferId transfer, std::uint16_t step);
    void schedule_up(Time time, ConnectionId connection, std::uint8_t side);
    /// Pending operations of that side complete with `status`, then its peer_down; from then on it is fenced. The first
    /// one counts.
    void schedule_down(Time time, ConnectionId connection, std::uint8_t side, Status status);
    /// Its record stays until let_go(), whatever else becomes of it: something of it is in the model's network.
    void hold(TransferId transfer) { ++transfers_[transfer].scheduled; }
    void let_go(TransferId transfer) {
        --transfers_[transfer].scheduled;
        recycle_if_over(transfer);
    }
    /// The sender's bytes are free: the completion event, and room if it was wanted. A read takes and lands first what
    /// is still missing; if its owner has gone down it does not complete, but ends with the connection.
    void complete(TransferId transfer);
    /// False: nobody waits for this read any more, or its owner is down.
    [[nodiscard]] bool can_take(TransferId read) const;
    /// The parts of a read leave the memory of their owner, if it can give them.
    void take(TransferId read, std::uint8_t parts);
    /// Of a read only what was taken lands, and nothing once it has completed.
    void land(TransferId transfer, std::uint8_t parts);
    /// Those parts of the body of a write that is being posted never land, and its notice says so, or the next one.
    void lose(TransferId write, std::uint8_t parts);
    /// For a message or noticed write: delivers the oldest such one of its channel, whichever `transfer` is, so that
    /// order holds whatever a model draws; with a notice, all bytes of its and earlier writes land first.
    void deliver(TransferId transfer);

    // --- for endpoints
    // ---------------------------------------------------------------------------------------------------
    Post connect(Endpoint& from, Peer peer, EndpointId to, std::uint32_t incarnation);
    void disconnect(Endpoint& from, Peer peer);
    /// Takes a record; the caller fills it and calls post.
    TransferId new_transfer();
    Post post(TransferId transfer);
    /// False: `again`, and room follows.
    bool has_room(ConnectionId connection, std::uint8_t side);
    void removed(Endpoint& endpoint);
    void mark_ready(ActorId actor);
    BufferPool& buffers() { return buffers_; }
    Pool<Arrival>& arrivals() { return arrivals_; }

private:
    enum class Kind : std::uint16_t { wake, step, up, down, give_up, room };
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
    struct EndpointRecord {
        Endpoint* endpoint = nullptr;
        transport::EndpointOptions options;
        ActorId actor = nil;
    };
    struct ActorRecord {
        Actor* actor = nullptr;
        EndpointId endpoint = nil;  // the last that was bound to it
        bool ready = false;
        Time deadline = time_never;  // that it told after its last step
        Time wake_at = time_never;   // of the wake event that counts
        Time stepped_at = -1;
        std::uint32_t steps = 0;  // at stepped_at
    };

    /// The first time from `time` on at which actors may be called.
    [[nodiscard]] Time next_look(Time time) const {
        if (poll_interval_ == 0 || time > time_never - poll_interval_) return time;
        return (time + poll_interval_ - 1) / poll_interval_ * poll_interval_;
    }
    /// One instant, unless it is later than `limit`.
    bool advance_until(Time limit);
    void happen(const Scheduled& event);
    void run_actors();
    void run_actor(ActorId id);
    void schedule_wake(ActorId id, Time time);
    void match(Endpoint& one, Peer peer);
    void give_up(Endpoint& endpoint, std::uint32_t contact_index);
    void side_up(ConnectionId id, std::uint8_t side);
    void side_down(ConnectionId id, std::uint8_t side, Status status);
    void fence(Channel& channel);
    void recycle_if_over(TransferId id);
    void finish_pending(TransferId id, Status status);
    void land_read(TransferId id, std::uint8_t parts);
    void give_room(Connection& connection, std::uint8_t side);
    void trace(Traced what, std::uint64_t one, std::uint64_t two);

    std::unique_ptr<Model> model_;
    Time now_ = 0;
    Time poll_interval_ = 0;
    EventQueue queue_;
    std::vector<EndpointRecord> endpoints_;
    std::vector<ActorRecord> actors_;
    Fifo<ActorId> runnable_;
    Pool<Transfer> transfers_;
    BufferPool buffers_;
    Pool<Arrival> arrivals_;
    base::Blocks<Connection> connections_;
    std::uint64_t transfer_number_ = 0;
    std::uint64_t trace_hash_ = 0;
    Statistics statistics_;
    Observer* observer_ = nullptr;
};

}  // namespace incast::sim

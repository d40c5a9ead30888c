// How a simulated network behaves. The World keeps the transport contract (order, fences, completions, exactly one of
// each event); a Model only decides when things happen, and whether they do.
#pragma once

#include <cstdint>

#include <incast/result.h>
#include <incast/transport.h>

#include "sim/records.h"
#include "transport/medium.h"

namespace incast::sim {

/// Of every simulated endpoint.
inline constexpr Nature nature{.copies = Copies::nobody, .progress = Progress::independent, .one_host = true};

class World;

class Model {
public:
    Model() = default;
    Model(const Model&) = delete;
    Model& operator=(const Model&) = delete;
    virtual ~Model() = default;

    /// What endpoints of this network can do; max_peers and max_posted are filled in by the World.
    [[nodiscard]] virtual Capabilities capabilities() const = 0;
    /// A new endpoint; ids are consecutive.
    virtual void endpoint_added(World& world, EndpointId id) = 0;

    /// A transfer was posted. The model schedules the steps after which it calls World::complete (once; not for
    /// `done`), World::land (for each part of a write, unless the notice lands all) and World::deliver (once for a
    /// message or noticed write). Answers done or pending for a write; the answer for a message is ignored.
    ///
    /// For a read it schedules the steps after which it calls World::take and World::land (for each part, unless the
    /// completion is to hurry them along) and World::complete; `done` only if it has landed whole within this call.
    virtual Post posted(World& world, TransferId transfer) = 0;
    /// A step scheduled with World::schedule is due.
    virtual void due(World& world, TransferId transfer, std::uint16_t step) = 0;

    /// A model with a network that has a clock of its own lets it go on up to `until`, or, with `to_arrival`, up to the
    /// first instant at which something reached an endpoint, and answers that; time_never: up to `until`. The world's
    /// clock follows, and arrivals() is called.
    virtual Time run_network(Time /*until*/, bool /*to_arrival*/) { return time_never; }
    /// When its network does something next: no earlier than what run_network() can answer.
    virtual Time network_time() { return time_never; }
    /// What has reached endpoints by now.
    virtual void arrivals(World& /*world*/) {}
    /// Error: this network has no place for such an endpoint.
    virtual Result<Ok> admits(const transport::EndpointOptions& /*options*/) { return Ok{}; }

    /// Both sides connect: call World::schedule_up for side 0 and side 1.
    virtual void connecting(World& world, ConnectionId connection) = 0;
    /// `side` disconnected: call World::schedule_down for both sides.
    virtual void disconnecting(World& world, ConnectionId connection, std::uint8_t side) = 0;
    /// The endpoint of `side` is gone: call World::schedule_down for the other side.
    virtual void ended(World& world, ConnectionId connection, std::uint8_t side) = 0;

    /// When an attempt to connect that nobody answers, or that the network refuses, is given up.
    [[nodiscard]] virtual Time give_up_after(World& world) = 0;
    /// True: the network refuses this attempt to connect.
    virtual bool refuses_connect(World& /*world*/, EndpointId /*from*/) { return false; }
    /// Back-pressure beyond max_posted: 0, or the time at which the sender has room again.
    virtual Time room_at(World& /*world*/, ConnectionId /*connection*/, std::uint8_t /*direction*/) { return 0; }
    /// True: even this call to connect answers `again`.
    virtual bool connect_again(World& /*world*/, EndpointId /*from*/) { return false; }
};

}  // namespace incast::sim

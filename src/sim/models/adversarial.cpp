#include "sim/models/adversarial.h"

#include <algorithm>
#include <bit>

#include "sim/world.h"

namespace incast::sim {
namespace {

/// The landing steps carry their Part bits.
enum Step : std::uint16_t { step_land = 0, step_deliver = 8, step_complete = 9 };

}  // namespace

Capabilities AdversarialModel::capabilities() const {
    Capabilities capabilities;
    capabilities.max_regions = 65535;
    capabilities.phantom_bodies = true;
    capabilities.virtual_time = true;
    capabilities.fences_live_peer = settings_.fences_live_peer;
    return capabilities;
}

void AdversarialModel::endpoint_added(World& /*world*/, EndpointId /*id*/) {}

Time AdversarialModel::delay() {
    Time drawn = settings_.delay_min + within(settings_.delay_spread);
    if (prng_.chance(settings_.tail_chance)) {
        // Log-uniform by halvings: integers only, so that every machine draws the same.
        const auto halvings = static_cast<unsigned>(prng_.below(10));
        drawn += within(std::max<Time>(1, settings_.tail_max >> halvings));
        add(Fault::heavy_delay);
    }
    return drawn;
}

// --- transfers
// ---------------------------------------------------------------------------------------------------------------

Post AdversarialModel::posted(World& world, TransferId id) {
    const Transfer& transfer = world.transfer(id);
    const Time now = world.now();
    Flow& way = flow(transfer.connection, transfer.direction);
    const EndpointId to = world.receiver(transfer);
    const bool done = transfer.is_write && prng_.chance(settings_.done_chance);
    if (done) add(Fault::done_at_once);
    world.schedule(now + delay(), world.sender(transfer), id, step_complete);
    if (way.cut || transfer.faulty) return done && !transfer.faulty ? Post::done : Post::pending;

    if (transfer.is_write) {
        std::array<std::uint8_t, 3> parts{part_all, 0, 0};
        if (prng_.chance(settings_.scatter_chance)) {
            parts = {part_head, part_first_half, part_second_half};
            add(Fault::scattered_write);
        }
        const bool overtakes = prng_.chance(settings_.overtake_chance);
        if (overtakes) add(Fault::overtaking);
        const Time after = overtakes ? now : std::max(now, way.last_landing);
        for (const std::uint8_t part : parts) {
            if (part == 0) continue;
            const Time at = std::max(now + delay(), after);
            way.last_landing = std::max(way.last_landing, at);
            world.schedule(at, to, id, static_cast<std::uint16_t>(step_land + part));
        }
    }
    if (!transfer.is_write || transfer.noticed) {
        // A notice waits for its bytes or, as the World lands what is still missing, hurries them along.
        Time at = std::max(now + delay(), way.last_ordered);
        if (transfer.noticed && prng_.chance(500'000)) at = std::max(at, way.last_landing);
        way.last_ordered = at;
        world.schedule(at, to, id, step_deliver);
    }
    return done ? Post::done : Post::pending;
}

void AdversarialModel::due(World& world, TransferId id, std::uint16_t step) {
    if (step == step_complete) {
        world.complete(id);
        return;
    }
    const Transfer& transfer = world.transfer(id);
    Flow& way = flow(transfer.connection, transfer.direction);
    if (way.stalled_until > world.now()) {
        world.schedule(way.stalled_until, world.receiver(transfer), id, step);
        return;
    }
    if (step == step_deliver) {
        if (!way.cut || way.delivers) world.deliver(id);
        return;
    }
    if (!transfer.unlanded.linked) return;
    if (way.cut) {
        if (!way.delivers && !prng_.chance(way.landing_chance)) {
            add(Fault::lost_in_flight);
            return;
        }
        add(Fault::landed_after_end);
    }
    const Connection& connection = world.connection(transfer.connection);
    if (connection.side[connection.receiver(transfer.direction)] == Connection::Side::leaving)
        add(Fault::unfenced_landing);
    world.land(id, static_cast<std::uint8_t>(step - step_land));
}

Time AdversarialModel::room_at(World& world, ConnectionId /*connection*/, std::uint8_t /*direction*/) {
    if (!prng_.chance(settings_.again_chance)) return 0;
    add(Fault::again);
    return world.now() + within(settings_.again_max);
}

// --- connections
// -------------------------------------------------------------------------------------------------------------

void AdversarialModel::connecting(World& world, ConnectionId id) {
    flows_.resize(std::max<std::size_t>(flows_.size(), id + 1));
    world.schedule_up(world.now() + delay(), id, 0);
    world.schedule_up(world.now() + delay(), id, 1);
}

bool AdversarialModel::connect_again(World& /*world*/, EndpointId /*from*/) {
    if (!prng_.chance(settings_.connect_again_chance)) return false;
    add(Fault::connect_again);
    return true;
}

bool AdversarialModel::refuses_connect(World& /*world*/, EndpointId /*from*/) {
    if (!prng_.chance(settings_.connect_refused_chance)) return false;
    add(Fault::connect_refused);
    return true;
}

Time AdversarialModel::give_up_after(World& /*world*/) {
    return within(settings_.loss_noticed_max);
}

/// What was in flight may arrive whole and in order until the receiver is fenced, or in pieces and unannounced.
void AdversarialModel::cut_direction(Flow& way) {
    if (way.cut) return;
    way.cut = true;
    way.delivers = prng_.chance(500'000);
    way.landing_chance = static_cast<std::uint32_t>(prng_.below(1'000'001));
}

void AdversarialModel::cut(World& world, ConnectionId id) {
    if (!settings_.fences_live_peer) return;
    add(Fault::connection_cut);
    for (std::uint8_t side = 0; side < 2; ++side) {
        cut_direction(flow(id, side));
        world.schedule_down(world.now() + within(settings_.loss_noticed_max), id, side, Status::peer_lost);
    }
}

void AdversarialModel::stall(World& world, ConnectionId id, std::uint8_t direction, Time until) {
    if (world.connection(id).loopback()) return;
    Flow& way = flow(id, direction);
    if (until > way.stalled_until) {
        add(Fault::stall);
        way.stalled_until = until;
    }
}

void AdversarialModel::disconnecting(World& world, ConnectionId id, std::uint8_t side) {
    const auto other = static_cast<std::uint8_t>(1 - side);
    if (world.connection(id).loopback() || settings_.fences_live_peer || flows_[id].gone[other]) {
        cut_direction(flow(id, side));
        world.schedule_down(world.now() + within(settings_.delay_spread), id, side, Status::cancelled);
        world.schedule_down(world.now() + within(settings_.loss_noticed_max), id, other, Status::peer_lost);
    } else {
        // The peer hears nothing of it, and what it writes goes on landing here.
        flows_[id].waits_for_end[side] = true;
    }
}

void AdversarialModel::ended(World& world, ConnectionId id, std::uint8_t side) {
    const auto other = static_cast<std::uint8_t>(1 - side);
    flows_[id].gone[side] = true;
    cut_direction(flow(id, side));
    const bool waited = flows_[id].waits_for_end[other];
    const Time longest = waited ? settings_.delay_spread : settings_.loss_noticed_max;
    world.schedule_down(world.now() + within(longest), id, other, waited ? Status::cancelled : Status::peer_lost);
}

void AdversarialModel::calm() {
    settings_.tail_chance = 0;
    settings_.overtake_chance = 0;
    settings_.scatter_chance = 0;
    settings_.again_chance = 0;
    settings_.connect_again_chance = 0;
    settings_.connect_refused_chance = 0;
}

}  // namespace incast::sim

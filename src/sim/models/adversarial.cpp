#include "sim/models/adversarial.h"

#include <algorithm>
#include <bit>

#include "sim/world.h"

namespace incast::sim {
namespace {

/// The steps of landing and of being read carry their Part bits.
enum Step : std::uint16_t { step_land = 0, step_deliver = 8, step_complete = 9, step_take = 16 };

using Parts = std::array<std::uint8_t, 3>;
constexpr Parts whole{part_all, 0, 0};
constexpr Parts scattered{part_head, part_first_half, part_second_half};

}  // namespace

Capabilities AdversarialModel::capabilities() const {
    Capabilities capabilities;
    capabilities.nature = nature;
    capabilities.max_regions = 65535;
    capabilities.read = true;
    capabilities.phantom_bodies = true;
    capabilities.virtual_time = true;
    capabilities.fences_live_peer = settings_.fences_live_peer;
    capabilities.lossy_bodies = settings_.lost_body_chance > 0;
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
    if (transfer.is_read) return read_posted(world, id);
    const Time now = world.now();
    Flow& way = flow(transfer.connection, transfer.direction);
    const EndpointId to = world.receiver(transfer);
    const bool done = transfer.is_write && prng_.chance(settings_.done_chance);
    if (done) add(Fault::done_at_once);
    world.schedule(now + delay(), world.sender(transfer), id, step_complete);
    if (way.cut || transfer.faulty) return done && !transfer.faulty ? Post::done : Post::pending;

    if (transfer.is_write) {
        if (settings_.lost_body_chance > 0) world.lose(id, draw_lost(transfer));
        Parts parts = whole;
        if (prng_.chance(settings_.scatter_chance)) {
            parts = scattered;
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
    if (step >= step_take) return take_due(world, id, static_cast<std::uint8_t>(step - step_take));
    const Transfer& transfer = world.transfer(id);
    const EndpointId to = transfer.is_read ? world.sender(transfer) : world.receiver(transfer);
    Flow& way = data_flow(world, transfer);
    if (way.stalled_until > world.now()) {
        world.schedule(way.stalled_until, to, id, step);
        return;
    }
    if (step == step_deliver) {
        if (!way.cut || way.delivers) world.deliver(id);
        return;
    }
    if (transfer.is_read ? !transfer.pending.linked : !transfer.unlanded.linked) return;
    if (way.cut) {
        if (!survives(way)) return;
        add(Fault::landed_after_end);
    }
    const Connection& connection = world.connection(transfer.connection);
    const std::uint8_t at = transfer.is_read ? transfer.direction : connection.receiver(transfer.direction);
    if (connection.channel[at].side == Connection::Side::leaving) add(Fault::unfenced_landing);
    world.land(id, static_cast<std::uint8_t>(step - step_land));
    // Others' completions may pass it here.
    if (transfer.is_read && transfer.landed == part_all) world.schedule(world.now() + delay(), to, id, step_complete);
}

AdversarialModel::Flow& AdversarialModel::data_flow(World& world, const Transfer& transfer) {
    const std::uint8_t back = world.connection(transfer.connection).receiver(transfer.direction);
    return flow(transfer.connection, transfer.is_read ? back : transfer.direction);
}

bool AdversarialModel::survives(const Flow& way) {
    if (way.delivers || prng_.chance(way.landing_chance)) return true;
    add(Fault::lost_in_flight);
    return false;
}

// --- reads: a request one way, the bytes the other
// --------------------------------------------------------------------------------------------------

Post AdversarialModel::read_posted(World& world, TransferId id) {
    const Transfer& read = world.transfer(id);
    const Time now = world.now();
    const Flow& request = flow(read.connection, read.direction);
    const Flow& reply = data_flow(world, read);
    const bool done = prng_.chance(settings_.done_chance);
    if (request.cut) return Post::pending;  // until the reader hears of it
    if (read.faulty) {
        world.schedule(now + delay() + delay(), world.sender(read), id, step_complete);
        return Post::pending;
    }
    if (done && !reply.cut && std::max(request.stalled_until, reply.stalled_until) <= now && world.can_take(id)) {
        add(Fault::done_at_once);
        world.take(id, part_all);
        world.land(id, part_all);
        return Post::done;
    }
    Parts parts = whole;
    if (prng_.chance(settings_.scatter_chance)) {
        parts = scattered;
        add(Fault::scattered_read);
    }
    for (const std::uint8_t part : parts) {
        if (part != 0) {
            world.schedule(now + delay(), world.receiver(read), id, static_cast<std::uint16_t>(step_take + part));
        }
    }
    return Post::pending;
}

void AdversarialModel::take_due(World& world, TransferId id, std::uint8_t parts) {
    const Transfer& read = world.transfer(id);
    const Flow& request = flow(read.connection, read.direction);
    if (request.stalled_until > world.now()) {
        world.schedule(request.stalled_until, world.receiver(read), id, static_cast<std::uint16_t>(step_take + parts));
        return;
    }
    if (!world.can_take(id) || (request.cut && !survives(request))) return;
    if (data_flow(world, read).cut) {
        add(Fault::lost_in_flight);
        return;
    }
    world.take(id, parts);
    world.schedule(world.now() + delay(), world.sender(read), id, static_cast<std::uint16_t>(step_land + parts));
}

std::uint8_t AdversarialModel::draw_lost(const Transfer& write) {
    if (write.body.length == 0 || !prng_.chance(settings_.lost_body_chance)) return 0;
    add(Fault::lost_body);
    constexpr std::array<std::uint8_t, 3> ways{part_first_half, part_second_half, part_first_half | part_second_half};
    return ways[prng_.below(ways.size())];
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

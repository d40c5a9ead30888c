#include "sim/models/ideal.h"

#include <algorithm>

#include "base/later.h"
#include "sim/world.h"

namespace incast::sim {
namespace {

using base::later;  // a slow link may be in use for longer than there is time

enum IdealStep : std::uint16_t { left, reached, arrived, asked_for, asked, given, returned };

/// A refusal has no bytes.
std::uint64_t answer_bytes(const Transfer& read) {
    return read.faulty ? 0 : read.bytes;
}

}  // namespace

Capabilities IdealModel::capabilities() const {
    Capabilities capabilities;
    capabilities.nature = nature;
    capabilities.max_regions = 65535;
    capabilities.read = true;
    capabilities.phantom_bodies = true;
    capabilities.virtual_time = true;
    return capabilities;
}

void IdealModel::endpoint_added(World& /*world*/, EndpointId id) {
    links_.resize(id + 1);
}

Time IdealModel::serialisation(std::uint64_t bytes) const {
    __extension__ using Wide = unsigned __int128;
    const Wide rate = settings_.rate_bytes_per_s;
    return static_cast<Time>((static_cast<Wide>(bytes) * ps_per_s + rate / 2) / rate);
}

Post IdealModel::posted(World& world, TransferId id) {
    const Transfer& transfer = world.transfer(id);
    const EndpointId from = world.sender(transfer);
    const Time start = std::max(world.now(), links_[from].out_free);
    if (transfer.is_read) {
        // The request waits its turn like a message, of no bytes.
        world.schedule(later(start, settings_.latency), world.receiver(transfer), id, asked_for);
        return Post::pending;
    }
    links_[from].out_free = later(start, serialisation(transfer.bytes));
    world.schedule(links_[from].out_free, from, id, left);
    world.schedule(later(start, settings_.latency), world.receiver(transfer), id, reached);
    return Post::pending;
}

void IdealModel::due(World& world, TransferId id, std::uint16_t step) {
    const Transfer& transfer = world.transfer(id);
    switch (step) {
        case left:
            world.complete(id);
            break;
        case reached: {
            const EndpointId to = world.receiver(transfer);
            links_[to].in_free = later(std::max(world.now(), links_[to].in_free), serialisation(transfer.bytes));
            world.schedule(links_[to].in_free, to, id, arrived);
            break;
        }
        case asked_for: {
            const EndpointId owner = world.receiver(transfer);
            links_[owner].in_free = std::max(world.now(), links_[owner].in_free);
            world.schedule(links_[owner].in_free, owner, id, asked);
            break;
        }
        case asked: {
            if (!world.can_take(id)) break;
            const EndpointId owner = world.receiver(transfer);
            const Time start = std::max(world.now(), links_[owner].out_free);
            links_[owner].out_free = later(start, serialisation(answer_bytes(transfer)));
            world.schedule(links_[owner].out_free, owner, id, given);
            world.schedule(later(start, settings_.latency), world.sender(transfer), id, returned);
            break;
        }
        case given:
            world.take(id, part_all);
            break;
        case returned: {
            const EndpointId reader = world.sender(transfer);
            links_[reader].in_free =
                later(std::max(world.now(), links_[reader].in_free), serialisation(answer_bytes(transfer)));
            world.schedule(links_[reader].in_free, reader, id, arrived);
            break;
        }
        default:
            if (transfer.is_read) world.complete(id);
            if (transfer.is_write) world.land(id, part_all);
            if (transfer.is_message() || transfer.noticed) world.deliver(id);
            break;
    }
}

void IdealModel::connecting(World& world, ConnectionId connection) {
    world.schedule_up(world.now() + settings_.latency, connection, 0);
    world.schedule_up(world.now() + settings_.latency, connection, 1);
}

void IdealModel::disconnecting(World& world, ConnectionId connection, std::uint8_t side) {
    const auto other = static_cast<std::uint8_t>(1 - side);
    world.schedule_down(world.now(), connection, side, Status::cancelled);
    world.schedule_down(world.now() + settings_.latency, connection, other, Status::peer_lost);
}

void IdealModel::ended(World& world, ConnectionId connection, std::uint8_t side) {
    world.schedule_down(world.now() + settings_.latency, connection, static_cast<std::uint8_t>(1 - side),
                        Status::peer_lost);
}

Time IdealModel::give_up_after(World& /*world*/) {
    return 2 * settings_.latency;
}

}  // namespace incast::sim

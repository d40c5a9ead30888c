#include "sim/models/packet.h"

#include <algorithm>
#include <string>

#include "sim/world.h"

namespace incast::sim {
namespace {

using packet::Outcome;

/// To itself a node sends through no network.
constexpr std::uint16_t loopback_step = 0;

}  // namespace

Result<std::unique_ptr<PacketModel>> PacketModel::make(const fabric::Fabric& fabric) {
    if (fabric.flow.transport == packet::Transport::datagram) {
        return Error{
            "fabric '" + fabric.name +
            "': flow.transport = datagram loses messages, which the event builder cannot; allowed: reliable, tcp"};
    }
    Result<std::unique_ptr<packet::Network>> network = packet::Network::make(fabric.topology, fabric.settings);
    if (!network) return network.error();
    // Whether queue pairs can be opened as the fabric has them shows with the first one; and whether their packets can
    // be dropped, because then one that repeats nothing is refused.
    bool lossless = true;
    if (fabric.topology.host_count() > 1) {
        packet::FlowSettings settings = fabric.flow;
        settings.source = 0;
        settings.destination = 1;
        auto trial = packet::Network::make(fabric.topology, fabric.settings);
        if (const auto opened = (*trial)->open(settings); !opened) {
            return Error{"fabric '" + fabric.name + "': " + opened.error().message};
        }
        settings.transport = packet::Transport::reliable;
        settings.retransmit_timeout = 0;
        lossless = static_cast<bool>((*trial)->open(settings));
    }
    return std::unique_ptr<PacketModel>(new PacketModel(fabric, std::move(*network), lossless));
}

PacketModel::PacketModel(const fabric::Fabric& fabric, std::unique_ptr<packet::Network> network, bool lossless)
    : fabric_(fabric),
      network_(std::move(network)),
      hosts_(fabric.topology.host_count()),
      lossless_(lossless),
      flows_(std::size_t{hosts_} * hosts_, packet::nil) {}

Capabilities PacketModel::capabilities() const {
    Capabilities capabilities;
    capabilities.nature = nature;
    capabilities.max_regions = 65535;
    capabilities.read = lossless_;
    capabilities.phantom_bodies = true;
    capabilities.virtual_time = true;
    return capabilities;
}

Result<Ok> PacketModel::admits(const transport::EndpointOptions& options) {
    if (static_cast<std::uint32_t>(options.self) < hosts_) return Ok{};
    return Error{"node " + std::to_string(static_cast<std::uint32_t>(options.self)) + ": fabric '" + fabric_.name +
                 "' has " + std::to_string(hosts_) + " hosts"};
}

void PacketModel::endpoint_added(World& world, EndpointId id) {
    host_of_.resize(id + 1);
    host_of_[id] = static_cast<packet::HostIndex>(world.options(id).self);
}

packet::FlowIndex PacketModel::flow_of(packet::HostIndex from, packet::HostIndex to) {
    packet::FlowIndex& index = flows_[std::size_t{from} * hosts_ + to];
    if (index == packet::nil) {
        packet::FlowSettings settings = fabric_.flow;
        settings.source = from;
        settings.destination = to;
        index = network_->open(settings).value();  // make() has opened one like it
    }
    return index;
}

Post PacketModel::posted(World& world, TransferId id) {
    const Transfer& transfer = world.transfer(id);
    const packet::HostIndex from = host_of_[world.sender(transfer)];
    const packet::HostIndex to = host_of_[world.receiver(transfer)];
    if (from == to) {
        world.schedule(world.now(), world.receiver(transfer), id, loopback_step);
        return Post::pending;
    }
    const packet::FlowIndex flow = transfer.is_read ? flow_of(to, from) : flow_of(from, to);
    network_->prefetch(flow);
    advance(world.now());
    world.hold(id);
    if (transfer.is_read) {
        travelling_ += 1;
        network_->post_read(flow, transfer.faulty ? 0 : transfer.bytes, id);
    } else {
        travelling_ += 2;
        network_->post(flow, transfer.bytes, id);
    }
    return Post::pending;
}

void PacketModel::due(World& world, TransferId id, std::uint16_t /*step*/) {
    if (!world.transfer(id).is_read) arrived(world, id);
    world.complete(id);
}

Time PacketModel::network_time() {
    return travelling_ == 0 ? time_never : network_->next_time();
}

Time PacketModel::run_network(Time until, bool to_arrival) {
    // What the network does while nothing travels, such as taking samples, nobody waits for.
    if (travelling_ == 0 || !to_arrival) {
        if (until != time_never) advance(until);
        return time_never;
    }
    while (recorder_ != nullptr && recorder_->next_time() <= until && network_->next_time() != time_never) {
        if (network_->advance_to_outcome(recorder_->next_time())) return network_->now();
        recorder_->look();
    }
    return network_->advance_to_outcome(until) ? network_->now() : time_never;
}

void PacketModel::advance(Time until) {
    while (recorder_ != nullptr && recorder_->next_time() <= until) {
        network_->advance(recorder_->next_time());
        recorder_->look();
    }
    network_->advance(until);
}

void PacketModel::seed(std::uint64_t run_seed) {
    if (!fabric_.fixes_seed) network_->reseed(run_seed);
}

void PacketModel::record(const packet::RecorderSettings& settings) {
    recorder_ = std::make_unique<packet::Recorder>(*network_, settings);
    repeated_before_ = all_repeated();
}

void PacketModel::begin_window(Time now) {
    advance(now);
    recorder_->begin_window();
    repeated_before_ = all_repeated();
}

void PacketModel::end_window(Time now) {
    if (recorder_->window_ended()) return;
    advance(now);
    recorder_->end_window();
    repeated_ = all_repeated();
    for (std::size_t host = 0; host < repeated_.size(); ++host)
        repeated_[host] -= repeated_before_[host];
}

std::vector<std::uint64_t> PacketModel::all_repeated() const {
    std::vector<std::uint64_t> packets(hosts_);
    for (std::size_t pair = 0; pair < flows_.size(); ++pair)
        if (flows_[pair] != packet::nil) packets[pair / hosts_] += network_->repeated(flows_[pair]);
    return packets;
}

void PacketModel::arrivals(World& world) {
    // What an outcome is about was last touched long ago: it comes from memory while others are handled.
    constexpr std::uint32_t between_levels = 2;
    Outcome outcome;
    while (network_->take_outcome(outcome)) {
        for (unsigned level = 0; level < World::prefetch_levels; ++level) {
            const Outcome* later = network_->peek_outcome((World::prefetch_levels - 1 - level) * between_levels + 1);
            if (later == nullptr) continue;
            world.prefetch(static_cast<TransferId>(later->token), later->what == Outcome::What::delivered, level);
        }
        --travelling_;
        const auto id = static_cast<TransferId>(outcome.token);
        if (world.transfer(id).is_read) {
            if (world.can_take(id)) world.complete(id);
            world.let_go(id);
        } else if (outcome.what == Outcome::What::delivered) {
            arrived(world, id);
        } else {
            world.complete(id);
            world.let_go(id);
        }
    }
}

void PacketModel::arrived(World& world, TransferId id) {
    Transfer& transfer = world.transfer(id);
    transfer.arrived = true;
    if (transfer.is_write) world.land(id, part_all);
    // What has arrived and has nothing before it that has not is handed out.
    const Channel& channel = world.connection(transfer.connection).channel[transfer.direction];
    while (channel.ordered.head != nil) {
        const TransferId first = channel.ordered.head;
        const Transfer& next = world.transfer(first);
        if (!next.arrived) return;
        const TransferId landing = channel.unlanded.head;
        if (next.noticed && landing != nil && world.transfer(landing).number <= next.number) return;
        world.deliver(first);
    }
}

void PacketModel::connecting(World& world, ConnectionId connection) {
    world.schedule_up(world.now() + connect_time, connection, 0);
    world.schedule_up(world.now() + connect_time, connection, 1);
}

void PacketModel::disconnecting(World& world, ConnectionId connection, std::uint8_t side) {
    const auto other = static_cast<std::uint8_t>(1 - side);
    world.schedule_down(world.now(), connection, side, Status::cancelled);
    world.schedule_down(world.now() + connect_time, connection, other, Status::peer_lost);
}

void PacketModel::ended(World& world, ConnectionId connection, std::uint8_t side) {
    world.schedule_down(world.now() + connect_time, connection, static_cast<std::uint8_t>(1 - side), Status::peer_lost);
}

Time PacketModel::give_up_after(World& /*world*/) {
    return 2 * connect_time;
}

}  // namespace incast::sim

// A switch with virtual output queues in deep memory (Juniper QFX10000, Arista 7280R and the like:
// docs/packet-model.md). A packet lies in the memory of the ASIC it came in by until the egress port asks for it.
// On-chip memory is fast and small; what is spilled is written to and read back from a memory whose bandwidth reads and
// writes share in turn, so that traffic which is all spilled gets half of it.
#include "sim/packet/core.h"

namespace incast::sim::packet {
void Core::add_deep(NodeIndex node_index) {
    Node& node = nodes_[node_index];
    const SwitchSettings& settings = settings_.switches[node.settings];
    const auto ports = static_cast<std::uint32_t>(node.ports.size());
    const std::uint32_t asics = (ports + settings.ports_per_asic - 1) / settings.ports_per_asic;
    DeepSwitch deep;
    deep.node = node_index;
    deep.first_asic = static_cast<std::uint32_t>(asics_.size());
    deep.first_queue = static_cast<std::uint32_t>(deep_queues_.size());
    if (settings.memory_bandwidth.bits_per_s != 0) deep.memory_pace = BytePace(settings.memory_bandwidth);
    deep.marks = make_thresholds(settings);
    for (std::uint32_t asic = 0; asic < asics; ++asic) {
        asics_.emplace_back();
        asics_.back().deep = node.state;
        asics_.back().event = add_special(Special::memory, deep.first_asic + asic);
    }
    deep_queues_.resize(deep_queues_.size() + std::size_t{asics} * ports * max_classes);
    for (std::uint32_t asic = 0; asic < asics; ++asic) {
        for (std::uint32_t local = 0; local < ports * max_classes; ++local)
            deep_queues_[deep.first_queue + asic * ports * max_classes + local].egress =
                node.ports[local / max_classes];
    }
    for (const PortIndex port : node.ports)
        egresses_[port].event = add_special(Special::egress_arrival, port);
    deep_.push_back(deep);
}

void Core::arrive_deep(PortIndex own, PacketIndex packet_index) {
    Packet& packet = packets_[packet_index];
    Port& in = ports_[own];
    DeepSwitch& deep = deep_[in.state];
    const Node& node = nodes_[deep.node];
    const SwitchSettings& settings = settings_.switches[node.settings];
    const std::uint32_t asic_number = in.local / settings.ports_per_asic;
    DeepAsic& asic = asics_[deep.first_asic + asic_number];
    const PortIndex out_index = route(deep.node, packet);
    const Port& out = ports_[out_index];
    const std::uint8_t traffic_class = packet.traffic_class;
    const std::uint8_t bit = bit_of(traffic_class);
    const std::uint32_t bytes = stored(packet.wire_bytes);
    const auto ports = static_cast<std::uint32_t>(node.ports.size());
    const std::uint32_t queue_index =
        deep.first_queue + (asic_number * ports + out.local) * max_classes + traffic_class;
    DeepQueue& queue = deep_queues_[queue_index];
    // A queue that has spilled stays off chip until it is empty, so that its packets keep their order.
    const bool spill =
        queue.off_chip != 0 || queue.bytes + bytes > settings.spill_bytes || asic.on_chip > settings.on_chip_bytes / 2;
    if (asic.on_chip + bytes > settings.on_chip_bytes || (spill && asic.off_chip + bytes > settings.buffer_bytes)) {
        drop(out_index, packet_index);
        return;
    }
    if ((deep.marks.marking & bit) != 0 && queue.bytes > deep.marks.kmin)
        mark(out_index, deep.marks, queue.bytes, packet);
    asic.on_chip += bytes;
    Ingress& ingress = ingress_[slot_of(own, traffic_class)];
    ingress.bytes += bytes;
    queue.bytes += bytes;
    this->queue(out_index, traffic_class).change(now_, bytes);
    packet.place = spill ? being_written : on_chip;
    queue.packets.push(packets_, packet_index);
    if (spill) {
        ++queue.off_chip;
        asic.off_chip += bytes;
        asic.writes.push({packet_index, queue_index});
        start_memory(deep.first_asic + asic_number);
    }
    offer_deep(queue_index);
    if ((deep.marks.lossless & bit) != 0 && ingress.bytes > deep.marks.xoff && (in.pause_wanted & bit) == 0) {
        in.pause_wanted |= bit;
        serve_deep(own);
    }
}

/// The queue stands in its egress port's ring while its head can be asked for.
void Core::offer_deep(std::uint32_t queue_index) {
    DeepQueue& queue = deep_queues_[queue_index];
    if (queue.in_ring || queue.packets.empty()) return;
    const Packet& head = packets_[queue.packets.head];
    if (head.place == being_written) return;
    DeepEgress& egress = egresses_[queue.egress];
    queue.in_ring = true;
    egress.ring[head.traffic_class].push(deep_queues_, queue_index);
    egress.waiting |= bit_of(head.traffic_class);
    pull_deep(queue.egress);
}

/// The egress port asks for packets as long as it has credit to give.
void Core::pull_deep(PortIndex index) {
    DeepEgress& egress = egresses_[index];
    Port& port = ports_[index];
    const DeepSwitch& deep = deep_[port.state];
    const SwitchSettings& settings = settings_.switches[nodes_[deep.node].settings];
    while (true) {
        const std::uint8_t ready = egress.waiting & static_cast<std::uint8_t>(~port.paused);
        if (ready == 0 || egress.asked >= settings.egress_credit_bytes) return;
        const std::uint8_t traffic_class = choose_class(index, ready);
        Chain& ring = egress.ring[traffic_class];
        const std::uint32_t queue_index = ring.pop(deep_queues_);
        if (ring.empty()) egress.waiting &= static_cast<std::uint8_t>(~bit_of(traffic_class));
        DeepQueue& queue = deep_queues_[queue_index];
        queue.in_ring = false;
        const PacketIndex packet_index = queue.packets.pop(packets_);
        Packet& packet = packets_[packet_index];
        const std::uint32_t bytes = stored(packet.wire_bytes);
        charge_class(index, ready, traffic_class, packet.wire_bytes);
        queue.bytes -= bytes;
        egress.asked += bytes;
        const PortIndex own = packet.next_arrival_or_ingress;
        if (packet.place == on_chip) {
            send_to_egress(index, packet_index);
            leave_chip(own, traffic_class, bytes);
        } else {
            const std::uint32_t asic = asic_of(own);
            asics_[asic].reads.push({packet_index, queue_index});
            start_memory(asic);
        }
        if (!queue.packets.empty() && packets_[queue.packets.head].place != being_written) {
            queue.in_ring = true;
            ring.push(deep_queues_, queue_index);
            egress.waiting |= bit_of(traffic_class);
        }
    }
}

std::uint32_t Core::asic_of(PortIndex own) const {
    const Port& in = ports_[own];
    const DeepSwitch& deep = deep_[in.state];
    return deep.first_asic + in.local / settings_.switches[nodes_[deep.node].settings].ports_per_asic;
}

/// Bytes that came in through `own` have left the on-chip memory.
void Core::leave_chip(PortIndex own, std::uint8_t traffic_class, std::uint32_t bytes) {
    asics_[asic_of(own)].on_chip -= bytes;
    Ingress& ingress = ingress_[slot_of(own, traffic_class)];
    ingress.bytes -= bytes;
    Port& in = ports_[own];
    const SharedBuffer& marks = deep_[in.state].marks;
    if ((in.pause_wanted & bit_of(traffic_class)) == 0 || ingress.bytes + marks.xon_gap > marks.xoff) return;
    in.pause_wanted &= static_cast<std::uint8_t>(~bit_of(traffic_class));
    serve_deep(own);
}

void Core::send_to_egress(PortIndex index, PacketIndex packet_index) {
    DeepEgress& egress = egresses_[index];
    const DeepSwitch& deep = deep_[ports_[index].state];
    const Time at = now_ + settings_.switches[nodes_[deep.node].settings].fabric_latency;
    if (egress.fabric.empty()) {
        wheel_.schedule(egress.event, at);
    } else {
        packets_[egress.fabric.tail].next_arrival_or_ingress = static_cast<std::uint32_t>(at);
    }
    egress.fabric.push(packets_, packet_index);
}

void Core::egress_arrival(PortIndex index) {
    DeepEgress& egress = egresses_[index];
    const PacketIndex packet_index = egress.fabric.pop(packets_);
    if (!egress.fabric.empty()) {
        const std::uint32_t ahead = packets_[packet_index].next_arrival_or_ingress - static_cast<std::uint32_t>(now_);
        wheel_.schedule(egress.event, now_ + ahead);
    }
    const std::uint8_t traffic_class = packets_[packet_index].traffic_class;
    queue(index, traffic_class).chain.push(packets_, packet_index);
    ports_[index].waiting |= bit_of(traffic_class);
    if (!ports_[index].armed) serve_deep(index);
}

/// The memory takes its next piece of work: a read and a write in turn where both wait.
void Core::start_memory(std::uint32_t index) {
    DeepAsic& asic = asics_[index];
    if (asic.current.packet != nil || (asic.writes.empty() && asic.reads.empty())) return;
    asic.writing = !asic.writes.empty() && (asic.reads.empty() || !asic.wrote_last);
    asic.wrote_last = asic.writing;
    Ring<DeepAsic::Work>& work = asic.writing ? asic.writes : asic.reads;
    asic.current = work.front();
    work.pop();
    const std::uint32_t bytes = stored(packets_[asic.current.packet].wire_bytes);
    wheel_.schedule(asic.event, now_ + deep_[asic.deep].memory_pace.of(bytes));
}

void Core::memory_done(std::uint32_t index) {
    DeepAsic& asic = asics_[index];
    const DeepAsic::Work done = asic.current;
    Packet& packet = packets_[done.packet];
    const std::uint32_t bytes = stored(packet.wire_bytes);
    asic.current.packet = nil;
    if (asic.writing) {
        packet.place = off_chip;
        leave_chip(packet.next_arrival_or_ingress, packet.traffic_class, bytes);
        offer_deep(done.queue);
    } else {
        asic.off_chip -= bytes;
        --deep_queues_[done.queue].off_chip;
        send_to_egress(deep_queues_[done.queue].egress, done.packet);
    }
    start_memory(index);
}

void Core::serve_deep(PortIndex index) {
    Port& port = ports_[index];
    if (now_ < port.free_at) {
        arm(index, port);
        return;
    }
    if (port.pause_wanted != port.pause_told) {
        start_pause(index, port);
    } else {
        const std::uint8_t ready = port.waiting & static_cast<std::uint8_t>(~port.paused);
        if (ready == 0) {
            pull_deep(index);
            return;
        }
        // Classes were chosen among when they were asked for.
        const auto traffic_class = static_cast<std::uint8_t>(std::bit_width(ready) - 1U);
        Queue& queue = this->queue(index, traffic_class);
        const PacketIndex packet_index = queue.chain.pop(packets_);
        const std::uint32_t bytes = stored(packets_[packet_index].wire_bytes);
        queue.change(now_, -static_cast<std::int64_t>(bytes));
        if (queue.chain.empty()) port.waiting &= static_cast<std::uint8_t>(~bit_of(traffic_class));
        egresses_[index].asked -= bytes;
        start(index, port, packet_index);
        pull_deep(index);
    }
    if ((port.waiting & ~port.paused) != 0 || port.pause_wanted != port.pause_told) arm(index, port);
}

}  // namespace incast::sim::packet

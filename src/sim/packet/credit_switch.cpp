// A switch with input memories that the neighbours have credit for: nothing is ever sent that has no place. Credit in
// units of 64 B (IBTA volume 1, section 7.9: flow control blocks), per virtual lane. Credit messages travel as long as
// a packet does and take no bandwidth (about 8 B per flow control period on real links).
//
// A port is scheduled only for moments at which it can send: while no credit is on its way it is `starved`, and the
// credit that comes wakes it.
#include <algorithm>

#include "sim/packet/core.h"

namespace incast::sim::packet {

void Core::open_input_class(std::uint8_t traffic_class) {
    if ((input_classes_ & bit_of(traffic_class)) != 0) return;
    input_classes_ |= bit_of(traffic_class);
    for (const Node& node : nodes_) {
        if (node.kind != NodeKind::credit && node.kind != NodeKind::input_fifo) continue;
        InputSwitch& inputs = inputs_[node.state];
        inputs.first[traffic_class] = static_cast<std::uint32_t>(input_queues_.size());
        const std::size_t per_input = node.kind == NodeKind::credit ? inputs.ports : 1;
        input_queues_.resize(input_queues_.size() + inputs.ports * per_input);
    }
}

void Core::give_credit(PortIndex index, std::uint8_t traffic_class, std::uint32_t wire_bytes, Time left_at) {
    return_credit(index, traffic_class, wire_bytes, left_at);
}

void Core::queue_credit(PortIndex cable_index, PacketIndex packet_index, PortIndex out_index) {
    const Packet& packet = packets_[packet_index];
    const Port& cable = ports_[cable_index];
    Port& out = ports_[out_index];
    const std::uint8_t traffic_class = packet.traffic_class;
    const InputSwitch& inputs = inputs_[cable.peer_state];
    const std::uint32_t input = inputs.first[traffic_class] + cable.peer_local * inputs.ports + out.local;
    InputQueue& input_queue = input_queues_[input];
    Queue& queue = this->queue(out_index, traffic_class);
    const bool was_empty = input_queue.packets.empty();
    input_queue.packets.push(packets_, packet_index);
    queue.change(now_, stored(packet.wire_bytes));
    if (was_empty) queue.chain.push(input_queues_, input);
    const bool new_class = (out.waiting & bit_of(traffic_class)) == 0;
    out.waiting |= bit_of(traffic_class);
    if (!out.armed) {
        if (now_ >= out.free_at) {
            serve_credit(out_index);
        } else if (!out.starved || new_class) {
            plan_credit(out_index);
        }
    } else if (new_class && wheel_.time_of(send_event(out_index)) > out.free_at) {
        plan_credit(out_index);
    }
}

void Core::serve_credit(PortIndex index) {
    Port& port = ports_[index];
    if (now_ >= port.free_at) {
        std::uint8_t ready = port.waiting;
        for (unsigned rest = port.waiting; port.credited && rest != 0; rest &= rest - 1) {
            const auto traffic_class = static_cast<std::uint8_t>(std::countr_zero(rest));
            if (!has_credit(index, traffic_class, next_wire_bytes(index, traffic_class)))
                ready &= static_cast<std::uint8_t>(~bit_of(traffic_class));
        }
        if (ready != 0) {
            const std::uint8_t traffic_class = choose_class(index, ready);
            Queue& queue = this->queue(index, traffic_class);
            const std::uint32_t input = queue.chain.pop(input_queues_);
            InputQueue& input_queue = input_queues_[input];
            const PacketIndex packet_index = input_queue.packets.pop(packets_);
            if (!input_queue.packets.empty()) queue.chain.push(input_queues_, input);
            if (queue.chain.empty()) port.waiting &= static_cast<std::uint8_t>(~bit_of(traffic_class));
            const Packet& packet = packets_[packet_index];
            const std::uint32_t wire_bytes = packet.wire_bytes;
            const PortIndex own = packet.next_arrival_or_ingress;
            charge_class(index, ready, traffic_class, wire_bytes);
            queue.change(now_, -static_cast<std::int64_t>(stored(wire_bytes)));
            if (port.credited) take_credit(index, traffic_class, wire_bytes);
            start(index, port, packet_index);
            // The place is free once the packet's last byte has left.
            return_credit(reverse_of(own), traffic_class, wire_bytes, port.free_at);
        }
    }
    if (port.waiting != 0) plan_credit(index);
}

void Core::plan_credit(PortIndex index) {
    Port& port = ports_[index];
    Time at = port.credited ? time_never : now_;
    for (unsigned rest = port.waiting; rest != 0 && at > port.free_at; rest &= rest - 1) {
        const auto traffic_class = static_cast<std::uint8_t>(std::countr_zero(rest));
        at = std::min(at, credit_time(index, traffic_class, next_wire_bytes(index, traffic_class)));
    }
    port.starved = at == time_never;
    port.armed = !port.starved;
    if (port.armed) wheel_.schedule(send_event(index), std::max(at, port.free_at));
}

}  // namespace incast::sim::packet

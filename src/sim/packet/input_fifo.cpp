// A switch with one FIFO per input: only its head can be sent, so that a busy output holds up what waits behind (M.
// Karol, M. Hluchyj, S. Morgan, IEEE Trans. Communications 35(12), 1987). All outputs that become free in one instant
// choose after that instant's arrivals and departures.
#include "sim/packet/core.h"

namespace incast::sim::packet {

void Core::arrive_input_fifo(PortIndex own, PacketIndex packet_index) {
    const std::uint8_t traffic_class = packets_[packet_index].traffic_class;
    const Port& in = ports_[own];
    const InputSwitch& inputs = inputs_[in.state];
    const std::uint32_t input = inputs.first[traffic_class] + in.local;
    input_queues_[input].packets.push(packets_, packet_index);
    enter_head(inputs, input);
}

/// The head of an input queue, if there is one and it is not being read, waits for its output.
void Core::enter_head(const InputSwitch& inputs, std::uint32_t input) {
    InputQueue& input_queue = input_queues_[input];
    if (input_queue.packets.empty() || input_queue.busy) return;
    const Packet& packet = packets_[input_queue.packets.head];
    const PortIndex out_index = route(inputs.node, packet);
    queue(out_index, packet.traffic_class).chain.push(input_queues_, input);
    queue(out_index, packet.traffic_class).change(now_, stored(packet.wire_bytes));
    ports_[out_index].waiting |= bit_of(packet.traffic_class);
    input_queue.busy = true;
    wheel_.schedule(inputs.arbitrate_event, now_);
}

/// A port is free again, or has credit: its input may show its next head.
void Core::serve_input_fifo(PortIndex index) {
    const Port& port = ports_[index];
    PortDetail& detail = details_[index];
    const InputSwitch& inputs = inputs_[port.state];
    if (detail.serving != nil && now_ >= port.free_at) {
        const std::uint32_t input = detail.serving;
        detail.serving = nil;
        input_queues_[input].busy = false;
        enter_head(inputs, input);
    }
    if (port.waiting != 0) wheel_.schedule(inputs.arbitrate_event, now_);
}

void Core::arbitrate(std::uint32_t input_switch) {
    const InputSwitch& inputs = inputs_[input_switch];
    for (const PortIndex index : nodes_[inputs.node].ports) {
        Port& port = ports_[index];
        if (port.waiting == 0 || details_[index].serving != nil) continue;
        const std::uint8_t ready = port.waiting;
        const std::uint8_t traffic_class = choose_class(index, ready);
        Queue& queue = this->queue(index, traffic_class);
        const std::uint32_t input = choose_input(inputs, index, queue);
        const PacketIndex packet_index = input_queues_[input].packets.head;
        const Packet& packet = packets_[packet_index];
        const std::uint32_t wire_bytes = packet.wire_bytes;
        if (port.credited) {
            const Time at = credit_time(index, traffic_class, wire_bytes);
            if (at > now_) {
                queue.chain.push(input_queues_, input);
                port.starved = at == time_never;
                port.armed = !port.starved;
                if (port.armed) wheel_.schedule(send_event(index), at);
                continue;
            }
            credits_[slot_of(index, traffic_class)].available -= (stored(wire_bytes) + 63) & ~63U;
        }
        charge_class(index, ready, traffic_class, wire_bytes);
        input_queues_[input].packets.pop(packets_);
        queue.change(now_, -static_cast<std::int64_t>(stored(wire_bytes)));
        if (queue.chain.empty()) port.waiting &= static_cast<std::uint8_t>(~bit_of(traffic_class));
        const PortIndex own = packet.next_arrival_or_ingress;
        start(index, port, packet_index);
        details_[index].serving = input;
        port.armed = true;
        wheel_.schedule(send_event(index), port.free_at);
        give_credit(reverse_of(own), traffic_class, wire_bytes, port.free_at);
    }
}

/// Takes one of the inputs whose head waits for this port: the one that waits longest, or any.
std::uint32_t Core::choose_input(const InputSwitch& inputs, PortIndex index, Queue& queue) {
    if (!inputs.random_choice) return queue.chain.pop(input_queues_);
    std::uint32_t count = 0;
    for (std::uint32_t input = queue.chain.head; input != nil; input = input_queues_[input].next)
        ++count;
    const auto skip =
        static_cast<std::uint32_t>((std::uint64_t{static_cast<std::uint32_t>(details_[index].draw())} * count) >> 32);
    for (std::uint32_t turn = 0; turn < skip; ++turn)
        queue.chain.push(input_queues_, queue.chain.pop(input_queues_));
    return queue.chain.pop(input_queues_);
}

}  // namespace incast::sim::packet

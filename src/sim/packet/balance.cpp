// What became of every packet: counted where packets are made and end, and found again by looking everywhere.
#include "sim/packet/core.h"

namespace incast::sim::packet {

void Core::drop(PortIndex counted_at, PacketIndex packet) {
    ++details_[counted_at].counters.dropped;
    balance_.dropped.add(packets_[packet].wire_bytes);
    packets_.give_back(packet);
}

Tally Core::in_flight() const {
    Tally found;
    const auto add = [&](PacketIndex index) {
        if (packets_[index].kind != PacketKind::pause) found.add(packets_[index].wire_bytes);
    };
    const auto add_chain = [&](const Chain& chain) {
        for (PacketIndex index = chain.head; index != nil; index = packets_[index].next)
            add(index);
    };
    for (PortIndex port = 0; port < ports_.size(); ++port) {
        add_chain(ports_[port].cable);
        // At switches with input memories the chains are of input queues: below.
        const NodeKind kind = ports_[port].kind;
        if (kind == NodeKind::credit || kind == NodeKind::input_fifo) continue;
        for (unsigned traffic_class = 0; traffic_class < max_classes; ++traffic_class)
            add_chain(queue(port, traffic_class).chain);
        add_chain(egresses_[port].fabric);
    }
    for (const InputQueue& input : input_queues_)
        add_chain(input.packets);
    for (const DeepQueue& waiting : deep_queues_)
        add_chain(waiting.packets);
    for (const DeepAsic& asic : asics_) {
        for (std::uint32_t read = 0; read < asic.reads.size(); ++read)
            add(asic.reads[read].packet);
        if (asic.current.packet != nil && !asic.writing) add(asic.current.packet);
    }
    for (const Host& host : hosts_)
        for (std::uint32_t waiting = 0; waiting < host.arrived.size(); ++waiting)
            add(host.arrived[waiting].packet);
    return found;
}

Balance Network::balance() const {
    Balance balance = core_->balance_;
    balance.in_flight = core_->in_flight();
    return balance;
}

}  // namespace incast::sim::packet

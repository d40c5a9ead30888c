// Links that repeat by themselves, as RapidIO's do (RapidIO 2.1, part 6, chapters 5 and 6): the sender keeps every
// packet until it is accepted; one that is corrupted, or finds no memory at a receiver-controlled switch, is not, nor
// is any behind it. The sender hears of it and goes on from there, so that order holds and nothing is lost.
//
// What the sender would put on the cable before it hears is refused anyway, so here it goes quiet at once. Control
// symbols take no bandwidth: they are embedded in packets. A packet that found no memory is asked for again by
// packet-retry (once over the cable); after an error come packet-not-accepted, link-request and link-response (three
// times over it).
#include "sim/packet/core.h"

namespace incast::sim::packet {

/// The packet has left the cable, and all behind it are refused with it.
void Core::repeat_on_link(PortIndex index, PacketIndex refused, unsigned times_over_cable) {
    Port& port = ports_[index];
    PortDetail& detail = details_[index];
    packets_[refused].next = port.cable.head;
    if (port.cable.empty()) port.cable.tail = refused;
    port.cable.head = refused;
    Time start_at = now_ + times_over_cable * topology_.cables[index / 2].propagation;
    PacketIndex before = nil;
    for (PacketIndex packet_index = refused; packet_index != nil; packet_index = packets_[packet_index].next) {
        Packet& packet = packets_[packet_index];
        const Time left_at = start_at + port.pace.of(packet.wire_bytes);
        Time arrival = left_at + port.delay;
        if ((port.condition & Port::hands_on_early) != 0 && packet.wire_bytes > cut_through_bytes)
            arrival = start_at + port.pace.of(cut_through_bytes) + port.delay;
        if (before == nil) {
            wheel_.schedule(arrival_event(index), arrival);
        } else {
            packets_[before].next_arrival_or_ingress = static_cast<std::uint32_t>(arrival);
        }
        port.sent_bytes += packet.wire_bytes;
        ++counts_[index].packets;
        if (packet.kind != PacketKind::data) ++counts_[index].control_packets;
        ++detail.counters.repeated;
        before = packet_index;
        start_at = left_at;
    }
    port.free_at = start_at;
}

/// Of a port whose link repeats: true if the packet was not accepted.
bool Core::refused_on_link(PortIndex index, PacketIndex packet_index) {
    const Port& port = ports_[index];
    PortDetail& detail = details_[index];
    if ((port.condition & Port::corrupts) != 0 && detail.draw() % 1'000'000 < detail.corrupt_per_million) {
        repeat_on_link(index, packet_index, 3);
        return true;
    }
    if (!detail.receiver_decides) return false;
    const Packet& packet = packets_[packet_index];
    if (!has_credit(index, packet.traffic_class, packet.wire_bytes)) {
        repeat_on_link(index, packet_index, 1);
        return true;
    }
    take_credit(index, packet.traffic_class, packet.wire_bytes);
    return false;
}

}  // namespace incast::sim::packet

// A switch with output queues in one shared memory: dynamic thresholds, PFC, ECN.
#include <algorithm>

#include "sim/packet/core.h"

namespace incast::sim::packet {
namespace {

/// What an ingress queue holds of the shared memory: all but its headroom and its reserve.
std::uint64_t shared_part(const Ingress& ingress, std::uint64_t reserve) {
    const std::uint64_t normal = ingress.bytes - ingress.headroom;
    return normal > reserve ? normal - reserve : 0;
}

}  // namespace

SharedBuffer Core::make_thresholds(const SwitchSettings& settings) {
    SharedBuffer buffer;
    buffer.size = settings.buffer_bytes;
    buffer.alpha_ingress_q8 = settings.alpha_ingress_q8;
    buffer.alpha_egress_q8 = settings.alpha_egress_q8;
    buffer.egress_limit = settings.egress_limit_bytes;
    buffer.reserve = settings.ingress_reserve_bytes;
    buffer.headroom = settings.pfc.headroom_bytes;
    buffer.xoff = settings.pfc.xoff_bytes;
    buffer.xon_gap = settings.pfc.xon_gap_bytes;
    buffer.lossless = settings.pfc.classes;
    (settings.ecn.at_departure ? buffer.marking_leaving : buffer.marking) = settings.ecn.classes;
    buffer.kmin = settings.ecn.kmin_bytes;
    buffer.kmax = settings.ecn.kmax_bytes;
    if (buffer.kmax > buffer.kmin) {
        // pmax / (kmax - kmin) as a fraction of 2^32, with 16 bits more.
        __extension__ using Wide = unsigned __int128;
        buffer.mark_slope_q16 = static_cast<std::uint64_t>((static_cast<Wide>(settings.ecn.pmax_per_million) << 48) /
                                                           1'000'000 / (buffer.kmax - buffer.kmin));
    }
    return buffer;
}

/// The packet cannot pass at once: it waits in front of `out_index`, asks for a pause, is marked, or is lost.
void Core::queue_shared(PortIndex own, PacketIndex packet_index, PortIndex out_index) {
    const Packet& packet = packets_[packet_index];
    Port& out = ports_[out_index];
    SharedBuffer& buffer = shared_[out.state];
    const unsigned traffic_class = packet.traffic_class;
    const auto bit = bit_of(traffic_class);
    const std::uint32_t bytes = stored(packet.wire_bytes);
    Ingress& ingress = ingress_[slot_of(own, traffic_class)];
    Queue& queue = this->queue(out_index, traffic_class);
    if ((buffer.lossless & bit) != 0) {
        // Up to the packet that crosses the threshold it is shared memory, from there on headroom. So the headroom has
        // to hold what comes after the pause was asked for, and nothing else: pfc_headroom().
        const std::uint64_t threshold = buffer.pause_threshold();
        const std::uint64_t before = shared_part(ingress, buffer.reserve);
        ingress.bytes += bytes;
        const std::uint64_t after = shared_part(ingress, buffer.reserve);
        if (ingress.headroom == 0 && (before <= threshold || after == 0) && buffer.used + after - before <= buffer.size)
            [[likely]] {
            buffer.used += after - before;
            if (after > threshold && ingress.asked == 0) ask_for_pause(own, ingress, bit);
        } else if (ingress.headroom + bytes <= buffer.headroom) {
            ingress.headroom = (ingress.headroom + bytes) & 0x7fffffffU;
            if (ingress.asked == 0) ask_for_pause(own, ingress, bit);
        } else {
            ingress.bytes -= bytes;
            drop(out_index, packet_index);
            return;
        }
    } else {
        if (bytes > buffer.size - buffer.used || queue.bytes + bytes > buffer.drop_threshold()) {
            drop(out_index, packet_index);
            return;
        }
        ingress.bytes += bytes;
        buffer.used += bytes;
    }

    Packet& kept = packets_[packet_index];  // a pause frame may have moved the pool
    if ((buffer.marking & bit) != 0 && queue.bytes > buffer.kmin) mark(out_index, buffer, queue.bytes, kept);
    queue.change(now_, bytes);
    queue.chain.push(packets_, packet_index);
    out.waiting |= bit;
    if (out.armed) return;
    if (now_ >= out.free_at) {
        serve_shared(out_index);
    } else if ((bit & ~out.paused) != 0) {
        arm(out_index, out);
    }
}

/// Memory is free from the moment a packet starts on its way out.
[[gnu::always_inline]] inline void Core::leave_shared(SharedBuffer& buffer, PortIndex own, std::uint8_t traffic_class,
                                                      std::uint32_t wire_bytes) {
    const std::uint8_t bit = bit_of(traffic_class);
    const std::uint32_t bytes = stored(wire_bytes);
    Ingress& ingress = ingress_[slot_of(own, traffic_class)];
    if ((buffer.lossless & bit) == 0 || (ingress.headroom | buffer.reserve) == 0) [[likely]] {
        ingress.bytes -= bytes;
        buffer.used -= bytes;
    } else {
        const std::uint64_t before = shared_part(ingress, buffer.reserve);
        const std::uint32_t headroom = ingress.headroom;
        ingress.headroom = (headroom - std::min(headroom, bytes)) & 0x7fffffffU;
        ingress.bytes -= bytes;
        buffer.used -= before - shared_part(ingress, buffer.reserve);
    }
    if (ingress.asked == 0 || ingress.headroom != 0) [[likely]]
        return;
    const std::uint64_t threshold = buffer.pause_threshold();
    const std::uint64_t resume = threshold > buffer.xon_gap ? threshold - buffer.xon_gap : 0;
    if (shared_part(ingress, buffer.reserve) > resume) return;
    ingress.asked = 0;
    Port& in = ports_[own];
    in.pause_wanted &= static_cast<std::uint8_t>(~bit);
    if (!in.armed) serve_shared(own);
}

void Core::serve_shared(PortIndex index) {
    Port& port = ports_[index];
    if (now_ < port.free_at) {
        arm(index, port);
        return;
    }
    if (port.pause_wanted != port.pause_told) {
        start_pause(index, port);
    } else {
        const std::uint8_t ready = port.waiting & static_cast<std::uint8_t>(~port.paused);
        if (ready == 0) return;
        const std::uint8_t traffic_class = choose_class(index, ready);
        Queue& queue = this->queue(index, traffic_class);
        const PacketIndex packet_index = queue.chain.pop(packets_);
        const std::uint32_t wire_bytes = packets_[packet_index].wire_bytes;
        charge_class(index, ready, traffic_class, wire_bytes);
        queue.change(now_, -static_cast<std::int64_t>(stored(wire_bytes)));
        if (queue.chain.empty()) port.waiting &= static_cast<std::uint8_t>(~bit_of(traffic_class));
        SharedBuffer& buffer = shared_[port.state];
        if ((buffer.marking_leaving & bit_of(traffic_class)) != 0 && queue.bytes > buffer.kmin)
            mark(index, buffer, queue.bytes, packets_[packet_index]);
        const PortIndex own = packets_[packet_index].next_arrival_or_ingress;
        start(index, port, packet_index);
        leave_shared(buffer, own, traffic_class, wire_bytes);
    }
    if ((port.waiting & ~port.paused) != 0 || port.pause_wanted != port.pause_told) arm(index, port);
}

void Core::ask_for_pause(PortIndex own, Ingress& ingress, std::uint8_t bit) {
    ingress.asked = 1;
    ports_[own].pause_wanted |= bit;
    if (!ports_[own].armed) serve_shared(own);
}

}  // namespace incast::sim::packet

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

std::uint64_t pause_threshold(const SharedBuffer& buffer) {
    if (buffer.xoff != 0) return buffer.xoff;
    return buffer.used >= buffer.size ? 0 : (buffer.alpha_ingress_q8 * (buffer.size - buffer.used)) >> 8;
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
    buffer.marking = settings.ecn.classes;
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

void Core::arrive_shared(PortIndex own, PacketIndex packet_index) {
    Packet& packet = packets_[packet_index];
    Port& in = ports_[own];
    SharedBuffer& buffer = shared_[in.state];
    const unsigned traffic_class = packet.traffic_class;
    const auto bit = static_cast<std::uint8_t>(1U << traffic_class);
    const std::uint64_t bytes = stored(packet.wire_bytes);
    const PortIndex out_index = route(in.node, packet);
    Port& out = ports_[out_index];
    Queue& queue = this->queue(out_index, traffic_class);

    if ((buffer.lossless & bit) != 0) {
        // Up to the packet that crosses the threshold it is shared memory, from there on headroom. So the headroom has
        // to hold what comes after the pause was asked for, and nothing else: pfc_headroom().
        Ingress& ingress = ingress_[slot_of(own, traffic_class)];
        const std::uint64_t before = shared_part(ingress, buffer.reserve);
        ingress.bytes += static_cast<std::uint32_t>(bytes);
        const std::uint64_t more = shared_part(ingress, buffer.reserve) - before;
        const bool fits = (more == 0 || before <= pause_threshold(buffer)) && buffer.used + more <= buffer.size &&
                          ingress.headroom == 0;
        if (fits) {
            buffer.used += more;
        } else if (ingress.headroom + bytes <= buffer.headroom) {
            ingress.headroom += static_cast<std::uint32_t>(bytes);
        } else {
            ingress.bytes -= static_cast<std::uint32_t>(bytes);
            ++details_[out_index].counters.dropped;
            packets_.give_back(packet_index);
            return;
        }
        if ((in.pause_wanted & bit) == 0 &&
            (ingress.headroom != 0 || shared_part(ingress, buffer.reserve) > pause_threshold(buffer))) {
            in.pause_wanted |= bit;
            if (!in.armed) serve_shared(own);
        }
    } else {
        const std::uint64_t free = buffer.size - buffer.used;
        const std::uint64_t limit =
            buffer.egress_limit != 0 ? buffer.egress_limit : (buffer.alpha_egress_q8 * free) >> 8;
        if (bytes > free || queue.bytes + bytes > limit) {
            ++details_[out_index].counters.dropped;
            packets_.give_back(packet_index);
            return;
        }
        buffer.used += bytes;
    }

    Packet& kept = packets_[packet_index];  // a pause frame may have moved the pool
    if ((buffer.marking & bit) != 0 && queue.bytes > buffer.kmin) mark(out_index, buffer, queue.bytes, kept);
    queue.change(now_, static_cast<std::int64_t>(bytes));
    queue.chain.push(packets_, packet_index);
    out.waiting |= bit;
    if (out.armed || out.down()) return;
    if (now_ >= out.free_at) {
        serve_shared(out_index);
    } else if ((bit & ~out.paused) != 0) {
        arm(out_index, out);
    }
}

void Core::serve_shared(PortIndex index) {
    Port& port = ports_[index];
    if (port.down()) return;
    if (now_ < port.free_at) {
        arm(index, port);
        return;
    }
    if (port.pause_wanted != port.pause_told) {
        start_pause(index, port);
    } else {
        const std::uint8_t ready = port.waiting & static_cast<std::uint8_t>(~port.paused);
        if (ready == 0) return;
        const std::uint8_t traffic_class = choose_class(index, port, ready);
        Queue& queue = this->queue(index, traffic_class);
        const PacketIndex packet_index = queue.chain.pop(packets_);
        const std::uint32_t wire_bytes = packets_[packet_index].wire_bytes;
        charge_class(index, ready, traffic_class, wire_bytes);
        queue.change(now_, -static_cast<std::int64_t>(stored(wire_bytes)));
        if (queue.chain.empty()) port.waiting &= static_cast<std::uint8_t>(~(1U << traffic_class));
        const PortIndex own = packets_[packet_index].arrival_or_ingress;
        start(index, port, packet_index);
        leave_shared(own, traffic_class, wire_bytes);
    }
    if ((port.waiting & ~port.paused) != 0 || port.pause_wanted != port.pause_told) arm(index, port);
}

/// Memory is free from the moment a packet starts on its way out.
void Core::leave_shared(PortIndex own, std::uint8_t traffic_class, std::uint32_t wire_bytes) {
    Port& in = ports_[own];
    SharedBuffer& buffer = shared_[in.state];
    const auto bit = static_cast<std::uint8_t>(1U << traffic_class);
    const std::uint32_t bytes = stored(wire_bytes);
    if ((buffer.lossless & bit) == 0) {
        buffer.used -= bytes;
        return;
    }
    Ingress& ingress = ingress_[slot_of(own, traffic_class)];
    const std::uint64_t before = shared_part(ingress, buffer.reserve);
    ingress.headroom -= std::min(ingress.headroom, bytes);
    ingress.bytes -= bytes;
    buffer.used -= before - shared_part(ingress, buffer.reserve);
    if ((in.pause_wanted & bit) == 0 || ingress.headroom != 0) return;
    const std::uint64_t threshold = pause_threshold(buffer);
    const std::uint64_t resume = threshold > buffer.xon_gap ? threshold - buffer.xon_gap : 0;
    if (shared_part(ingress, buffer.reserve) > resume) return;
    in.pause_wanted &= static_cast<std::uint8_t>(~bit);
    if (!in.armed) serve_shared(own);
}

}  // namespace incast::sim::packet

#include "sim/packet/core.h"

namespace incast::sim::packet {

Core::Core(const Topology& topology, const NetworkSettings& settings, unsigned slot_shift, unsigned slot_bits)
    : settings_(settings), topology_(topology), wheel_(slot_shift, slot_bits) {}
Core::~Core() = default;

EventId Core::add_special(Special what, std::uint32_t subject) {
    special_.push_back({what, subject});
    return first_special_ + static_cast<EventId>(special_.size() - 1);
}

/// A packet has come to the end of a cable. Most find nothing in front of them where they want to go on, and leave in
/// the instant in which they come: that way is here as a whole.
[[gnu::always_inline]] inline void Core::arrive(PortIndex index) {
    Port& port = ports_[index];
    const PacketIndex packet_index = port.cable.head;
    Packet& packet = packets_[packet_index];
    port.cable.head = packet.next;
    if (packet.next != nil) {
        const std::uint32_t ahead = packet.next_arrival_or_ingress - static_cast<std::uint32_t>(now_);
        wheel_.schedule_new(arrival_event(index), now_ + ahead);
    }
    if ((port.condition & (Port::is_down | Port::corrupts | Port::repeats)) != 0 && lost_on_cable(index, packet_index))
        return;
    const PortIndex own = reverse_of(index);
    if (packet.kind == PacketKind::pause) [[unlikely]] {
        const std::uint32_t classes = packet.psn;
        packets_.give_back(packet_index);
        hear_pause(own, classes);
        return;
    }
    packet.next_arrival_or_ingress = own;
    if (port.peer_kind == NodeKind::credit) {
        const PortIndex out = route(port.peer, packet);
        if (!passes_credit(index, packet_index, out)) queue_credit(index, packet_index, out);
        return;
    }
    if (port.peer_kind != NodeKind::shared_buffer) {
        arrive_at(port.peer_kind, index, packet_index);
        return;
    }
    const unsigned traffic_class = packet.traffic_class;
    const std::uint32_t bytes = stored(packet.wire_bytes);
    const PortIndex out_index = route(port.peer, packet);
    Port& out = ports_[out_index];
    // What queueing and leaving would do ends as it began but for the peak.
    if (out.idle(now_, bit_of(traffic_class)) &&
        shared_[port.peer_state].passes(ingress_[slot_of(own, traffic_class)], bit_of(traffic_class), bytes)) {
        note_passing(out_index, traffic_class, bytes);
        start(out_index, out, packet_index);
    } else {
        queue_shared(own, packet_index, out_index);
    }
}

void Core::arrive_at(NodeKind kind, PortIndex index, PacketIndex packet) {
    const PortIndex own = reverse_of(index);
    if (kind == NodeKind::host) {
        arrive_host(own, packet);
    } else if (kind == NodeKind::input_fifo) {
        arrive_input_fifo(own, packet);
    } else {
        arrive_deep(own, packet);
    }
}

[[gnu::always_inline]] inline void Core::handle(EventId id) {
    if (id < first_special_) {
        const PortIndex port = id >> 1;
        if ((id & 1) == 0) {
            arrive(port);
        } else {
            ports_[port].armed = false;
            serve(port);
        }
    } else if (id >= first_flow_event_) {
        flow_timer(id - first_flow_event_);
    } else {
        handle_special(special_[id - first_special_]);
    }
}

void Core::run(Time until, bool to_outcome) {
    EventId id = 0;
    const std::uint32_t outcomes = outcomes_.size();
    while (wheel_.pop(until, id)) {
        now_ = wheel_.now();
        ++events_;
        look_ahead();
        // One multiplication per event; any difference in time or order shows in all that follows.
        trace_ = (std::rotl(trace_, 5) ^ (static_cast<std::uint64_t>(now_) + (std::uint64_t{id} << 40))) *
                 0x9e3779b97f4a7c15ULL;
        handle(id);
        if (to_outcome && outcomes_.size() != outcomes) return;
    }
    if (until != time_never) {
        wheel_.move_to(until);
        now_ = until;
    }
}

void Core::handle_special(const SpecialEvent& event) {
    switch (event.what) {
        case Special::host_wake:
            wake_host(event.subject);
            break;
        case Special::host_receive:
            drain_host(event.subject);
            break;
        case Special::arbitrate:
            arbitrate(event.subject);
            break;
        case Special::memory:
            memory_done(event.subject);
            break;
        case Special::egress_arrival:
            egress_arrival(event.subject);
            break;
        case Special::fault:
            apply_faults();
            break;
        case Special::reroute:
            reroute();
            break;
        case Special::pause_expiry:
            expire_pauses(event.subject);
            break;
        case Special::pause_refresh:
            refresh_pause(event.subject);
            break;
    }
}

void Core::serve(PortIndex index) {
    switch (ports_[index].kind) {
        case NodeKind::host:
            serve_host(index);
            break;
        case NodeKind::shared_buffer:
            serve_shared(index);
            break;
        case NodeKind::credit:
            serve_credit(index);
            break;
        case NodeKind::input_fifo:
            serve_input_fifo(index);
            break;
        case NodeKind::deep_buffer:
            serve_deep(index);
            break;
    }
}

PortIndex Core::choose_port(NodeIndex node, const PortGroup& group, std::uint32_t entropy) {
    const std::uint32_t choice =
        spray_ ? spread_over(base::mix64(spray_random_[node]++), group.count) : ecmp_choice(entropy, node, group.count);
    const PortIndex* const ports = &routes_.ports[group.first];
    if (const PortIndex port = ports[choice]; !ports_[port].down()) [[likely]]
        return port;
    // A switch knows its own dead cables at once; what it cannot know is what lies behind its neighbours.
    for (std::uint32_t tried = 1; tried < group.count; ++tried) {
        const PortIndex port = ports[(choice + tried) % group.count];
        if (!ports_[port].down()) return port;
    }
    return ports[choice];
}

std::uint8_t Core::choose_among(PortIndex index, std::uint8_t ready) {
    constexpr std::int64_t quantum_bytes = 1024;
    const Node& node = nodes_[details_[index].node];
    const std::uint8_t strict = ready & node.strict;
    if (strict != 0) return static_cast<std::uint8_t>(std::bit_width(strict) - 1U);
    unsigned turn = details_[index].turn;
    while ((ready >> turn & 1) == 0 || queue(index, turn).deficit <= 0) {
        turn = (turn + 1) % max_classes;
        if ((ready >> turn & 1) != 0) queue(index, turn).deficit += quantum_bytes * node.weight[turn];
    }
    details_[index].turn = static_cast<std::uint8_t>(turn);
    return static_cast<std::uint8_t>(turn);
}

void Core::start_pause(PortIndex index, Port& port) {
    const PacketIndex packet_index = packets_.take();
    Packet& packet = packets_[packet_index];
    packet = Packet{};
    packet.kind = PacketKind::pause;
    packet.wire_bytes = settings_.pause_bytes;
    packet.psn = port.pause_wanted;
    if ((port.pause_wanted & ~port.pause_told) != 0) ++details_[index].counters.pauses_sent;
    port.pause_told = port.pause_wanted;
    if (const std::uint32_t timer = details_[reverse_of(index)].pause_timer; timer != nil)
        plan_refresh(timer, port.pause_told);
    start(index, port, packet_index);
}

void Core::hear_pause(PortIndex index, std::uint32_t classes) {
    Port& port = ports_[index];
    const auto wanted = static_cast<std::uint8_t>(classes);
    PortDetail& detail = details_[index];
    if ((wanted & ~port.paused) != 0) ++detail.counters.pauses_heard;
    if (detail.ignores_pause) return;
    if (detail.pause_timer != nil) restart_pause(detail.pause_timer, wanted);
    set_paused(index, wanted);
}

void Core::set_paused(PortIndex index, std::uint8_t wanted) {
    Port& port = ports_[index];
    PortDetail& detail = details_[index];
    const std::uint8_t before = port.paused;
    port.paused = wanted;
    if (before == 0 && wanted != 0) detail.paused_since = now_;
    if (before != 0 && wanted == 0) detail.counters.paused_time += now_ - detail.paused_since;
    // What a deep buffer holds for this port waits to be asked for, not at the port.
    if ((before & ~wanted & (port.waiting | egresses_[index].waiting)) != 0) serve(index);
}

}  // namespace incast::sim::packet

// The receiving side of a host, and what acknowledgements do to its sending side: go-back-N as in RoCE's reliable
// connections (IBTA volume 1, section 9.7), CNPs, timers.
#include <algorithm>

#include "sim/packet/core.h"

namespace incast::sim::packet {

void Core::arrive_host(PortIndex own, PacketIndex index) {
    Port& port = ports_[own];
    const HostIndex host_index = port.state;
    Host& host = hosts_[host_index];
    const Packet& packet = packets_[index];
    if (host.receive_pace.unlimited() || packet.kind != PacketKind::data) {
        if (ports_[reverse_of(own)].credited)
            give_credit(reverse_of(own), packet.traffic_class, packet.wire_bytes, now_);
        receive(host_index, index);
        return;
    }
    const HostSettings& settings = settings_.hosts[host.settings];
    std::uint64_t& held = host.arrived_bytes[packet.traffic_class];
    if (held + packet.wire_bytes > settings.receive_buffer_bytes) {
        drop(reverse_of(own), index);
        return;
    }
    held += packet.wire_bytes;
    const std::uint32_t payload = settings.payload_of(packet.wire_bytes);
    const auto bit = bit_of(packet.traffic_class);
    if (host.arrived.empty())
        wheel_.schedule(first_special_ + 2 * host_index + 1, now_ + host.receive_pace.of(payload));
    host.arrived.push({index, payload});
    if (settings.receive_xoff_bytes != 0 && held > settings.receive_xoff_bytes && (port.pause_wanted & bit) == 0) {
        port.pause_wanted |= bit;
        kick_host(own);
    }
}

/// A packet has reached host memory.
void Core::drain_host(HostIndex index) {
    Host& host = hosts_[index];
    const HostSettings& settings = settings_.hosts[host.settings];
    const PacketIndex packet_index = host.arrived.front().packet;
    host.arrived.pop();
    if (!host.arrived.empty())
        wheel_.schedule(first_special_ + 2 * index + 1, now_ + host.receive_pace.of(host.arrived.front().payload));
    const Packet& packet = packets_[packet_index];
    std::uint64_t& held = host.arrived_bytes[packet.traffic_class];
    held -= packet.wire_bytes;
    Port& port = ports_[host.port];
    const auto bit = bit_of(packet.traffic_class);
    if ((port.pause_wanted & bit) != 0 && held <= settings.receive_xoff_bytes / 2) {
        port.pause_wanted &= static_cast<std::uint8_t>(~bit);
        kick_host(host.port);
    }
    const PortIndex towards = reverse_of(host.port);
    if (ports_[towards].credited) give_credit(towards, packet.traffic_class, packet.wire_bytes, now_);
    receive(index, packet_index);
}

/// The packet ends here.
void Core::receive(HostIndex host, PacketIndex index) {
    const Packet packet = packets_[index];
    packets_.give_back(index);
    balance_.ended.add(packet.wire_bytes);
    switch (packet.kind) {
        case PacketKind::data:
            receive_data(host, packet);
            break;
        case PacketKind::ack:
            if (senders_[packet.flow].transport == Transport::tcp) {
                receive_tcp_ack(packet.flow, packet.psn);
            } else {
                receive_ack(packet.flow, packet.psn, false);
            }
            break;
        case PacketKind::nak:
            receive_ack(packet.flow, packet.psn, true);
            break;
        case PacketKind::cnp:
            if (senders_[packet.flow].controlled) notify(packet.flow);
            break;
        case PacketKind::read_request:
            append(packet.flow, packet.psn);
            break;
        case PacketKind::pause:
            break;  // handled on arrival at the port
    }
}

void Core::receive_data(HostIndex host, const Packet& packet) {
    const Sender& sender = senders_[packet.flow];
    Receiver& receiver = receivers_[packet.flow];
    if (packet.marked && sender.controlled && now_ >= receiver.notify_from) {
        receiver.notify_from = now_ + settings_.dcqcn.notification_interval;
        send_control(host, PacketKind::cnp, packet.flow, 0, settings_.hosts[hosts_[host].settings].cnp_class);
    }
    if (sender.transport == Transport::tcp) {
        receive_tcp(host, packet);
    } else if (sender.transport == Transport::datagram || receiver.any_order) {
        receive_any_order(host, packet);
    } else {
        receive_reliable(host, packet);
    }
}

void Core::receive_reliable(HostIndex host, const Packet& packet) {
    Receiver& receiver = receivers_[packet.flow];
    const std::uint8_t traffic_class = packet.traffic_class;
    if (packet.psn != receiver.expected) {
        if (packet.psn - receiver.expected < (1U << 31)) {
            if (receiver.nak_sent) return;
            receiver.nak_sent = true;
            receiver.since_ack = 0;
            send_control(host, PacketKind::nak, packet.flow, receiver.expected, traffic_class);
        } else if (packet.last || packet.psn + 1 == receiver.expected) {
            // Repeated, so its acknowledgement was lost; a window may end in the middle of a message.
            send_control(host, PacketKind::ack, packet.flow, receiver.expected, traffic_class);
        }
        return;
    }
    ++receiver.expected;
    receiver.nak_sent = false;
    if (packet.last) {
        const MessageIndex message = receiver.current;
        receiver.current = messages_[message].next;
        deliver(packet.flow, message, Outcome::What::delivered);
    }
    ++receiver.since_ack;
    if (packet.last || (receiver.ack_packets != 0 && receiver.since_ack >= receiver.ack_packets)) {
        receiver.since_ack = 0;
        send_control(host, PacketKind::ack, packet.flow, receiver.expected, traffic_class);
    }
}

/// Messages are counted, and complete when all their packets have come.
void Core::receive_any_order(HostIndex host, const Packet& packet) {
    // Further ahead than this, what is missing of the oldest message is taken for lost.
    constexpr unsigned most_open_messages = 64;
    Receiver& receiver = receivers_[packet.flow];
    const Sender& sender = senders_[packet.flow];
    const bool datagram = sender.transport == Transport::datagram;
    MessageIndex index = receiver.current;
    if (index == nil || packet.psn - messages_[index].first_psn >= (1U << 31)) return;  // given up long ago
    unsigned ahead = 0;
    while (packet.psn - messages_[index].first_psn >= messages_[index].packets) {
        index = messages_[index].next;
        ++ahead;
    }
    ++messages_[index].received;
    const std::uint64_t unit = data_unit(sender.source);
    while (receiver.current != nil) {
        const MessageIndex oldest = receiver.current;
        Message& message = messages_[oldest];
        const bool complete = message.received == message.packets;
        if (!complete && (!datagram || ahead < most_open_messages)) break;
        if (ahead > 0) --ahead;
        receiver.current = message.next;
        if (!complete) message.bytes = std::min(message.bytes, message.received * unit);
        const std::uint32_t end = message.first_psn + message.packets;
        deliver(packet.flow, oldest, complete ? Outcome::What::delivered : Outcome::What::incomplete);
        if (datagram) {
            forget_oldest(packet.flow);
        } else {
            send_control(host, PacketKind::ack, packet.flow, end, packet.traffic_class);
        }
    }
}

void Core::deliver(FlowIndex flow, MessageIndex index, Outcome::What what) {
    const Message& message = messages_[index];
    outcomes_.push({.time = now_, .token = message.token, .bytes = message.bytes, .flow = flow, .what = what});
    if (message.is_read) {
        const HostIndex reader = senders_[flow].destination;
        --hosts_[reader].reads;
        request_reads(reader);
    }
}

/// The first message of the flow is over for sender and receiver.
void Core::forget_oldest(FlowIndex flow) {
    Sender& sender = senders_[flow];
    const MessageIndex index = sender.head;
    sender.head = messages_[index].next;
    if (sender.head == nil) sender.tail = nil;
    messages_.give_back(index);
}

void Core::receive_ack(FlowIndex flow, std::uint32_t psn, bool missing) {
    Sender& sender = senders_[flow];
    const std::uint32_t more = psn - sender.acked;
    const bool advanced = more != 0 && more <= sender.end_psn - sender.acked;
    if (advanced) {
        sender.acked = psn;
        // After going back: what was sent before has arrived after all.
        if (psn - sender.next_psn < (1U << 31) && psn != sender.next_psn) {
            while (sender.cursor != nil && psn - messages_[sender.cursor].first_psn >= messages_[sender.cursor].packets)
                sender.cursor = messages_[sender.cursor].next;
            sender.next_psn = psn;
        }
        extras_[flow].progress = now_;
        while (sender.head != nil) {
            const Message& message = messages_[sender.head];
            if (psn - (message.first_psn + message.packets) >= (1U << 31)) break;
            if (!message.is_read)
                outcomes_.push({.time = now_,
                                .token = message.token,
                                .bytes = message.bytes,
                                .flow = flow,
                                .what = Outcome::What::acknowledged});
            forget_oldest(flow);
        }
    }
    if (sender.transport == Transport::tcp) {
        tcp_ack(flow, psn);
    } else if (missing && psn == sender.acked) {
        rewind(flow);
    }
    refresh(flow);
}

/// Go back N: everything not acknowledged is sent again.
void Core::rewind(FlowIndex flow) {
    Sender& sender = senders_[flow];
    sender.next_psn = sender.acked;
    sender.cursor = sender.head;
    extras_[flow].progress = now_;
}

void Core::flow_timer(FlowIndex flow) {
    FlowExtra& extra = extras_[flow];
    Sender& sender = senders_[flow];
    if (RateControl* control = active_control(extra); control != nullptr && control->on_time(now_, settings_.dcqcn))
        set_pace(flow);
    if (extra.timeout != 0 && sender.acked != sender.end_psn && sender.next_psn != sender.acked &&
        (sender.transport == Transport::tcp ? tcp_timeout(flow) : now_ >= extra.progress + extra.timeout)) {
        if (sender.transport != Transport::tcp) rewind(flow);
        refresh(flow);
    }
    schedule_flow_timer(flow);
}

void Core::schedule_flow_timer(FlowIndex flow) {
    const FlowExtra& extra = extras_[flow];
    const Sender& sender = senders_[flow];
    const RateControl* control = active_control(extra);
    Time at = control != nullptr ? control->next_deadline() : time_never;
    // Acknowledgements move only `progress`; the timer finds out when it goes off.
    if (extra.timeout != 0 && sender.next_psn != sender.acked)
        at = std::min(at, sender.transport == Transport::tcp ? tcp_deadline(flow) : extra.progress + extra.timeout);
    if (at != time_never) wheel_.schedule_by(first_flow_event_ + flow, std::max(at, now_));
}

/// A CNP came.
void Core::notify(FlowIndex flow) {
    FlowExtra& extra = extras_[flow];
    if (extra.control == nil) {
        extra.control = static_cast<std::uint32_t>(controls_.size());
        controls_.emplace_back(line_rate(flow));
    }
    if (controls_[extra.control].on_notification(now_, settings_.dcqcn)) set_pace(flow);
    schedule_flow_timer(flow);
}

/// The pace follows from the fixed limit and from congestion control.
void Core::set_pace(FlowIndex flow) {
    const FlowExtra& extra = extras_[flow];
    std::uint64_t rate = extra.limit.bits_per_s;
    if (const RateControl* control = active_control(extra);
        control != nullptr && (rate == 0 || control->rate().bits_per_s < rate))
        rate = control->rate().bits_per_s;
    senders_[flow].pace = rate == 0 ? BytePace() : BytePace(Rate{rate});
}

}  // namespace incast::sim::packet

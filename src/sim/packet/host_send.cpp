// The sending side of a host: queue pairs in turn, windows, pacing, the way out of host memory. Control packets stand
// before data of their class, and wait for other classes as data does.
#include <algorithm>

#include "sim/packet/core.h"

namespace incast::sim::packet {
namespace {

bool later(const Host::Paced& one, const Host::Paced& two) {
    return one.time != two.time ? one.time > two.time : one.flow > two.flow;
}

}  // namespace

bool Core::sendable(const Sender& sender) const {
    return sender.next_psn != sender.end_psn && sender.next_psn - sender.acked < sender.window;
}

std::uint64_t Core::data_unit(HostIndex source) const {
    const HostSettings& settings = settings_.hosts[hosts_[source].settings];
    return std::uint64_t{settings.mtu_bytes} * settings.train_packets;
}

/// A message joins its flow: numbered, and the last to be sent.
void Core::append(FlowIndex flow, MessageIndex index) {
    Sender& sender = senders_[flow];
    Host& host = hosts_[sender.source];
    Message& message = messages_[index];
    const std::uint64_t unit = data_unit(sender.source);
    message.next = nil;
    message.flow = flow;
    message.first_psn = sender.end_psn;
    message.packets = std::max<std::uint32_t>(1, static_cast<std::uint32_t>((message.bytes + unit - 1) / unit));
    if (sender.acked == sender.end_psn) extras_[flow].progress = now_;
    sender.end_psn += message.packets;
    if (sender.tail == nil) {
        sender.head = index;
    } else {
        messages_[sender.tail].next = index;
    }
    sender.tail = index;
    if (sender.cursor == nil) sender.cursor = index;
    Receiver& receiver = receivers_[flow];
    if (receiver.current == nil) receiver.current = index;
    if (host.ordered) {
        if (host.in_order.empty()) {
            host.in_order.head = index;
        } else {
            messages_[host.in_order.tail].next_of_host = index;
        }
        host.in_order.tail = index;
        ports_[host.port].waiting |= bit_of(sender.traffic_class);
        kick_host(host.port);
        return;
    }
    refresh(flow);
}

/// A flow may have become able to send.
void Core::refresh(FlowIndex flow) {
    Sender& sender = senders_[flow];
    Host& host = hosts_[sender.source];
    if (host.ordered || sender.state != Sender::State::idle || !sendable(sender)) return;
    if (sender.transport == Transport::tcp) host.inject_at = std::max(host.inject_at, now_ + processing_time(flow));
    if (needs_engine(host, sender)) {
        take_engine(flow);
    } else {
        offer(flow);
    }
    if (sender.state == Sender::State::ready) kick_host(host.port);
}

/// Between an acknowledgement and the packets that it lets go a TCP host works for a random time, up to that of a
/// packet on its cable. Without it packets of all hosts stay in step with the places that fall free in a full queue,
/// and who is first in the step gets them all (S. Floyd, V. Jacobson, "On Traffic Phase Effects in Packet-Switched
/// Gateways", Internetworking 3(3), 1992).
Time Core::processing_time(FlowIndex flow) {
    const Sender& sender = senders_[flow];
    const PortIndex port = hosts_[sender.source].port;
    const auto most = static_cast<std::uint64_t>(ports_[port].pace.of(data_wire_bytes(flow)));
    return static_cast<Time>((static_cast<std::uint64_t>(static_cast<std::uint32_t>(details_[port].draw())) * most) >>
                             32U);
}

/// The flow has to wait until its next_time.
void Core::pace(Host& host, FlowIndex flow) {
    Sender& sender = senders_[flow];
    sender.state = Sender::State::paced;
    host.paced.push_back({sender.next_time, flow});
    std::push_heap(host.paced.begin(), host.paced.end(), later);
    wheel_.schedule_by(first_special_ + 2 * sender.source, host.paced.front().time);
}

void Core::wake_host(HostIndex index) {
    Host& host = hosts_[index];
    while (!host.paced.empty() && host.paced.front().time <= now_) {
        const FlowIndex flow = host.paced.front().flow;
        std::pop_heap(host.paced.begin(), host.paced.end(), later);
        host.paced.pop_back();
        Sender& sender = senders_[flow];
        sender.state = Sender::State::ready;
        host.ready[sender.traffic_class].push(senders_, flow);
        ports_[host.port].waiting |= bit_of(sender.traffic_class);
    }
    if (!host.paced.empty()) wheel_.schedule(first_special_ + 2 * index, host.paced.front().time);
    kick_host(host.port);
}

void Core::kick_host(PortIndex index) {
    Port& port = ports_[index];
    if (now_ >= port.free_at) {
        serve_host(index);
    } else if (!port.armed || wheel_.time_of(send_event(index)) > port.free_at) {
        plan_host(index);
    }
}

/// The next flow in turn that may send in this class; nil if none. Flows that cannot any more leave the chain.
[[gnu::always_inline]] inline FlowIndex Core::ready_flow(Host& host, std::uint8_t traffic_class) {
    if (host.ordered) {
        if (host.in_order.empty()) return nil;
        const FlowIndex flow = messages_[host.in_order.head].flow;
        return senders_[flow].traffic_class == traffic_class ? flow : nil;
    }
    Chain& chain = host.ready[traffic_class];
    while (!chain.empty()) {
        const FlowIndex flow = chain.head;
        Sender& sender = senders_[flow];
        const bool can = sendable(sender);
        if (can && !needs_engine(host, sender)) return flow;
        chain.pop(senders_);
        sender.state = Sender::State::idle;
        if (can) take_engine(flow);
    }
    return nil;
}

[[gnu::always_inline]] inline std::uint32_t Core::data_wire_bytes(FlowIndex flow) const {
    const Sender& sender = senders_[flow];
    const Message& message = messages_[sender.cursor];
    const HostSettings& settings = settings_.hosts[hosts_[sender.source].settings];
    const std::uint64_t unit = data_unit(sender.source);
    const std::uint32_t number = sender.next_psn - message.first_psn;
    const std::uint64_t payload = number + 1 < message.packets ? unit : message.bytes - number * unit;
    if (settings.train_packets == 1) return static_cast<std::uint32_t>(payload) + settings.header_bytes;
    const std::uint64_t packets = std::max<std::uint64_t>(1, (payload + settings.mtu_bytes - 1) / settings.mtu_bytes);
    return static_cast<std::uint32_t>(payload + packets * settings.header_bytes);
}

PacketIndex Core::make_data(FlowIndex flow) {
    const std::uint32_t wire_bytes = data_wire_bytes(flow);
    const PacketIndex index = packets_.take();
    Sender& sender = senders_[flow];
    Message& message = messages_[sender.cursor];
    Packet& packet = packets_[index];
    packet.flow = flow;
    packet.psn = sender.next_psn;
    packet.destination = sender.destination;
    packet.entropy = sender.entropy;
    packet.wire_bytes = wire_bytes;
    packet.kind = PacketKind::data;
    packet.traffic_class = sender.traffic_class;
    packet.marked = false;
    packet.last = sender.next_psn + 1 == message.first_psn + message.packets;
    if (packet.last) sender.cursor = message.next;
    ++sender.next_psn;
    balance_.made.add(wire_bytes);
    if (packet.last && message.on_engine) end_on_engine(sender.source, message, wire_bytes);
    return index;
}

void Core::serve_host(PortIndex index) {
    Port& port = ports_[index];
    if (port.down()) return;
    if (now_ < port.free_at) {
        plan_host(index);
        return;
    }
    if (port.pause_wanted != port.pause_told) {
        start_pause(index, port);
        plan_host(index);
        return;
    }
    Host& host = hosts_[port.state];
    const HostSettings& settings = settings_.hosts[host.settings];
    std::uint8_t ready = port.waiting & static_cast<std::uint8_t>(~port.paused);
    std::array<FlowIndex, max_classes> flows{};
    for (unsigned rest = ready; rest != 0; rest &= rest - 1) {
        const auto traffic_class = static_cast<std::uint8_t>(std::countr_zero(rest));
        const Chain& control = queue(index, traffic_class).chain;
        bool can = !control.empty();
        FlowIndex flow = nil;
        if (!can) {
            flow = ready_flow(host, traffic_class);
            flows[traffic_class] = flow;
            if (flow == nil) {
                port.waiting &= static_cast<std::uint8_t>(~bit_of(traffic_class));
            } else {
                Message& message = messages_[senders_[flow].cursor];
                if (settings.message_cost != 0 && !message.charged) {
                    message.charged = true;
                    host.inject_at = std::max(host.inject_at, now_) + settings.message_cost;
                }
                can = host.inject_at <= now_;
            }
        }
        if (can && port.credited)
            can = has_credit(index, traffic_class,
                             flow == nil ? packets_[control.head].wire_bytes : data_wire_bytes(flow));
        if (!can) ready &= static_cast<std::uint8_t>(~bit_of(traffic_class));
    }
    if (ready != 0) {
        const std::uint8_t traffic_class = choose_class(index, ready);
        Queue& control = queue(index, traffic_class);
        const bool is_control = !control.chain.empty();
        const PacketIndex packet_index = is_control ? control.chain.pop(packets_) : make_data(flows[traffic_class]);
        const std::uint32_t wire_bytes = packets_[packet_index].wire_bytes;
        charge_class(index, ready, traffic_class, wire_bytes);
        if (port.credited) take_credit(index, traffic_class, wire_bytes);
        if (is_control) control.change(now_, -static_cast<std::int64_t>(stored(wire_bytes)));
        const bool last = packets_[packet_index].last;
        start(index, port, packet_index);
        if (!is_control) sent_data(host, port, flows[traffic_class], wire_bytes, last);
    }
    plan_host(index);
}

/// A packet of this flow, which was the next in turn, is on its way.
[[gnu::always_inline]] inline void Core::sent_data(Host& host, const Port& port, FlowIndex flow,
                                                   std::uint32_t wire_bytes, bool last) {
    Sender& sender = senders_[flow];
    if (!host.inject_pace.unlimited()) {
        const std::uint32_t payload = settings_.hosts[host.settings].payload_of(wire_bytes);
        host.inject_at = std::max(host.inject_at, now_) + host.inject_pace.of(payload);
    }
    if (host.ordered) {
        if (last) {
            const MessageIndex done = host.in_order.head;
            host.in_order.head = messages_[done].next_of_host;
        }
        return;
    }
    Chain& chain = host.ready[sender.traffic_class];
    chain.pop(senders_);
    if (sender.transport != Transport::datagram) {
        FlowExtra& extra = extras_[flow];
        if (sender.next_psn > extra.highest) {
            extra.highest = sender.next_psn;
        } else {
            ++extra.repeated;
        }
        if (extra.timeout != 0 && sender.next_psn == sender.acked + 1) {
            extra.progress = now_;
            schedule_flow_timer(flow);
        }
    }
    if (sender.controlled) {
        RateControl* control = active_control(extras_[flow]);
        if (control != nullptr && control->on_bytes(wire_bytes, settings_.dcqcn)) set_pace(flow);
    }
    if (!sender.pace.unlimited()) {
        sender.next_time = std::max(sender.next_time, now_) + sender.pace.of(wire_bytes);
        // Due before the port is free again: it just takes its turn.
        if (sender.next_time > port.free_at) {
            pace(host, flow);
            return;
        }
    }
    if (!sendable(sender)) {
        sender.state = Sender::State::idle;
    } else if (needs_engine(host, sender)) {
        take_engine(flow);
    } else {
        chain.push(senders_, flow);
    }
}

/// Schedules the next chance to send, if anything waits that may be sent then.
void Core::plan_host(PortIndex index) {
    Port& port = ports_[index];
    Time at = port.pause_wanted != port.pause_told ? now_ : time_never;
    Host& host = hosts_[port.state];
    for (unsigned rest = port.waiting & ~port.paused; rest != 0 && at > port.free_at; rest &= rest - 1) {
        const auto traffic_class = static_cast<std::uint8_t>(std::countr_zero(rest));
        Time ready_at = now_;
        FlowIndex flow = nil;
        const Chain& control = queue(index, traffic_class).chain;
        if (control.empty()) {
            flow = ready_flow(host, traffic_class);
            if (flow == nil) {
                port.waiting &= static_cast<std::uint8_t>(~bit_of(traffic_class));
                continue;
            }
            ready_at = host.inject_at;
        }
        if (port.credited)
            ready_at = std::max(ready_at,
                                credit_time(index, traffic_class,
                                            flow == nil ? packets_[control.head].wire_bytes : data_wire_bytes(flow)));
        at = std::min(at, ready_at);
    }
    port.starved = port.credited && at == time_never && (port.waiting & ~port.paused) != 0;
    port.armed = at != time_never;
    if (port.armed) wheel_.schedule(send_event(index), std::max(at, std::max(port.free_at, now_)));
}

void Core::send_control(HostIndex from, PacketKind kind, FlowIndex flow, std::uint32_t psn,
                        std::uint8_t traffic_class) {
    Host& host = hosts_[from];
    const HostSettings& settings = settings_.hosts[host.settings];
    const PacketIndex index = packets_.take();
    const Sender& sender = senders_[flow];
    Packet& packet = packets_[index];
    packet.flow = flow;
    packet.psn = psn;
    packet.destination = from == sender.source ? sender.destination : sender.source;
    packet.entropy = ~sender.entropy;
    packet.kind = kind;
    packet.traffic_class = traffic_class;
    packet.marked = false;
    packet.last = false;
    packet.wire_bytes = kind == PacketKind::cnp            ? settings.cnp_bytes
                        : kind == PacketKind::read_request ? settings.request_bytes
                                                           : settings.ack_bytes;
    balance_.made.add(packet.wire_bytes);
    Queue& queue = this->queue(host.port, traffic_class);
    queue.change(now_, stored(packet.wire_bytes));
    queue.chain.push(packets_, index);
    ports_[host.port].waiting |= bit_of(traffic_class);
    kick_host(host.port);
}

/// Sends as many of the waiting read requests as may be outstanding.
void Core::request_reads(HostIndex reader) {
    Host& host = hosts_[reader];
    while (!host.reads_waiting.empty() && host.reads < settings_.hosts[host.settings].outstanding_reads) {
        const MessageIndex message = host.reads_waiting.front();
        host.reads_waiting.pop();
        ++host.reads;
        const FlowIndex flow = messages_[message].flow;
        send_control(reader, PacketKind::read_request, flow, message, senders_[flow].traffic_class);
    }
}

}  // namespace incast::sim::packet

// A simple TCP over packets: slow start, additive increase, fast retransmit and recovery (RFC 5681, RFC 6582),
// time-outs without an estimate of the round trip. Out-of-order packets are kept; a hole is repeated packet by packet.
#include <algorithm>

#include "sim/packet/core.h"

namespace incast::sim::packet {
namespace {

constexpr std::uint32_t whole = 1U << 8;  // a packet, in the units of window_q8

}  // namespace

void Core::receive_tcp(HostIndex host, const Packet& packet) {
    Receiver& receiver = receivers_[packet.flow];
    TcpState& tcp = tcp_[extras_[packet.flow].tcp];
    const std::uint32_t ahead = packet.psn - receiver.expected;
    if (ahead < TcpState::most) {
        const auto mark = [&tcp](std::uint32_t psn) -> std::uint64_t& {
            return tcp.arrived[psn % TcpState::most / 64];
        };
        mark(packet.psn) |= std::uint64_t{1} << (packet.psn % 64);
        while ((mark(receiver.expected) >> (receiver.expected % 64) & 1) != 0) {
            mark(receiver.expected) &= ~(std::uint64_t{1} << (receiver.expected % 64));
            ++receiver.expected;
            const Message& message = messages_[receiver.current];
            if (receiver.expected != message.first_psn + message.packets) continue;
            const MessageIndex done = receiver.current;
            receiver.current = message.next;
            deliver(packet.flow, done, Outcome::What::delivered);
        }
    }
    ++receiver.since_ack;
    if (ahead != 0 || packet.last || receiver.since_ack >= receiver.ack_packets) {
        receiver.since_ack = 0;
        send_control(host, PacketKind::ack, packet.flow, receiver.expected, packet.traffic_class);
    }
}

void Core::tcp_ack(FlowIndex flow, std::uint32_t psn, bool advanced) {
    Sender& sender = senders_[flow];
    TcpState& tcp = tcp_[extras_[flow].tcp];
    if (advanced) {
        tcp.duplicates = 0;
        if (tcp.recovering) {
            if (psn - tcp.recover < (1U << 31)) {
                tcp.recovering = false;
                tcp.window_q8 = tcp.threshold * whole;
            } else {
                repeat_one(flow);  // the next hole
            }
        } else if (tcp.window_q8 < tcp.threshold * whole) {
            tcp.window_q8 += whole;
        } else {
            tcp.window_q8 += std::max<std::uint32_t>(1, whole * whole / tcp.window_q8);
        }
    } else if (psn == sender.acked && sender.next_psn != sender.acked) {
        if (tcp.recovering) {
            tcp.window_q8 += whole;
        } else if (++tcp.duplicates == 3) {
            tcp.recovering = true;
            tcp.recover = sender.next_psn;
            tcp.threshold = std::max<std::uint32_t>(2, (sender.next_psn - sender.acked) / 2);
            tcp.window_q8 = (tcp.threshold + 3) * whole;
            repeat_one(flow);
        }
    }
    tcp.window_q8 = std::min(tcp.window_q8, TcpState::most * whole);
    sender.window = std::min(tcp.window_q8 / whole, TcpState::most);
}

/// The oldest packet not acknowledged goes out once more, ahead of its turn: a control packet of full length.
void Core::repeat_one(FlowIndex flow) {
    Sender& sender = senders_[flow];
    const std::uint32_t next_psn = sender.next_psn;
    const MessageIndex cursor = sender.cursor;
    sender.next_psn = sender.acked;
    sender.cursor = sender.head;
    const PacketIndex index = make_data(flow);
    sender.next_psn = next_psn;
    sender.cursor = cursor;
    ++extras_[flow].repeated;
    const Host& host = hosts_[sender.source];
    Queue& queue = this->queue(host.port, sender.traffic_class);
    queue.change(now_, stored(packets_[index].wire_bytes));
    queue.chain.push(packets_, index);
    ports_[host.port].waiting |= bit_of(sender.traffic_class);
    kick_host(host.port);
}

void Core::tcp_timeout(FlowIndex flow) {
    Sender& sender = senders_[flow];
    TcpState& tcp = tcp_[extras_[flow].tcp];
    tcp.threshold = std::max<std::uint32_t>(2, (sender.next_psn - sender.acked) / 2);
    tcp.window_q8 = whole;
    tcp.duplicates = 0;
    tcp.recovering = false;
    sender.window = 1;
}

}  // namespace incast::sim::packet

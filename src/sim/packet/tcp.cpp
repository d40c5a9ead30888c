// A simple TCP over packets: slow start, additive increase and halving (RFC 5681), recovery with selective
// acknowledgements (RFC 2018, RFC 6675) that also notices when what was sent again is lost again (RFC 8985), a probe
// when nothing is heard for two round trips, time-outs of a fixed length after one. Reordering is taken for loss beyond
// three packets.
//
// An acknowledgement carries 24 bits of the number that a RoCE one has, and how far beyond it the packet lies that it
// answers: the newest block of a SACK option. So every packet that arrives out of order is reported once.
#include <algorithm>

#include "sim/packet/core.h"

namespace incast::sim::packet {
namespace {

constexpr std::uint32_t whole = 1U << 8;    // a packet, in the units of window_q8
constexpr std::uint32_t reordering = 3;     // packets by which another may come late, or that much time
constexpr std::uint32_t behind = 1U << 31;  // differences above are negative

/// True if `one` was sent before `two`.
constexpr bool before(std::uint32_t one, std::uint32_t two) {
    return one - two >= behind;
}

}  // namespace

void Core::receive_tcp(HostIndex host, const Packet& packet) {
    Receiver& receiver = receivers_[packet.flow];
    TcpState& tcp = tcp_[extras_[packet.flow].tcp];
    const std::uint32_t expected = receiver.expected;
    const bool in_order = packet.psn == expected;
    // As Linux does: after a silence or a packet that was here already, acknowledgements are not put off for a while.
    const Time silence = extras_[packet.flow].timeout;  // 0: of a flow without time-outs nobody is in doubt
    if (before(packet.psn, expected) || (silence != 0 && now_ - tcp.heard > silence))
        tcp.quick_acks = TcpState::most_quick_acks;
    tcp.heard = now_;
    if (packet.psn - receiver.expected < TcpState::most) {
        TcpState::insert(tcp.arrived, packet.psn);
        while (TcpState::test(tcp.arrived, receiver.expected)) {
            TcpState::erase(tcp.arrived, receiver.expected);
            ++receiver.expected;
            const Message& message = messages_[receiver.current];
            if (receiver.expected != message.first_psn + message.packets) continue;
            const MessageIndex done = receiver.current;
            receiver.current = message.next;
            deliver(packet.flow, done, Outcome::What::delivered);
        }
    }
    ++receiver.since_ack;
    const bool fills_a_gap = receiver.expected - expected > 1;  // RFC 5681, section 4.2
    if (!in_order || fills_a_gap || packet.last || tcp.quick_acks != 0 || receiver.since_ack >= receiver.ack_packets) {
        if (tcp.quick_acks != 0) --tcp.quick_acks;
        receiver.since_ack = 0;
        const std::uint32_t ahead = packet.psn - receiver.expected;
        send_control(host, PacketKind::ack, packet.flow,
                     (receiver.expected << 8) | (ahead < TcpState::most ? ahead : 0), packet.traffic_class);
    }
}

void Core::receive_tcp_ack(FlowIndex flow, std::uint32_t acknowledged) {
    const Sender& sender = senders_[flow];
    TcpState& tcp = tcp_[extras_[flow].tcp];
    tcp.reported = static_cast<std::uint8_t>(acknowledged);
    tcp.newly = 0;
    // The upper bits follow from the window; an old acknowledgement lies behind.
    const std::uint32_t ahead = ((acknowledged >> 8) - sender.acked) & 0xffffffU;
    const std::uint32_t psn = sender.acked + (ahead < 1U << 23 ? ahead : ahead - (1U << 24));
    if (ahead <= sender.next_psn - sender.acked) {
        tcp.newly = ahead;
        for (std::uint32_t done = sender.acked; done != psn; ++done) {
            TcpState::erase(tcp.sacked, done);
            TcpState::erase(tcp.resent, done);
        }
    }
    receive_ack(flow, psn, false);
}

/// What an acknowledgement does beside freeing what has arrived.
void Core::tcp_ack(FlowIndex flow, std::uint32_t psn) {
    const Sender& sender = senders_[flow];
    TcpState& tcp = tcp_[extras_[flow].tcp];
    if (before(tcp.highest, sender.acked)) tcp.highest = sender.acked;
    if (before(tcp.lost_below, sender.acked)) tcp.lost_below = sender.acked;
    bool news = tcp.newly != 0;
    if (tcp.reported != 0 && !before(psn, sender.acked)) {
        const std::uint32_t arrived = psn + tcp.reported;
        if (before(arrived, sender.next_psn)) {
            news = news || !TcpState::test(tcp.sacked, arrived);
            TcpState::insert(tcp.sacked, arrived);
            if (before(tcp.highest, arrived)) tcp.highest = arrived;
        }
    }
    // The answer to a probe that had arrived before is none: else a lost packet with fewer than three behind it would
    // be probed for without end.
    if (news) {
        tcp.probed = false;
        tcp.silent_since = now_;
    }
    if (tcp.timing && before(tcp.timed, sender.acked)) {
        tcp.timing = false;
        const Time measured = now_ - tcp.timed_since;
        tcp.round_trip = tcp.round_trip == 0 ? measured : (7 * tcp.round_trip + measured) / 8;
        schedule_flow_timer(flow);
    }
    if (tcp.recovering && !before(sender.acked, tcp.recover)) {
        tcp.recovering = false;
        tcp.timed_out = false;
    }
    if (tcp.newly != 0 && (!tcp.recovering || tcp.timed_out)) {
        // By what has arrived, not by acknowledgements (RFC 3465).
        tcp.window_q8 += tcp.window_q8 < tcp.threshold * whole
                             ? tcp.newly * whole
                             : std::max<std::uint32_t>(1, tcp.newly * whole * whole / tcp.window_q8);
        tcp.window_q8 = std::min(tcp.window_q8, tcp.limit * whole);
    }
    if (tcp.highest - sender.acked >= reordering && tcp.highest - sender.acked < behind)
        take_for_lost(flow, tcp.highest - reordering + 1);
    if (!before(tcp.lost_below, tcp.highest)) {
        tcp.reordered_until = time_never;
    } else if (news && tcp.round_trip != 0) {
        tcp.reordered_until = now_ + tcp.reordering_time();
        schedule_flow_timer(flow);
    }
    fill_tcp_window(flow);
}

/// What has not arrived below `psn` is lost. The window is halved, once for all that were on their way.
void Core::take_for_lost(FlowIndex flow, std::uint32_t psn) {
    const Sender& sender = senders_[flow];
    TcpState& tcp = tcp_[extras_[flow].tcp];
    if (before(tcp.lost_below, psn)) tcp.lost_below = psn;
    if (tcp.recovering) return;
    tcp.recovering = true;
    tcp.timing = false;  // it may be one that is sent again (P. Karn, C. Partridge, SIGCOMM 1987)
    tcp.recover = sender.next_psn;
    tcp.threshold = std::max<std::uint32_t>(2, (sender.next_psn - sender.acked) / 2);
    tcp.window_q8 = tcp.threshold * whole;
}

/// Sends again what is taken for lost, and lets the flow send new packets, as far as the window exceeds what is still
/// on its way.
void Core::fill_tcp_window(FlowIndex flow) {
    Sender& sender = senders_[flow];
    TcpState& tcp = tcp_[extras_[flow].tcp];
    const std::uint32_t window = std::max<std::uint32_t>(1, tcp.window_q8 / whole);
    const std::uint32_t outstanding = sender.next_psn - sender.acked;
    std::uint32_t on_the_way = outstanding;
    sender.window = outstanding;  // nothing new before what is lost
    if (tcp.highest != sender.acked || tcp.lost_below != sender.acked) {
        const auto missing = [&](std::uint32_t psn) {
            return before(psn, tcp.lost_below) && !TcpState::test(tcp.sacked, psn);
        };
        on_the_way = 0;
        for (std::uint32_t psn = sender.acked; psn != sender.next_psn; ++psn) {
            if (missing(psn) && TcpState::test(tcp.resent, psn)) {
                const auto after = static_cast<std::int16_t>(static_cast<std::uint16_t>(tcp.highest) -
                                                             tcp.resent_before[psn % TcpState::most]);
                if (after >= static_cast<std::int16_t>(reordering)) TcpState::erase(tcp.resent, psn);
            }
            if (!TcpState::test(tcp.sacked, psn) && (!missing(psn) || TcpState::test(tcp.resent, psn))) ++on_the_way;
        }
        for (std::uint32_t psn = sender.acked; on_the_way < window && psn != sender.next_psn; ++psn) {
            if (!missing(psn) || TcpState::test(tcp.resent, psn)) continue;
            TcpState::insert(tcp.resent, psn);
            tcp.resent_before[psn % TcpState::most] = static_cast<std::uint16_t>(sender.next_psn);
            ++on_the_way;
            repeat(flow, psn);
        }
    }
    const std::uint32_t more = window > on_the_way ? window - on_the_way : 0;
    sender.window = std::min(outstanding + more, tcp.limit);
    if (!tcp.timing && !tcp.recovering && sender.next_psn != sender.end_psn && more > 0) {
        tcp.timing = true;
        tcp.timed = sender.next_psn;  // leaves as soon as its turn comes
        tcp.timed_since = now_;
    }
}

/// A packet goes out once more, ahead of its turn: a control packet of full length.
void Core::repeat(FlowIndex flow, std::uint32_t psn) {
    Sender& sender = senders_[flow];
    const std::uint32_t next_psn = sender.next_psn;
    const MessageIndex cursor = sender.cursor;
    sender.next_psn = psn;
    sender.cursor = sender.head;
    while (psn - messages_[sender.cursor].first_psn >= messages_[sender.cursor].packets)
        sender.cursor = messages_[sender.cursor].next;
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

/// What others have overtaken for too long is lost. If nothing has been acknowledged for too long, the last packet is
/// tried again, in case that it or its acknowledgement was lost; after that, or where it is the only one, whatever has
/// not arrived is lost. False: it is not too long yet.
bool Core::tcp_timeout(FlowIndex flow) {
    const Sender& sender = senders_[flow];
    FlowExtra& extra = extras_[flow];
    TcpState& tcp = tcp_[extra.tcp];
    if (sender.next_psn != tcp.sent_before) {
        tcp.sent_before = sender.next_psn;
        tcp.silent_since = now_;
    }
    if (now_ >= tcp.reordered_until) {
        tcp.reordered_until = time_never;
        if (before(sender.acked, tcp.highest)) take_for_lost(flow, tcp.highest);
        fill_tcp_window(flow);
        return true;
    }
    if (now_ - extra.progress < tcp.give_up_after(extra.timeout)) {
        if (!tcp.may_probe() || now_ - tcp.silent_since < tcp.probe_after() || sender.next_psn - sender.acked == 1)
            return false;
        tcp.probed = true;
        repeat(flow, sender.next_psn - 1);
        return true;
    }
    tcp.probed = false;
    tcp.timing = false;
    tcp.threshold = std::max<std::uint32_t>(2, (sender.next_psn - sender.acked) / 2);
    tcp.window_q8 = whole;
    tcp.recovering = true;
    tcp.timed_out = true;
    tcp.recover = sender.next_psn;
    tcp.lost_below = sender.next_psn;
    tcp.resent = {};
    extra.progress = now_;
    fill_tcp_window(flow);
    return true;
}

/// When to look for that next.
Time Core::tcp_deadline(FlowIndex flow) const {
    const FlowExtra& extra = extras_[flow];
    const TcpState& tcp = tcp_[extra.tcp];
    const Time probe = std::max(extra.progress, tcp.silent_since) + tcp.probe_after();
    const Time end = std::min(tcp.reordered_until, extra.progress + tcp.give_up_after(extra.timeout));
    return tcp.may_probe() && probe > now_ ? std::min(probe, end) : end;
}

}  // namespace incast::sim::packet

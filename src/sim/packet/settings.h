// The parameters of hosts, switches and flows. Where a default has no source it says "assumed"; docs/packet-model.md
// has the equations they stand in.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "sim/packet/dcqcn.h"
#include "sim/packet/routing.h"
#include "sim/packet/types.h"

namespace incast::sim::packet {

/// How a port chooses among its classes that may send. Weight 0: strict, before all others, the highest class first.
/// The rest share by deficit round robin (M. Shreedhar, G. Varghese, SIGCOMM 1995) in proportion to their weights, as
/// InfiniBand's VL arbitration does (IBTA volume 1, section 7.6.9: units of 64 B).
struct ClassService {
    std::array<std::uint8_t, max_classes> weight{1, 1, 1, 1, 1, 1, 1, 1};
};

struct HostSettings {
    std::uint32_t mtu_bytes = 4096;  // payload of a packet
    /// RoCE v2 on Ethernet: preamble and gap 20, Ethernet and FCS 18, IPv4 20, UDP 8, BTH 12, ICRC 4.
    std::uint32_t header_bytes = 82;
    std::uint32_t ack_bytes = 86;      // the same and AETH 4
    std::uint32_t cnp_bytes = 98;      // and 16 reserved (RoCE annex A17)
    std::uint32_t request_bytes = 98;  // and RETH 16: a read request
    /// So many packets travel as one: faster by that factor, but pauses, marks and drops then come in these units, so
    /// it is refused where any switch has PFC or ECN.
    std::uint32_t train_packets = 1;
    enum class Order : std::uint8_t {
        round_robin,   // a packet of each queue pair that may send, in turn
        message_order  // messages in the order they were posted, whatever their flow; no windows, pacing or loss
    };
    Order order = Order::round_robin;
    Time message_cost = 0;  // before the first packet of each message: descriptor, doorbell, DMA start
    /// Each takes a message after the other, and is busy from the beginning of its cost until its last packet has left.
    /// 0: packets of all messages in turn, and the cost of one holds up all.
    std::uint32_t dma_engines = 0;
    Rate transmit_limit{};  // of payload out of host memory (PCIe and DMA engines); 0 bit/s: none
    Rate receive_limit{};   // of payload into host memory; 0 bit/s: none
    std::uint64_t receive_buffer_bytes = 1 << 20;  // in the NIC, per class; what is credited, or else dropped when full
    std::uint64_t receive_xoff_bytes = 0;          // PFC from the NIC: pause a class above this; 0: never
    std::uint32_t outstanding_reads = 16;          // of this host as a reader
    std::uint8_t cnp_class = 0;
    ClassService service;

    /// Of a data packet, or of a train of them.
    [[nodiscard]] std::uint32_t payload_of(std::uint32_t wire_bytes) const {
        const std::uint32_t packets =
            train_packets == 1 ? 1 : (wire_bytes + mtu_bytes + header_bytes - 1) / (mtu_bytes + header_bytes);
        return wire_bytes - packets * header_bytes;
    }
};

enum class SwitchKind : std::uint8_t {
    /// Output queues in one shared memory, with PFC and ECN: Ethernet.
    shared_buffer,
    /// Input buffers with credits, one queue per (input, output, class), arbitration in turn over inputs: InfiniBand.
    credit,
    /// Input buffers with credits, one FIFO per (input, class): head-of-line blocking (Karol 1987).
    input_fifo,
    /// Virtual output queues per (ASIC, output, class) with egress credits; what does not fit on chip passes a memory
    /// of
    /// limited bandwidth.
    deep_buffer
};

struct EcnSettings {
    std::uint8_t classes = 0;  // bit c: class c is marked
    /// On the length of the egress queue: never below kmin, always above kmax, linear up to pmax.
    std::uint64_t kmin_bytes = 0;
    std::uint64_t kmax_bytes = 0;
    std::uint32_t pmax_per_million = 1'000'000;
    /// shared_buffer: by the queue that a packet leaves behind, not by the one that it finds. An ASIC may know both
    /// (deq_qdepth and enq_qdepth of Intel's Tofino); HPCC's artefact marks so.
    bool at_departure = false;
};

struct PfcSettings {
    std::uint8_t classes = 0;  // bit c: class c is lossless
    /// Of an ingress port and class: more than this pauses the sender; 0: alpha x what is left of the shared memory.
    std::uint64_t xoff_bytes = 0;
    /// Resumed when this far below the threshold. 3 KB: HPCC's artefact (docs/packet-model.md).
    std::uint64_t xon_gap_bytes = 3ULL * 1024;
    /// For what arrives after the pause was asked for, per port and class, beside the shared memory. No loss if it is
    /// at least rate x round trip and two packets (pfc_headroom()).
    std::uint64_t headroom_bytes = 0;
    /// A pause frame holds for so many times 512 bit times of its cable, at most 65,535; 0: until it is taken back.
    std::uint32_t quanta = 0;
    bool refresh = true;  // it is repeated in time, as long as quiet is wanted
};

struct SwitchSettings {
    SwitchKind kind = SwitchKind::shared_buffer;
    Time latency = 0;          // from the arrival of a packet until it may leave
    bool cut_through = false;  // on ports no faster than the cable a packet came from
    ClassService service;

    /// shared_buffer: memory for all ports, without the headroom. deep_buffer: off-chip memory per ASIC.
    std::uint64_t buffer_bytes = 16ULL << 20;
    /// Dynamic thresholds (A. Choudhury, E. Hahne, IEEE/ACM ToN 6(2), 1998): a queue may hold up to alpha x the free
    /// memory. In units of 1/256; ingress: PFC's threshold, egress: of classes that may be dropped.
    std::uint32_t alpha_ingress_q8 = 32;      // 1/8: HPCC's artefact
    std::uint32_t alpha_egress_q8 = 256;      // assumed
    std::uint64_t egress_limit_bytes = 0;     // a fixed limit per egress queue of a class that may be dropped; 0: none
    std::uint64_t ingress_reserve_bytes = 0;  // per port and class, beside the shared memory
    EcnSettings ecn;
    PfcSettings pfc;

    /// credit and input_fifo: input memory per port and class, given out as credits in units of 64 B.
    std::uint64_t input_buffer_bytes = 32ULL * 1024;
    /// credit: neighbours send without asking, and what finds no memory is asked for again (RapidIO's
    /// receiver-controlled flow control). Needs links that repeat.
    bool receiver_controlled = false;
    bool random_choice = false;  // input_fifo: outputs choose a waiting input at random, not in turn

    /// deep_buffer: consecutive ports form one ASIC with memory of its own.
    std::uint32_t ports_per_asic = 10;
    std::uint64_t on_chip_bytes = 16ULL << 20;  // per ASIC
    /// The spill rule: a packet goes off-chip if its virtual output queue would hold more than this on arrival, if the
    /// on-chip memory is half full, or if packets of its queue are off chip: so that none overtakes another.
    std::uint64_t spill_bytes = 256ULL * 1024;         // assumed
    Rate memory_bandwidth{};                           // of writes and reads together, per ASIC; 0 bit/s: no limit
    std::uint64_t egress_credit_bytes = 32ULL * 1024;  // asked for and not yet sent by an egress port; assumed
    Time fabric_latency = 0;                           // from the memory to the egress port
};

enum class Transport : std::uint8_t {
    datagram,  // as fast as it may; what is lost stays lost
    reliable,  // RoCE RC: window, go-back-N by NAK and time-out
    tcp        // slow start, additive increase, halving; out-of-order packets are kept
};

struct FlowSettings {
    HostIndex source = 0;
    HostIndex destination = 0;
    Transport transport = Transport::reliable;
    std::uint8_t traffic_class = 0;
    std::uint32_t entropy = nil;         // what ECMP hashes; nil: the number of the flow, shifted by the seed
    std::uint32_t window_packets = nil;  // not yet acknowledged; tcp: at most 256
    /// An acknowledgement after so many packets, beside the one after each message; 0: only that. Where packets can be
    /// lost, 0 is refused: a lost packet would then be repeated only after a whole message.
    std::uint32_t ack_packets = 0;
    Time retransmit_timeout = 0;  // 0: none
    Rate rate_limit{};            // 0 bit/s: none
    bool dcqcn = false;           // reacts to marks
    bool any_order = false;       // packets may overtake each other (spray); only where nothing is lost, or datagrams
};

struct Fault {
    enum class What : std::uint8_t { down, up, corrupt };
    Time at = 0;
    std::uint32_t cable = 0;
    What what = What::down;
    std::uint32_t per_million = 0;  // corrupt: of the packets in either direction; 0: no more
};

struct NetworkSettings {
    std::uint64_t seed = 1;
    Routing routing = Routing::ecmp;
    std::vector<HostSettings> hosts{1};
    std::vector<SwitchSettings> switches{1};
    DcqcnSettings dcqcn{};
    std::vector<Fault> faults;  // in order of time
    /// So long after a cable went down or came up all routes are made anew, around the cables that are down then; 0:
    /// never. A switch avoids its own dead cables at once in any case.
    Time reroute_after = 0;
    /// What of a packet stands on the cable but in no memory: Ethernet's preamble and gap.
    std::uint32_t unstored_bytes = 20;
    std::uint32_t pause_bytes = 84;  // 64 and the same 20 (IEEE 802.1Qbb, 802.3 annex 31B)
};

/// What a port and class must be able to hold after it asked for a pause, so that nothing is lost (compare IEEE 802.1Q
/// annex O): the pause waits for a packet on its way out, is sent, travels, is heeded after the packet that has begun,
/// and all the while the sender goes on.
constexpr std::uint64_t pfc_headroom(Rate rate, Time delay_there, Time delay_back, std::uint64_t packet_bytes,
                                     std::uint64_t pause_bytes) {
    const Time frame = BytePace(rate).of(pause_bytes);
    const Time round_trip = delay_there + delay_back + frame;
    __extension__ using Wide = unsigned __int128;
    const Wide bits = static_cast<Wide>(round_trip) * rate.bits_per_s;
    const auto bytes = static_cast<std::uint64_t>((bits + 8'000'000'000'000ULL - 1) / 8'000'000'000'000ULL);
    return bytes + 2 * packet_bytes;
}

}  // namespace incast::sim::packet

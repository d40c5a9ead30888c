// What the state of a network is made of, for the files of this folder only: plain records, addressed by index.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "sim/packet/network.h"
#include "sim/packet/pool.h"
#include "sim/packet/tcp.h"
#include "sim/packet/wheel.h"

namespace incast::sim::packet {

enum class NodeKind : std::uint8_t { host, shared_buffer, credit, input_fifo, deep_buffer };

/// So much of a packet has to come before a cut-through switch hands it on.
inline constexpr std::uint32_t cut_through_bytes = 64;

struct Node {
    NodeKind kind = NodeKind::host;
    std::uint8_t strict = 0;  // classes served strictly
    std::array<std::uint8_t, max_classes> weight{};
    std::uint32_t settings = 0;
    std::uint32_t state = 0;  // index into hosts_, shared_, inputs_ or deep_
    std::vector<PortIndex> ports;
};

/// One direction of a cable, and the egress port that feeds it: what every packet touches, in one cache line.
struct alignas(64) Port {
    BytePace pace;
    Time free_at = 0;  // the last packet put on the cable has left
    Chain cable;       // packets on their way, in order of arrival
    std::uint64_t sent_bytes = 0;
    std::uint32_t delay = 0;  // ps, from leaving here to being handled there
    std::uint32_t state = 0;  // of the node
    NodeIndex peer = 0;       // the node that receives
    std::uint32_t peer_state = 0;
    std::uint16_t local = 0;       // its number at the node
    std::uint16_t peer_local = 0;  // that of the port the other way
    NodeKind kind = NodeKind::host;
    NodeKind peer_kind = NodeKind::host;
    std::uint8_t condition = 0;     // bits of Condition
    std::uint8_t waiting = 0;       // classes that have something to send
    std::uint8_t paused = 0;        // classes that the receiver asked to be quiet
    std::uint8_t pause_wanted = 0;  // classes that this node wants the other side to be quiet in
    std::uint8_t pause_told = 0;    // and what it last told
    bool armed = false;             // its chance to send is scheduled
    bool credited = false;          // sends only what the receiver has given credit for
    bool starved = false;           // waits for credit that is not even on its way

    enum Condition : std::uint8_t { is_down = 1, corrupts = 2, hands_on_early = 4, repeats = 8 };
    [[nodiscard]] bool down() const { return (condition & is_down) != 0; }
    /// Nothing waits for it, not even a pause frame, it can send now, and is not asked to be quiet in these classes.
    [[nodiscard]] bool idle(Time now, std::uint8_t classes = 0) const {
        const unsigned busy = static_cast<unsigned>(waiting) | static_cast<unsigned>(armed) |
                              static_cast<unsigned>(pause_wanted ^ pause_told) |
                              static_cast<unsigned>(condition & is_down) | static_cast<unsigned>(paused & classes);
        return busy == 0 && now >= free_at;
    }
};
static_assert(sizeof(Port) == 64);

/// The rest of it.
struct PortDetail {
    NodeIndex node = 0;
    std::uint32_t corrupt_per_million = 0;
    std::uint32_t serving = nil;  // input_fifo: the input queue that is being read for it
    bool ignores_pause = false;
    bool receiver_decides = false;  // the receiver has memory for a packet, or asks for it again: link_retry.cpp
    std::uint32_t pause_timer = nil;
    std::uint8_t turn = 0;     // deficit round robin
    std::uint64_t random = 0;  // state of its own random numbers: traffic elsewhere does not change them
    Time paused_since = 0;
    PortCounters counters;             // without packets and bytes
    std::uint64_t packets_before = 0;  // when counting began
    std::uint64_t control_before = 0;
    std::uint64_t bytes_before = 0;

    std::uint64_t draw() { return base::mix64(random++); }
};

/// What is counted for every packet that is put on a cable, apart, so that the counts of many ports lie close together.
struct PortCount {
    std::uint64_t packets = 0;
    std::uint64_t control_packets = 0;
    // The longest that found nothing in front of it and is in its queue's peak; of one class at a time.
    std::uint32_t passed_bytes = 0;
    std::uint32_t passed_class = 0;
};

/// What waits in front of one port, of one class. At hosts: control packets.
struct alignas(64) Queue {
    __extension__ using Wide = unsigned __int128;
    Chain chain;  // of packets; at switches with input memories: of input queues that have some
    std::uint64_t bytes = 0;
    std::uint64_t peak = 0;
    Time changed = 0;
    std::int64_t deficit = 0;
    Wide area = 0;  // bytes x ps until `changed`

    void change(Time now, std::int64_t by) {
        area += static_cast<Wide>(bytes) * static_cast<std::uint64_t>(now - changed);
        changed = now;
        bytes += static_cast<std::uint64_t>(by);
        peak = peak < bytes ? bytes : peak;
    }
};

/// Of the pauses that a port hears, where they expire.
struct PauseTimer {
    PortIndex quiet = nil;
    Time holds = 0;
    bool refreshes = false;  // who asks does so again in time
    std::array<Time, max_classes> until{};
    EventId expiry = nil;
    EventId refresh = nil;
};

struct Credit {
    struct Return {
        Time time;
        std::uint32_t bytes;
    };
    std::int64_t available = 0;
    std::uint32_t delay = 0;  // ps, from the receiver back to the sender
    Ring<Return> on_its_way;  // in order of time

    /// Units of 64 B (IBTA volume 1, section 7.9: flow control blocks).
    static constexpr std::uint32_t needed(std::uint32_t stored_bytes) { return (stored_bytes + 63) & ~63U; }
    /// What is back by now is available.
    void collect(Time now) {
        while (!on_its_way.empty() && on_its_way.front().time <= now) {
            available += on_its_way.front().bytes;
            on_its_way.pop();
        }
    }
    [[nodiscard]] bool has(Time now, std::int64_t wanted) {
        if (available < wanted) collect(now);
        return available >= wanted;
    }
    /// When there is as much; time_never: not even on its way.
    [[nodiscard]] Time time_of(Time now, std::int64_t wanted) {
        if (has(now, wanted)) return now;
        std::int64_t missing = wanted - available;
        for (std::uint32_t entry = 0; entry < on_its_way.size(); ++entry) {
            missing -= on_its_way[entry].bytes;
            if (missing <= 0) return on_its_way[entry].time;
        }
        return time_never;
    }
};

struct Ingress {
    std::uint32_t bytes = 0;          // in all
    std::uint32_t headroom : 31 = 0;  // of them in the headroom
    std::uint32_t asked : 1 = 0;      // the sender was asked to pause
};

struct alignas(64) SharedBuffer {
    std::uint64_t used = 0;
    std::uint64_t size = 0;
    std::uint64_t alpha_ingress_q8 = 0;
    std::uint64_t xoff = 0;
    std::uint64_t reserve = 0;
    std::uint64_t kmin = 0;
    std::uint64_t xon_gap = 0;
    std::uint8_t lossless = 0;
    std::uint8_t marking = 0;          // classes that are marked when they arrive
    std::uint8_t marking_leaving = 0;  // or when they leave
    // Only where something is lost, marked or beyond its threshold.
    std::uint64_t alpha_egress_q8 = 0;
    std::uint64_t egress_limit = 0;
    std::uint64_t headroom = 0;
    std::uint64_t kmax = 0;
    std::uint64_t mark_slope_q16 = 0;  // of 2^32, per byte above kmin

    [[nodiscard]] std::uint64_t pause_threshold() const {
        if (xoff != 0) return xoff;
        return used >= size ? 0 : (alpha_ingress_q8 * (size - used)) >> 8;
    }
    /// What a queue of a class that may be dropped can hold.
    [[nodiscard]] std::uint64_t drop_threshold() const {
        return egress_limit != 0 ? egress_limit : (alpha_egress_q8 * (size - used)) >> 8;
    }
    /// A packet of that class may be stored, and whether it is or not has no consequences.
    [[nodiscard]] bool passes(const Ingress& ingress, std::uint8_t bit, std::uint32_t bytes) const {
        if (bytes > size - used) return false;
        if ((lossless & bit) == 0) return bytes <= drop_threshold();
        // What is in the reserve is not counted: beyond the threshold there is nothing of this packet if nothing is.
        return (ingress.headroom | ingress.asked) == 0 && std::uint64_t{ingress.bytes} + bytes <= pause_threshold();
    }
};

struct Message {
    std::uint32_t next = nil;
    std::uint32_t first_psn = 0;
    std::uint32_t packets = 0;
    std::uint32_t received = 0;  // where packets may overtake each other or be lost
    FlowIndex flow = 0;
    bool charged = false;  // its message cost has been spent
    bool is_read = false;
    bool on_engine = false;  // of a host with DMA engines
    std::uint32_t next_of_host = nil;
    std::uint64_t bytes = 0;
    std::uint64_t token = 0;
};

struct Sender {
    enum class State : std::uint8_t { idle, ready, paced, waits_for_engine };
    std::uint32_t next = nil;  // in the ready chain of its host
    std::uint32_t next_psn = 0;
    std::uint32_t acked = 0;
    std::uint32_t end_psn = 0;
    std::uint32_t window = nil;
    MessageIndex head = nil;  // not yet acknowledged
    MessageIndex tail = nil;
    MessageIndex cursor = nil;  // being sent
    Time next_time = 0;         // pacing: not before
    BytePace pace;
    std::uint32_t entropy = 0;
    HostIndex source = 0;
    HostIndex destination = 0;
    Transport transport = Transport::reliable;
    std::uint8_t traffic_class = 0;
    State state = State::idle;
    bool controlled = false;  // DCQCN
};

struct Receiver {
    std::uint32_t expected = 0;
    std::uint32_t since_ack = 0;
    std::uint32_t ack_packets = 0;
    MessageIndex current = nil;
    Time notify_from = 0;  // the next CNP
    bool nak_sent = false;
    bool any_order = false;
};

/// What only some flows need, and seldom. Small, because there may be one per ordered pair of hosts.
struct FlowExtra {
    Rate limit;
    Time timeout = 0;
    Time progress = 0;            // when the oldest packet not acknowledged became the oldest
    std::uint32_t highest = 0;    // all below has been sent at least once
    std::uint32_t control = nil;  // into controls_, from the first notification on
    std::uint32_t tcp = nil;
    std::uint64_t repeated = 0;
};

struct Host {
    struct Paced {
        Time time;
        FlowIndex flow;
    };
    struct Arrived {
        PacketIndex packet;
        std::uint32_t payload;
    };
    PortIndex port = nil;
    NodeIndex node = 0;
    std::uint32_t settings = 0;
    bool ordered = false;                    // HostSettings::Order::message_order
    std::array<Chain, max_classes> ready{};  // flows that may send
    Chain in_order;                          // messages, where they are sent in order
    bool has_engines = false;                // HostSettings::dma_engines
    Ring<Time> idle_engines;                 // when they are free, in order of time
    Chain wait_for_engine;                   // flows
    std::vector<Paced> paced;                // a heap
    Time inject_at = 0;                      // the next payload can leave host memory
    BytePace inject_pace;
    BytePace receive_pace;
    Ring<Arrived> arrived;  // waits for host memory
    std::array<std::uint64_t, max_classes> arrived_bytes{};
    std::uint32_t reads = 0;  // outstanding
    Ring<MessageIndex> reads_waiting;
};

/// One input memory of a switch, one class: for one output, or for all.
struct InputQueue {
    std::uint32_t next = nil;  // in the ring of its output
    Chain packets;
    bool busy = false;  // input_fifo: being read
};

struct InputSwitch {
    std::uint32_t ports = 0;
    std::array<std::uint32_t, max_classes> first{nil, nil, nil, nil, nil, nil, nil, nil};  // into input_queues_
    NodeIndex node = 0;
    EventId arbitrate_event = nil;  // input_fifo
    bool random_choice = false;
};

enum class Special : std::uint8_t {
    host_wake,
    host_receive,
    arbitrate,
    memory,
    egress_arrival,
    fault,
    reroute,
    pause_expiry,
    pause_refresh
};
struct SpecialEvent {
    Special what;
    std::uint32_t subject;
};

/// Where a packet is in a switch with deep buffers.
enum DeepPlace : std::uint8_t { on_chip, being_written, off_chip };

/// A virtual output queue: of one ASIC, for one egress port and class.
struct DeepQueue {
    std::uint32_t next = nil;  // in the ring of its egress port
    Chain packets;
    std::uint64_t bytes = 0;
    std::uint32_t off_chip = 0;  // packets that are off chip, or on their way there or back
    PortIndex egress = nil;
    bool in_ring = false;
};

struct DeepAsic {
    std::uint32_t deep = 0;  // its switch
    EventId event = nil;
    std::uint64_t on_chip = 0;   // bytes
    std::uint64_t off_chip = 0;  // bytes, and what is to be written
    struct Work {
        PacketIndex packet;
        std::uint32_t queue;
    };
    Ring<Work> writes;
    Ring<Work> reads;
    Work current{nil, nil};  // what the memory is busy with
    bool writing = false;
    bool wrote_last = false;
};

/// In front of an egress port of a switch with deep buffers.
struct DeepEgress {
    std::array<Chain, max_classes> ring{};  // of virtual output queues that have a packet to give
    std::uint8_t waiting = 0;               // their classes
    std::uint64_t asked = 0;                // bytes asked for and not yet sent
    Chain fabric;                           // packets on their way from a memory
    EventId event = nil;
};

struct DeepSwitch {
    NodeIndex node = 0;
    std::uint32_t first_asic = 0;
    std::uint32_t first_queue = 0;
    BytePace memory_pace;
    SharedBuffer marks;  // its ECN and PFC settings
};

}  // namespace incast::sim::packet

// The state of a network and what is done to it, for the files of this folder only; a port never holds more than two
// events, its next arrival and its next chance to send.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "base/prefetch.h"
#include "sim/packet/network.h"
#include "sim/packet/state.h"
#include "sim/packet/wheel.h"

namespace incast::sim::packet {

class Core {
    friend class Network;

    // Set once.
    NetworkSettings settings_;
    Topology topology_;
    RouteTable routes_;
    std::vector<Node> nodes_;
    std::vector<SpecialEvent> special_;
    EventId first_special_ = 0;
    EventId first_flow_event_ = 0;
    std::uint8_t droppable_ = 0;  // classes that some switch may drop
    std::uint32_t largest_wire_bytes_ = 0;
    std::uint32_t port_count_ = 0;
    EventId fault_event_ = nil;
    EventId reroute_event_ = nil;  // nil: routes are never made anew
    bool spray_ = false;
    std::uint8_t input_classes_ = 0;  // that switches with input memories have queues for

    // What moves.
    Wheel wheel_;
    Time now_ = 0;
    std::uint64_t trace_ = 0;
    std::uint64_t events_ = 0;
    std::vector<Port> ports_;
    std::vector<PortDetail> details_;
    std::vector<PortCount> counts_;            // by port
    std::vector<Queue> queues_;                // by slot_of(port, class)
    std::vector<std::uint64_t> spray_random_;  // by node: state of the random numbers that spray its packets
    IndexPool<Packet> packets_;
    IndexPool<Message> messages_;
    std::vector<SharedBuffer> shared_;
    std::vector<Ingress> ingress_;  // by slot_of(own port, class)
    std::vector<Credit> credits_;   // by slot_of(port, class)
    std::vector<PauseTimer> pause_timers_;
    std::vector<InputSwitch> inputs_;
    std::vector<InputQueue> input_queues_;
    std::vector<DeepSwitch> deep_;
    std::vector<DeepAsic> asics_;
    std::vector<DeepQueue> deep_queues_;
    std::vector<DeepEgress> egresses_;  // [port]
    std::vector<Host> hosts_;
    template <class T>
    using Many = std::vector<T, base::LargePages<T>>;  // there may be a million flows
    Many<Sender> senders_;
    Many<Receiver> receivers_;
    Many<FlowExtra> extras_;
    std::vector<RateControl> controls_;
    std::vector<TcpState> tcp_;
    Ring<Outcome> outcomes_;
    Balance balance_;  // without what is in flight
    std::size_t next_fault_ = 0;
    std::size_t next_reroute_ = 0;  // the first of the faults that routes do not know of
    Time counting_since_ = 0;

public:
    Core(const Topology& topology, const NetworkSettings& settings, unsigned slot_shift, unsigned slot_bits);
    ~Core();
    Core(const Core&) = delete;
    Core& operator=(const Core&) = delete;

    // build.cpp
    static Result<std::unique_ptr<Core>> make(const Topology& topology, const NetworkSettings& settings);
    void add_nodes();
    void add_ports();
    void reseed(std::uint64_t seed);
    void set_cut_through();
    void add_switches();

    // core.cpp
    EventId add_special(Special what, std::uint32_t subject);
    void run(Time until, bool to_outcome);
    void handle(EventId id);
    void handle_special(const SpecialEvent& event);
    void serve(PortIndex port);
    void arrive(PortIndex port);
    void arrive_at(NodeKind kind, PortIndex port, PacketIndex packet);
    void hear_pause(PortIndex port, std::uint32_t classes);
    void set_paused(PortIndex port, std::uint8_t classes);

    // dma_engines.cpp
    /// What it sends next has had no DMA engine, where that is asked for.
    [[nodiscard]] bool needs_engine(const Host& host, const Sender& sender) const {
        return host.has_engines && !messages_[sender.cursor].charged;
    }
    void take_engine(FlowIndex flow);
    void end_on_engine(HostIndex host, Message& message, std::uint32_t wire_bytes);
    void offer(FlowIndex flow);

    // faults.cpp
    void apply_faults();
    void plan_reroute();
    void reroute();
    bool lost_on_cable(PortIndex port, PacketIndex packet);

    // link_retry.cpp
    void repeat_on_link(PortIndex port, PacketIndex refused, unsigned times_over_cable);
    bool refused_on_link(PortIndex port, PacketIndex packet);

    // pause_timer.cpp
    void add_pause_timer(PortIndex port, const PfcSettings& settings);
    void restart_pause(std::uint32_t timer, std::uint8_t classes);
    void expire_pauses(std::uint32_t timer);
    void plan_refresh(std::uint32_t timer, std::uint8_t classes);
    void refresh_pause(std::uint32_t timer);

    // balance.cpp
    void drop(PortIndex counted_at, PacketIndex packet);
    [[nodiscard]] Tally in_flight() const;

    // deadlock.cpp
    bool waits(PortIndex port, std::uint8_t traffic_class, std::uint64_t& resume_bytes) const;
    void add_held(PortIndex holder, std::uint8_t traffic_class,
                  const std::function<void(PortIndex, std::uint64_t)>& add) const;

    // shared_buffer.cpp
    static SharedBuffer make_thresholds(const SwitchSettings& settings);
    void queue_shared(PortIndex own, PacketIndex packet, PortIndex out);
    void serve_shared(PortIndex port);
    void ask_for_pause(PortIndex own, Ingress& ingress, std::uint8_t bit);
    void leave_shared(SharedBuffer& buffer, PortIndex own, std::uint8_t traffic_class, std::uint32_t wire_bytes);

    // credit_switch.cpp
    void open_input_class(std::uint8_t traffic_class);
    void queue_credit(PortIndex cable, PacketIndex packet, PortIndex out);
    void serve_credit(PortIndex port);
    /// Schedules the next chance to send of a port that has packets waiting.
    void plan_credit(PortIndex port);
    Credit& credit(PortIndex port, unsigned traffic_class) { return credits_[slot_of(port, traffic_class)]; }
    [[nodiscard]] bool has_credit(PortIndex port, unsigned traffic_class, std::uint32_t wire_bytes) {
        return credit(port, traffic_class).has(now_, Credit::needed(stored(wire_bytes)));
    }
    void take_credit(PortIndex port, unsigned traffic_class, std::uint32_t wire_bytes) {
        credit(port, traffic_class).available -= Credit::needed(stored(wire_bytes));
    }
    [[nodiscard]] Time credit_time(PortIndex port, unsigned traffic_class, std::uint32_t wire_bytes) {
        return credit(port, traffic_class).time_of(now_, Credit::needed(stored(wire_bytes)));
    }
    /// Of the packet that is next in such a queue of a switch, which is not empty.
    [[nodiscard]] std::uint32_t next_wire_bytes(PortIndex port, unsigned traffic_class) const {
        return packets_[input_queues_[queue(port, traffic_class).chain.head].packets.head].wire_bytes;
    }
    /// The receiver of `port` has room for a packet again from `left_at` on, and lets the sender know.
    void give_credit(PortIndex port, std::uint8_t traffic_class, std::uint32_t wire_bytes, Time left_at);

    // input_fifo.cpp
    void arrive_input_fifo(PortIndex own, PacketIndex packet);
    void serve_input_fifo(PortIndex port);
    void enter_head(const InputSwitch& inputs, std::uint32_t input);
    void arbitrate(std::uint32_t input_switch);
    std::uint32_t choose_input(const InputSwitch& inputs, PortIndex port, Queue& queue);

    // deep_buffer.cpp
    void add_deep(NodeIndex node);
    void arrive_deep(PortIndex own, PacketIndex packet);
    void serve_deep(PortIndex port);
    void pull_deep(PortIndex port);
    void offer_deep(std::uint32_t queue);
    [[nodiscard]] std::uint32_t asic_of(PortIndex own) const;
    void leave_chip(PortIndex own, std::uint8_t traffic_class, std::uint32_t bytes);
    void send_to_egress(PortIndex port, PacketIndex packet);
    void start_memory(std::uint32_t asic);
    void memory_done(std::uint32_t asic);
    void egress_arrival(PortIndex port);

    // host_send.cpp
    void append(FlowIndex flow, MessageIndex message);
    void refresh(FlowIndex flow);
    void kick_host(PortIndex port);
    void serve_host(PortIndex port);
    void plan_host(PortIndex port);
    void sent_data(Host& host, const Port& port, FlowIndex flow, std::uint32_t wire_bytes, bool last);
    void pace(Host& host, FlowIndex flow);
    Time processing_time(FlowIndex flow);
    void wake_host(HostIndex host);
    void send_control(HostIndex from, PacketKind kind, FlowIndex flow, std::uint32_t psn, std::uint8_t traffic_class);
    FlowIndex ready_flow(Host& host, std::uint8_t traffic_class);
    PacketIndex make_data(FlowIndex flow);
    [[nodiscard]] std::uint32_t data_wire_bytes(FlowIndex flow) const;
    /// Payload of a packet that is not the last of its message.
    [[nodiscard]] std::uint64_t data_unit(HostIndex source) const;
    [[nodiscard]] bool sendable(const Sender& sender) const;
    void request_reads(HostIndex reader);

    // host_receive.cpp
    void arrive_host(PortIndex own, PacketIndex packet);
    void drain_host(HostIndex host);
    void receive(HostIndex host, PacketIndex packet);
    void receive_data(HostIndex host, const Packet& packet);
    void receive_reliable(HostIndex host, const Packet& packet);
    void receive_any_order(HostIndex host, const Packet& packet);
    void deliver(FlowIndex flow, MessageIndex message, Outcome::What what);
    void receive_ack(FlowIndex flow, std::uint32_t psn, bool missing);
    void forget_oldest(FlowIndex flow);
    void rewind(FlowIndex flow);
    void flow_timer(FlowIndex flow);
    void schedule_flow_timer(FlowIndex flow);
    void set_pace(FlowIndex flow);
    void notify(FlowIndex flow);
    /// nullptr: congestion control holds nothing back.
    [[nodiscard]] RateControl* active_control(const FlowExtra& extra) {
        return extra.control != nil && controls_[extra.control].active() ? &controls_[extra.control] : nullptr;
    }

    // tcp.cpp
    void receive_tcp(HostIndex host, const Packet& packet);
    void receive_tcp_ack(FlowIndex flow, std::uint32_t acknowledged);
    void tcp_ack(FlowIndex flow, std::uint32_t psn);
    void take_for_lost(FlowIndex flow, std::uint32_t psn);
    void fill_tcp_window(FlowIndex flow);
    bool tcp_timeout(FlowIndex flow);
    [[nodiscard]] Time tcp_deadline(FlowIndex flow) const;
    void repeat(FlowIndex flow, std::uint32_t psn);

    // Short, and on every packet's way.
    [[nodiscard]] static EventId arrival_event(PortIndex port) { return 2 * port; }
    [[nodiscard]] static EventId send_event(PortIndex port) { return 2 * port + 1; }
    [[nodiscard]] std::uint32_t stored(std::uint32_t wire_bytes) const { return wire_bytes - settings_.unstored_bytes; }
    /// Class by class, so that the classes in use lie close together.
    [[nodiscard]] std::size_t slot_of(PortIndex port, unsigned traffic_class) const {
        return std::size_t{traffic_class} * port_count_ + port;
    }
    Queue& queue(PortIndex port, unsigned traffic_class) { return queues_[slot_of(port, traffic_class)]; }
    [[nodiscard]] const Queue& queue(PortIndex port, unsigned traffic_class) const {
        return queues_[slot_of(port, traffic_class)];
    }

    /// A packet that found nothing in front of it was as much of a queue as one that did.
    void note_passing(PortIndex index, unsigned traffic_class, std::uint32_t bytes) {
        PortCount& count = counts_[index];
        if (bytes <= count.passed_bytes && traffic_class == count.passed_class) return;
        count.passed_bytes = bytes;
        count.passed_class = traffic_class;
        Queue& queue = this->queue(index, traffic_class);
        queue.peak = queue.peak < bytes ? bytes : queue.peak;
    }

    [[nodiscard]] Rate line_rate(FlowIndex flow) const {
        return topology_.cables[hosts_[senders_[flow].source].port / 2].rate;
    }
    [[nodiscard]] PortIndex route(NodeIndex node, const Packet& packet) {
        const std::uint32_t entry = routes_.entry(node, packet.destination);
        return entry < RouteTable::first_group ? entry : choose_port(node, routes_.group(entry), packet.entropy);
    }
    /// Events that come soon: what they will touch is on its way from memory meanwhile, step by step, since each step
    /// is found through the one before.
    void look_ahead() const {
        if (const EventId third = wheel_.upcoming(3); third < first_special_) __builtin_prefetch(&ports_[third >> 1]);
        if (const EventId second = wheel_.upcoming(2); second < first_special_) {
            const Port& port = ports_[second >> 1];
            if ((second & 1) == 0) {
                packets_.prefetch(port.cable.head);
            } else {
                __builtin_prefetch(&first_queue(second >> 1, port));
                if (port.kind == NodeKind::host) base::prefetch(hosts_[port.state]);
            }
        }
        const EventId next = wheel_.upcoming(1);
        if (next >= first_special_) return;
        const Port& port = ports_[next >> 1];
        if ((next & 1) != 0) {
            if (port.kind == NodeKind::shared_buffer) {
                packets_.prefetch(first_queue(next >> 1, port).chain.head);
            } else if (port.kind == NodeKind::host && port.waiting != 0) {
                // Of a ready flow, which may be nil: the address is not read.
                __builtin_prefetch(senders_.data() + hosts_[port.state].ready[lowest_class(port)].head);
            }
        } else if (port.peer_kind != NodeKind::host && port.cable.head != nil) {
            __builtin_prefetch(&routes_.entry(port.peer, packets_[port.cable.head].destination));
        }
    }
    [[nodiscard]] static unsigned lowest_class(const Port& port) {
        return port.waiting == 0 ? 0U : static_cast<unsigned>(std::countr_zero(port.waiting));
    }
    /// Of those in front of a port, that of the lowest class that waits.
    [[nodiscard]] const Queue& first_queue(PortIndex index, const Port& port) const {
        return queue(index, lowest_class(port));
    }
    /// The last cable of a packet's way: its flow, of which there may be a million, comes from memory meanwhile.
    void await_flow(const Packet& packet) const {
        if (packet.flow >= senders_.size()) return;  // a pause
        __builtin_prefetch(&senders_[packet.flow]);
        if (packet.kind == PacketKind::data) {
            __builtin_prefetch(&receivers_[packet.flow]);
        } else {
            __builtin_prefetch(&extras_[packet.flow]);
        }
    }
    PortIndex choose_port(NodeIndex node, const PortGroup& group, std::uint32_t entropy);

    void arm(PortIndex index, Port& port) {
        if (port.armed) return;
        port.armed = true;
        wheel_.schedule_new(send_event(index), port.free_at);
    }
    /// Puts a packet on the cable, now; the port is free.
    [[gnu::always_inline]] void start(PortIndex index, Port& port, PacketIndex packet_index) {
        Packet& packet = packets_[packet_index];
        port.free_at = now_ + port.pace.of(packet.wire_bytes);
        Time arrival = port.free_at + port.delay;
        if ((port.condition & Port::hands_on_early) != 0 && packet.wire_bytes > cut_through_bytes)
            arrival = now_ + port.pace.of(cut_through_bytes) + port.delay;
        packet.next = nil;
        if (port.cable.empty()) {
            port.cable.head = packet_index;
            wheel_.schedule_new(arrival_event(index), arrival);
        } else {
            Packet& before = packets_[port.cable.tail];
            before.next = packet_index;
            before.next_arrival_or_ingress = static_cast<std::uint32_t>(arrival);
        }
        port.cable.tail = packet_index;
        port.sent_bytes += packet.wire_bytes;
        if (port.peer_kind == NodeKind::host) await_flow(packet);
        PortCount& count = counts_[index];
        ++count.packets;
        count.control_packets += packet.kind == PacketKind::data ? 0 : 1;
    }
    void start_pause(PortIndex index, Port& port);
    /// ECN, of a packet that finds or leaves `queued` bytes, more than kmin, in front of the port.
    void mark(PortIndex index, const SharedBuffer& settings, std::uint64_t queued, Packet& packet) {
        PortDetail& out = details_[index];
        if (packet.kind != PacketKind::data || packet.marked) return;
        if (queued <= settings.kmax) {
            const std::uint64_t threshold = ((queued - settings.kmin) * settings.mark_slope_q16) >> 16;
            if (static_cast<std::uint32_t>(out.draw()) >= threshold) return;
        }
        packet.marked = true;
        ++out.counters.marked;
    }
    /// give_credit, for those on every packet's way.
    [[gnu::always_inline]] void return_credit(PortIndex index, std::uint8_t traffic_class, std::uint32_t wire_bytes,
                                              Time left_at) {
        Port& port = ports_[index];
        Credit& credit = this->credit(index, traffic_class);
        Ring<Credit::Return>& returns = credit.on_its_way;
        const Time time = left_at + credit.delay;
        // So that only what is really on its way is held, in few cache lines.
        credit.collect(now_);
        returns.push({time, Credit::needed(stored(wire_bytes))});
        // Packets of different lengths leave over different cables: a later one may be the first to have left.
        for (std::uint32_t entry = returns.size() - 1; entry > 0 && returns[entry].time < returns[entry - 1].time;
             --entry)
            std::swap(returns[entry], returns[entry - 1]);
        if (port.starved) {
            port.starved = false;
            port.armed = true;
            wheel_.schedule(send_event(index), std::max(time, port.free_at));
        } else if (port.armed && (port.waiting & (port.waiting - 1)) != 0) {
            wheel_.schedule_by(send_event(index), std::max(time, port.free_at));
        }
    }
    /// At a switch with input memories: if nothing is in front of the packet, and there is a place at the other end, it
    /// goes on in the instant in which it came.
    [[gnu::always_inline]] bool passes_credit(PortIndex cable, PacketIndex packet_index, PortIndex out_index) {
        Port& out = ports_[out_index];
        const Packet& packet = packets_[packet_index];
        const std::uint8_t traffic_class = packet.traffic_class;
        const std::uint32_t wire_bytes = packet.wire_bytes;
        if (!out.idle(now_) || (out.credited && !has_credit(out_index, traffic_class, wire_bytes))) return false;
        note_passing(out_index, traffic_class, stored(wire_bytes));
        if (out.credited) take_credit(out_index, traffic_class, wire_bytes);
        start(out_index, out, packet_index);
        return_credit(cable, traffic_class, wire_bytes, out.free_at);
        return true;
    }
    /// One of the classes in `ready`, which is not empty.
    std::uint8_t choose_class(PortIndex index, std::uint8_t ready) {
        if ((ready & (ready - 1)) == 0) return static_cast<std::uint8_t>(std::countr_zero(ready));
        return choose_among(index, ready);
    }
    std::uint8_t choose_among(PortIndex index, std::uint8_t ready);
    /// After choose_class chose among several.
    void charge_class(PortIndex index, std::uint8_t ready, std::uint8_t chosen, std::uint32_t wire_bytes) {
        if ((ready & (ready - 1)) != 0) queue(index, chosen).deficit -= wire_bytes;
    }
};

}  // namespace incast::sim::packet

// From a description to a network: checks, arrays, events.
#include <algorithm>
#include <memory>

#include "sim/packet/core.h"

namespace incast::sim::packet {
namespace {

Error bad(const std::string& what) {
    return Error{"fabric: " + what};
}

constexpr std::uint64_t credit_block = 64;
constexpr Time most_ahead = Time{1} << 32;  // a packet's arrival time has 32 bits

bool takes_credit(SwitchKind kind) {
    return kind == SwitchKind::credit || kind == SwitchKind::input_fifo;
}

Result<Ok> check_switch(const SwitchSettings& settings, const std::string& name) {
    if (settings.latency < 0) return bad(name + ": latency is negative; a time of 0 or more");
    if (settings.kind == SwitchKind::deep_buffer && settings.ports_per_asic == 0)
        return bad(name + ": ports_per_asic is 0; at least 1");
    if (settings.ecn.classes != 0 && settings.ecn.kmin_bytes > settings.ecn.kmax_bytes)
        return bad(name + ": kmin_bytes " + std::to_string(settings.ecn.kmin_bytes) + " exceeds kmax_bytes " +
                   std::to_string(settings.ecn.kmax_bytes));
    if (settings.pfc.quanta > 65535)
        return bad(name + ": pfc.quanta " + std::to_string(settings.pfc.quanta) + "; 0 to 65535");
    if (settings.receiver_controlled && settings.kind != SwitchKind::credit)
        return bad(name + ": receiver_controlled on a switch without link credits");
    if (settings.ecn.classes != 0 && settings.ecn.at_departure && settings.kind == SwitchKind::deep_buffer)
        return bad(name + ": a deep buffer marks packets when they arrive");
    if (settings.ecn.pmax_per_million > 1'000'000)
        return bad(name + ": pmax_per_million " + std::to_string(settings.ecn.pmax_per_million) + "; at most 1000000");
    if (settings.kind == SwitchKind::deep_buffer && settings.pfc.classes != 0 && settings.pfc.xoff_bytes == 0)
        return bad(name + ": a deep buffer needs a fixed xoff_bytes, of what a port holds on chip");
    return Ok{};
}

Result<Ok> check_host(const HostSettings& settings, const std::string& name) {
    if (settings.mtu_bytes == 0 || settings.mtu_bytes > 65536)
        return bad(name + ": mtu_bytes " + std::to_string(settings.mtu_bytes) + "; 1 to 65536");
    if (settings.train_packets == 0 || settings.train_packets > 64)
        return bad(name + ": train_packets " + std::to_string(settings.train_packets) + "; 1 to 64");
    if (settings.cnp_class >= max_classes)
        return bad(name + ": cnp_class " + std::to_string(settings.cnp_class) + "; 0 to 7");
    if (settings.dma_engines != 0 && settings.order == HostSettings::Order::message_order)
        return bad(name + ": dma_engines " + std::to_string(settings.dma_engines) +
                   " beside messages in the order of posting; 0, or packets in turn");
    if (settings.outstanding_reads == 0) return bad(name + ": outstanding_reads is 0; at least 1");
    return Ok{};
}

struct Checked {
    std::uint64_t largest_wire_bytes = 0;
    bool congestible = false;
    std::uint8_t droppable = 0;
};

Result<Checked> check_settings(const Topology& topology, const NetworkSettings& settings) {
    Checked checked;
    bool overrun = false;  // a host that may be slower than its cable, and does not pause it
    bool credited = true;  // but cannot be sent more than it has room for
    for (std::size_t node_index = 0; node_index < topology.nodes.size(); ++node_index) {
        const Topology::Node& node = topology.nodes[node_index];
        const std::size_t known = node.is_host ? settings.hosts.size() : settings.switches.size();
        if (node.settings >= known)
            return bad(node.name + ": settings " + std::to_string(node.settings) + " of " + std::to_string(known));
        if (node.shift_divisor == 0) return bad(node.name + ": shift_divisor is 0; at least 1");
        if (node.is_host) {
            const HostSettings& host = settings.hosts[node.settings];
            const Result<Ok> result = check_host(host, node.name);
            if (!result) return result.error();
            if (host.header_bytes < settings.unstored_bytes ||
                std::min({host.ack_bytes, host.cnp_bytes, host.request_bytes}) < settings.unstored_bytes)
                return bad(node.name + ": a header or control packet is shorter than unstored_bytes " +
                           std::to_string(settings.unstored_bytes));
            checked.largest_wire_bytes = std::max<std::uint64_t>(
                checked.largest_wire_bytes, (std::uint64_t{host.mtu_bytes} + host.header_bytes) * host.train_packets);
            overrun |= host.receive_limit.bits_per_s != 0 && host.receive_xoff_bytes == 0;
        } else {
            const SwitchSettings& node_settings = settings.switches[node.settings];
            const Result<Ok> result = check_switch(node_settings, node.name);
            if (!result) return result.error();
            checked.congestible |= node_settings.pfc.classes != 0 || node_settings.ecn.classes != 0;
            if (takes_credit(node_settings.kind)) continue;
            checked.droppable |= static_cast<std::uint8_t>(~node_settings.pfc.classes);
            credited = false;
        }
    }
    if (overrun && !credited) checked.droppable = 0xff;
    for (const Fault& fault : settings.faults)
        if (fault.what == Fault::What::down ||
            (fault.what == Fault::What::corrupt && fault.cable < topology.cables.size() &&
             !topology.cables[fault.cable].repeats))
            checked.droppable = 0xff;
    if (!std::is_sorted(settings.faults.begin(), settings.faults.end(),
                        [](const Fault& one, const Fault& two) { return one.at < two.at; }))
        return bad("faults are not in order of time");
    for (const Fault& fault : settings.faults)
        if (fault.cable >= topology.cables.size())
            return bad("a fault names cable " + std::to_string(fault.cable) + " of " +
                       std::to_string(topology.cables.size()));
    return checked;
}

Result<Ok> check_cables(const Topology& topology, const NetworkSettings& settings, const Checked& checked) {
    std::vector<std::uint32_t> cables(topology.nodes.size());
    for (const Topology::Cable& cable : topology.cables) {
        if (cable.one >= topology.nodes.size() || cable.two >= topology.nodes.size() || cable.one == cable.two)
            return bad("a cable joins node " + std::to_string(cable.one) + " and node " + std::to_string(cable.two) +
                       " of " + std::to_string(topology.nodes.size()));
        const std::string name = topology.nodes[cable.one].name + " to " + topology.nodes[cable.two].name;
        if (cable.rate.bits_per_s < 1'000'000 || cable.rate.bits_per_s > 8'000'000'000'000)
            return bad(name + ": rate " + std::to_string(cable.rate.bits_per_s) + " bit/s; 1 Mb/s to 8 Tb/s");
        if (cable.propagation < 0) return bad(name + ": propagation is negative; a time of 0 or more");
        ++cables[cable.one];
        ++cables[cable.two];
        for (const NodeIndex end : {cable.one, cable.two}) {
            const Topology::Node& node = topology.nodes[end];
            const Time latency = node.is_host ? 0 : settings.switches[node.settings].latency;
            if (cable.propagation + latency + BytePace(cable.rate).of(checked.largest_wire_bytes) >= most_ahead)
                return bad(name + ": a packet would be on its way for more than 4.29 ms");
        }
        const Topology::Node& one = topology.nodes[cable.one];
        const Topology::Node& two = topology.nodes[cable.two];
        for (const Topology::Node* const node : {&one, &two}) {
            if (node->is_host) continue;
            const SwitchSettings& node_settings = settings.switches[node->settings];
            if (cable.repeats && node_settings.kind != SwitchKind::credit)
                return bad(name + ": a link that repeats, at '" + node->name + "', a switch without link credits");
            if (node_settings.receiver_controlled && !cable.repeats)
                return bad(name + ": '" + node->name + "' is receiver-controlled, so the link has to repeat");
        }
        if (!one.is_host && !two.is_host &&
            takes_credit(settings.switches[one.settings].kind) != takes_credit(settings.switches[two.settings].kind))
            return bad(name + ": joins a switch with link credits and one without");
    }
    for (std::size_t node = 0; node < topology.nodes.size(); ++node) {
        if (cables[node] > 65535) return bad(topology.nodes[node].name + ": more than 65535 cables");
        if (topology.nodes[node].is_host && cables[node] != 1)
            return bad("host '" + topology.nodes[node].name + "' has " + std::to_string(cables[node]) +
                       " cables; exactly 1");
    }
    return Ok{};
}

/// What has less memory than one packet needs would pass nothing on, ever, or drop all that has to wait.
Result<Ok> check_room(const Topology& topology, const NetworkSettings& settings, std::uint64_t largest_wire_bytes) {
    const std::uint64_t packet = largest_wire_bytes - settings.unstored_bytes;
    const std::uint64_t blocks = (packet + credit_block - 1) / credit_block * credit_block;  // what credits are for
    const bool credits = std::ranges::any_of(topology.nodes, [&](const Topology::Node& node) {
        return !node.is_host && takes_credit(settings.switches[node.settings].kind);
    });
    for (const Topology::Node& node : topology.nodes) {
        const auto too_small = [&](const std::string& what, std::uint64_t bytes, std::uint64_t least) {
            return bad(node.name + ": " + what + " of " + std::to_string(bytes) +
                       " B cannot hold the longest packet; at least " + std::to_string(least) + " B");
        };
        if (node.is_host) {
            const std::uint64_t room = settings.hosts[node.settings].receive_buffer_bytes;
            if (credits && room < blocks) return too_small("receive_buffer", room, blocks);
            continue;
        }
        const SwitchSettings& middle = settings.switches[node.settings];
        if (takes_credit(middle.kind)) {
            if (middle.input_buffer_bytes < blocks) return too_small("input_buffer", middle.input_buffer_bytes, blocks);
        } else if (middle.kind == SwitchKind::deep_buffer) {
            if (middle.on_chip_bytes < packet) return too_small("on_chip", middle.on_chip_bytes, packet);
            if (middle.spill_bytes < packet && middle.buffer_bytes < packet)
                return too_small("buffer", middle.buffer_bytes, packet);
        } else {
            const std::uint64_t room = std::max(middle.buffer_bytes, middle.pfc.headroom_bytes);
            if (room < packet) return too_small("buffer", room, packet);
            const std::uint64_t queue = middle.egress_limit_bytes != 0
                                            ? middle.egress_limit_bytes
                                            : middle.buffer_bytes * middle.alpha_egress_q8 / 256;
            if (middle.pfc.classes == 0 && queue < packet)
                return too_small(middle.egress_limit_bytes != 0 ? "egress_limit" : "alpha_egress x buffer", queue,
                                 packet);
        }
    }
    return Ok{};
}

/// Slots about as wide as the time between two events, and enough of them for the longest cable.
void choose_slots(const Topology& topology, const NetworkSettings& settings, std::uint64_t largest_wire_bytes,
                  unsigned& shift, unsigned& bits) {
    Time packet_time = time_never;
    Time longest = 0;
    for (const Topology::Cable& cable : topology.cables) {
        const Time time = BytePace(cable.rate).of(largest_wire_bytes);
        packet_time = std::min(packet_time, time);
        longest = std::max(longest, time + cable.propagation);
    }
    for (const SwitchSettings& node : settings.switches)
        longest = std::max(longest, longest + node.latency);
    // A busy cable has about one event per packet time and direction; a few of them per slot are looked up together.
    constexpr Time events_per_slot = 8;
    const auto events = static_cast<Time>(topology.cables.size()) * 2 + 1;
    const auto gap = static_cast<std::uint64_t>(std::max<Time>(1, events_per_slot * packet_time / events));
    shift = std::clamp<unsigned>(static_cast<unsigned>(std::bit_width(gap)), 6, 24);
    bits = std::clamp<unsigned>(static_cast<unsigned>(std::bit_width(static_cast<std::uint64_t>(longest) >> shift)) + 1,
                                12, 17);
}

NodeKind kind_of(SwitchKind kind) {
    switch (kind) {
        case SwitchKind::credit:
            return NodeKind::credit;
        case SwitchKind::input_fifo:
            return NodeKind::input_fifo;
        case SwitchKind::deep_buffer:
            return NodeKind::deep_buffer;
        case SwitchKind::shared_buffer:
            break;
    }
    return NodeKind::shared_buffer;
}

}  // namespace

void Core::add_nodes() {
    for (NodeIndex index = 0; index < topology_.nodes.size(); ++index) {
        const Topology::Node& description = topology_.nodes[index];
        Node& node = nodes_.emplace_back();
        node.settings = description.settings;
        const ClassService& service = description.is_host ? settings_.hosts[description.settings].service
                                                          : settings_.switches[description.settings].service;
        node.weight = service.weight;
        for (unsigned traffic_class = 0; traffic_class < max_classes; ++traffic_class)
            if (service.weight[traffic_class] == 0) node.strict |= bit_of(traffic_class);
        if (description.is_host) {
            node.state = static_cast<std::uint32_t>(hosts_.size());
            Host& host = hosts_.emplace_back();
            const HostSettings& settings = settings_.hosts[description.settings];
            host.node = index;
            host.settings = description.settings;
            host.ordered = settings.order == HostSettings::Order::message_order;
            host.has_engines = settings.dma_engines != 0;
            for (std::uint32_t engine = 0; engine < settings.dma_engines; ++engine)
                host.idle_engines.push(0);
            if (settings.transmit_limit.bits_per_s != 0) host.inject_pace = BytePace(settings.transmit_limit);
            if (settings.receive_limit.bits_per_s != 0) host.receive_pace = BytePace(settings.receive_limit);
        } else {
            node.kind = kind_of(settings_.switches[description.settings].kind);
        }
    }
}

void Core::add_ports() {
    for (std::uint32_t cable = 0; cable < topology_.cables.size(); ++cable) {
        const Topology::Cable& ends = topology_.cables[cable];
        for (const bool forward : {true, false}) {
            const auto index = static_cast<PortIndex>(ports_.size());
            Port& port = ports_.emplace_back();
            PortDetail& detail = details_.emplace_back();
            detail.node = forward ? ends.one : ends.two;
            port.peer = forward ? ends.two : ends.one;
            detail.ignores_pause = forward ? ends.one_ignores_pause : ends.two_ignores_pause;
            if (ends.repeats) port.condition |= Port::repeats;
            port.pace = BytePace(ends.rate);
            port.kind = nodes_[detail.node].kind;
            port.peer_kind = nodes_[port.peer].kind;
            Time delay = ends.propagation;
            if (port.peer_kind != NodeKind::host) delay += settings_.switches[nodes_[port.peer].settings].latency;
            port.delay = static_cast<std::uint32_t>(delay);
            Node& node = nodes_[detail.node];
            port.local = static_cast<std::uint16_t>(node.ports.size());
            node.ports.push_back(index);
            if (port.kind == NodeKind::host) hosts_[node.state].port = index;
        }
    }
    port_count_ = static_cast<std::uint32_t>(ports_.size());
    queues_.resize(ports_.size() * max_classes);
    counts_.resize(ports_.size());
    ingress_.resize(ports_.size() * max_classes);
    egresses_.resize(ports_.size());
    spray_random_.resize(nodes_.size());
    spray_ = settings_.routing == Routing::spray;
    reseed(settings_.seed);
}

void Core::reseed(std::uint64_t seed) {
    settings_.seed = seed;
    for (PortIndex port = 0; port < ports_.size(); ++port)
        details_[port].random = base::mix64(seed ^ (std::uint64_t{port} << 32));
    for (NodeIndex node = 0; node < spray_random_.size(); ++node)
        spray_random_[node] = base::mix64(~seed ^ (std::uint64_t{node} << 32));
}

/// Cut-through only from a cable that is at least as fast as every one its packets may leave by.
void Core::set_cut_through() {
    for (PortIndex index = 0; index < ports_.size(); ++index) {
        Port& port = ports_[index];
        const Node& peer = nodes_[port.peer];
        if (port.peer_kind == NodeKind::host || !settings_.switches[peer.settings].cut_through) continue;
        const std::vector<PortIndex>& onwards = peer.ports;
        if (std::all_of(onwards.begin(), onwards.end(),
                        [&](PortIndex onward) { return ports_[onward].pace.of(1 << 16) >= port.pace.of(1 << 16); }))
            port.condition |= Port::hands_on_early;
    }
}

void Core::add_switches() {
    for (NodeIndex index = 0; index < nodes_.size(); ++index) {
        Node& node = nodes_[index];
        if (node.kind == NodeKind::host) continue;
        const SwitchSettings& settings = settings_.switches[node.settings];
        if (node.kind == NodeKind::shared_buffer) {
            node.state = static_cast<std::uint32_t>(shared_.size());
            shared_.push_back(make_thresholds(settings));
        } else if (node.kind == NodeKind::deep_buffer) {
            node.state = static_cast<std::uint32_t>(deep_.size());
            add_deep(index);
        } else {
            node.state = static_cast<std::uint32_t>(inputs_.size());
            InputSwitch& inputs = inputs_.emplace_back();
            inputs.node = index;
            inputs.ports = static_cast<std::uint32_t>(node.ports.size());
            inputs.random_choice = settings.random_choice;
            if (node.kind == NodeKind::input_fifo) inputs.arbitrate_event = add_special(Special::arbitrate, node.state);
        }
    }
    for (PortIndex index = 0; index < ports_.size(); ++index) {
        Port& port = ports_[index];
        port.state = nodes_[details_[index].node].state;
        port.peer_state = nodes_[port.peer].state;
        port.peer_local = ports_[reverse_of(index)].local;
    }
    for (PortIndex index = 0; index < ports_.size(); ++index) {
        const Node& peer = nodes_[ports_[index].peer];
        if (peer.kind != NodeKind::shared_buffer && peer.kind != NodeKind::deep_buffer) continue;
        const PfcSettings& pfc = settings_.switches[peer.settings].pfc;
        if (pfc.classes != 0 && pfc.quanta != 0) add_pause_timer(index, pfc);
    }
    if (inputs_.empty()) return;
    credits_.resize(ports_.size() * max_classes);
    for (PortIndex index = 0; index < ports_.size(); ++index) {
        Port& port = ports_[index];
        const auto credit_node = [](NodeKind kind) { return kind == NodeKind::credit || kind == NodeKind::input_fifo; };
        port.credited = credit_node(port.kind) || credit_node(port.peer_kind);
        const Node& peer = nodes_[port.peer];
        details_[index].receiver_decides =
            port.peer_kind == NodeKind::credit && settings_.switches[peer.settings].receiver_controlled;
        const std::uint64_t bytes = port.peer_kind == NodeKind::host
                                        ? settings_.hosts[peer.settings].receive_buffer_bytes
                                        : settings_.switches[peer.settings].input_buffer_bytes;
        for (unsigned traffic_class = 0; port.credited && traffic_class < max_classes; ++traffic_class)
            credits_[slot_of(index, traffic_class)].available = static_cast<std::int64_t>(bytes & ~63ULL);
        for (unsigned traffic_class = 0; traffic_class < max_classes; ++traffic_class)
            credits_[slot_of(index, traffic_class)].delay = ports_[reverse_of(index)].delay;
        if (!details_[index].receiver_decides) continue;
        // What it has room for only the receiver knows, but that at once.
        port.credited = false;
        for (unsigned traffic_class = 0; traffic_class < max_classes; ++traffic_class)
            credits_[slot_of(index, traffic_class)].delay = 0;
    }
}

Result<std::unique_ptr<Core>> Core::make(const Topology& topology, const NetworkSettings& settings) {
    const Result<Checked> checked = check_settings(topology, settings);
    if (!checked) return checked.error();
    const Result<Ok> cables = check_cables(topology, settings, *checked);
    if (!cables) return cables.error();
    const Result<Ok> room = check_room(topology, settings, checked->largest_wire_bytes);
    if (!room) return room.error();
    for (const HostSettings& host : settings.hosts)
        if (host.train_packets > 1 && checked->congestible)
            return bad("train_packets " + std::to_string(host.train_packets) +
                       " where a switch has PFC or ECN; 1, since pauses, marks and drops come per packet");
    Result<RouteTable> routes = make_routes(topology, settings.routing);
    if (!routes) return routes.error();
    unsigned shift = 0;
    unsigned bits = 0;
    choose_slots(topology, settings, checked->largest_wire_bytes, shift, bits);
    auto core = std::make_unique<Core>(topology, settings, shift, bits);
    core->routes_ = std::move(*routes);
    core->droppable_ = checked->droppable;
    core->largest_wire_bytes_ = static_cast<std::uint32_t>(checked->largest_wire_bytes);
    core->add_nodes();
    core->add_ports();
    core->set_cut_through();
    core->first_special_ = static_cast<EventId>(2 * core->ports_.size());
    for (HostIndex host = 0; host < core->hosts_.size(); ++host) {
        core->add_special(Special::host_wake, host);
        core->add_special(Special::host_receive, host);
    }
    core->add_switches();
    core->fault_event_ = core->add_special(Special::fault, 0);
    if (settings.reroute_after != 0) core->reroute_event_ = core->add_special(Special::reroute, 0);
    core->first_flow_event_ = core->first_special_ + static_cast<EventId>(core->special_.size());
    core->wheel_.grow_to(core->first_flow_event_);
    if (!settings.faults.empty()) core->wheel_.schedule(core->fault_event_, settings.faults.front().at);
    return core;
}

}  // namespace incast::sim::packet

// Cyclic waiting among lossless queues (the condition of E. Coffman et al., Computing Surveys 3(2), 1971, for buffers).
//
// A queue is stuck if its receiver has asked it to be quiet, or has given it too little credit, and that will never
// change. Start from all queues that wait so, and let go of each whose receiver gets back below the threshold at which
// it goes on when everything it holds for queues that still move has left; what remains when none can be let go is
// stuck for ever. Packets on cables count as moving, and so does what a switch with deep buffers writes off its chip.
#include <algorithm>

#include "sim/packet/core.h"

namespace incast::sim::packet {
namespace {

struct Wait {
    PortIndex port = nil;
    bool stuck = true;
    std::uint64_t resume_bytes = 0;   // it goes on when its receiver holds no more than this of it
    std::vector<std::uint64_t> held;  // of the receiver's bytes from this port: waiting in the queue of that Wait
};

constexpr std::uint64_t in_units(std::uint64_t bytes) {
    return (bytes + 63) & ~std::uint64_t{63};
}

constexpr bool has_input_memories(NodeKind kind) {
    return kind == NodeKind::credit || kind == NodeKind::input_fifo;
}

constexpr std::uint64_t less(std::uint64_t threshold, std::uint64_t gap) {
    return threshold > gap ? threshold - gap : 0;
}

}  // namespace

/// What holds `port` up in this class, if it is a pause or missing credit: bytes of it at the receiver above which it
/// stays so. False: nothing of that kind.
bool Core::waits(PortIndex index, std::uint8_t traffic_class, std::uint64_t& resume_bytes) const {
    const Port& sender = ports_[index];
    if (sender.peer_kind == NodeKind::shared_buffer || sender.peer_kind == NodeKind::deep_buffer) {
        if ((sender.paused >> traffic_class & 1) == 0) return false;
        const PfcSettings& pfc = settings_.switches[nodes_[sender.peer].settings].pfc;
        if (pfc.quanta != 0 && !pfc.refresh) return false;  // its pauses end
        const bool shared = sender.peer_kind == NodeKind::shared_buffer;
        const SharedBuffer& buffer = shared ? shared_[sender.peer_state] : deep_[sender.peer_state].marks;
        // At best nobody else uses the memory.
        const std::uint64_t threshold = buffer.xoff != 0 ? buffer.xoff : (buffer.alpha_ingress_q8 * buffer.size) >> 8;
        resume_bytes = (shared ? buffer.reserve : 0) + less(threshold, buffer.xon_gap);
        return true;
    }
    if (!has_input_memories(sender.kind) || !has_input_memories(sender.peer_kind) || !sender.credited) return false;
    if ((sender.waiting >> traffic_class & 1) == 0) return false;
    const Credit& credit = credits_[slot_of(index, traffic_class)];
    // Outputs of input FIFOs try the waiting heads in turn, others stay with the first.
    std::uint64_t needed = ~std::uint64_t{0};
    for (std::uint32_t input = queue(index, traffic_class).chain.head; input != nil;
         input = sender.kind == NodeKind::input_fifo ? input_queues_[input].next : nil)
        needed = std::min(needed, in_units(stored(packets_[input_queues_[input].packets.head].wire_bytes)));
    if (!credit.on_its_way.empty() || credit.available >= static_cast<std::int64_t>(needed)) return false;
    const std::uint64_t memory =
        settings_.switches[nodes_[sender.peer].settings].input_buffer_bytes & ~std::uint64_t{63};
    resume_bytes = less(memory, needed);
    return true;
}

/// Of what waits in front of `holder`: bytes by the port through which they came.
void Core::add_held(PortIndex holder, std::uint8_t traffic_class,
                    const std::function<void(PortIndex, std::uint64_t)>& add) const {
    const Port& port = ports_[holder];
    if (port.kind == NodeKind::shared_buffer) {
        for (PacketIndex packet = queue(holder, traffic_class).chain.head; packet != nil;
             packet = packets_[packet].next)
            add(reverse_of(packets_[packet].next_arrival_or_ingress), stored(packets_[packet].wire_bytes));
    } else if (port.kind == NodeKind::credit) {
        const Node& node = nodes_[details_[holder].node];
        const InputSwitch& inputs = inputs_[port.state];
        for (std::uint32_t local = 0; local < inputs.ports; ++local) {
            const InputQueue& input = input_queues_[inputs.first[traffic_class] + local * inputs.ports + port.local];
            for (PacketIndex packet = input.packets.head; packet != nil; packet = packets_[packet].next)
                add(reverse_of(node.ports[local]), in_units(stored(packets_[packet].wire_bytes)));
        }
    } else if (port.kind == NodeKind::input_fifo) {
        // All that stands behind a head waits for what the head waits for.
        const Node& node = nodes_[details_[holder].node];
        const InputSwitch& inputs = inputs_[port.state];
        for (std::uint32_t input = queue(holder, traffic_class).chain.head; input != nil;
             input = input_queues_[input].next) {
            const PortIndex from = reverse_of(node.ports[input - inputs.first[traffic_class]]);
            for (PacketIndex packet = input_queues_[input].packets.head; packet != nil; packet = packets_[packet].next)
                add(from, in_units(stored(packets_[packet].wire_bytes)));
        }
    } else if (port.kind == NodeKind::deep_buffer) {
        const DeepSwitch& deep = deep_[port.state];
        const auto ports = static_cast<std::uint32_t>(nodes_[deep.node].ports.size());
        const std::uint32_t per_asic = settings_.switches[nodes_[deep.node].settings].ports_per_asic;
        for (std::uint32_t asic = 0; asic * per_asic < ports; ++asic) {
            const DeepQueue& waiting =
                deep_queues_[deep.first_queue + (asic * ports + port.local) * max_classes + traffic_class];
            for (PacketIndex packet = waiting.packets.head; packet != nil; packet = packets_[packet].next)
                if (packets_[packet].place == on_chip)
                    add(reverse_of(packets_[packet].next_arrival_or_ingress), stored(packets_[packet].wire_bytes));
        }
    }
}

std::vector<Deadlock> Network::find_deadlocks() const {
    const Core& core = *core_;
    std::vector<Deadlock> found;
    for (std::uint8_t traffic_class = 0; traffic_class < max_classes; ++traffic_class) {
        std::vector<Wait> waits;
        std::vector<std::uint32_t> wait_of(core.ports_.size(), nil);
        for (PortIndex port = 0; port < core.ports_.size(); ++port) {
            std::uint64_t resume_bytes = 0;
            if (!core.waits(port, traffic_class, resume_bytes)) continue;
            wait_of[port] = static_cast<std::uint32_t>(waits.size());
            waits.push_back({.port = port, .resume_bytes = resume_bytes, .held = {}});
        }
        for (Wait& wait : waits)
            wait.held.resize(waits.size());
        for (std::uint32_t holder = 0; holder < waits.size(); ++holder)
            core.add_held(waits[holder].port, traffic_class, [&](PortIndex from, std::uint64_t bytes) {
                if (wait_of[from] != nil) waits[wait_of[from]].held[holder] += bytes;
            });
        const auto held_by_stuck = [&waits](const Wait& wait) {
            std::uint64_t bytes = 0;
            for (std::size_t other = 0; other < waits.size(); ++other)
                if (waits[other].stuck) bytes += wait.held[other];
            return bytes;
        };
        for (bool changed = true; changed;) {
            changed = false;
            for (Wait& wait : waits) {
                if (!wait.stuck || held_by_stuck(wait) > wait.resume_bytes) continue;
                wait.stuck = false;
                changed = true;
            }
        }
        // Every stuck queue waits for another stuck one, so whoever follows the waiting comes round.
        for (std::uint32_t start = 0; start < waits.size(); ++start) {
            std::vector<std::uint32_t> path;
            std::uint32_t at = start;
            while (at != nil && waits[at].stuck && std::find(path.begin(), path.end(), at) == path.end()) {
                path.push_back(at);
                std::uint32_t onward = nil;
                for (std::uint32_t other = 0; other < waits.size() && onward == nil; ++other)
                    if (waits[other].stuck && waits[at].held[other] > 0) onward = other;
                at = onward;
            }
            const auto first = std::find(path.begin(), path.end(), at);
            if (first == path.end()) continue;
            Deadlock deadlock{.traffic_class = traffic_class, .ports = {}};
            for (auto step = first; step != path.end(); ++step) {
                deadlock.ports.push_back(waits[*step].port);
                waits[*step].stuck = false;  // reported once
            }
            found.push_back(std::move(deadlock));
        }
    }
    return found;
}

}  // namespace incast::sim::packet

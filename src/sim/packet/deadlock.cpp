// Cyclic waiting among lossless queues (the condition of E. Coffman et al., Computing Surveys 3(2), 1971, for buffers).
//
// A queue is stuck if its receiver has asked it to be quiet and will never ask it to go on. Start from all paused
// queues, and let go of each whose receiver gets back below its resume threshold when everything it holds for queues
// that still move has left; what remains when none can be let go is stuck for ever.
#include <algorithm>

#include "sim/packet/core.h"

namespace incast::sim::packet {
namespace {

struct Wait {
    PortIndex port = nil;
    bool stuck = true;
    std::uint64_t resume_bytes = 0;
    std::vector<std::uint64_t> held;  // of the receiver's bytes from this port: waiting in the queue of that Wait
};

}  // namespace

std::vector<Deadlock> Network::find_deadlocks() const {
    const Core& core = *core_;
    std::vector<Deadlock> found;
    for (std::uint8_t traffic_class = 0; traffic_class < max_classes; ++traffic_class) {
        std::vector<Wait> waits;
        std::vector<std::uint32_t> wait_of(core.ports_.size(), nil);
        for (PortIndex port = 0; port < core.ports_.size(); ++port) {
            const Port& sender = core.ports_[port];
            if (sender.peer_kind != NodeKind::shared_buffer || (sender.paused >> traffic_class & 1) == 0) continue;
            const SharedBuffer& buffer = core.shared_[sender.peer_state];
            // At best nobody else uses the memory.
            const std::uint64_t threshold =
                buffer.xoff != 0 ? buffer.xoff : (buffer.alpha_ingress_q8 * buffer.size) >> 8;
            wait_of[port] = static_cast<std::uint32_t>(waits.size());
            Wait& wait = waits.emplace_back();
            wait.port = port;
            wait.resume_bytes = buffer.reserve + (threshold > buffer.xon_gap ? threshold - buffer.xon_gap : 0);
        }
        for (Wait& wait : waits)
            wait.held.resize(waits.size());
        for (std::uint32_t holder = 0; holder < waits.size(); ++holder) {
            const PortIndex port = waits[holder].port;
            if (core.ports_[port].kind != NodeKind::shared_buffer) continue;
            for (PacketIndex packet = core.queue(port, traffic_class).chain.head; packet != nil;
                 packet = core.packets_[packet].next) {
                const std::uint32_t upstream = wait_of[reverse_of(core.packets_[packet].next_arrival_or_ingress)];
                if (upstream != nil) waits[upstream].held[holder] += core.stored(core.packets_[packet].wire_bytes);
            }
        }
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

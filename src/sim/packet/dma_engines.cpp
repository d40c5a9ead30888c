// Hosts that move messages with a number of DMA engines, as the channels of a RapidIO adapter: each takes one message
// after the other, and what a message costs before its first packet delays that engine only. Packets of all engines
// take turns on the way out. A message that finds none waits for the first to be free, in order of asking.
#include <algorithm>

#include "sim/packet/core.h"

namespace incast::sim::packet {

/// The message that the flow sends next gets an engine, or waits for one. Only for one that has had none.
void Core::take_engine(FlowIndex flow) {
    Sender& sender = senders_[flow];
    Host& host = hosts_[sender.source];
    if (host.idle_engines.empty()) {
        sender.state = Sender::State::waits_for_engine;
        host.wait_for_engine.push(senders_, flow);
        return;
    }
    const Time free_from = std::max(now_, host.idle_engines.front());
    host.idle_engines.pop();
    Message& message = messages_[sender.cursor];
    message.charged = true;
    message.on_engine = true;
    sender.next_time = std::max(sender.next_time, free_from + settings_.hosts[host.settings].message_cost);
    offer(flow);
}

/// The last packet of a message begins to leave: its engine is free when that has left.
void Core::end_on_engine(HostIndex index, Message& message, std::uint32_t wire_bytes) {
    message.on_engine = false;
    Host& host = hosts_[index];
    host.idle_engines.push(now_ + ports_[host.port].pace.of(wire_bytes));
    while (!host.idle_engines.empty() && !host.wait_for_engine.empty()) {
        const FlowIndex flow = host.wait_for_engine.pop(senders_);
        Sender& sender = senders_[flow];
        sender.state = Sender::State::idle;
        if (!sendable(sender)) continue;
        // It may have gone back meanwhile, to a message that has had its engine.
        if (needs_engine(host, sender)) {
            take_engine(flow);
        } else {
            offer(flow);
        }
    }
}

/// The flow may send from its next_time on.
void Core::offer(FlowIndex flow) {
    Sender& sender = senders_[flow];
    Host& host = hosts_[sender.source];
    if (sender.next_time > now_) {
        pace(host, flow);
        return;
    }
    sender.state = Sender::State::ready;
    host.ready[sender.traffic_class].push(senders_, flow);
    ports_[host.port].waiting |= bit_of(sender.traffic_class);
}

}  // namespace incast::sim::packet

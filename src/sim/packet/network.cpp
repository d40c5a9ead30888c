#include "sim/packet/network.h"

#include <utility>

#include "base/prefetch.h"
#include "sim/packet/core.h"

namespace incast::sim::packet {

Network::Network(std::unique_ptr<Core> core) : core_(std::move(core)) {}
Network::~Network() = default;

Result<std::unique_ptr<Network>> Network::make(const Topology& topology, const NetworkSettings& settings) {
    Result<std::unique_ptr<Core>> core = Core::make(topology, settings);
    if (!core) return core.error();
    return std::unique_ptr<Network>(new Network(std::move(*core)));
}

Result<FlowIndex> Network::open(const FlowSettings& settings) {
    Core& core = *core_;
    const auto hosts = static_cast<HostIndex>(core.hosts_.size());
    if (settings.source >= hosts || settings.destination >= hosts || settings.source == settings.destination)
        return Error{"flow: from host " + std::to_string(settings.source) + " to host " +
                     std::to_string(settings.destination) + "; two different ones of 0 to " +
                     std::to_string(hosts - 1)};
    if (settings.traffic_class >= max_classes)
        return Error{"flow: traffic_class " + std::to_string(settings.traffic_class) + "; 0 to 7"};
    if (settings.window_packets == 0) return Error{"flow: window_packets is 0; at least 1"};
    if (settings.transport == Transport::datagram &&
        (settings.window_packets != nil || settings.retransmit_timeout != 0))
        return Error{"flow: datagrams have no window_packets and no retransmit_timeout: nobody acknowledges them"};
    const bool droppable = (core.droppable_ >> settings.traffic_class & 1) != 0;
    if (settings.transport == Transport::reliable && droppable &&
        (settings.ack_packets == 0 || settings.retransmit_timeout == 0))
        return Error{"flow: packets of class " + std::to_string(settings.traffic_class) +
                     " can be lost, so it needs ack_packets of 1 or more and a retransmit_timeout, for example "
                     "ack_packets = 16, retransmit_timeout = \"1ms\"; or switches that lose none (pfc, credits)"};
    if (settings.any_order && settings.transport == Transport::reliable && droppable)
        return Error{"flow: any_order on class " + std::to_string(settings.traffic_class) +
                     ", which can lose packets; datagrams or a lossless class"};
    if (core.spray_ && settings.transport == Transport::reliable && !settings.any_order)
        return Error{"flow: packets are sprayed, so a reliable flow has to take any_order"};
    const auto flow = static_cast<FlowIndex>(core.senders_.size());
    Sender& sender = core.senders_.emplace_back();
    sender.window = settings.window_packets;
    // Another seed is another draw of all routes by hash; that of seed 1 hashes the flow's number itself.
    const auto draw = static_cast<std::uint32_t>((core.settings_.seed - 1) * 0x9e3779b97f4a7c15ULL >> 32U);
    sender.entropy = settings.entropy == nil ? flow + draw : settings.entropy;
    sender.source = settings.source;
    sender.destination = settings.destination;
    sender.transport = settings.transport;
    sender.traffic_class = settings.traffic_class;
    sender.controlled = settings.dcqcn;
    Receiver& receiver = core.receivers_.emplace_back();
    receiver.ack_packets = settings.ack_packets;
    receiver.any_order = settings.any_order;
    FlowExtra& extra = core.extras_.emplace_back();
    extra.limit = settings.rate_limit;
    extra.timeout = settings.retransmit_timeout;
    if (settings.transport == Transport::tcp) {
        extra.tcp = static_cast<std::uint32_t>(core.tcp_.size());
        core.tcp_.emplace_back().limit = std::min(settings.window_packets, TcpState::most);
        sender.window = std::min<std::uint32_t>(settings.window_packets, 10);
        receiver.ack_packets = std::max<std::uint32_t>(1, settings.ack_packets);
    }
    core.open_input_class(settings.traffic_class);
    core.open_input_class(core.settings_.hosts[core.hosts_[settings.destination].settings].cnp_class);
    core.wheel_.grow_to(core.first_flow_event_ + core.senders_.size());
    core.set_pace(flow);
    return flow;
}

bool Network::restart(FlowIndex flow, std::uint32_t entropy) {
    Core& core = *core_;
    Sender& sender = core.senders_[flow];
    if (sender.head != nil || sender.state != Sender::State::idle) return false;
    Receiver& receiver = core.receivers_[flow];
    FlowExtra& extra = core.extras_[flow];
    sender.entropy = entropy;
    sender.next_time = 0;
    receiver.since_ack = 0;
    receiver.notify_from = 0;
    if (extra.control != nil) core.controls_[extra.control] = RateControl(core.line_rate(flow));
    if (extra.tcp != nil) {
        TcpState& tcp = core.tcp_[extra.tcp];
        const std::uint32_t limit = tcp.limit;
        tcp = TcpState{};
        tcp.limit = limit;
        tcp.recover = tcp.lost_below = tcp.highest = tcp.sent_before = sender.next_psn;
        sender.window = std::min<std::uint32_t>(limit, 10);
    }
    core.set_pace(flow);
    return true;
}

void Network::reseed(std::uint64_t seed) {
    core_->reseed(seed);
}

void Network::prefetch(FlowIndex flow) const {
    __builtin_prefetch(&core_->senders_[flow]);
    __builtin_prefetch(&core_->receivers_[flow]);
    base::prefetch(core_->extras_[flow]);
    core_->wheel_.prefetch(core_->first_flow_event_ + flow);
}
void Network::post(FlowIndex flow, std::uint64_t bytes, std::uint64_t token) {
    const MessageIndex index = core_->messages_.take();
    Message& message = core_->messages_[index];
    message = Message{};
    message.bytes = bytes;
    message.token = token;
    core_->append(flow, index);
}

void Network::post_read(FlowIndex flow, std::uint64_t bytes, std::uint64_t token) {
    const MessageIndex index = core_->messages_.take();
    Message& message = core_->messages_[index];
    message = Message{};
    message.bytes = bytes;
    message.token = token;
    message.flow = flow;
    message.is_read = true;
    const HostIndex reader = core_->senders_[flow].destination;
    core_->hosts_[reader].reads_waiting.push(index);
    core_->request_reads(reader);
}

void Network::limit_rate(FlowIndex flow, Rate rate) {
    core_->extras_[flow].limit = rate;
    core_->set_pace(flow);
}

Time Network::now() const {
    return core_->now_;
}
Time Network::next_time() {
    return core_->wheel_.next_time();
}
void Network::advance(Time until) {
    core_->run(until, false);
}
bool Network::advance_to_outcome(Time until) {
    const std::uint32_t before = core_->outcomes_.size();
    core_->run(until, true);
    return core_->outcomes_.size() != before;
}
bool Network::take_outcome(Outcome& outcome) {
    if (core_->outcomes_.empty()) return false;
    outcome = core_->outcomes_.front();
    core_->outcomes_.pop();
    return true;
}

const Outcome* Network::peek_outcome(std::uint32_t distance) const {
    return distance < core_->outcomes_.size() ? &core_->outcomes_[distance] : nullptr;
}

std::uint64_t Network::hops() const {
    std::uint64_t hops = 0;
    for (const PortCount& count : core_->counts_)
        hops += count.packets - count.control_packets;
    return hops;
}
std::uint64_t Network::events() const {
    return core_->events_;
}
std::uint64_t Network::trace_hash() const {
    return core_->trace_;
}
std::uint32_t Network::ports() const {
    return static_cast<std::uint32_t>(core_->ports_.size());
}

PortCounters Network::counters(PortIndex index) const {
    const Port& port = core_->ports_[index];
    const PortDetail& detail = core_->details_[index];
    PortCounters counters = detail.counters;
    const PortCount& count = core_->counts_[index];
    counters.packets = count.packets - detail.packets_before;
    counters.bytes = port.sent_bytes - detail.bytes_before;
    counters.data_packets = counters.packets - (count.control_packets - detail.control_before);
    if (port.paused != 0) counters.paused_time += core_->now_ - detail.paused_since;
    return counters;
}

PortCounters Network::totals() const {
    PortCounters sum;
    for (PortIndex port = 0; port < ports(); ++port) {
        const PortCounters one = counters(port);
        sum.packets += one.packets;
        sum.bytes += one.bytes;
        sum.data_packets += one.data_packets;
        sum.marked += one.marked;
        sum.dropped += one.dropped;
        sum.lost += one.lost;
        sum.repeated += one.repeated;
        sum.pauses_sent += one.pauses_sent;
        sum.pauses_heard += one.pauses_heard;
        sum.paused_time += one.paused_time;
    }
    return sum;
}

QueueCounters Network::queue(PortIndex port, std::uint8_t traffic_class) const {
    Queue queue = core_->queue(port, traffic_class);
    queue.change(core_->now_, 0);
    const Time measured = core_->now_ - core_->counting_since_;
    return {.bytes = queue.bytes,
            .peak_bytes = queue.peak,
            .mean_bytes = measured > 0 ? static_cast<double>(queue.area) / static_cast<double>(measured) : 0.0,
            .byte_ps = static_cast<double>(queue.area)};
}

std::uint64_t Network::repeated(FlowIndex flow) const {
    return core_->extras_[flow].repeated;
}
Rate Network::allowed_rate(FlowIndex flow) const {
    const RateControl* control = core_->active_control(core_->extras_[flow]);
    return control != nullptr ? control->rate() : core_->line_rate(flow);
}
std::uint64_t Network::packets_in_flight() const {
    return core_->packets_.in_use();
}
std::uint64_t Network::queued_bytes(PortIndex port, std::uint8_t traffic_class) const {
    return core_->queue(port, traffic_class).bytes;
}
std::uint64_t Network::take_peak(PortIndex port, std::uint8_t traffic_class) {
    Queue& queue = core_->queue(port, traffic_class);
    core_->counts_[port].passed_bytes = 0;
    return std::exchange(queue.peak, queue.bytes);
}

void Network::reset_counters() {
    Core& core = *core_;
    for (PortIndex index = 0; index < core.ports_.size(); ++index) {
        PortDetail& detail = core.details_[index];
        detail.counters = PortCounters{};
        PortCount& count = core.counts_[index];
        count.passed_bytes = 0;
        detail.packets_before = count.packets;
        detail.control_before = count.control_packets;
        detail.bytes_before = core.ports_[index].sent_bytes;
        detail.paused_since = core.now_;
    }
    for (Queue& queue : core.queues_) {
        queue.area = 0;
        queue.changed = core.now_;
        queue.peak = queue.bytes;
    }
    core.counting_since_ = core.now_;
}

std::string Network::name(PortIndex port) const {
    const Port& ends = core_->ports_[port];
    return core_->topology_.nodes[core_->details_[port].node].name + " to " + core_->topology_.nodes[ends.peer].name +
           " (cable " + std::to_string(port / 2) + ")";
}

}  // namespace incast::sim::packet

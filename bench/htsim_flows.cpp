// Flows of a file on htsim's fat tree with its RoCE sources and lossless switches, for bench/flows_vs_htsim.py: a
// program of its own, built against a checkout of https://github.com/Broadcom/csg-htsim (BSD) and never with the rest.
//
// usage: htsim_flows FLOWS RADIX MBIT_PER_S HOP_NS PAYLOAD HIGH LOW [AS_INCAST...] > finished.csv
// FLOWS: lines "start_ps source destination bytes up1 up2 back1 back2", sorted by start; the numbers of the uplinks
// that the edge and the aggregation switch choose, for data and for acknowledgements with a path of their own. HIGH,
// LOW: packets of an input above and below which it pauses and goes on. Prints "flow,delivered_ps,acknowledged_ps" of
// each as it ends.
//
// AS_INCAST: what follows the packet model instead of htsim:
//   acks    an acknowledgement takes a path of its own; in htsim the one of its data
//   pauses  a pause waits for the packet that its port is sending, and takes 64 bytes' time; in htsim neither
//   memory  an input is rid of a packet as this begins to leave the switch; in htsim as its last byte leaves
//   turns   at its host a new flow comes after all others; in htsim after those with a higher place in the round, half
//           of them in the mean
//
// htsim's own main_roce starts every flow at once, whatever its connection matrix says; here each starts in its time,
// and its hosts know of it only from then to its end, as their queues look through all flows that they know of. Compile
// with -fno-access-control: what is replaced here is private to htsim.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <iostream>
#include <map>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include <callback_pipe.h>
#include <config.h>
#include <eventlist.h>
#include <fat_tree_topology.h>
#include <queue_lossless_input.h>
#include <queue_lossless_output.h>
#include <roce.h>
#include <trigger.h>

namespace {

/// What follows the packet model.
struct {
    bool acks = false;
    bool pauses = false;
    bool memory = false;
    bool turns = false;
} as_incast;

constexpr int pause_bytes = 64;

struct Flow {
    long long start;
    unsigned source;
    unsigned destination;
    unsigned long long bytes;
    unsigned up[2];
    unsigned back[2];
    long long delivered = -1;
    long long acknowledged = -1;
};

EventList events;
std::vector<Flow> flows;
unsigned radix = 0;
std::unique_ptr<FatTreeTopology> tree;
std::map<std::pair<unsigned, unsigned>, std::vector<const Route*>*> paths;

long long now() {
    return static_cast<long long>(events.now());
}

const Route* path(unsigned from, unsigned to, const unsigned (&uplinks)[2]) {
    auto& known = paths[{from, to}];
    if (known == nullptr) known = tree->get_bidir_paths(from, to, false);
    // In order of the aggregation switch, and for each of them in order of its uplinks.
    const std::size_t half = radix / 2;
    if (known->size() == 1) return known->front();
    return known->at(known->size() == half ? uplinks[0] : uplinks[0] * half + uplinks[1]);
}

class Sink : public RoceSink {
public:
    explicit Sink(Flow& flow) : flow_(flow) {}
    void receivePacket(Packet& packet) override {
        RoceSink::receivePacket(packet);
        if (flow_.delivered < 0 && cumulative_ack() >= flow_.bytes) flow_.delivered = now();
    }

private:
    Flow& flow_;
};

/// The queues of a host, one for each flow it knows of.
class HostQueues : public FairPriorityQueue {
public:
    using FairPriorityQueue::FairPriorityQueue;
    static HostQueues& of(unsigned host) {
        return static_cast<HostQueues&>(*tree->queues_ns_nlp[host][tree->HOST_POD_SWITCH(host)][0]);
    }
    void forget(flowid_t flow) {
        for (auto& queue : _queue)
            queue.flush_flow(flow);
        turns_.erase(std::remove(turns_.begin(), turns_.end(), flow), turns_.end());
    }
    void receivePacket(Packet& packet) override {
        const bool is_data = packet.type() == ROCE;
        if (as_incast.turns && is_data && !waits(packet.flow_id())) turns_.push_back(packet.flow_id());
        FairPriorityQueue::receivePacket(packet);
    }
    void beginService() override {
        // A pause may begin and end within a packet's time: htsim would lose that packet.
        if (_sending != nullptr) return;
        if (!as_incast.turns || _queuesize[Q_HI] > 0 || turns_.empty()) return FairPriorityQueue::beginService();
        const flowid_t flow = turns_.front();
        turns_.pop_front();
        _queue[Q_LO]._current_queue = _queue[Q_LO]._queue_map.find(flow);
        FairPriorityQueue::beginService();
        if (waits(flow)) turns_.push_back(flow);
    }

private:
    [[nodiscard]] bool waits(flowid_t flow) const {
        const auto found = _queue[Q_LO]._queue_map.find(flow);
        return found != _queue[Q_LO]._queue_map.end() && !found->second->empty();
    }
    std::deque<flowid_t> turns_;  // flows with packets here
};

/// An output of a switch.
class OutputQueue : public LosslessOutputQueue {
public:
    using LosslessOutputQueue::LosslessOutputQueue;
    void beginService() override {
        LosslessOutputQueue::beginService();
        Packet* const packet = _enqueued.back();
        free_at = events.now() + drainTime(packet);
        if (!as_incast.memory) return;
        _vq.back()->completedService(*packet);
        _vq.back() = &nobody_;
    }

    simtime_picosec free_at = 0;

private:
    struct Nobody : VirtualQueue {
        void completedService(Packet& /*packet*/) override {}
    };
    static Nobody nobody_;
};
OutputQueue::Nobody OutputQueue::nobody_;

/// The way of pauses from an input to the other end of its cable, behind what its own port is sending.
class PauseWire : public CallbackPipe {
public:
    PauseWire(simtime_picosec delay, PacketSink* sender, const OutputQueue& port)
        : CallbackPipe(delay, events, sender), port_(port), frame_(*this) {}

    void receivePacket(Packet& pause) override {
        if (waiting_ != nullptr) {  // one that ends what has not been said yet
            waiting_->free();
            pause.free();
            waiting_ = nullptr;
            return;
        }
        waiting_ = &pause;
        events.sourceIsPending(frame_, std::max(events.now(), port_.free_at) + pause_bytes * port_._ps_per_byte);
    }

private:
    struct Frame : EventSource {
        explicit Frame(PauseWire& of) : EventSource(events, "pause"), wire(of) {}
        void doNextEvent() override { wire.say(); }
        PauseWire& wire;
    };
    void say() {
        if (waiting_ != nullptr) CallbackPipe::receivePacket(*waiting_);
        waiting_ = nullptr;
    }

    const OutputQueue& port_;
    Frame frame_;
    Packet* waiting_ = nullptr;
};

/// Gives every input of a switch such a way. Together the paths of these pairs of hosts take every cable.
void replace_pauses(unsigned hosts, simtime_picosec delay) {
    for (unsigned host = 0; host < hosts; ++host) {
        const unsigned other = (host + hosts / 2) % hosts;
        for (unsigned one = 0; one < radix / 2; ++one) {
            for (unsigned two = 0; two < radix / 2; ++two) {
                const unsigned uplinks[2] = {one, two};
                const Route& out = *path(host, other, uplinks);
                const Route& back = *path(other, host, uplinks);
                // Output, pipe and input of every cable but the last, whose input is a host; `back` has them backwards.
                const std::size_t cables = out.size() / 3;
                for (std::size_t cable = 0; cable < cables; ++cable) {
                    auto* const input = dynamic_cast<LosslessInputQueue*>(out.at(cable * 3 + 2));
                    auto* const port = dynamic_cast<OutputQueue*>(back.at((cables - cable) * 3));
                    if (input == nullptr || port == nullptr) std::abort();
                    input->_wire = new PauseWire(delay, input->getRemoteEndpoint(), *port);  // until the end
                }
            }
        }
    }
}

/// A flow's source, from its start to its end.
class Starter : public EventSource, public Trigger {
public:
    explicit Starter(Flow& flow) : EventSource(events, "starter"), Trigger(events, 1), flow_(flow), sink_(flow) {}

    void doNextEvent() override {
        start_next();
        source_ = std::make_unique<RoceSrc>(nullptr, nullptr, events, speed);
        source_->set_dst(flow_.destination);
        source_->set_flowsize(flow_.bytes);
        source_->set_end_trigger(*this);
        sink_.set_src(flow_.source);
        auto* const out = new Route(*path(flow_.source, flow_.destination, flow_.up), sink_);
        const auto& uplinks = as_incast.acks ? flow_.back : flow_.up;
        auto* const back = new Route(*path(flow_.destination, flow_.source, uplinks), *source_);
        HostQueues::of(flow_.source)._senders.push_back(source_.get());
        source_->connect(out, back, sink_, 0);
    }
    void activate() override {
        flow_.acknowledged = now();
        std::printf("%zu,%lld,%lld\n", static_cast<std::size_t>(&flow_ - flows.data()), flow_.delivered,
                    flow_.acknowledged);
        nacks += source_->_nacks_received;
        auto& senders = HostQueues::of(flow_.source)._senders;
        senders.erase(std::find(senders.begin(), senders.end(), source_.get()));
        HostQueues::of(flow_.source).forget(source_->flow_id());
        HostQueues::of(flow_.destination).forget(source_->flow_id());
    }

    static void start_next() {
        if (next == flows.size()) return;
        auto* const starter = new Starter(flows[next++]);  // until the end
        events.sourceIsPending(*starter, static_cast<simtime_picosec>(starter->flow_.start));
    }

    static linkspeed_bps speed;
    static std::size_t next;
    static std::uint64_t nacks;

private:
    Flow& flow_;
    Sink sink_;
    std::unique_ptr<RoceSrc> source_;
};
linkspeed_bps Starter::speed = 0;
std::size_t Starter::next = 0;
std::uint64_t Starter::nacks = 0;

bool choose(std::string_view what) {
    bool* const known = what == "acks"     ? &as_incast.acks
                        : what == "pauses" ? &as_incast.pauses
                        : what == "memory" ? &as_incast.memory
                        : what == "turns"  ? &as_incast.turns
                                           : nullptr;
    if (known != nullptr) *known = true;
    return known != nullptr;
}

}  // namespace

// The tree makes queues of the classes above.
#define FairPriorityQueue HostQueues
#define LosslessOutputQueue OutputQueue
#include <fat_tree_topology.cpp>
#undef FairPriorityQueue
#undef LosslessOutputQueue

int main(int argc, char** argv) {
    if (argc < 8 || !std::all_of(argv + 8, argv + argc, choose)) return 2;
    std::cout.setstate(std::ios::failbit);  // htsim says what it does, packet by packet where queues are long
    const auto number = [&](int index) { return static_cast<unsigned>(std::strtoul(argv[index], nullptr, 10)); };
    FILE* const in = std::fopen(argv[1], "r");
    if (in == nullptr) return 1;
    for (Flow flow; std::fscanf(in, "%lld %u %u %llu %u %u %u %u", &flow.start, &flow.source, &flow.destination,
                                &flow.bytes, &flow.up[0], &flow.up[1], &flow.back[0], &flow.back[1]) == 8;)
        flows.push_back(flow);
    std::fclose(in);
    radix = number(2);
    const unsigned payload = number(5);
    Packet::set_packet_size(static_cast<int>(payload));
    LosslessInputQueue::_high_threshold = std::uint64_t{payload} * number(6);
    LosslessInputQueue::_low_threshold = std::uint64_t{payload} * number(7);
    Starter::speed = speedFromMbps(std::uint64_t{number(3)});
    FatTreeTopology::set_tiers(3);
    tree = std::make_unique<FatTreeTopology>(radix * radix * radix / 4, Starter::speed, memFromPkt(1'000'000), nullptr,
                                             &events, nullptr, LOSSLESS_INPUT, timeFromNs(double(number(4))), 0,
                                             FAIR_PRIO);
    if (as_incast.pauses) replace_pauses(radix * radix * radix / 4, timeFromNs(double(number(4))));
    std::fputs("flow,delivered_ps,acknowledged_ps\n", stdout);
    Starter::start_next();
    std::size_t done = 0;
    std::uint64_t happened = 0;
    for (; events.doNextEvent(); ++happened) {
        if (happened % 1'000'000 != 0) continue;
        while (done < flows.size() && flows[done].acknowledged >= 0)
            ++done;
        std::fprintf(stderr, "\r%.3f ms, the first %zu flows have ended", static_cast<double>(now()) / 1e9, done);
    }
    std::fprintf(stderr, "\n%zu flows, %llu events, %llu NACKs\n", flows.size(),
                 static_cast<unsigned long long>(happened), static_cast<unsigned long long>(Starter::nacks));
    std::fflush(stdout);
    std::_Exit(0);
}

// Flows of a file on htsim's fat tree with its RoCE sources and lossless switches, for bench/flows_vs_htsim.py: a
// program of its own, built against a checkout of https://github.com/Broadcom/csg-htsim (BSD) and never with the rest.
//
// usage: htsim_flows FLOWS RADIX MBIT_PER_S HOP_NS PAYLOAD HIGH LOW > finished.csv
// FLOWS: lines "start_ps source destination bytes uplink1 uplink2", sorted by start; the uplinks are the numbers of
// those that the edge and the aggregation switch choose. HIGH, LOW: packets of an input above and below which it pauses
// and goes on. Prints "flow,delivered_ps,acknowledged_ps" of each as it ends.
//
// htsim's own main_roce starts every flow at once, whatever its connection matrix says; here each starts in its time,
// and its hosts know of it only from then to its end, as their queues look through all flows that they know of.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include <config.h>
#include <eventlist.h>
#include <fat_tree_topology.h>
#include <queue_lossless_input.h>
#include <roce.h>
#include <trigger.h>

namespace {

struct Flow {
    long long start;
    unsigned source;
    unsigned destination;
    unsigned long long bytes;
    unsigned first;
    unsigned second;
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

const Route* path(unsigned from, unsigned to, const Flow& flow) {
    auto& known = paths[{from, to}];
    if (known == nullptr) known = tree->get_bidir_paths(from, to, false);
    // In order of the aggregation switch, and for each of them in order of its uplinks.
    const std::size_t half = radix / 2;
    if (known->size() == 1) return known->front();
    return known->at(known->size() == half ? flow.first : flow.first * half + flow.second);
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
    static HostQueues& of(unsigned host) {
        return static_cast<HostQueues&>(*tree->queues_ns_nlp[host][tree->HOST_POD_SWITCH(host)][0]);
    }
    void forget(flowid_t flow) {
        for (auto& queue : _queue)
            queue.flush_flow(flow);
    }
};

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
        auto* const out = new Route(*path(flow_.source, flow_.destination, flow_), sink_);
        auto* const back = new Route(*path(flow_.destination, flow_.source, flow_), *source_);
        HostQueues::of(flow_.source)._senders.push_back(source_.get());
        source_->connect(out, back, sink_, 0);
    }
    void activate() override {
        flow_.acknowledged = now();
        std::printf("%zu,%lld,%lld\n", static_cast<std::size_t>(&flow_ - flows.data()), flow_.delivered,
                    flow_.acknowledged);
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

private:
    Flow& flow_;
    Sink sink_;
    std::unique_ptr<RoceSrc> source_;
};
linkspeed_bps Starter::speed = 0;
std::size_t Starter::next = 0;

}  // namespace

int main(int argc, char** argv) {
    if (argc != 8) return 2;
    std::cout.setstate(std::ios::failbit);  // htsim says what it does, packet by packet where queues are long
    const auto number = [&](int index) { return static_cast<unsigned>(std::strtoul(argv[index], nullptr, 10)); };
    FILE* const in = std::fopen(argv[1], "r");
    if (in == nullptr) return 1;
    for (Flow flow; std::fscanf(in, "%lld %u %u %llu %u %u", &flow.start, &flow.source, &flow.destination, &flow.bytes,
                                &flow.first, &flow.second) == 6;)
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
    std::fputs("flow,delivered_ps,acknowledged_ps\n", stdout);
    Starter::start_next();
    std::size_t done = 0;
    for (std::uint64_t count = 0; events.doNextEvent(); ++count) {
        if (count % 1'000'000 != 0) continue;
        while (done < flows.size() && flows[done].acknowledged >= 0)
            ++done;
        std::fprintf(stderr, "\r%.3f ms, the first %zu flows have ended", static_cast<double>(now()) / 1e9, done);
    }
    std::fflush(stdout);
    std::_Exit(0);
}

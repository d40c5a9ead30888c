#include "sim/flows/simulation.h"

#include <algorithm>
#include <numeric>
#include <string>
#include <utility>

#include "sim/flows/streams.h"

namespace incast::sim::flows {
namespace {

using packet::FlowIndex;
using packet::Network;
using packet::Outcome;

/// The first flow of each class opens a stream on a network like it.
Result<Ok> check_classes(const fabric::Fabric& fabric, std::span<const Flow> flows) {
    Result<std::unique_ptr<Network>> trial = Network::make(fabric.topology, fabric.settings);
    if (!trial) return trial.error();
    unsigned known = 0;
    for (std::size_t flow = 0; flow < flows.size(); ++flow) {
        const std::uint8_t bit = packet::bit_of(flows[flow].traffic_class);
        if ((known & bit) != 0) continue;
        known |= bit;
        if (const auto opened = (*trial)->open(settings_of(fabric, flows[flow], 0)); !opened)
            return Error{"fabric '" + fabric.name + "', flow " + std::to_string(flow) + " of class " +
                         std::to_string(flows[flow].traffic_class) + ": " + opened.error().message};
    }
    return Ok{};
}

}  // namespace

Result<std::unique_ptr<Simulation>> Simulation::make(const fabric::Fabric& fabric, std::span<const Flow> flows,
                                                     std::uint64_t seed) {
    if (const Result<Ok> checked = check_classes(fabric, flows); !checked) return checked.error();
    Result<std::unique_ptr<Network>> network = Network::make(fabric.topology, fabric.settings);
    if (!network) return network.error();
    if (!fabric.fixes_seed) (*network)->reseed(seed);
    return std::unique_ptr<Simulation>(new Simulation(fabric, flows, seed, std::move(*network)));
}

Simulation::Simulation(const fabric::Fabric& fabric, std::span<const Flow> flows, std::uint64_t seed,
                       std::unique_ptr<Network> network)
    : fabric_(fabric),
      flows_(flows),
      network_(std::move(network)),
      seed_(seed),
      order_(flows.size()),
      records_(flows.size()) {
    std::iota(order_.begin(), order_.end(), 0U);
    std::ranges::sort(order_, {}, [&](std::uint32_t flow) { return std::pair(flows_[flow].start, flow); });
}

void Simulation::record(const packet::RecorderSettings& settings) {
    recorder_ = std::make_unique<packet::Recorder>(*network_, settings);
}

FlowIndex Simulation::stream_for(std::uint32_t flow) {
    // So long after its end no acknowledgement or notification of a stream is on its way any more.
    constexpr Time quiet = ps_per_ms;
    const std::uint32_t entropy = entropy_of(fabric_, seed_, flow);
    std::vector<Idle>& idle = idle_[key_of(flows_[flow])];
    if (!idle.empty() && idle.front().since + quiet <= network_->now()) {
        const FlowIndex stream = idle.front().stream;
        if (network_->restart(stream, entropy)) {
            idle.erase(idle.begin());
            return stream;
        }
    }
    return network_->open(settings_of(fabric_, flows_[flow], entropy)).value();  // make() has opened one like it
}

void Simulation::start(std::uint32_t flow) {
    const FlowIndex stream = stream_for(flow);
    if (stream >= repeated_before_.size()) repeated_before_.resize(stream + 1);
    repeated_before_[stream] = network_->repeated(stream);
    network_->post(stream, flows_[flow].bytes, flow);
}

void Simulation::take(const Outcome& outcome) {
    const auto flow = static_cast<std::uint32_t>(outcome.token);
    FlowRecord& record = records_[flow];
    if (outcome.what == Outcome::What::delivered) {
        record.delivered = outcome.time;
        delivered_bytes_ += outcome.bytes;
    }
    if (outcome.what == Outcome::What::acknowledged) record.acknowledged = outcome.time;
    const bool answered = fabric_.flow.transport != packet::Transport::datagram;
    if (answered == (outcome.what == Outcome::What::acknowledged)) {
        ++ended_;
        record.repeated = network_->repeated(outcome.flow) - repeated_before_[outcome.flow];
        idle_[key_of(flows_[flow])].push_back({outcome.time, outcome.flow});
    }
}

/// Until then, or the first outcome.
void Simulation::run(Time until) {
    bool found = false;
    while (!found && recorder_ != nullptr && recorder_->next_time() <= until) {
        found = network_->advance_to_outcome(recorder_->next_time());
        if (!found) recorder_->look();
    }
    if (!found) network_->advance_to_outcome(until);
    Outcome outcome;
    while (network_->take_outcome(outcome))
        take(outcome);
}

State Simulation::advance(Time time, Time until) {
    const auto next_start = [&] { return next_ < order_.size() ? flows_[order_[next_]].start : time_never; };
    const Time next = std::min(network_->next_time(), next_start());
    State state = State::running;
    if (next == time_never) {
        state = State::stuck;
    } else {
        const Time target = std::min(until, std::max(network_->now() + time, next));
        for (;;) {
            while (next_start() <= network_->now())
                start(order_[next_++]);
            if (ended_ == flows_.size() || network_->now() >= target) break;
            run(std::min(target, next_start()));
        }
        if (ended_ != flows_.size() && network_->now() >= until) state = State::out_of_time;
    }
    if (ended_ == flows_.size()) state = State::ended;
    if (state != State::running && recorder_ != nullptr) recorder_->end_window();
    return state;
}

}  // namespace incast::sim::flows

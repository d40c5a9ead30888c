#include <algorithm>
#include <atomic>
#include <numeric>
#include <thread>
#include <tuple>
#include <utility>

#include "sim/flows/simulation.h"
#include "sim/flows/streams.h"

namespace incast::sim::flows {
namespace {

using packet::FlowIndex;
using packet::Network;
using packet::Outcome;

auto content_of(const Flow& flow) {
    return std::tuple(key_of(flow), flow.bytes);
}

/// One flow after the other on a network of its own.
class Runner {
public:
    Runner(const fabric::Fabric& fabric, std::uint64_t seed)
        : fabric_(fabric), seed_(seed), network_(Network::make(fabric.topology, fabric.settings).value()) {
        if (!fabric.fixes_seed) network_->reseed(seed);
    }

    Time time_of(const Flow& flow, std::uint32_t number) {
        // After that long nothing of the flow before is on its way, and no limit of a host holds the next one back.
        constexpr Time pause = ps_per_ms;
        network_->advance(network_->now() + pause);
        const std::uint32_t entropy = entropy_of(fabric_, seed_, number);
        // Flows of the same hosts come one after the other.
        if (key_of(flow) != key_ || !network_->restart(stream_, entropy)) {
            stream_ = network_->open(settings_of(fabric_, flow, entropy)).value();
            key_ = key_of(flow);
        }
        const Time begin = network_->now();
        network_->post(stream_, flow.bytes, 0);
        Time delivered = time_never;
        const bool answered = fabric_.flow.transport != packet::Transport::datagram;
        for (bool ended = false; !ended && network_->next_time() != time_never;) {
            network_->advance_to_outcome(time_never);
            for (Outcome outcome; network_->take_outcome(outcome);) {
                if (outcome.what == Outcome::What::delivered) delivered = outcome.time - begin;
                ended = answered == (outcome.what == Outcome::What::acknowledged);
            }
        }
        return delivered;
    }

private:
    const fabric::Fabric& fabric_;
    std::uint64_t seed_;
    std::unique_ptr<Network> network_;
    std::uint64_t key_ = ~std::uint64_t{0};
    FlowIndex stream_ = packet::nil;
};

}  // namespace

std::vector<Time> times_alone(const fabric::Fabric& fabric, std::span<const Flow> flows, std::uint64_t seed,
                              unsigned threads, const std::function<bool()>& stop) {
    fabric::Fabric whole = fabric;
    whole.settings.faults.clear();
    std::vector<std::uint32_t> order(flows.size());
    std::iota(order.begin(), order.end(), 0U);
    std::ranges::sort(order, {}, [&](std::uint32_t flow) { return std::pair(content_of(flows[flow]), flow); });

    std::vector<Time> times(flows.size(), time_never);
    constexpr std::size_t block = 1024;  // a network each, so that nothing depends on the number of threads
    std::atomic<std::size_t> taken{0};
    const auto work = [&] {
        for (std::size_t first = 0; (first = taken.fetch_add(block)) < order.size() && !stop();) {
            Runner runner(whole, seed);
            const std::size_t last = std::min(first + block, order.size());
            for (std::size_t index = first; index < last && !stop(); ++index) {
                const std::uint32_t flow = order[index];
                const bool again = index > first && content_of(flows[flow]) == content_of(flows[order[index - 1]]);
                times[flow] = again ? times[order[index - 1]] : runner.time_of(flows[flow], flow);
            }
        }
    };
    std::vector<std::jthread> workers;
    for (unsigned thread = 1; thread < threads; ++thread)
        workers.emplace_back(work);
    work();
    workers.clear();
    return times;
}

}  // namespace incast::sim::flows

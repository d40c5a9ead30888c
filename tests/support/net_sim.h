// All nodes of a traffic pattern over a simulated network, whose links and latency are known.
#pragma once

#include <cstdlib>
#include <memory>
#include <vector>

#include "sim/models/ideal.h"
#include "sim/world.h"
#include "support/net.h"

namespace incast::net::testing {

class Simulated {
public:
    Simulated(const Config& config, const sim::IdealSettings& settings, const Wrap& wrap = {})
        : config_(config), world_(std::make_unique<sim::IdealModel>(settings)) {
        for (std::uint32_t self = 0; self < config.n_nodes; ++self) {
            transport::EndpointOptions options;
            options.self = Peer{self};
            options.max_peers = config.n_nodes;
            std::unique_ptr<Transport> transport = world_.endpoint(options).value();
            Transport& inner = *transport;
            transports.push_back(wrap ? wrap(Peer{self}, std::move(transport)) : std::move(transport));
            nodes.push_back(std::make_unique<Node>(config_, Peer{self}, *transports.back(), content_));
            if (!nodes.back()->start().ok()) {
                std::abort();
            }
            nodes.back()->go(ps_per_ms);
            actors_.push_back(std::make_unique<NodeActor>(*nodes.back()));
            world_.bind(inner, world_.add_actor(*actors_.back()));
        }
        for (const std::unique_ptr<Node>& node : nodes) {
            for (std::uint32_t peer = 0; peer < config.n_nodes; ++peer) {
                node->update_peer(0, Peer{peer}, 1, transports[peer]->address());
            }
        }
    }

    void run_until(Time time) { world_.run_until(time); }

private:
    class NodeActor final : public sim::Actor {
    public:
        explicit NodeActor(Node& node) : node_(node) {}
        bool step(Time now) override { return node_.step(now); }
        [[nodiscard]] Time next_deadline() const override { return node_.next_deadline(); }

    private:
        Node& node_;
    };

    Config config_;
    PlainContent content_;
    sim::World world_;

public:
    std::vector<std::unique_ptr<Transport>> transports;
    std::vector<std::unique_ptr<Node>> nodes;  // destroyed before their endpoints

private:
    std::vector<std::unique_ptr<NodeActor>> actors_;
};

}  // namespace incast::net::testing

// All nodes of a traffic pattern in one thread: on inproc with a scripted clock.
#pragma once

#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "net/node.h"
#include "transport/inproc/inproc.h"

namespace incast::net::testing {

/// Byte i of a body is a function of sender, position and i.
class PlainContent final : public Content {
public:
    void fill(Peer sender, std::uint64_t position, std::span<std::byte> body) override {
        for (std::size_t index = 0; index < body.size(); ++index) {
            body[index] = expected(sender, position, index);
        }
    }
    std::optional<std::size_t> difference(Peer sender, std::uint64_t position, Bytes body) override {
        for (std::size_t index = 0; index < body.size(); ++index) {
            if (body[index] != expected(sender, position, index)) {
                return index;
            }
        }
        return std::nullopt;
    }

private:
    static std::byte expected(Peer sender, std::uint64_t position, std::size_t index) {
        return static_cast<std::byte>(37 * static_cast<std::uint64_t>(sender) + 101 * position + 7 * index +
                                      index / 64);
    }
};

using Wrap = std::function<std::unique_ptr<Transport>(Peer, std::unique_ptr<Transport>)>;

class Cluster {
public:
    explicit Cluster(const Config& config, const Wrap& wrap = {})
        : config_(config), medium_(transport::inproc::make({}).value()) {
        for (std::uint32_t index = 0; index < config.n_nodes; ++index) {
            transport::EndpointOptions options;
            options.self = Peer{index};
            options.run = config.run;
            options.max_peers = config.n_nodes;
            std::unique_ptr<Transport> transport = medium_->endpoint(options).value();
            transports.push_back(wrap ? wrap(Peer{index}, std::move(transport)) : std::move(transport));
            nodes.push_back(std::make_unique<Node>(config_, Peer{index}, *transports.back(), content_));
            if (!nodes.back()->start().ok()) {
                std::abort();
            }
        }
        for (std::uint32_t self = 0; self < config.n_nodes; ++self) {
            for (std::uint32_t peer = 0; peer < config.n_nodes; ++peer) {
                nodes[self]->update_peer(now, Peer{peer}, 1, transports[peer]->address());
            }
        }
    }

    void go() {
        for (const std::unique_ptr<Node>& node : nodes) {
            node->go(now);
        }
    }
    void stop() {
        for (const std::unique_ptr<Node>& node : nodes) {
            node->stop();
        }
    }
    void round() {
        now += ps_per_us;
        for (const std::unique_ptr<Node>& node : nodes) {
            if (node) {
                node->step(now);
            }
        }
    }
    template <class Condition>
    bool run_until(Condition&& condition, std::uint64_t max_rounds = 200'000) {
        for (std::uint64_t step = 0; step < max_rounds && !condition(); ++step) {
            round();
        }
        return condition();
    }
    [[nodiscard]] bool all(State state) const {
        for (const std::unique_ptr<Node>& node : nodes) {
            if (node && node->state() != state) {
                return false;
            }
        }
        return true;
    }

    std::vector<std::unique_ptr<Transport>> transports;
    std::vector<std::unique_ptr<Node>> nodes;  // destroyed before their endpoints
    Time now = 0;

private:
    Config config_;
    PlainContent content_;
    std::unique_ptr<transport::Medium> medium_;
};

}  // namespace incast::net::testing

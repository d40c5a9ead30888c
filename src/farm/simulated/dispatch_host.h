// The dispatcher of one builder unit in a simulated world. It has the endpoint of its own, on the builder unit's host
// or on another one; what it decides is farm/book's.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include <incast/result.h>
#include <incast/transport.h>

#include "farm/book/book.h"
#include "farm/book/taker.h"
#include "farm/simulated/link.h"
#include "runtime/sinks/lending_sink.h"
#include "sim/world.h"

namespace incast::farm::simulated {

struct DispatchOptions {
    Peer self{};
    std::uint32_t builder = 0;     // the builder unit's node
    std::uint32_t hosts = 0;       // peers have numbers below it
    std::uint32_t first_node = 0;  // the peer that farm node 0 is; the others follow
    std::uint32_t nodes = 0;
    std::uint32_t n_sources = 0;
    std::uint32_t window = 0;       // MEPs that a farm node has of it
    std::uint64_t place_bytes = 0;  // of a MEP at the farm node
    std::uint64_t run = 0;
    Limits limits{};
};

class DispatchHost final : public sim::Actor {
public:
    static Result<std::unique_ptr<DispatchHost>> make(sim::World& world, const DispatchOptions& options);
    ~DispatchHost() override;

    /// A builder unit's incarnation begins; what the one before lent is nobody's any more. `wake`: has it step.
    void attach(sinks::LendingSink& sink, std::function<void()> wake);
    /// Its incarnation is about to end.
    void detach();
    /// A farm node is there, by a new incarnation.
    void expect(std::uint32_t node, const Whereabouts& there);
    [[nodiscard]] Whereabouts whereabouts() const { return {options_.self, 1, transport_->address(), {}}; }
    [[nodiscard]] const DispatcherCounts& counts() const { return book_.counts; }
    [[nodiscard]] std::size_t in_flight() const { return book_.size(); }

    bool step(Time now) override;
    [[nodiscard]] Time next_deadline() const override;

private:
    struct Node : Taker {
        Link link;
        std::uint64_t sent = 0;  // by this connection
    };
    struct Load {
        sinks::LendingSink::Lent lent;
        std::uint32_t sink = 0;  // which it came from
    };

    DispatchHost(sim::World& world, const DispatchOptions& options) : world_(world), options_(options) {}
    void hear(const Event& event);
    void heard(Node& node, Bytes message);
    void take_reply(Node& node, const Reply& reply);
    void lose(Node& node);
    void keep_alive();
    void dispatch();
    void send(std::uint64_t ticket, Node& node);
    [[nodiscard]] Node* node_of(Peer peer);

    sim::World& world_;
    DispatchOptions options_;
    std::unique_ptr<Transport> transport_;
    sim::ActorId actor_ = 0;
    std::vector<std::unique_ptr<Node>> nodes_;  // by farm node; null: none that takes of this dispatcher
    std::vector<Node*> known_;
    Book<Load> book_;
    sinks::LendingSink* sink_ = nullptr;
    std::uint32_t sinks_ = 0;  // that there were
    std::function<void()> wake_;
    bool gave_back_ = false;
    Time now_ = 0;
    Time next_look_ = 0;
};

}  // namespace incast::farm::simulated

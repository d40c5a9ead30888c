// The simulated network as a transport of the built-in list.
#pragma once

#include <memory>
#include <span>

#include "sim/world.h"
#include "transport/medium.h"

namespace incast::sim {

/// One world, shared by all endpoints that the medium makes. Single-threaded, and it must outlive the endpoints' use.
/// The driver binds its nodes to world() as actors and calls world().advance(); without actors, poll(now) moves the
/// clock.
class SimMedium final : public transport::Medium {
public:
    explicit SimMedium(std::unique_ptr<Model> model, Time poll_interval = 0) : world_(std::move(model)) {
        world_.poll_every(poll_interval);
    }
    Result<std::unique_ptr<Transport>> endpoint(const transport::EndpointOptions& options) override {
        return world_.endpoint(options);
    }
    [[nodiscard]] World& world() { return world_; }

private:
    World world_;
};

/// rate, latency: the ideal model's; fabric: the packet model's, instead of these; poll_interval: of the world.
std::span<const transport::Parameter> parameters();
/// A SimMedium on the ideal model, or on the packet model if a fabric is given. An unknown parameter or a bad value is
/// an error of one line.
Result<std::unique_ptr<transport::Medium>> make_sim_medium(const transport::Settings& settings);

}  // namespace incast::sim

// One seed, played: a world, its nodes, their crashes and restarts, and what the checkers say.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "checker.h"
#include "judge.h"
#include "plan.h"
#include "protocol/node.h"
#include "sim/world.h"
#include "sources_and_sinks.h"

namespace incast::adversary {

struct Outcome {
    std::uint64_t seed = 0;
    std::vector<Violation> violations;
    Marks marks;
    std::uint64_t trace_hash = 0;
    Time ended = 0;  // virtual
};

struct RunOptions {
    protocol::Plant plant = protocol::Plant::none;
    Lie lie = Lie::none;
    bool story = false;
};

Outcome play(std::uint64_t seed, const RunOptions& options);

/// What runs on one node of the config: an incarnation of it, or nothing while it is down.
class Host final : public sim::Actor {
public:
    Host(class Run& run, std::uint32_t index) : run_(run), index_(index) {}

    bool step(Time now) override;
    [[nodiscard]] Time next_deadline() const override;

    [[nodiscard]] const protocol::Counters& counters() const { return node_->counters(); }
    void start(Time now);
    void stop_admission() { node_->stop_admission(); }
    /// The process ends, whatever it was doing.
    void stop();
    void pause(Time until) { paused_until_ = until; }
    /// True if the news was for this incarnation of the world; false: paused, tell it later.
    bool learn(Time now, std::uint32_t peer, std::uint32_t incarnation, const Blob& address);

    [[nodiscard]] bool alive() const { return node_ != nullptr; }
    [[nodiscard]] bool paused(Time now) const { return now < paused_until_; }
    [[nodiscard]] Time paused_until() const { return paused_until_; }
    [[nodiscard]] bool finished() const { return alive() && node_->state() == protocol::NodeState::finished; }
    [[nodiscard]] std::uint32_t incarnation() const { return incarnation_; }
    [[nodiscard]] sim::EndpointId endpoint_id() const { return endpoint_id_; }
    [[nodiscard]] Blob address() const { return endpoint_->address(); }
    [[nodiscard]] sim::ActorId actor() const { return actor_; }

private:
    Run& run_;
    std::uint32_t index_;
    std::uint32_t incarnation_ = 0;
    Time paused_until_ = 0;
    Time stepped_at_ = -1;
    std::uint32_t steps_ = 0;  // at stepped_at_
    sim::ActorId actor_ = sim::nil;
    sim::EndpointId endpoint_id_ = sim::nil;
    std::unique_ptr<Transport> endpoint_;
    std::unique_ptr<ModelSource> source_;
    std::unique_ptr<ModelSink> sink_;
    std::unique_ptr<ModelFilter> filter_;
    std::unique_ptr<protocol::Node> node_;
};

/// Brings about faults and restarts, and carries the nodes' addresses around, as the runtime's coordinator does.
class Director final : public sim::Actor {
public:
    explicit Director(Run& run);

    bool step(Time now) override;
    [[nodiscard]] Time next_deadline() const override;
    void begin(Time now);
    /// That host has stopped: it comes back later.
    void restart_later(Time now, std::uint32_t host);

private:
    enum class Deed : std::uint8_t { start, tell, crash, pause, wake, cut, stall, mute, calm, stop_admission };
    struct Appointment {
        Time at = 0;
        std::uint64_t order = 0;
        Deed deed{};
        std::uint32_t host = 0;
        std::uint32_t peer = 0;
    };

    void appoint(Time at, Deed deed, std::uint32_t host = 0, std::uint32_t peer = 0);
    void repeat(Time now, Deed deed, Time every);
    void perform(Time now, const Appointment& next);
    void crash(Time now);
    void pause(Time now);
    /// An asymmetric partition: the EM hears nothing from an RU for so long that it drops it; all else goes on.
    void mute(Time now);
    /// An established connection, or nothing if the one that was drawn is not.
    std::optional<sim::ConnectionId> draw_connection();
    Time up_to(Time longest) {
        return 1 + static_cast<Time>(prng_.below(static_cast<std::uint64_t>(std::max<Time>(1, longest))));
    }

    Run& run_;
    base::Prng prng_;
    std::vector<Appointment> heap_;
    std::uint64_t order_ = 0;
};

class Run {
public:
    Run(std::uint64_t seed, const RunOptions& options);
    ~Run();
    Outcome play();

    sim::AdversarialModel& model() { return static_cast<sim::AdversarialModel&>(world.model()); }
    void count(const protocol::Counters& counters);
    /// Everything that the network did, for the coverage.
    void count_faults();

    Plan plan;
    Judge judge;
    sim::World world;
    Checker checker;
    Director director;
    sim::ActorId director_actor = sim::nil;
    std::vector<std::unique_ptr<Host>> hosts;
};

}  // namespace incast::adversary

#include "runtime/launch/local_run.h"

#include <algorithm>
#include <ctime>
#include <vector>

#include <fmt/format.h>
#include <poll.h>

#include "base/pause_watch.h"
#include "farm/simulated/farm.h"
#include "os/signals.h"
#include "runtime/machine/machine.h"
#include "runtime/machine/run_clock.h"
#include "runtime/monitor/metrics_server.h"
#include "runtime/node/host.h"
#include "runtime/sinks/lending_sink.h"
#include "sim/models/packet.h"
#include "sim/sim_medium.h"

namespace incast::runtime {
namespace {

constexpr Time longest_sleep = ps_per_ms;  // a transport without a descriptor to wait on (contract, "waiting")
constexpr Time longest_orphan = 6 * ps_per_s;
constexpr std::uint32_t rounds_per_look = 32;
constexpr unsigned prefetch_levels = 5;  // of Host::prefetch: so many nodes ahead

void sleep_for(Time time) {
    if (time > 0) {
        const timespec span{0, static_cast<long>(time / ps_per_ns)};
        ppoll(nullptr, 0, &span, nullptr);
    }
}

}  // namespace

/// The hosts, run control, and the rendezvous between hosts, which here is a table.
class LocalRun::Nodes final : public runtime::RunNodes {
public:
    Nodes(const Plan& plan, transport::Medium& medium, Reporter& reporter)
        : plan_(plan),
          world_(dynamic_cast<sim::SimMedium*>(&medium)),
          network_(world_ != nullptr ? dynamic_cast<sim::PacketModel*>(&world_->world().model()) : nullptr),
          reporter_(reporter),
          addresses_(plan.n_nodes) {
        if (network_ != nullptr) {
            network_->seed(plan.config.seed);
            if (network_->recorder() == nullptr) network_ = nullptr;
        }
        if (!plan.is_net()) shape_ = std::make_unique<const protocol::Shape>(plan.protocol);
        for (std::uint32_t node = 0; node < plan.n_nodes; ++node) {
            const auto log = [this, node](std::string_view line) {
                reporter_.notice(Level::warning,
                                 fmt::format("node {}: {}", node_name(node, plan_.protocol.nodes[node].roles), line));
            };
            hosts_.push_back(make_host(plan, medium, {node, 0, reporter.directory(), node == 0, shape_.get(), log}));
        }
    }

    ~Nodes() override { end_trace(); }  // nobody reads what its hosts say as they go

    void take_samples(Mark mark) override {
        wanted_.push_back(mark);
        if (farm_ != nullptr && mark == Mark::window_begin) {
            farm_->begin_window(now());
        } else if (farm_ != nullptr && mark == Mark::window_end) {
            farm_->end_window(now());
        }
        if (network_ != nullptr && mark == Mark::window_begin) {
            network_->begin_window(now());
        } else if (network_ != nullptr && mark == Mark::window_end) {
            network_->end_window(now());
        }
    }
    void stop_admission() override {
        for (std::uint32_t node = 0; node < hosts_.size(); ++node) {
            if (plan_.is_vital(node)) {
                hosts_[node]->stop_admission();
                if (world_ != nullptr) {
                    world_->world().wake(actor_ids_[node]);
                }
            }
        }
    }

    void start_triggers(Time origin) override {
        for (const std::unique_ptr<Host>& host : hosts_) {
            host->start_triggers(origin);
        }
        // Readout units look at their triggers by themselves, at every heartbeat at least.
        for (std::size_t node = 0; plan_.is_net() && node < actor_ids_.size(); ++node) {
            world_->world().wake(actor_ids_[node]);
        }
    }

    [[nodiscard]] Time now() const { return world_ != nullptr ? world_->world().now() : clock_.now(); }

    Result<Ok> begin() {
        Result<std::unique_ptr<MetricsServer>> opened = MetricsServer::open_for(plan_, 0);
        if (!opened) {
            return opened.error();
        }
        metrics_ = std::move(*opened);
        if (metrics_) {
            const std::string address = reachable_address(metrics_->address(), read_machine().host);
            announce_metrics(reporter_, fmt::format("0 to {}", hosts_.size() - 1), address, {&address, 1});
        }
        if (world_ != nullptr && !world_->trace_file().empty()) {
            if (const Result<Ok> begun = reporter_.begin_trace(world_->trace_file()); !begun) {
                return Error{"transport.sim.trace cannot be written: " + begun.error().message};
            }
            world_->begin_trace([this](std::string_view text, std::uint64_t lines) { reporter_.trace(text, lines); });
        }
        control_ = std::make_unique<RunControl>(plan_, *this, reporter_, now());
        if (const Result<Ok> made = make_farm(); !made) {
            return made;
        }
        for (std::uint32_t node = 0; node < hosts_.size(); ++node) {
            if (Result<Ok> begun = begin(node, 1); !begun) {
                return begun;
            }
        }
        for (std::uint32_t node = 0; node < hosts_.size(); ++node) {
            introduce(node);
        }
        return Ok{};
    }

    /// Whatever is due: samples, phases, new incarnations. Returns when it wants to be called next.
    Time look(Time now) {
        for (std::uint32_t node = 0; node < hosts_.size(); ++node) {
            Host& host = *hosts_[node];
            if (host.news()) {
                take(now, host.sample(Mark::interval, now));
            }
            if (host.needs_new_incarnation() && control_->phase() < Phase::closing) {
                renew(now, node);
            }
        }
        if (now >= next_sample_) {
            sample_all(Mark::interval, now);
            next_sample_ = now + plan_.sample_interval;
        }
        control_->tick(now);
        for (std::size_t index = 0; index < wanted_.size(); ++index) {  // a sample may make run control want more
            sample_all(wanted_[index], now);
        }
        wanted_.clear();
        return std::min(next_sample_, control_->next_deadline());
    }

    bool interrupted() {
        if (os::watcher_is_gone(clock_.now())) {
            control_->hurry();
        }
        if (os::interrupts() > handled_interrupts_) {
            handled_interrupts_ = os::interrupts();
            control_->interrupt(now());
        }
        // How long virtual seconds of draining take nobody knows.
        return os::interrupts() > 1 || (world_ != nullptr && os::watcher_gone_for(clock_.now()) > longest_orphan);
    }

    [[nodiscard]] bool done() const { return control_->phase() == Phase::done; }
    [[nodiscard]] const RunControl& control() const { return *control_; }
    [[nodiscard]] std::vector<std::unique_ptr<Host>>& hosts() { return hosts_; }
    [[nodiscard]] sim::PacketModel* network() const { return network_; }
    [[nodiscard]] farm::simulated::Farm* farm() const { return farm_.get(); }
    [[nodiscard]] sim::World* world() const { return world_ != nullptr ? &world_->world() : nullptr; }

    void end_trace() {
        if (world_ != nullptr) {
            world_->end_trace();
        }
    }

    LocalOutcome run_in_real_time();
    Result<LocalOutcome> run_in_virtual_time();

private:
    class HostActor;
    class LookActor;

    Result<Ok> begin(std::uint32_t node, std::uint32_t incarnation) {
        if (farm_ != nullptr) farm_->detach(node);
        Result<Blob> address = hosts_[node]->begin(now(), incarnation);
        if (!address) {
            return Error{"node " + node_name(node, plan_.protocol.nodes[node].roles) + ": " + address.error().message};
        }
        addresses_[node] = *address;
        if (auto* const sink = dynamic_cast<sinks::LendingSink*>(hosts_[node]->sink()); farm_ != nullptr && sink) {
            farm_->attach(node, *sink, [this, node] { world_->world().wake(actor_ids_[node]); });
        }
        return Ok{};
    }
    Result<Ok> make_farm();
    /// Tells a new incarnation about all peers that are there.
    void introduce(std::uint32_t node) {
        for (std::uint32_t peer = 0; peer < hosts_.size(); ++peer) {
            hosts_[node]->update_peer(now(), peer, hosts_[peer]->incarnation(), addresses_[peer]);
        }
    }
    void renew(Time now, std::uint32_t node) {
        const std::uint32_t incarnation = hosts_[node]->incarnation() + 1;
        if (node == static_cast<std::uint32_t>(plan_.protocol.em)) {
            control_->lost(now, node, "it can no longer hear the others");
            return;
        }
        if (Result<Ok> begun = begin(node, incarnation); !begun) {
            control_->lost(now, node, begun.error().message);
            return;
        }
        if (world_ != nullptr) {
            world_->world().bind(hosts_[node]->transport(), actor_ids_[node]);
        }
        introduce(node);
        for (std::uint32_t peer = 0; peer < hosts_.size(); ++peer) {
            if (peer != node) {
                hosts_[peer]->update_peer(now, node, incarnation, addresses_[node]);
            }
            if (world_ != nullptr) {
                world_->world().wake(actor_ids_[peer]);
            }
        }
    }
    void sample_all(Mark mark, Time now) {
        for (const std::unique_ptr<Host>& host : hosts_) {
            take(now, host->sample(mark, now));
        }
    }
    void take(Time now, NodeSample sample) {
        if (metrics_) {
            metrics_->publish(sample, role_names(plan_.protocol.nodes[sample.node].roles), this->now() - now);
        }
        control_->sample(now, std::move(sample));
    }

    const Plan& plan_;
    sim::SimMedium* world_;
    sim::PacketModel* network_;  // if it records
    Reporter& reporter_;
    std::vector<Blob> addresses_;
    std::unique_ptr<const protocol::Shape> shape_;  // of all hosts
    std::vector<std::unique_ptr<Host>> hosts_;
    std::unique_ptr<farm::simulated::Farm> farm_;  // null: the run has none. It uses sinks of hosts
    std::unique_ptr<MetricsServer> metrics_;       // null: run.metrics = off
    std::unique_ptr<RunControl> control_;
    std::vector<sim::ActorId> actor_ids_;  // by node, in virtual time
    std::vector<Mark> wanted_;
    Time next_sample_ = 0;
    RunClock clock_;
    int handled_interrupts_ = 0;
};

Result<Ok> LocalRun::Nodes::make_farm() {
    const RunConfig& config = plan_.config;
    if (world_ == nullptr || config.sink_kind != SinkKind::farm) {
        return Ok{};
    }
    farm::simulated::FarmOptions options;
    for (std::uint32_t node = 0; node < plan_.n_nodes; ++node) {
        if ((plan_.protocol.nodes[node].roles & protocol::role_bu) != 0) options.builders.push_back(node);
    }
    options.first_host = plan_.n_nodes;
    options.nodes = static_cast<std::uint32_t>(config.farm_nodes);
    options.own_network = config.farm_network == FarmNetwork::own;
    options.dispatchers = static_cast<std::uint32_t>(config.farm_dispatchers);
    options.window = static_cast<std::uint32_t>(config.farm_window);
    options.processes = static_cast<std::uint32_t>(config.farm_processes);
    options.n_sources = static_cast<std::uint32_t>(plan_.protocol.sources.size());
    options.mep_bytes = plan_.slot_bytes;
    options.run = plan_.protocol.run;
    options.work = config.farm_work;
    auto made = farm::simulated::Farm::make(world_->world(), std::move(options));
    if (!made) {
        return made.error();
    }
    farm_ = std::move(*made);
    return Ok{};
}

LocalOutcome LocalRun::Nodes::run_in_real_time() {
    std::uint32_t rounds = 0;
    base::PauseWatch watch(now(), plan_.protocol.heartbeat);
    Time slept = 0;
    while (!done()) {
        bool busy = false;
        for (std::size_t node = 0; node < hosts_.size(); ++node) {
            for (unsigned level = 0; level < prefetch_levels; ++level) {
                if (const std::size_t later = node + prefetch_levels - level; later < hosts_.size()) {
                    hosts_[later]->prefetch(level);
                }
            }
            busy = hosts_[node]->step(now()) || busy;
        }
        if (busy && ++rounds % rounds_per_look != 0) {
            continue;
        }
        const Time before = now();
        if (const Time pause = watch.look(before, slept); pause > 0) {
            control_->forgive(pause);
        }
        slept = 0;
        Time deadline = std::min(look(before), before + longest_sleep);
        if (interrupted()) {
            return {true, {}};
        }
        if (!busy) {
            for (const std::unique_ptr<Host>& host : hosts_) {
                deadline = std::min(deadline, host->next_deadline());
            }
            slept = std::max<Time>(deadline - before, 0);
            sleep_for(slept);
        }
    }
    return {};
}

/// A node in the simulated world.
class LocalRun::Nodes::HostActor final : public sim::Actor {
public:
    HostActor(Host& host, sim::World& world, sim::ActorId look) : host_(host), world_(world), look_(look) {}
    bool step(Time now) override {
        host_.step(now);
        if (host_.news_pending()) {
            world_.wake(look_);
        }
        return !host_.transport().prepare_wait();  // something is still to be polled; all else has its deadline
    }
    [[nodiscard]] Time next_deadline() const override { return host_.next_deadline(); }
    void prefetch(unsigned level) const override {
        if (level == 0) {
            __builtin_prefetch(&host_);
        } else {
            host_.prefetch(level - 1);
        }
    }

private:
    Host& host_;
    sim::World& world_;
    sim::ActorId look_;
};

/// Run control in the simulated world.
class LocalRun::Nodes::LookActor final : public sim::Actor {
public:
    explicit LookActor(Nodes& run_nodes) : run_nodes_(run_nodes) {}
    bool step(Time now) override {
        next_ = run_nodes_.look(now);
        return false;
    }
    [[nodiscard]] Time next_deadline() const override { return next_; }

private:
    Nodes& run_nodes_;
    Time next_ = 0;
};

Result<LocalOutcome> LocalRun::Nodes::run_in_virtual_time() {
    sim::World& simulated = *world();
    LookActor look_actor(*this);
    const sim::ActorId look_id = simulated.add_actor(look_actor);
    std::vector<std::unique_ptr<HostActor>> actors;
    for (const std::unique_ptr<Host>& host : hosts_) {
        actors.push_back(std::make_unique<HostActor>(*host, simulated, look_id));
        actor_ids_.push_back(simulated.add_actor(*actors.back()));
        simulated.bind(host->transport(), actor_ids_.back());
    }
    bool aborted = false;
    while (!done() && !aborted) {
        if (!simulated.advance()) {
            return Error{"the simulation came to a standstill: nothing will ever happen again"};
        }
        aborted = interrupted();
    }
    return LocalOutcome{aborted, simulated.trace_hash()};
}

LocalRun::LocalRun(const Plan& plan, transport::Medium& medium, Reporter& reporter)
    : run_nodes_(std::make_unique<Nodes>(plan, medium, reporter)) {}
LocalRun::~LocalRun() = default;

bool LocalRun::virtual_time() const {
    return run_nodes_->world() != nullptr;
}

const RunControl& LocalRun::control() const {
    return run_nodes_->control();
}

sim::PacketModel* LocalRun::recorded_network() {
    if (run_nodes_->network() != nullptr) {
        run_nodes_->network()->end_window(run_nodes_->now());
    }
    return run_nodes_->network();
}

const farm::simulated::Farm* LocalRun::farm() {
    if (run_nodes_->farm() != nullptr) {
        run_nodes_->farm()->end_window(run_nodes_->now());
    }
    return run_nodes_->farm();
}

Result<LocalOutcome> LocalRun::run() {
    if (Result<Ok> begun = run_nodes_->begin(); !begun) {
        return begun.error();
    }
    Result<LocalOutcome> outcome =
        virtual_time() ? run_nodes_->run_in_virtual_time() : Result<LocalOutcome>(run_nodes_->run_in_real_time());
    run_nodes_->end_trace();
    return outcome;
}

}  // namespace incast::runtime

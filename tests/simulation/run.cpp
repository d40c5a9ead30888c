#include "run.h"

#include <algorithm>

#include "liar.h"
#include "sim/endpoint.h"

namespace incast::adversary {

using protocol::NodeState;

namespace {

constexpr std::uint32_t steps_per_instant_max = 10'000;

constexpr const char* state_names[] = {"joining", "running", "finished", "evicted", "em_silent", "failed"};

std::uint64_t stream(std::uint64_t seed, std::uint64_t one, std::uint64_t two) {
    return base::mix64(base::mix64(seed ^ one << 32) + two);
}

}  // namespace

// --- host
// --------------------------------------------------------------------------------------------------------------------

void Host::start(Time now) {
    const Plan& plan = run_.plan;
    const std::uint32_t roles = plan.config.nodes[index_].roles;
    ++incarnation_;
    transport::EndpointOptions options;
    options.self = Peer{index_};
    options.incarnation = incarnation_;
    options.run = plan.config.run;
    options.max_peers = static_cast<std::uint32_t>(plan.config.nodes.size());
    options.max_posted = 64;
    endpoint_ = run_.world.endpoint(options).value();
    Transport& of_world = *endpoint_;
    endpoint_id_ = static_cast<sim::Endpoint&>(of_world).id();
    if (plan.lie != Lie::none && plan.liar == index_) {
        endpoint_ = std::make_unique<LyingEndpoint>(std::move(endpoint_), plan, run_.checker, incarnation_);
    }
    run_.checker.node_started(index_, incarnation_, endpoint_id_);
    const std::uint64_t seed = stream(plan.seed, index_, incarnation_);
    if ((roles & protocol::role_ru) != 0)
        source_ = std::make_unique<ModelSource>(plan, index_, endpoint_id_, run_.world, run_.checker, seed);
    if ((roles & protocol::role_bu) != 0)
        sink_ = std::make_unique<ModelSink>(plan, index_, incarnation_, run_.checker, seed + 1);
    if (two_stages(plan.config.scheme))
        filter_ = std::make_unique<ModelFilter>(plan, index_, incarnation_, run_.checker, seed + 2);
    node_ = std::make_unique<protocol::Node>(plan.config, Peer{index_}, incarnation_, *endpoint_, source_.get(),
                                             sink_.get(), (roles & protocol::role_em) != 0 ? &run_.checker : nullptr,
                                             filter_.get());
    if (const auto started = node_->start(now); !started) {
        run_.judge.violation("start", "node {} does not start: {}", index_, started.error().message);
    }
    if (actor_ == sim::nil) actor_ = run_.world.add_actor(*this);
    run_.world.bind(of_world, actor_);
    run_.judge.story("node {}#{} starts", index_, incarnation_);
}

void Host::stop() {
    run_.count(node_->counters());
    node_.reset();
    endpoint_.reset();
    source_.reset();
    sink_.reset();
    filter_.reset();
    paused_until_ = 0;
}

bool Host::step(Time now) {
    run_.judge.set_time(now);
    if (!alive() || paused(now)) return false;
    steps_ = now == stepped_at_ ? steps_ + 1 : 0;
    stepped_at_ = now;
    if (steps_ == steps_per_instant_max) {
        run_.judge.violation("liveness", "node {}#{} steps for ever in one instant: {}, deadline {} ps from now",
                             index_, incarnation_, state_names[static_cast<std::size_t>(node_->state())],
                             node_->next_deadline() - now);
    }
    const NodeState before = node_->state();
    const bool more = node_->step(now);
    const NodeState after = node_->state();
    if (after != before)
        run_.judge.story("node {}#{} is {}", index_, incarnation_, state_names[static_cast<std::size_t>(after)]);
    if (after == NodeState::evicted || after == NodeState::em_silent) {
        if (Peer{index_} == run_.plan.config.em) {
            run_.judge.violation("EB-F4", "the EM's node is {}", state_names[static_cast<std::size_t>(after)]);
            return false;
        }
        run_.judge.mark(after == NodeState::evicted ? "exit: evicted" : "exit: EM silent");
        stop();
        run_.director.restart_later(now, index_);
        return false;
    }
    return more;
}

Time Host::next_deadline() const {
    if (!alive()) return time_never;
    return std::max(node_->next_deadline(), paused_until_);
}

bool Host::learn(Time now, std::uint32_t peer, std::uint32_t incarnation, const Blob& address) {
    if (paused(now)) return false;
    node_->update_peer(now, Peer{peer}, incarnation, address);
    run_.world.wake(actor_);
    return true;
}

// --- director
// ----------------------------------------------------------------------------------------------------------------

Director::Director(Run& run) : run_(run), prng_(stream(run.plan.seed, 0xd1, 0)) {}

void Director::appoint(Time at, Deed deed, std::uint32_t host, std::uint32_t peer) {
    heap_.push_back({at, ++order_, deed, host, peer});
    std::ranges::push_heap(heap_, std::greater{},
                           [](const Appointment& each) { return std::pair{each.at, each.order}; });
}

void Director::begin(Time now) {
    const ChaosPlan& chaos = run_.plan.chaos;
    for (std::uint32_t host = 0; host < run_.hosts.size(); ++host)
        appoint(now + up_to(100 * ps_per_us), Deed::start, host);
    repeat(now, Deed::crash, chaos.crash_every);
    repeat(now, Deed::pause, chaos.pause_every);
    repeat(now, Deed::cut, chaos.cut_every);
    repeat(now, Deed::stall, chaos.stall_every);
    repeat(now, Deed::mute, chaos.mute_every);
    appoint(chaos.until, Deed::calm);
    if (run_.plan.stop_at > 0)
        appoint(run_.plan.stop_at, Deed::stop_admission, static_cast<std::uint32_t>(run_.plan.config.em));
}

void Director::repeat(Time now, Deed deed, Time every) {
    if (every == 0) return;
    const Time at = now + up_to(2 * every);
    if (at < run_.plan.chaos.until) appoint(at, deed);
}

void Director::restart_later(Time now, std::uint32_t host) {
    appoint(now + up_to(run_.plan.chaos.restart_max), Deed::start, host);
    run_.world.wake(run_.director_actor);
}

Time Director::next_deadline() const {
    return heap_.empty() ? time_never : heap_.front().at;
}

bool Director::step(Time now) {
    run_.judge.set_time(now);
    while (!heap_.empty() && heap_.front().at <= now) {
        std::ranges::pop_heap(heap_, std::greater{},
                              [](const Appointment& each) { return std::pair{each.at, each.order}; });
        const Appointment next = heap_.back();
        heap_.pop_back();
        perform(now, next);
    }
    return false;
}

void Director::perform(Time now, const Appointment& next) {
    const ChaosPlan& chaos = run_.plan.chaos;
    Host& host = *run_.hosts[next.host];
    switch (next.deed) {
        case Deed::start:
            host.start(now);
            if (host.incarnation() > 1) run_.judge.mark("restart");
            for (std::uint32_t peer = 0; peer < run_.hosts.size(); ++peer) {
                if (peer == next.host) continue;
                appoint(now + up_to(chaos.tell_max), Deed::tell, peer, next.host);
                appoint(now + up_to(chaos.tell_max), Deed::tell, next.host, peer);
            }
            break;
        case Deed::tell: {
            const Host& peer = *run_.hosts[next.peer];
            if (!host.alive() || !peer.alive()) break;  // whoever starts next is told of the others, and they of it
            if (!host.learn(now, next.peer, peer.incarnation(), peer.address()))
                appoint(host.paused_until(), Deed::tell, next.host, next.peer);
            break;
        }
        case Deed::crash:
            crash(now);
            repeat(now, Deed::crash, chaos.crash_every);
            break;
        case Deed::pause:
            pause(now);
            repeat(now, Deed::pause, chaos.pause_every);
            break;
        case Deed::wake:
            run_.judge.story("node {}#{} goes on", next.host, host.incarnation());
            if (host.alive()) run_.world.wake(host.actor());
            break;
        case Deed::cut:
            if (const auto drawn = draw_connection()) {
                const auto [one, two] = run_.world.connection(*drawn).endpoint;
                run_.judge.story("FAULT the connection of node {} and node {} is lost",
                                 static_cast<std::uint32_t>(run_.world.options(one).self),
                                 static_cast<std::uint32_t>(run_.world.options(two).self));
                run_.model().cut(run_.world, *drawn);
            }
            repeat(now, Deed::cut, chaos.cut_every);
            break;
        case Deed::stall:
            if (const auto drawn = draw_connection()) {
                const auto direction = static_cast<std::uint8_t>(prng_.below(2));
                const Time until = now + up_to(chaos.stall_max);
                const auto& ends = run_.world.connection(*drawn).endpoint;
                run_.judge.story("FAULT nothing passes from node {} to node {} for {} us",
                                 static_cast<std::uint32_t>(run_.world.options(ends[direction]).self),
                                 static_cast<std::uint32_t>(run_.world.options(ends[1 - direction]).self),
                                 (until - now) / ps_per_us);
                run_.model().stall(run_.world, *drawn, direction, until);
            }
            repeat(now, Deed::stall, chaos.stall_every);
            break;
        case Deed::mute:
            mute(now);
            repeat(now, Deed::mute, chaos.mute_every);
            break;
        case Deed::stop_admission:
            run_.judge.story("the EM is told to admit no more");
            run_.judge.mark("admission stopped");
            host.stop_admission();
            run_.world.wake(host.actor());
            break;
        case Deed::calm:
            run_.judge.story("faults end");
            run_.model().calm();
            break;
    }
}

void Director::crash(Time now) {
    const auto index = static_cast<std::uint32_t>(prng_.below(run_.hosts.size()));
    Host& host = *run_.hosts[index];
    if (!host.alive() || Peer{index} == run_.plan.config.em) return;
    const std::uint32_t roles = run_.plan.config.nodes[index].roles;
    run_.judge.story("FAULT node {}#{} crashes", index, host.incarnation());
    if ((roles & protocol::role_ru) != 0) run_.judge.mark("fault: RU crash");
    if ((roles & protocol::role_bu) != 0) run_.judge.mark("fault: BU crash");
    run_.checker.crashes(host.endpoint_id());
    host.stop();
    restart_later(now, index);
}

void Director::pause(Time now) {
    const auto index = static_cast<std::uint32_t>(prng_.below(run_.hosts.size()));
    Host& host = *run_.hosts[index];
    if (!host.alive() || host.paused(now)) return;
    const Time until = now + up_to(run_.plan.chaos.pause_max);
    // A network card goes on with what was posted while the process sleeps; a network in software sleeps with it.
    const bool network_sleeps = prng_.chance(500'000);
    run_.judge.story("FAULT node {}#{} pauses for {} us{}", index, host.incarnation(), (until - now) / ps_per_us,
                     network_sleeps ? ", with what it has posted" : "");
    run_.judge.mark(network_sleeps ? "fault: pause, network too" : "fault: pause, writes go on");
    if (Peer{index} == run_.plan.config.em) run_.judge.mark("fault: EM pause");
    host.pause(until);
    appoint(until, Deed::wake, index);
    if (!network_sleeps) return;
    for (sim::ConnectionId id = 0; id < run_.world.connection_count(); ++id) {
        const sim::Connection& connection = run_.world.connection(id);
        for (std::uint8_t side = 0; side < 2; ++side) {
            if (connection.endpoint[side] == host.endpoint_id() &&
                connection.channel[side].side != sim::Connection::Side::down) {
                run_.model().stall(run_.world, id, side, until);
            }
        }
    }
}

void Director::mute(Time now) {
    const auto index = static_cast<std::uint32_t>(prng_.below(run_.hosts.size()));
    const Host& host = *run_.hosts[index];
    const Host& em = *run_.hosts[static_cast<std::size_t>(run_.plan.config.em)];
    if ((run_.plan.config.nodes[index].roles & protocol::role_ru) == 0 || &host == &em || !host.alive()) return;
    const Time until = now + run_.plan.chaos.mute_min + up_to(run_.plan.chaos.stall_max);
    for (sim::ConnectionId id = 0; id < run_.world.connection_count(); ++id) {
        const sim::Connection& connection = run_.world.connection(id);
        for (std::uint8_t side = 0; side < 2; ++side) {
            if (connection.endpoint[side] != host.endpoint_id() || connection.endpoint[1 - side] != em.endpoint_id() ||
                connection.channel[side].side != sim::Connection::Side::up) {
                continue;
            }
            run_.judge.story("FAULT the EM hears nothing from node {} for {} us", index, (until - now) / ps_per_us);
            run_.judge.mark("fault: RU mute to the EM");
            run_.model().stall(run_.world, id, side, until);
        }
    }
}

std::optional<sim::ConnectionId> Director::draw_connection() {
    if (run_.world.connection_count() == 0) return {};
    const auto id = static_cast<sim::ConnectionId>(prng_.below(run_.world.connection_count()));
    const sim::Connection& connection = run_.world.connection(id);
    const bool up = connection.channel[0].side == sim::Connection::Side::up &&
                    connection.channel[1].side == sim::Connection::Side::up;
    return up ? std::optional(id) : std::nullopt;
}

// --- run
// ---------------------------------------------------------------------------------------------------------------------

Run::Run(std::uint64_t seed, const RunOptions& options)
    : plan(make_plan(seed, options.plant, options.lie)),
      judge(options.story),
      world(std::make_unique<sim::AdversarialModel>(plan.network)),
      checker(plan, world, judge),
      director(*this) {
    if (options.story) fmt::print("{}", describe(plan));
    for (std::uint32_t index = 0; index < plan.config.nodes.size(); ++index)
        hosts.push_back(std::make_unique<Host>(*this, index));
    if (const auto valid = protocol::validate(plan.config); !valid)
        judge.violation("config", "{}", valid.error().message);
}

Run::~Run() = default;

void Run::count(const protocol::Counters& counters) {
    judge.mark("quarantined slot", counters.quarantined_slots);
    judge.mark("stale contribution", counters.stale_contributions);
    judge.mark("reassigned", counters.reassignments);
    judge.mark("again", counters.back_pressure);
    judge.mark("bad message", counters.bad_messages);
    judge.mark("barrier expired", counters.barrier_expired);
    judge.mark("slot overrun", counters.slot_overruns);
}

void Run::count_faults() {
    constexpr std::pair<sim::Fault, const char*> names[] = {
        {sim::Fault::heavy_delay, "fault: heavy delay"},
        {sim::Fault::overtaking, "fault: overtaking"},
        {sim::Fault::scattered_write, "fault: scattered write"},
        {sim::Fault::done_at_once, "fault: done at once"},
        {sim::Fault::again, "fault: again"},
        {sim::Fault::connect_again, "fault: connect again"},
        {sim::Fault::connect_refused, "fault: connect refused"},
        {sim::Fault::lost_in_flight, "fault: lost in flight"},
        {sim::Fault::landed_after_end, "fault: landed after the end"},
        {sim::Fault::unfenced_landing, "fault: unfenced landing"},
        {sim::Fault::connection_cut, "fault: connection cut"},
        {sim::Fault::stall, "fault: stall"},
        {sim::Fault::scattered_read, "fault: scattered read"},
        {sim::Fault::lost_body, "fault: lost body"},
    };
    static_assert(std::size(names) == sim::fault_kinds);
    for (const auto& [fault, name] : names)
        judge.mark(name, model().count(fault));
}

Outcome Run::play() {
    director_actor = world.add_actor(director);
    director.begin(0);
    const auto finished = [this] { return std::ranges::all_of(hosts, &Host::finished); };
    while (judge.violations().empty() && !finished()) {
        if (world.next_time() > plan.liveness_bound) {
            judge.violation("liveness", "{} of {} MEPs are committed at the bound of {} us", checker.committed_count(),
                            plan.source.total_meps, plan.liveness_bound / ps_per_us);
            break;
        }
        judge.set_time(world.next_time());
        world.advance();
    }
    const Host& em = *hosts[static_cast<std::size_t>(plan.config.em)];
    if (judge.violations().empty()) checker.finish(em.counters().meps_admitted);
    for (const auto& host : hosts) {
        if (host->alive()) count(host->counters());
    }
    count_faults();
    return {plan.seed, judge.violations(), judge.marks(), world.trace_hash(), world.now()};
}

Outcome play(std::uint64_t seed, const RunOptions& options) {
    return Run(seed, options).play();
}

}  // namespace incast::adversary

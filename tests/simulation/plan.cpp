#include "plan.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "base/prng.h"
#include "sources_and_sinks.h"

namespace incast::adversary {
namespace {

using protocol::role_bu;
using protocol::role_em;
using protocol::role_ru;

class Draw {
public:
    explicit Draw(std::uint64_t seed) : prng_(seed) {}
    bool percent(std::uint32_t chance) { return prng_.chance(chance * 10'000); }
    template <class T>
    T between(T low, T high) {
        return static_cast<T>(prng_.between(static_cast<std::int64_t>(low), static_cast<std::int64_t>(high)));
    }
    /// `value` times a number in [low, high] tenths.
    Time scaled(Time value, std::int64_t low_tenths, std::int64_t high_tenths) {
        return value * between(low_tenths, high_tenths) / 10;
    }
    /// A chance per million up to `high`, spread over three decades; in some runs none at all.
    std::uint32_t rate(std::uint32_t high) {
        if (percent(30)) return 0;
        for (std::uint32_t decade = between(0U, 2U); decade > 0; --decade)
            high /= 10;
        return std::max(1U, between(high / 3, high));
    }
    Time every(Time low, Time high) { return percent(35) ? 0 : between(low, high); }

private:
    base::Prng prng_;
};

void draw_nodes(Draw& draw, protocol::Config& config) {
    const bool folded = draw.percent(45);
    const bool em_alone = draw.percent(75);
    std::vector<std::uint32_t> roles;
    if (folded) {
        roles.assign(draw.between<std::size_t>(em_alone ? 3 : 4, 5), role_ru | role_bu);
    } else {
        const auto rus = draw.between<std::size_t>(2, 4);
        const auto bus = draw.between<std::size_t>(2, 4);
        roles.assign(rus, role_ru);
        roles.insert(roles.end(), bus, role_bu);
    }
    if (em_alone) {
        roles.insert(draw.percent(50) ? roles.begin() : roles.end(), role_em);
        config.em = Peer{roles.front() == role_em ? 0U : static_cast<std::uint32_t>(roles.size() - 1)};
    } else {
        const auto at = draw.between<std::size_t>(0, roles.size() - 1);
        roles[at] |= role_em;
        config.em = Peer{static_cast<std::uint32_t>(at)};
    }
    for (std::uint32_t node = 0; node < roles.size(); ++node) {
        config.nodes.push_back({roles[node]});
        if ((roles[node] & role_ru) == 0) continue;
        for (std::uint32_t count = draw.between(1U, 3U); count > 0; --count) {
            config.sources.push_back(
                {static_cast<std::uint16_t>(100 + config.sources.size()), Peer{node}, draw.between(64U, 4096U)});
        }
    }
}

void draw_protocol(Draw& draw, Plan& plan) {
    protocol::Config& config = plan.config;
    config.run = 1 + plan.seed;
    config.seed = plan.seed;
    draw_nodes(draw, config);
    config.scheme = draw.percent(50) ? protocol::Scheme::push : protocol::Scheme::pull_write;
    config.schedule = static_cast<protocol::Schedule>(draw.between(0, 2));
    config.credits = draw.between(1U, 5U);
    config.quarantine_slots = draw.between(0U, 3U);
    config.retention_meps = draw.between(4U, 32U);
    config.parallel_requests = draw.percent(50) ? 0 : draw.between(1U, 6U);
    config.parallel_sends = draw.percent(50) ? 0 : draw.between(1U, 6U);
    config.max_attempts = draw.between(1U, 4U);
    config.heartbeat = draw.between(300, 1000) * ps_per_us;
    config.detection_deadline = draw.scaled(config.heartbeat, 40, 120);
    config.late_after = draw.scaled(config.detection_deadline, 2, 15);
    config.suspect_grace = draw.scaled(config.detection_deadline, 0, 5);
    config.connect_retry = draw.between(50, 500) * ps_per_us;
    plan.source.total_meps = draw.between(200U, 400U);
    plan.source.says_total = draw.percent(30);
    config.total_meps = plan.source.says_total ? 0 : plan.source.total_meps;
}

/// From a stream of its own, so that the seeds of before this scheme are what they were.
void draw_two_stages(Plan& plan) {
    protocol::Config& config = plan.config;
    Draw draw(base::mix64(plan.seed ^ 0xc7));
    plan.filter = {draw.rate(500'000), draw.between(50'000U, 600'000U), draw.between(20, 2000) * ps_per_us};
    if (!draw.percent(22)) return;
    const bool push = config.scheme == protocol::Scheme::push;
    config.scheme = push ? protocol::Scheme::push_pull : protocol::Scheme::pull_pull;
    const auto rus = static_cast<std::uint32_t>(std::ranges::count_if(
        config.nodes, [](const protocol::NodeSpec& node) { return (node.roles & role_ru) != 0; }));
    config.first_stage_rus = draw.between(1U, rus);
    config.second_stage_all = !push && draw.percent(40);
    config.decision_deadline = draw.scaled(config.heartbeat, 2, 30);
}

/// Instead of pull-write, which it differs from in how bytes move: nothing is sent, and a BU reads.
void draw_reads(Plan& plan) {
    protocol::Config& config = plan.config;
    Draw draw(base::mix64(plan.seed ^ 0x4ead));
    if (config.scheme != protocol::Scheme::pull_write || !draw.percent(40)) return;
    config.scheme = protocol::Scheme::pull_read;
    config.parallel_sends = 0;
    config.message_size = 0;
    config.ack_per_write = false;
    config.outstanding_writes = 0;
}

void draw_layout(Plan& plan) {
    using protocol::Layout;
    Draw draw(base::mix64(plan.seed ^ 0x1a));
    constexpr std::array others{Layout::per_mep, Layout::segmented, Layout::per_source};
    if (draw.percent(40)) plan.config.layout = others[draw.between(0U, 2U)];
}

/// Bodies of writes that get lost. Reads have no notice that could say so.
void draw_losses(Plan& plan) {
    Draw draw(base::mix64(plan.seed ^ 0x1055));
    if (plan.config.scheme == protocol::Scheme::pull_read || plan.lie != Lie::none || !draw.percent(20)) return;
    plan.network.lost_body_chance = std::max(1000U, draw.rate(200'000));
}

/// MEPs whose events come one by one, and that are closed early more often than not (EB-C8).
void draw_closing(Plan& plan) {
    Draw draw(base::mix64(plan.seed ^ 0xc8));
    if (plan.source.says_total || !draw.percent(40)) return;
    protocol::Config& config = plan.config;
    plan.source.packing = draw.between(2U, 6U);
    config.packing = plan.source.packing;
    config.total_events = plan.source.total_meps;
    config.total_meps = (config.total_events + config.packing - 1) / config.packing;
    config.max_wait =
        draw.percent(20) ? ps_per_us : draw.between<Time>(plan.source.interval / 8, 4 * plan.source.interval);
}

void draw_writes(Plan& plan) {
    protocol::Config& config = plan.config;
    Draw draw(base::mix64(plan.seed ^ 0x51));
    if (draw.percent(30)) config.message_size = draw.between(100U, 2000U);
    if (draw.percent(25)) {
        config.ack_per_write = true;
        config.outstanding_writes = draw.percent(50) ? draw.between(1U, 4U) : 0;
    }
}

/// How long a BU waits for the next one to get its turn: a slot, or a phase with its messages.
Time turn_of(const protocol::Config& config, const sim::AdversarialSettings& network) {
    if (config.schedule == protocol::Schedule::barrel_time_slot) return config.slot_time;
    return protocol::has_barriers(config.schedule) ? 8 * (network.delay_min + network.delay_spread) : 0;
}

/// From a sequence of its own, so that what else a seed stands for does not depend on it.
void draw_schedule(Draw& draw, Plan& plan) {
    using protocol::Schedule;
    protocol::Config& config = plan.config;
    const Time calm = plan.network.delay_min + plan.network.delay_spread;
    if (draw.percent(60)) {
        constexpr Schedule push[] = {Schedule::none,
                                     Schedule::barrel_barrier,
                                     Schedule::barrel_barrier,
                                     Schedule::barrel_time_slot,
                                     Schedule::barrel_time_slot,
                                     Schedule::lockstep,
                                     Schedule::lockstep};
        config.schedule =
            config.scheme == protocol::Scheme::push ? push[draw.between<std::size_t>(0, 6)] : Schedule::none;
    }
    config.assignment = draw.percent(30) ? protocol::Assignment::fixed : protocol::Assignment::em;
    config.inter_send_gap = draw.percent(30) ? draw.between<Time>(1, 20) * ps_per_us : 0;
    config.slot_time = draw.scaled(calm, 5, 60);
    const auto overrun = draw.between<std::uint32_t>(0, 99);
    config.overrun = overrun < 50   ? protocol::Overrun::skip
                     : overrun < 75 ? protocol::Overrun::slip
                                    : protocol::Overrun::overlap;
    config.barrier_deadline = draw.scaled(calm, 60, 300);
    // Whoever waits for its turn is not late (see validate); how long a phase takes is a matter of the network.
    const auto period = static_cast<Time>(config.nodes.size());
    const Time turn = turn_of(config, plan.network);
    config.late_after =
        std::max(config.late_after, Time{2} * config.credits * period * std::max(turn, config.inter_send_gap));
}

/// From a sequence of its own. What does not go together stays as it was drawn.
void draw_assignment(Plan& plan) {
    Draw draw(base::mix64(plan.seed ^ 0xc5));
    if (!draw.percent(30)) return;
    const protocol::Assignment before = std::exchange(plan.config.assignment, protocol::Assignment::source_credits);
    if (!protocol::validate(plan.config)) plan.config.assignment = before;
}

/// How long an RU takes for one contribution, in a calm network: each write that has to be acknowledged before the next
/// costs a round trip.
Time contribution_of(const protocol::Config& config, const sim::AdversarialSettings& network) {
    std::vector<std::uint64_t> writes(config.nodes.size());
    for (const protocol::SourceSpec& source : config.sources) {
        const std::uint32_t step = config.message_size > 0 ? config.message_size : source.cap_bytes;
        writes[static_cast<std::size_t>(source.ru)] += (source.cap_bytes + step - 1) / step;
    }
    const std::uint64_t most = std::ranges::max(writes);
    std::uint64_t at_once = most;
    for (const std::uint64_t limit : {config.outstanding_writes, config.parallel_sends}) {
        if (config.ack_per_write && limit > 0) at_once = std::min(at_once, limit);
    }
    const std::uint64_t rounds = (most + at_once - 1) / at_once;
    return static_cast<Time>(rounds) * 2 * (network.delay_min + network.delay_spread);
}

/// From a sequence of its own. Before the liveness bound is reckoned.
void draw_lie(Plan& plan, Lie lie) {
    if (lie == Lie::none) return;
    protocol::Config& config = plan.config;
    Draw draw(base::mix64(plan.seed ^ 0x11e));
    plan.lie = lie;
    plan.lie_every = draw.between(50, 500) * ps_per_us;
    plan.network.tail_chance = 0;
    plan.network.delay_spread = std::min(plan.network.delay_spread, 40 * ps_per_us);
    plan.network.again_max = std::min(plan.network.again_max, 50 * ps_per_us);
    plan.network.connect_refused_chance = 0;
    const Time until = plan.chaos.until;
    const Time restart_max = plan.chaos.restart_max;
    plan.chaos = {};
    plan.chaos.until = until;
    plan.chaos.restart_max = restart_max;
    plan.chaos.tell_max = 200 * ps_per_us;
    plan.stop_at = 0;
    // Slots are as long as a contribution: whose turn comes where each is an overrun is chance, and honest nodes have
    // to wait for as long as chance wants (--lie abort, seed 3611, with and without the lie).
    const Time contribution = contribution_of(config, plan.network);
    config.slot_time = std::max(config.slot_time, contribution);
    const Time turn = std::max({contribution, turn_of(config, plan.network), config.inter_send_gap});
    const auto turns = static_cast<Time>(2 * config.credits * config.nodes.size());
    config.late_after = std::max({config.late_after, 20 * ps_per_ms, turns * turn});
    config.max_attempts = std::min(config.max_attempts, 4U);
    if (lie == Lie::grant) {  // what it is about
        config.scheme = protocol::Scheme::push;
        config.second_stage_all = false;
        config.schedule = protocol::Schedule::linear_shift;
        config.assignment = protocol::Assignment::source_credits;
    }
    const auto pick = [&](std::uint32_t roles, std::uint32_t other) {
        std::uint32_t node = 0;
        do {
            node = draw.between<std::uint32_t>(0, static_cast<std::uint32_t>(config.nodes.size()) - 1);
        } while ((config.nodes[node].roles & roles) == 0 || (config.nodes[node].roles & role_em) != 0 || node == other);
        return node;
    };
    plan.liar = pick(lie == Lie::loss ? role_bu | role_ru : role_bu, ~0U);
    const std::uint32_t roles = config.nodes[plan.liar].roles;
    plan.about = pick((roles & role_bu) != 0 ? role_ru : role_bu, plan.liar);
}

}  // namespace

Plan make_plan(std::uint64_t seed, protocol::Plant plant, Lie lie) {
    Plan plan;
    plan.seed = seed;
    Draw draw(base::mix64(seed ^ 0x9a7));
    draw_protocol(draw, plan);
    draw_two_stages(plan);
    draw_writes(plan);
    draw_reads(plan);
    draw_layout(plan);
    plan.config.plant = plant;
    const Time detection = plan.config.detection_deadline;

    plan.source.interval = draw.between(40, 160) * ps_per_us;
    plan.source.stutter_chance = draw.rate(20'000);
    draw_closing(plan);
    plan.sink = {draw.rate(200'000),
                 draw.rate(600'000),
                 draw.between(20, 500) * ps_per_us,
                 draw.between(20, 2000) * ps_per_us,
                 0,
                 0};

    plan.network.seed = base::mix64(seed ^ 0x7e7);
    plan.network.delay_min = draw.between(500, 5000) * ps_per_ns;
    plan.network.delay_spread = (draw.percent(70) ? draw.between(1, 40) : draw.between(100, 500)) * ps_per_us;
    plan.network.tail_chance = draw.rate(10'000);
    plan.network.tail_max = draw.scaled(detection, 5, 20);
    plan.network.overtake_chance = draw.rate(500'000);
    plan.network.scatter_chance = draw.rate(300'000);
    plan.network.done_chance = draw.rate(300'000);
    plan.network.again_chance = draw.rate(100'000);
    plan.network.again_max = (draw.percent(60) ? draw.between(10, 300) : draw.between(500, 5000)) * ps_per_us;
    plan.network.connect_again_chance = draw.rate(300'000);
    plan.network.connect_refused_chance = draw.rate(300'000);
    plan.network.loss_noticed_max = draw.scaled(detection, 1, 15);
    plan.network.fences_live_peer = draw.percent(70);

    if (draw.percent(30)) {
        // Impatient: as short as a calm network allows when a BU asks one RU at a time, so that every disturbance makes
        // MEPs late.
        const Time calm = draw.between(100, 300) * (plan.network.delay_min + plan.network.delay_spread);
        plan.config.late_after = std::min(plan.config.late_after, calm);
        plan.config.max_attempts = draw.between(5U, 1000U);
    }

    Draw schedule_draw(base::mix64(seed ^ 0x5c4e));
    draw_schedule(schedule_draw, plan);
    draw_assignment(plan);

    plan.chaos.crash_every = draw.every(2 * ps_per_ms, 20 * ps_per_ms);
    plan.chaos.pause_every = draw.every(2 * ps_per_ms, 20 * ps_per_ms);
    plan.chaos.cut_every = plan.network.fences_live_peer ? draw.every(2 * ps_per_ms, 20 * ps_per_ms) : 0;
    plan.chaos.stall_every = draw.every(2 * ps_per_ms, 20 * ps_per_ms);
    plan.chaos.pause_max = draw.scaled(detection, 2, 25);
    plan.chaos.stall_max = draw.scaled(detection, 2, 25);
    plan.chaos.restart_max = draw.scaled(detection, 1, 15);
    plan.chaos.tell_max = draw.between(10, 2000) * ps_per_us;
    plan.chaos.mute_every = draw.every(3 * ps_per_ms, 15 * ps_per_ms);
    plan.chaos.mute_min = detection + plan.config.heartbeat;
    plan.chaos.until = draw.between(20, 80) * ps_per_ms;
    plan.stop_at = draw.percent(15) ? draw.between<Time>(1, 60) * ps_per_ms : 0;

    plan.config.held_slots = draw.between(0U, 3U);
    plan.sink.hold_chance = draw.rate(500'000);
    plan.sink.hold_max = draw.between(20, 2000) * ps_per_us;
    plan.config.reuse_wait = draw.percent(50) ? draw.between<Time>(1, 1000) * ps_per_us : 0;
    draw_lie(plan, lie);
    draw_losses(plan);

    // After the last fault every node may still have to be declared dead, come back and connect, several times over
    // where a stalled connection ends one node after the other; then the work that is left, each MEP alone and each
    // after all its attempts, at the pace of the slowest part.
    const Time last_fault =
        plan.chaos.until +
        std::max({plan.chaos.pause_max, plan.chaos.mute_min + plan.chaos.stall_max, plan.network.tail_max});
    const Time recovery = detection + plan.config.suspect_grace + plan.chaos.restart_max + plan.chaos.tell_max +
                          plan.network.loss_noticed_max + 10 * plan.config.connect_retry;
    const Time deciding = two_stages(plan.config.scheme) ? plan.config.decision_deadline : 0;
    const Time per_mep =
        4 * plan.source.interval + plan.sink.busy_max + plan.sink.durable_max + plan.sink.hold_max +
        plan.config.reuse_wait + deciding + 40 * (plan.network.delay_min + plan.network.delay_spread) +
        static_cast<Time>(plan.config.nodes.size()) * (plan.config.inter_send_gap + turn_of(plan.config, plan.network));
    plan.liveness_bound = last_fault + static_cast<Time>(plan.config.nodes.size()) * recovery +
                          plan.config.max_attempts * (plan.config.late_after + plan.config.heartbeat) * 4 +
                          static_cast<Time>(plan.source.total_meps) * (per_mep + plan.config.max_wait);
    if (lie == Lie::withheld) {  // each of them waits for its deadline, once or more
        plan.liveness_bound += 4 * static_cast<Time>(plan.source.total_meps) * plan.config.late_after;
    }
    return plan;
}

std::string describe(const Plan& plan) {
    constexpr const char* scheme_names[] = {"push", "pull-write", "push-pull", "pull-pull", "pull-read"};
    const auto us = [](Time time) { return static_cast<double>(time) / static_cast<double>(ps_per_us); };
    const protocol::Config& config = plan.config;
    std::string text = fmt::format("seed {}: {} nodes", plan.seed, config.nodes.size());
    for (std::size_t node = 0; node < config.nodes.size(); ++node) {
        const std::uint32_t roles = config.nodes[node].roles;
        text += fmt::format(" {}:{}{}{}", node, (roles & role_em) != 0 ? "E" : "", (roles & role_ru) != 0 ? "R" : "",
                            (roles & role_bu) != 0 ? "B" : "");
    }
    text += fmt::format(", {} sources, {} MEPs{}\n", config.sources.size(), plan.source.total_meps,
                        plan.source.says_total ? " (as the sources say)" : "");
    text += fmt::format(
        "  protocol: {}, schedule {}, credits {}+{}+{}, retention {}, parallel requests {} sends {}, attempts {}, "
        "heartbeat {} us, "
        "detection {} us, late after {} us, grace {} us, plant {}\n",
        scheme_names[static_cast<std::size_t>(config.scheme)], static_cast<int>(config.schedule), config.credits,
        config.quarantine_slots, config.held_slots, config.retention_meps, config.parallel_requests,
        config.parallel_sends, config.max_attempts, us(config.heartbeat), us(config.detection_deadline),
        us(config.late_after), us(config.suspect_grace), static_cast<int>(config.plant));
    if (plan.source.packing > 0) {
        text += fmt::format("  {} events in all, {} in a MEP, which waits for them {} us\n", config.total_events,
                            plan.source.packing, us(config.max_wait));
    }
    if (config.message_size > 0 || config.ack_per_write) {
        text += fmt::format("  writes of {} bytes, {}, {} outstanding\n", config.message_size,
                            config.ack_per_write ? "each acknowledged" : "not acknowledged", config.outstanding_writes);
    }
    if (two_stages(config.scheme)) {
        text +=
            fmt::format("  filter: first {} RUs{}, rejects {} ppm, undecided {} ppm up to {} us, deadline {} us\n",
                        config.first_stage_rus, config.second_stage_all ? ", then all" : "", plan.filter.reject_chance,
                        plan.filter.undecided_chance, us(plan.filter.undecided_max), us(config.decision_deadline));
    }
    constexpr const char* layouts[] = {"contiguous", "per-mep", "segmented", "per-source"};
    constexpr const char* overruns[] = {"skip", "slip", "overlap"};
    constexpr const char* assignments[] = {"the EM's", "static", "source-credits"};
    text += fmt::format("  {} layout, {} assignment, gap {} us, barrier deadline {} us, slots of {} us, {}\n",
                        layouts[static_cast<std::size_t>(config.layout)],
                        assignments[static_cast<std::size_t>(config.assignment)], us(config.inter_send_gap),
                        us(config.barrier_deadline), us(config.slot_time),
                        overruns[static_cast<std::size_t>(config.overrun)]);
    text += fmt::format(
        "  network: delay {}+{} us, tail {} ppm up to {} us, overtaking {}, scattered {}, done {}, again {}, connect "
        "again {} refused {} "
        "ppm, bodies lost {} ppm, loss noticed in {} us, {}\n",
        us(plan.network.delay_min), us(plan.network.delay_spread), plan.network.tail_chance, us(plan.network.tail_max),
        plan.network.overtake_chance, plan.network.scatter_chance, plan.network.done_chance, plan.network.again_chance,
        plan.network.connect_again_chance, plan.network.connect_refused_chance, plan.network.lost_body_chance,
        us(plan.network.loss_noticed_max),
        plan.network.fences_live_peer ? "fences live peers" : "cannot fence live peers");
    text += fmt::format(
        "  faults until {} us: crash every {} us, pause {} (<= {}), cut {}, stall {} (<= {}), mute {}; restart within "
        "{}; bound "
        "{} us\n",
        us(plan.chaos.until), us(plan.chaos.crash_every), us(plan.chaos.pause_every), us(plan.chaos.pause_max),
        us(plan.chaos.cut_every), us(plan.chaos.stall_every), us(plan.chaos.stall_max), us(plan.chaos.mute_every),
        us(plan.chaos.restart_max), us(plan.liveness_bound));
    return text;
}

}  // namespace incast::adversary

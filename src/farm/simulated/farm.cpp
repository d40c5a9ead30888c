#include "farm/simulated/farm.h"

#include <algorithm>

#include <fmt/format.h>

namespace incast::farm::simulated {

namespace {

FarmHostCounts& operator+=(FarmHostCounts& to, const FarmHostCounts& more) {
    to.meps += more.meps;
    to.events += more.events;
    to.goodput_bytes += more.goodput_bytes;
    to.repeated_meps += more.repeated_meps;
    to.done_meps += more.done_meps;
    to.late_meps += more.late_meps;
    to.busy += more.busy;
    return to;
}

/// `sign`: 1 adds, -1 takes away.
void add(DispatcherCounts& to, const DispatcherCounts& more, std::uint64_t sign) {
    for (const auto member :
         {&DispatcherCounts::taken_meps, &DispatcherCounts::sent_meps, &DispatcherCounts::done_meps,
          &DispatcherCounts::repeated_meps, &DispatcherCounts::refused_meps, &DispatcherCounts::judged_meps,
          &DispatcherCounts::accepted_events, &DispatcherCounts::rejected_events, &DispatcherCounts::sent_bytes,
          &DispatcherCounts::joined_nodes, &DispatcherCounts::left_nodes, &DispatcherCounts::lost_nodes}) {
        to.*member += sign * (more.*member);
    }
}

}  // namespace

Result<std::unique_ptr<Farm>> Farm::make(sim::World& world, FarmOptions options) {
    if (options.mep_bytes > most_mep_bytes_here) {
        return Error{fmt::format("sink.kind = farm: a MEP of {} bytes; allowed: up to {}", options.mep_bytes,
                                 most_mep_bytes_here)};
    }
    const auto n_builders = static_cast<std::uint32_t>(options.builders.size());
    if (options.dispatchers == 0 || options.dispatchers > n_builders) {
        options.dispatchers = n_builders;
    }
    std::unique_ptr<Farm> farm(new Farm(world, std::move(options)));
    const FarmOptions& to = farm->options_;
    farm->n_hosts_ = to.first_host + to.nodes + (to.own_network ? n_builders : 0);
    farm->place_bytes_ =
        aligned(sizeof(MepFrame) + to.n_sources * sizeof(SourceFrame) + std::max<std::uint64_t>(to.mep_bytes, 1));
    for (std::uint32_t index = 0; index < n_builders; ++index) {
        const std::uint32_t host = to.own_network ? to.first_host + to.nodes + index : to.builders[index];
        auto made = DispatchHost::make(world, {.self = Peer{host},
                                               .builder = to.builders[index],
                                               .hosts = farm->n_hosts_,
                                               .first_node = to.first_host,
                                               .nodes = to.nodes,
                                               .n_sources = to.n_sources,
                                               .window = to.window,
                                               .place_bytes = farm->place_bytes_,
                                               .run = to.run + 1,
                                               .limits = to.limits});
        if (!made) {
            return Error{fmt::format("the dispatcher of node {}: {}", to.builders[index], made.error().message)};
        }
        farm->dispatchers_.push_back(std::move(*made));
    }
    farm->hosts_.resize(to.nodes);
    farm->incarnations_.resize(to.nodes);
    farm->gone_.resize(to.nodes);
    for (std::uint32_t node = 0; node < to.nodes; ++node) {
        if (const auto started = farm->start(node); !started) {
            return Error{fmt::format("farm node {}: {}", node, started.error().message)};
        }
    }
    return farm;
}

Result<Ok> Farm::start(std::uint32_t node) {
    if (hosts_[node] != nullptr) {
        return Ok{};
    }
    std::vector<Whereabouts> takes_from;
    for (std::uint32_t which = 0; which < options_.dispatchers; ++which) {
        takes_from.push_back(dispatchers_[dispatcher_of(node, which)]->whereabouts());
    }
    auto made = FarmHost::make(world_,
                               {.self = Peer{options_.first_host + node},
                                .incarnation = ++incarnations_[node],
                                .hosts = n_hosts_,
                                .window = options_.window,
                                .processes = options_.processes,
                                .place_bytes = place_bytes_,
                                .run = options_.run + 1,
                                .work = options_.work,
                                .silence = options_.limits.silence},
                               std::move(takes_from));
    if (!made) {
        return made.error();
    }
    hosts_[node] = std::move(*made);
    hosts_[node]->watch(witness_, node);
    for (std::uint32_t which = 0; which < options_.dispatchers; ++which) {
        dispatchers_[dispatcher_of(node, which)]->expect(node, hosts_[node]->whereabouts(which));
    }
    return Ok{};
}

void Farm::kill(std::uint32_t node) {
    if (hosts_[node] == nullptr) {
        return;
    }
    gone_[node] += hosts_[node]->counts(world_.now());
    hosts_[node].reset();
}

void Farm::leave(std::uint32_t node) {
    if (hosts_[node] != nullptr) hosts_[node]->leave();
}

void Farm::watch(Witness& witness) {
    witness_ = &witness;
    for (std::uint32_t node = 0; node < hosts_.size(); ++node) {
        if (hosts_[node] != nullptr) hosts_[node]->watch(witness_, node);
    }
}

DispatchHost* Farm::of(std::uint32_t builder) const {
    const auto found = std::ranges::find(options_.builders, builder);
    return found == options_.builders.end()
               ? nullptr
               : dispatchers_[static_cast<std::size_t>(found - options_.builders.begin())].get();
}

void Farm::attach(std::uint32_t builder, sinks::LendingSink& sink, std::function<void()> wake) {
    if (DispatchHost* const host = of(builder)) host->attach(sink, std::move(wake));
}

void Farm::detach(std::uint32_t builder) {
    if (DispatchHost* const host = of(builder)) host->detach();
}

std::size_t Farm::in_flight() const {
    std::size_t count = 0;
    for (const auto& each : dispatchers_) {
        count += each->in_flight();
    }
    return count;
}

Farm::Snapshot Farm::snapshot(Time now) const {
    Snapshot shot;
    shot.at = now;
    shot.nodes = gone_;
    for (std::size_t node = 0; node < hosts_.size(); ++node) {
        if (hosts_[node] != nullptr) shot.nodes[node] += hosts_[node]->counts(now);
    }
    for (const auto& each : dispatchers_) {
        add(shot.dispatchers, each->counts(), 1);
    }
    return shot;
}

void Farm::begin_window(Time now) {
    begin_ = snapshot(now);
}

void Farm::end_window(Time now) {
    if (!has_ended_) end_ = snapshot(now);
    has_ended_ = true;
}

FarmCounts Farm::counts() const {
    FarmCounts counts;
    counts.time = end_.at - begin_.at;
    counts.dispatchers = end_.dispatchers;
    add(counts.dispatchers, begin_.dispatchers, ~std::uint64_t{0});
    for (std::size_t node = 0; node < end_.nodes.size(); ++node) {
        FarmHostCounts done = end_.nodes[node];
        if (node < begin_.nodes.size()) {
            const FarmHostCounts& before = begin_.nodes[node];
            done.meps -= before.meps;
            done.events -= before.events;
            done.goodput_bytes -= before.goodput_bytes;
            done.repeated_meps -= before.repeated_meps;
            done.done_meps -= before.done_meps;
            done.late_meps -= before.late_meps;
            done.busy -= before.busy;
        }
        counts.nodes += done;
        counts.goodput.push_back(static_cast<double>(done.goodput_bytes));
        const double all = static_cast<double>(counts.time) * options_.processes;
        counts.idle.push_back(all > 0 ? 1 - static_cast<double>(done.busy) / all : 1);
    }
    return counts;
}

}  // namespace incast::farm::simulated

#include "runtime/node/node_host.h"

#include <algorithm>

#include <fmt/format.h>

#include "base/prefetch.h"
#include "base/units.h"
#include "runtime/machine/machine.h"
#include "runtime/node/factories.h"

namespace incast::runtime {

namespace {

constexpr Time between_shortages = 60 * ps_per_s;  // of which is told

}  // namespace

NodeHost::NodeHost(const Plan& plan, transport::Medium& medium, HostOptions options)
    : plan_(plan), medium_(medium), options_(std::move(options)), roles_(plan.protocol.nodes[options_.node].roles) {}

NodeHost::~NodeHost() = default;

Result<Blob> NodeHost::begin(Time now, std::uint32_t incarnation) {
    if (node_) {
        carried_ = current(now);
        node_.reset();
        sink_.reset();
        filter_.reset();
        source_.reset();
        transport_.reset();
    }
    incarnation_ = incarnation;
    transport::EndpointOptions endpoint = options_.endpoint(plan_, incarnation);
    endpoint.shareable = sinks::traits_of(plan_.config.sink_kind).lends_slots && (roles_ & protocol::role_bu) != 0;
    Result<std::unique_ptr<Transport>> made = medium_.endpoint(endpoint);
    if (!made) {
        return made.error();
    }
    transport_ = std::move(*made);
    const Capabilities& can = transport_->capabilities();
    if (plan_.protocol.scheme == protocol::Scheme::pull_read && !can.read) {
        return Error{"protocol.scheme = pull-read: the transport cannot read; allowed: another scheme or transport"};
    }
    if (plan_.protocol.views && !can.view) {
        return Error{"protocol.views = true: the transport cannot show a peer's memory; allowed: false"};
    }
    if (Result<Ok> units = make_units(); !units) {
        return units.error();
    }
    node_ = std::make_unique<protocol::Node>(plan_.protocol, Peer{options_.node}, incarnation, *transport_,
                                             source_.get(), sink_.get(), ledger_.get(), filter_.get(), options_.shape);
    if (Result<Ok> started = node_->start(now); !started) {
        return started.error();
    }
    if (at_setup_.wall_ns == 0) {
        at_setup_ = process_usage();
    }
    known_state_ = node_->state();
    tell_of_source(now);
    return transport_->address();
}

Result<Ok> NodeHost::make_units() {
    if ((roles_ & protocol::role_ru) != 0) {
        Result<std::unique_ptr<sources::RuntimeSource>> source = make_source(plan_);
        if (!source) {
            return source.error();
        }
        source_ = std::move(*source);
        source_->start_triggers(trigger_origin_);
    }
    if ((roles_ & protocol::role_bu) != 0) {
        Result<std::unique_ptr<sinks::RuntimeSink>> sink =
            make_sink(plan_, options_.node, incarnation_, transport_->capabilities().phantom_bodies);
        if (!sink) {
            return sink.error();
        }
        sink_ = std::move(*sink);
        Result<std::unique_ptr<protocol::Filter>> filter = make_filter(plan_, options_.node);
        if (!filter) {
            return filter.error();
        }
        filter_ = std::move(*filter);
    }
    if ((roles_ & protocol::role_em) != 0 && !ledger_) {
        Result<std::unique_ptr<LedgerFile>> ledger =
            LedgerFile::create(options_.directory / "ledger.bin", plan_.protocol.run, plan_.packing);
        if (!ledger) {
            return ledger.error();
        }
        ledger_ = std::move(*ledger);
    }
    return Ok{};
}

void NodeHost::update_peer(Time now, std::uint32_t peer, std::uint32_t incarnation, const Blob& address) {
    node_->update_peer(now, Peer{peer}, incarnation, address);
}

bool NodeHost::step(Time now) {
    if (sink_) {
        sink_->tick(now);
    }
    const bool worked = node_->step(now);
    ++driven_.steps;
    driven_.useful_steps += worked ? 1 : 0;
    if (joined_at_ == 0 && (roles_ & protocol::role_em) != 0 && node_->all_joined()) {
        joined_at_ = std::max<Time>(now, 1);
    }
    return worked;
}

void NodeHost::prefetch(unsigned level) const {
    constexpr std::size_t first_lines = 192;
    if (level == 0) {
        base::prefetch(&roles_, 64);
        __builtin_prefetch(&driven_.steps);
        base::prefetch(&transport_, 64);
    } else if (level == 1) {
        base::prefetch(transport_.get(), first_lines);
        base::prefetch(sink_.get(), first_lines);
        base::prefetch(source_.get(), first_lines);
        node_->prefetch(0);
    } else {
        node_->prefetch(level - 1);
    }
}

void NodeHost::stop_admission() {
    node_->stop_admission();
}

void NodeHost::start_triggers(Time origin) {
    trigger_origin_ = origin;
    if (source_) {
        source_->start_triggers(origin);
    }
}

bool NodeHost::needs_new_incarnation() const {
    return node_->state() == protocol::NodeState::evicted || node_->state() == protocol::NodeState::em_silent;
}

bool NodeHost::news_pending() const {
    return node_->state() != known_state_ || (joined_at_ != 0) != known_joined_ || (ledger_ && ledger_->has_changes());
}

bool NodeHost::news() {
    const bool pending = news_pending();
    known_state_ = node_->state();
    known_joined_ = joined_at_ != 0;
    return pending;
}

NodeTotals NodeHost::current(Time now) {
    NodeTotals totals;
    static_cast<protocol::Counters&>(totals) = node_->counters();
    totals.copied_bytes += transport_->copied_bytes();
    const Datagrams datagrams = transport_->datagrams();
    totals.datagrams_sent = datagrams.sent;
    totals.datagrams_lost = datagrams.lost;
    totals.datagrams_repeated = datagrams.repeated;
    totals.bu_waiting_ns = static_cast<std::uint64_t>(node_->bu_waiting() / ps_per_ns);
    if (source_) {
        const sources::SourceStats stats = source_->stats(now);
        totals.offered_events = stats.offered_events;
        totals.accepted_events = stats.accepted_events;
        totals.dead_time_ns = static_cast<std::uint64_t>(stats.dead_time / ps_per_ns);
        totals.inhibited_events = stats.inhibited_events;
        totals.dropped_events = stats.dropped_events;
        totals.dropped_mfps = stats.dropped_mfps;
        totals.held_mep_ns = stats.held_mep_ns;
        totals.truncated_mfps = stats.truncated_mfps;
        totals.desync_mfps = stats.desync_mfps;
        totals.board_datagrams = stats.boards.packets;
        totals.board_events = stats.boards.taken_events;
        totals.board_duplicate_events = stats.boards.duplicate_events;
        totals.board_late_events = stats.boards.late_events;
        totals.board_stray_events = stats.boards.stray_events;
        totals.board_lost_events = stats.boards.lost_events;
        totals.board_restarts = stats.boards.restarts;
        totals.board_refused_datagrams = stats.refused_datagrams;
        totals.board_overflow_datagrams = stats.overflow_datagrams;
    }
    if (sink_) {
        const sinks::SinkStats& stats = sink_->stats();
        totals.structure_checked_mfps = stats.structure_checked_mfps;
        totals.lines_checked_meps = stats.lines_checked_meps;
        totals.verify_errors = stats.verify_errors;
        totals.undelivered_meps = stats.undelivered_meps;
        totals.delay_ns = stats.delay_ns;
        totals.timed_meps = stats.timed_meps;
        totals.sink_cpu_ns = static_cast<std::uint64_t>(stats.cpu / ps_per_ns);
        totals.consumers_attached = stats.consumers.attached;
        totals.consumers_left = stats.consumers.left;
        totals.consumers_ejected = stats.consumers.ejected;
        totals.consumers_refused = stats.consumers.refused;
        totals.consumer_taken_meps = stats.consumers.taken_meps;
        totals.consumer_done_meps = stats.consumers.done_meps;
        totals.consumer_dropped_meps = stats.consumers.dropped_meps;
        totals.consumer_abandoned_meps = stats.consumers.abandoned_meps;
        totals.consumer_repeated_meps = stats.consumers.repeated_meps;
        totals.consumer_missed_meps = stats.consumers.missed_meps;
        totals.consumer_judged_meps = stats.consumers.judged_meps;
        totals.consumer_accepted_events = stats.consumers.accepted_events;
        totals.consumer_rejected_events = stats.consumers.rejected_events;
    }
    add(totals, carried_);
    return totals;
}

NodeSample NodeHost::sample(Mark mark, Time now) {
    if (mark == Mark::last && sink_) {
        sink_->close();
    }
    NodeSample sample;
    sample.node = options_.node;
    sample.incarnation = incarnation_;
    sample.state = node_->state();
    sample.mark = mark;
    sample.at = now;
    sample.joined_at = joined_at_;
    sample.totals = current(now);
    add(sample.totals, driven_);
    if (options_.counts_process) {
        const Usage usage = process_usage();
        sample.totals.cpu_ns = usage.cpu_ns - at_setup_.cpu_ns;
        sample.cpu_wall_ns = usage.wall_ns - at_setup_.wall_ns;
        sample.peak_rss_bytes = usage.peak_rss_bytes;
        sample.rss_bytes = process_rss_bytes();
    }
    if (source_) {
        tell_of_source(now);
        sample.peak_held_meps = source_->stats(now).peak_held_meps;
        if (mark == Mark::window_begin) {
            source_->clear_peak();
        }
        if (mark == Mark::window_end || mark == Mark::last) {
            sample.boards = source_->counts_of_boards();
            sample.boards.resize(std::min(sample.boards.size(), most_boards_told));
        }
    }
    if (sink_) {
        sample.trigger_spread_ns = sink_->stats().trigger_spread_ns;
        if (mark == Mark::window_end || mark == Mark::last) {
            sample.latency_ns = plan_.config.trigger_rate > 0 ? sink_->stats().trigger_ns : sink_->stats().service_ns;
        } else if (mark == Mark::window_begin) {
            sink_->clear_latencies();
        }
        if (!sink_->stats().first_errors.empty()) {
            sample.note = sink_->stats().first_errors.front();
        }
        if (std::string failure = sink_->failure(); !failure.empty()) {
            sample.failure = std::move(failure);
        }
        tell_of_shortage(now);
    }
    if (ledger_) {
        sample.changes = ledger_->take_changes();
        tell_of_ledger();
        if (ledger_->missing() > 0) {
            sample.note = fmt::format("ledger.bin lacks {} records: {}", ledger_->missing(), ledger_->reason());
        }
    }
    return sample;
}

/// Where boards send to, and what is wrong with them.
void NodeHost::tell_of_source(Time now) {
    if (!source_ || !options_.log) return;
    for (const std::string& news : source_->take_news(now)) {
        options_.log(news);
    }
}

/// Once that it cannot be extended, and once that it can again.
void NodeHost::tell_of_ledger() {
    if (!options_.log || ledger_->missing() == 0) {
        return;
    }
    if (!told_ledger_lacks_) {
        told_ledger_lacks_ = true;
        options_.log(
            fmt::format("ledger.bin cannot be written: {}; the run goes on, records are missing until there is "
                        "room, and what is lost will be unknown",
                        ledger_->reason()));
    } else if (ledger_->well() && !told_ledger_goes_on_) {
        told_ledger_goes_on_ = true;
        options_.log(fmt::format("ledger.bin is written again; {} records are missing", ledger_->missing()));
    }
}

/// That building waits for the disk of its sink, and that it goes on; of a disk that is full now and then, not each
/// time.
void NodeHost::tell_of_shortage(Time now) {
    const std::string why = options_.log ? sink_->shortage() : std::string();
    if (why.empty() == (sink_waits_since_ == 0)) {
        return;
    }
    if (!why.empty()) {
        sink_waits_since_ = std::max<Time>(now, 1);
        told_of_shortage_ = now >= may_tell_of_shortage_;
        if (told_of_shortage_) {
            may_tell_of_shortage_ = now + between_shortages;
            options_.log(why + "; building waits until there is room, and nothing is lost (sink.on_full = wait)");
        }
    } else {
        if (told_of_shortage_) {
            options_.log(fmt::format("sink mep: there is room again, and building goes on after {}",
                                     base::format_duration(now - sink_waits_since_)));
        }
        sink_waits_since_ = 0;
    }
}

}  // namespace incast::runtime

#include "runtime/node/net_host.h"

#include "runtime/machine/machine.h"
#include "runtime/node/node_host.h"
#include "runtime/sources/content.h"

namespace incast::runtime {
namespace {

/// In the words that run control and result files have for the nodes of an event builder.
protocol::NodeState state_of(const net::Node& node) {
    switch (node.state()) {
        case net::State::joining:
            return protocol::NodeState::joining;
        case net::State::ready:
            return protocol::NodeState::running;
        case net::State::finished:
            return protocol::NodeState::finished;
    }
    return protocol::NodeState::joining;
}

}  // namespace

/// As in the fragments of the event builder: every line is a function of run, sender, position in its ring, and line.
class NetHost::Payload final : public net::Content {
public:
    explicit Payload(const net::Config& config) {
        for (std::uint32_t node = 0; node < config.n_nodes; ++node) {
            streams_.push_back(sources::content_stream(config.run, static_cast<std::uint16_t>(node)));
        }
    }
    void fill(Peer sender, std::uint64_t position, std::span<std::byte> body) override {
        sources::fill_content({streams_[static_cast<std::size_t>(sender)], position}, body);
    }
    std::optional<std::size_t> difference(Peer sender, std::uint64_t position, Bytes body) override {
        return sources::find_difference({streams_[static_cast<std::size_t>(sender)], position}, body);
    }

private:
    std::vector<std::uint64_t> streams_;  // by sender
};

NetHost::NetHost(const Plan& plan, transport::Medium& medium, HostOptions options)
    : plan_(plan), medium_(medium), options_(std::move(options)) {}

NetHost::~NetHost() = default;

Result<Blob> NetHost::begin(Time, std::uint32_t incarnation) {
    if (node_) {
        return Error{"a node of raw traffic has one incarnation"};
    }
    incarnation_ = incarnation;
    Result<std::unique_ptr<Transport>> made = medium_.endpoint(options_.endpoint(plan_, incarnation));
    if (!made) {
        return made.error();
    }
    transport_ = std::move(*made);
    payload_ = std::make_unique<Payload>(plan_.net);
    node_ = std::make_unique<net::Node>(plan_.net, Peer{options_.node}, *transport_, *payload_);
    if (Result<Ok> started = node_->start(); !started) {
        return started.error();
    }
    at_setup_ = process_usage();
    return transport_->address();
}

void NetHost::update_peer(Time now, std::uint32_t peer, std::uint32_t incarnation, const Blob& address) {
    if (peer != options_.node) {
        node_->update_peer(now, Peer{peer}, incarnation, address);
    }
}

bool NetHost::step(Time now) {
    const bool worked = node_->step(now);
    ++driven_.steps;
    driven_.useful_steps += worked ? 1 : 0;
    return worked;
}

bool NetHost::news_pending() const {
    return node_->state() != known_state_ || node_->failure().empty() == known_failed_;
}

bool NetHost::news() {
    const bool pending = news_pending();
    known_state_ = node_->state();
    known_failed_ = !node_->failure().empty();
    return pending;
}

/// Messages stand where an event builder has its MFPs, and bodies where it has fragments.
NodeTotals NetHost::current() const {
    const net::Counters& counted = node_->counters();
    NodeTotals totals;
    totals.mfps_sent = counted.messages_sent;
    totals.sent_goodput_bytes = counted.bytes_sent;
    totals.mfps_received = counted.messages_received;
    totals.events_built = counted.messages_received;
    totals.built_goodput_bytes = counted.bytes_received;
    totals.messages_sent = counted.controls_sent;
    totals.messages_received = counted.controls_received;
    totals.bad_messages = counted.bad_messages;
    totals.back_pressure = counted.back_pressure;
    totals.lines_checked_meps = counted.verified_messages;
    totals.verify_errors = counted.content_errors + counted.order_errors;
    return totals;
}

NodeSample NetHost::sample(Mark mark, Time now) {
    NodeSample sample;
    sample.node = options_.node;
    sample.incarnation = incarnation_;
    sample.state = state_of(*node_);
    sample.mark = mark;
    sample.at = now;
    sample.totals = current();
    add(sample.totals, driven_);
    if (options_.counts_process) {
        const Usage usage = process_usage();
        sample.totals.cpu_ns = usage.cpu_ns - at_setup_.cpu_ns;
        sample.cpu_wall_ns = usage.wall_ns - at_setup_.wall_ns;
        sample.peak_rss_bytes = usage.peak_rss_bytes;
        sample.rss_bytes = process_rss_bytes();
    }
    sample.failure = node_->failure();
    sample.note = node_->first_error();
    if (mark == Mark::interval) {
        return sample;
    }
    if (mark == Mark::window_begin) {
        node_->clear_round_trips();
    }
    NetSample& traffic = sample.net.emplace();
    traffic.began_at = node_->began_at();
    traffic.finished_at = node_->finished_at();
    base::Histogram all;
    for (std::size_t partner = 0; partner < node_->partner_count(); ++partner) {
        const net::PairCount count = node_->pair_count(partner);
        PairSample& pair = traffic.pairs.emplace_back();
        pair.peer = static_cast<std::uint32_t>(count.peer);
        pair.messages_sent = count.messages_sent;
        pair.messages_received = count.messages_received;
        if (const base::Histogram* trips = node_->round_trips(partner)) {
            pair.round_trips = trips->count();
            pair.min_ns = trips->min();
            pair.p50_ns = trips->quantile(0.5);
            pair.p99_ns = trips->quantile(0.99);
            pair.p999_ns = trips->quantile(0.999);
            pair.max_ns = trips->max();
            all.merge(*trips);
        }
    }
    if (mark != Mark::window_begin && plan_.net.measure != net::Measure::bandwidth) {
        sample.latency_ns = all;
    }
    return sample;
}

transport::EndpointOptions HostOptions::endpoint(const Plan& plan, std::uint32_t incarnation) const {
    transport::EndpointOptions made;
    made.self = Peer{node};
    made.incarnation = incarnation;
    made.run = plan.is_net() ? plan.net.run : plan.protocol.run;
    made.token = token;
    made.max_peers = plan.n_nodes;
    made.log = log;
    return made;
}

std::unique_ptr<Host> make_host(const Plan& plan, transport::Medium& medium, HostOptions options) {
    if (plan.is_net()) {
        return std::make_unique<NetHost>(plan, medium, std::move(options));
    }
    return std::make_unique<NodeHost>(plan, medium, std::move(options));
}

}  // namespace incast::runtime

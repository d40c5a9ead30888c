#include "net/node.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/fifo.h"

namespace incast::net {

std::string Node::name_of(Peer peer) {
    return std::to_string(static_cast<std::uint32_t>(peer));
}

Node::Node(const Config& config, Peer self, Transport& transport, Content& content)
    : config_(config),
      self_(self),
      transport_(transport),
      content_(content),
      run_(fingerprint(config)),
      queues_(all_queues(config)),
      reads_(config.operation == Operation::read),
      stride_(slot_stride(config)),
      ring_messages_(net::ring_messages(config)),
      body_stride_(slot_stride(config) - head_bytes),
      credit_threshold_(std::max<std::uint64_t>(1, config.outstanding / 4)) {}

Result<Ok> Node::start() {
    const Layout layout = layout_of(config_, self_);
    phantom_ = transport_.capabilities().phantom_bodies;
    link_of_peer_.assign(config_.n_nodes, no_link);
    const std::size_t n = layout.partners.size();
    links_.resize(n);
    outbound_.resize(n * queues_);
    inbound_.resize(n * queues_);
    readings_.resize(reads_ ? inbound_.size() * config_.outstanding : 0);
    ready_ = base::Fifo<std::uint32_t>(std::max(outbound_.size(), readings_.size()));
    done_ = base::Fifo<std::uint32_t>(readings_.size());
    answers_due_ = base::Fifo<std::uint32_t>(inbound_.size());
    control_due_ = base::Bitmap(n);
    for (std::uint32_t index = 0; index < n; ++index) {
        Link& link = links_[index];
        link.partner = layout.partners[index];
        link_of_peer_[static_cast<std::size_t>(link.partner.peer)] = index;
        link.open_streams = posts_to(link) ? queues_ : 0;
        open_links_ += (link.partner.sends_to ? 1U : 0U) + (link.partner.hears_from ? 1U : 0U);
        for (std::uint32_t queue = 0; queue < queues_; ++queue) {
            const std::uint32_t stream = first_stream(index) + queue;
            // Evenly over the ring: a stream sends what another one sent a whole ring of bytes ago.
            const std::uint64_t position = stream * ring_messages_ / outbound_.size();
            outbound_[stream].position = position;
            inbound_[stream].position = position;
            outbound_[stream].link = inbound_[stream].link = index;
            outbound_[stream].queue = inbound_[stream].queue = static_cast<std::uint16_t>(queue);
        }
    }
    links_missing_ = static_cast<std::uint32_t>(n);
    if (config_.measure != Measure::bandwidth) {
        round_trips_.resize(n);
    }
    if (reads_ && !transport_.capabilities().read) {
        return Error{"net.operation = read: the transport cannot read; allowed: write"};
    }
    if (Result<Ok> made = make_region(layout.region_bytes); !made) {
        return made;
    }
    if (Result<Ok> made = make_ring(); !made) {
        return made;
    }
    if (links_.empty()) {
        state_ = State::ready;  // the pattern has nothing for it to do
    }
    return Ok{};
}

/// Where messages land.
Result<Ok> Node::make_region(std::uint64_t bytes) {
    if (bytes == 0) {
        return Ok{};
    }
    const Result<Local> region = transport_.allocate(bytes);
    if (!region) {
        return region.error();
    }
    region_ = *region;
    return reads_ ? Ok{} : expose(region_);
}

/// What is sent, or read by others.
Result<Ok> Node::make_ring() {
    const bool answers = !reads_ && config_.measure != Measure::bandwidth;
    if (links_.empty() ||
        (!answers && std::ranges::none_of(links_, [](const Link& link) { return link.partner.sends_to; }))) {
        return Ok{};
    }
    const Result<Local> ring = transport_.allocate(ring_bytes(config_));
    if (!ring) {
        return ring.error();
    }
    ring_ = *ring;
    const std::span<std::byte> memory = transport_.memory(ring_);
    for (std::uint64_t position = 0; position < ring_messages_ && !memory.empty(); ++position) {
        content_.fill(self_, position, memory.subspan(position * body_stride_, config_.message_bytes));
    }
    return reads_ ? expose(ring_) : Ok{};
}

Result<Ok> Node::expose(Local region) {
    Result<Blob> key = transport_.expose(region);
    if (!key) {
        return key.error();
    }
    key_ = std::move(*key);
    return Ok{};
}

void Node::want(Link& link, Time at) {
    link.state = LinkState::wanted;
    link.retry_at = at;
    next_retry_ = std::min(next_retry_, at);
}

void Node::update_peer(Time now, Peer peer, std::uint32_t incarnation, const Blob& address) {
    const std::uint32_t index = link_of_peer_[static_cast<std::size_t>(peer)];
    if (index == no_link || incarnation <= links_[index].incarnation) {
        return;
    }
    Link& link = links_[index];
    // A run of raw traffic does not survive the loss of a node, so there is nothing but the first incarnation to meet.
    if (link.state == LinkState::unknown) {
        link.incarnation = incarnation;
        link.address = address;
        want(link, now);
    }
}

void Node::connect_due(Time now) {
    next_retry_ = time_never;
    for (Link& link : links_) {
        if (link.state != LinkState::wanted) {
            continue;
        }
        if (link.retry_at <= now) {
            if (transport_.connect(link.partner.peer, link.address, link.incarnation) == Post::pending) {
                link.state = LinkState::connecting;
                continue;
            }
            link.retry_at = now + config_.connect_retry;
        }
        next_retry_ = std::min(next_retry_, link.retry_at);
    }
}

void Node::go(Time at) {
    go_at_ = at;
}

void Node::stop() {
    stopping_ = true;
    if (reads_) {
        for (std::uint32_t stream = 0; stream < inbound_.size(); ++stream) {
            end_reads_if_over(stream);
        }
        return;
    }
    for (Outbound& stream : outbound_) {
        // The answer to a question on its way is still waited for.
        if (!is_ping(config_, stream.queue) || stream.sequence == stream.credited) {
            end_stream(stream);
        }
    }
}

// What a poll brings is handled in the next step. A poll may take longer than a round trip, where it hands over what
// was posted: so the time from before it is not when its events were there.
bool Node::step(Time now) {
    now_ = now;
    for (const Event& event : std::span(events_).first(std::exchange(arrived_, 0))) {
        handle(now, event);
    }
    finish_done_reads(now);
    if (now >= next_retry_) {
        connect_due(now);
    }
    if (now >= go_at_ && began_at_ == 0 && state_ == State::ready) {
        begin(now);
    }
    std::uint32_t posted = reads_ ? post_reads(now) : post_answers() + post_messages(now);
    posted += send_controls();  // last: an end stands behind what was posted before it
    if (now >= give_up_at_ && failure_.empty() && state_ != State::finished) {
        failure_ = lost_;
    }
    check_finished(now);
    arrived_ = transport_.poll(now, events_);
    return arrived_ > 0 || posted > 0;
}

Time Node::next_deadline() const {
    if (arrived_ > 0 || !ready_.empty() || !done_.empty()) {
        return 0;
    }
    Time next = std::min(transport_.next_deadline(), next_retry_);
    if (began_at_ == 0 && state_ == State::ready) {
        next = std::min(next, go_at_);
    }
    return failure_.empty() && state_ != State::finished ? std::min(next, give_up_at_) : next;
}

void Node::handle(Time now, const Event& event) {
    const std::uint32_t index = link_of_peer_[static_cast<std::size_t>(event.peer)];
    if (index == no_link) {
        ++counters_.bad_messages;
        return;
    }
    switch (event.kind) {
        case Event::Kind::notice:
            on_notice(now, index, event.size_or_value, event.status == Status::damaged);
            break;
        case Event::Kind::message:
            on_message(index, {event.data, event.size_or_value});
            break;
        case Event::Kind::room:
            links_[index].blocked = false;
            for (std::uint32_t queue = 0; queue < queues_; ++queue) {
                resume(first_stream(index) + queue);
            }
            break;
        case Event::Kind::peer_up:
            on_up(now, event);
            break;
        case Event::Kind::peer_down:
            on_down(now, event);
            break;
        case Event::Kind::completed:
            on_completed(now, event);
            break;
        case Event::Kind::knock:  // its endpoint has no room for peers that dial
            break;
    }
}

void Node::on_up(Time now, const Event& event) {
    const std::uint32_t index = link_of_peer_[static_cast<std::size_t>(event.peer)];
    Link& link = links_[index];
    if (link.state != LinkState::connecting || link.incarnation != event.incarnation) {
        transport_.disconnect(event.peer);
        if (link.state == LinkState::connecting) {
            want(link, now + config_.connect_retry);
        }
        return;
    }
    link.state = LinkState::up;
    link.blocked = false;
    control_due_.set(index);
}

void Node::on_down(Time now, const Event& event) {
    const std::uint32_t index = link_of_peer_[static_cast<std::size_t>(event.peer)];
    Link& link = links_[index];
    if (link.state == LinkState::connecting) {
        want(link, now + config_.connect_retry);
    } else if (link.state == LinkState::up) {
        link.state = LinkState::lost;
        link.blocked = true;
        if (give_up_at_ == time_never) {
            give_up_at_ = now + config_.loss_grace;
            lost_link_ = index;
        }
        if (lost_link_ == index) {
            lost_ = "the connection to node " + name_of(event.peer) + " was lost";
        }
    }
}

void Node::on_message(std::uint32_t index, Bytes message) {
    Link& link = links_[index];
    const std::optional<ControlView> view = read_control(message, run_, queues_);
    if (!view || link.state != LinkState::up || (view->kind != ControlKind::hello && !link.hello_heard)) {
        ++counters_.bad_messages;
        return;
    }
    ++counters_.controls_received;
    switch (view->kind) {
        case ControlKind::hello:
            on_hello(link, view->rest);
            break;
        case ControlKind::credits:
            on_credits(index, *view);
            break;
        case ControlKind::end:
            on_end(index, *view);
            break;
    }
}

void Node::on_hello(Link& link, Bytes key) {
    if (link.hello_heard) {
        ++counters_.bad_messages;
        return;
    }
    const bool answers = !reads_ && config_.measure != Measure::bandwidth;
    if (posts_to(link) || answers) {
        const Result<Remote> region = transport_.import_key(link.partner.peer, {{key.begin(), key.end()}});
        if (!region) {
            failure_ = "node " + name_of(link.partner.peer) + " gave no usable key: " + region.error().message;
            return;
        }
        link.region = *region;
    }
    link.hello_heard = true;
    if (link.hello_sent && --links_missing_ == 0) {
        state_ = State::ready;
    }
}

void Node::on_credits(std::uint32_t index, const ControlView& view) {
    if (!links_[index].partner.sends_to || reads_ || config_.measure == Measure::latency) {
        ++counters_.bad_messages;
        return;
    }
    for (std::uint32_t queue = 0; queue < queues_; ++queue) {
        Outbound& stream = outbound_[first_stream(index) + queue];
        const std::uint64_t polled = view.value(queue);
        if (is_ping(config_, queue)) {
            continue;  // its answers are its credits
        }
        if (polled < stream.credited || polled > stream.sequence) {
            ++counters_.bad_messages;
            continue;
        }
        stream.credited = polled;
        enqueue(first_stream(index) + queue);
    }
}

void Node::on_end(std::uint32_t index, const ControlView& view) {
    Link& link = links_[index];
    if (!(reads_ ? link.partner.sends_to : link.partner.hears_from) || link.end_heard) {
        ++counters_.bad_messages;
        return;
    }
    link.end_heard = true;
    --open_links_;
    if (reads_) {
        for (std::uint32_t queue = 0; queue < queues_; ++queue) {
            count_sent(link, view.value(queue));
        }
        return;
    }
    for (std::uint32_t queue = 0; queue < queues_; ++queue) {
        // Notices and messages share one order: all that was sent has been polled.
        if (const std::uint64_t polled = inbound_[first_stream(index) + queue].expected; polled != view.value(queue)) {
            wrong(counters_.order_errors, "node " + name_of(link.partner.peer) + " sent " +
                                              std::to_string(view.value(queue)) + " messages on queue " +
                                              std::to_string(queue) + ", and " + std::to_string(polled) + " arrived");
        }
    }
}

void Node::count_sent(Link& link, std::uint64_t messages) {
    link.messages_sent += messages;
    counters_.messages_sent += messages;
    counters_.bytes_sent += messages * config_.message_bytes;
}

void Node::count_received(Link& link) {
    ++link.messages_received;
    ++counters_.messages_received;
    counters_.bytes_received += config_.message_bytes;
}

void Node::begin(Time now) {
    began_at_ = std::max<Time>(now, 1);
    // The order of a linear shift: node i begins with i + 1, so not all begin with the same.
    const auto after = std::ranges::find_if(links_, [this](const Link& link) { return link.partner.peer > self_; });
    const auto first = static_cast<std::uint32_t>(after - links_.begin());
    for (std::uint32_t queue = 0; queue < queues_; ++queue) {
        for (std::uint32_t step = 0; step < links_.size(); ++step) {
            const auto link = static_cast<std::uint32_t>((first + step) % links_.size());
            resume(first_stream(link) + queue);
        }
    }
}

void Node::resume(std::uint32_t stream) {
    if (reads_) {
        enqueue_reads(stream);
    } else {
        enqueue(stream);
    }
}

void Node::enqueue(std::uint32_t number_of_stream) {
    Outbound& stream = outbound_[number_of_stream];
    const Link& link = links_[stream.link];
    const bool ping = is_ping(config_, stream.queue);
    if (began_at_ == 0 || stream.queued || stream.over || link.blocked || !link.partner.sends_to ||
        stream.sequence - stream.credited >= slots_of(stream.queue) ||
        (config_.sends != 0 && !ping && stream.under_way >= config_.sends)) {
        return;
    }
    // Pings beside a load go on until the last message of it was sent.
    const bool all = stream.queue == config_.queues ? link.open_streams == 1 : stream.sequence == config_.messages;
    if (config_.messages != 0 && all) {
        if (!ping || stream.credited == stream.sequence) {
            end_stream(stream);
        }
        return;
    }
    stream.queued = true;
    ready_.must_push(number_of_stream);
}

void Node::end_stream(Outbound& stream) {
    Link& link = links_[stream.link];
    if (stream.over || !link.partner.sends_to) {
        return;
    }
    stream.over = true;
    if (--link.open_streams == 0) {
        control_due_.set(stream.link);
    }
}

std::uint32_t Node::send_controls() {
    std::uint32_t sent = 0;
    for (std::size_t link = control_due_.next(0); link != base::Bitmap::none; link = control_due_.next(link + 1)) {
        if (links_[link].blocked || links_[link].state != LinkState::up) {
            continue;
        }
        const bool all = send_control(static_cast<std::uint32_t>(link));
        if (all) {
            control_due_.reset(link);
        }
        sent += all ? 1 : 0;
    }
    return sent;
}

bool Node::send(Link& link, ControlMessage& message) {
    const Post post = transport_.send(link.partner.peer, message.bytes());
    note(link, post);
    counters_.controls_sent += post == Post::done ? 1 : 0;
    return post == Post::done;
}

/// Whatever there is to tell. False: some of it has to wait.
bool Node::send_control(std::uint32_t index) {
    Link& link = links_[index];
    if (!link.hello_sent) {
        ControlMessage hello(run_, ControlKind::hello);
        hello.add_key(key_.view());
        if (!send(link, hello)) {
            return false;
        }
        link.hello_sent = true;
        if (link.hello_heard && --links_missing_ == 0) {
            state_ = State::ready;
        }
    }
    if (link.partner.hears_from && !reads_ && config_.measure != Measure::latency) {
        ControlMessage credits(run_, ControlKind::credits);
        bool any = false;
        for (std::uint32_t queue = 0; queue < queues_; ++queue) {
            const Inbound& stream = inbound_[first_stream(index) + queue];
            any = any || (stream.returned != stream.expected && !is_ping(config_, queue));
            credits.add(stream.expected);
        }
        if (any && !send(link, credits)) {
            return false;
        }
        for (std::uint32_t queue = 0; queue < queues_; ++queue) {
            Inbound& stream = inbound_[first_stream(index) + queue];
            stream.returned = stream.expected;
        }
    }
    if (posts_to(link) && link.open_streams == 0 && !link.ended) {
        ControlMessage end(run_, ControlKind::end);
        for (std::uint32_t queue = 0; queue < queues_; ++queue) {
            const std::uint32_t stream = first_stream(index) + queue;
            end.add(reads_ ? inbound_[stream].expected : outbound_[stream].sequence);
        }
        if (!send(link, end)) {
            return false;
        }
        link.ended = true;
        --open_links_;
    }
    return true;
}

void Node::check_finished(Time now) {
    if (state_ == State::ready && open_links_ == 0 && (began_at_ != 0 || stopping_ || !links_.empty())) {
        state_ = State::finished;
        finished_at_ = std::max<Time>(now, 1);
        began_at_ = began_at_ == 0 ? finished_at_ : began_at_;
    }
}

PairCount Node::pair_count(std::size_t partner) const {
    const Link& link = links_[partner];
    return {link.partner.peer, link.messages_sent, link.messages_received};
}

const base::Histogram* Node::round_trips(std::size_t partner) const {
    return round_trips_.empty() || !posts_to(links_[partner]) ? nullptr : &round_trips_[partner];
}

void Node::clear_round_trips() {
    for (base::Histogram& histogram : round_trips_) {
        histogram.clear();
    }
}

}  // namespace incast::net

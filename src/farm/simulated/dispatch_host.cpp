#include "farm/simulated/dispatch_host.h"

#include <algorithm>
#include <array>
#include <cstring>

namespace incast::farm::simulated {

namespace {

constexpr std::size_t events_per_poll = 64;

}  // namespace

Result<std::unique_ptr<DispatchHost>> DispatchHost::make(sim::World& world, const DispatchOptions& options) {
    std::unique_ptr<DispatchHost> made(new DispatchHost(world, options));
    transport::EndpointOptions endpoint;
    endpoint.self = options.self;
    endpoint.run = options.run;
    endpoint.max_peers = options.hosts;
    auto transport = world.endpoint(endpoint);
    if (!transport) {
        return transport.error();
    }
    made->transport_ = std::move(*transport);
    if (const auto body = made->transport_->allocate(options.place_bytes); !body) {
        return body.error();
    }
    made->nodes_.resize(options.nodes);
    made->actor_ = world.add_actor(*made);
    world.bind(*made->transport_, made->actor_);
    return made;
}

DispatchHost::~DispatchHost() {
    detach();
    world_.remove_actor(actor_);
}

void DispatchHost::attach(sinks::LendingSink& sink, std::function<void()> wake) {
    sink_ = &sink;
    ++sinks_;
    wake_ = std::move(wake);
    sink.on_lent([this] { world_.wake(actor_); });
}

void DispatchHost::detach() {
    if (sink_ != nullptr) sink_->on_lent({});
    sink_ = nullptr;
    gave_back_ = false;
}

void DispatchHost::expect(std::uint32_t node, const Whereabouts& there) {
    if (nodes_[node] == nullptr) {
        nodes_[node] = std::make_unique<Node>();
        nodes_[node]->is_over = true;
        nodes_[node]->link.set_up(*transport_, Local{0});
        known_.push_back(nodes_[node].get());
    }
    nodes_[node]->link.expect(there);
    next_look_ = 0;
    world_.wake(actor_);
}

DispatchHost::Node* DispatchHost::node_of(Peer peer) {
    const auto index = static_cast<std::uint32_t>(peer) - options_.first_node;
    return index < nodes_.size() ? nodes_[index].get() : nullptr;
}

void DispatchHost::hear(const Event& event) {
    Node* const node = node_of(event.peer);
    if (node == nullptr) {
        return;
    }
    switch (event.kind) {
        case Event::Kind::peer_up:
            if (node->link.came_up(event)) {
                static_cast<Taker&>(*node) = {};
                node->meet(now_);
                node->sent = 0;
            }
            break;
        case Event::Kind::peer_down:
            lose(*node);
            node->link.went_down(now_);
            break;
        case Event::Kind::message:
            if (!node->is_over) {
                heard(*node, {event.data, event.size_or_value});
            }
            break;
        default:
            break;
    }
}

void DispatchHost::heard(Node& node, Bytes message) {
    node.heard = now_;
    if (!node.is_greeted) {
        Hello hello;
        if (message.size() != sizeof hello) {
            return lose(node);
        }
        std::memcpy(&hello, message.data(), sizeof hello);
        if (!is_sane(hello)) {
            return lose(node);
        }
        node.is_greeted = node.is_welcomed = true;
        node.said = now_;
        ++book_.counts.joined_nodes;
        const Welcome welcome{.n_sources = options_.n_sources, .run = options_.run, .mep_bytes = options_.place_bytes};
        node.link.say(bytes_of(welcome));
        return;
    }
    for (; message.size() >= sizeof(Reply) && !node.is_over; message = message.subspan(sizeof(Reply))) {
        Reply reply;
        std::memcpy(&reply, message.data(), sizeof reply);
        take_reply(node, reply);
    }
}

void DispatchHost::take_reply(Node& node, const Reply& reply) {
    Book<Load>::Finished finished;
    switch (book_.hear(node, reply, now_, finished)) {
        case Book<Load>::Heard::well:
            break;
        case Book<Load>::Heard::nonsense:
            lose(node);
            break;
        case Book<Load>::Heard::finished:
            // What a builder unit that is gone thinks of it does not matter.
            if (sink_ != nullptr && finished.load.sink == sinks_) {
                sink_->give_back(now_, finished.load.lent, finished.verdict);
                gave_back_ = true;
            }
            break;
    }
}

void DispatchHost::lose(Node& node) {
    if (node.is_over) {
        return;
    }
    node.is_over = true;
    book_.lose(node);
    if (node.is_greeted) {
        ++(node.is_leaving && node.held == 0 ? book_.counts.left_nodes : book_.counts.lost_nodes);
    }
    node.link.drop(now_);
}

void DispatchHost::keep_alive() {
    if (now_ < next_look_) {
        return;
    }
    next_look_ = time_never;
    for (Node* const node : known_) {
        const Due what = due(*node, now_, options_.limits);
        if (what == Due::word) {
            node->link.say(bytes_of(MepFrame{}));
            node->said = now_;
        } else if (what != Due::nothing) {
            lose(*node);
        }
        node->link.call(now_);
        node->link.push();
        next_look_ = std::min({next_look_, next_due(*node, options_.limits), node->link.next_call()});
    }
}

void DispatchHost::dispatch() {
    while (book_.has_waiting() || (sink_ != nullptr && sink_->has_next())) {
        const auto chosen = book_.choose(std::span<Node* const>(known_));
        if (!chosen) {
            return;
        }
        std::uint64_t ticket = book_.next_waiting();
        if (ticket == 0) {
            const auto lent = sink_->next();
            ticket = book_.take({lent, sinks_}, lent.n_events, false);
        }
        send(ticket, *known_[*chosen]);
    }
}

void DispatchHost::send(std::uint64_t ticket, Node& node) {
    const sinks::LendingSink::Lent& lent = book_.at(ticket).load.lent;
    MepFrame frame{.flags = lent.redelivered ? std::uint32_t{MepFrame::redelivered} : 0U,
                   .mep = lent.mep,
                   .first_event = lent.first_event,
                   .goodput_bytes = lent.goodput_bytes,
                   .n_events = lent.n_events,
                   .missing_sources = lent.missing_sources,
                   .attempt = lent.attempt,
                   .builder = options_.builder};
    book_.mark(ticket, frame);
    // A ring of as many places as there are credits: the MEP that lay there before was taken out of it.
    const std::uint64_t place = node.sent++ % options_.window;
    node.link.write(bytes_of(frame), sizeof(SourceFrame) * options_.n_sources + lent.body_bytes,
                    place * options_.place_bytes, static_cast<std::uint16_t>(place));
    book_.counts.sent_bytes += lent.body_bytes;
    book_.sent(ticket, node, now_);
    node.link.push();
}

bool DispatchHost::step(Time now) {
    now_ = now;
    std::array<Event, events_per_poll> events;
    const std::size_t count = transport_->poll(now, events);
    for (std::size_t index = 0; index < count; ++index) {
        hear(events[index]);
        if (Node* const node = node_of(events[index].peer); node != nullptr) {
            node->link.push();
            next_look_ = std::min(next_look_, node->link.next_call());
            next_look_ = std::min(next_look_, next_due(*node, options_.limits));
        }
    }
    keep_alive();
    dispatch();
    if (gave_back_) {
        gave_back_ = false;
        wake_();
    }
    return count == events.size();
}

Time DispatchHost::next_deadline() const {
    return next_look_;
}

}  // namespace incast::farm::simulated

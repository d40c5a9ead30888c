#include "protocol/node.h"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "base/prefetch.h"
#include "protocol/builder_unit.h"
#include "protocol/event_manager.h"
#include "protocol/links.h"
#include "protocol/port.h"
#include "protocol/readout_unit.h"
#include "protocol/shape.h"

namespace incast::protocol {

using wire::ControlKind;
using wire::ControlView;

namespace {

constexpr int max_batches = 8;
constexpr std::size_t prefetch_ahead = 6;  // notices: enough for one head to come from memory

}  // namespace

/// Dispatches what the transport reports to the units of this node, then lets them send.
class Node::Impl {
public:
    Impl(const Config& config, const Shape* shared, Peer self, std::uint32_t incarnation, Transport& transport,
         Source* source, Sink* sink, Ledger* ledger, Filter* filter)
        : own_shape(shared == nullptr ? std::make_unique<const Shape>(config) : nullptr),
          shape(shared == nullptr ? *own_shape : *shared),
          roles(config.nodes[static_cast<std::size_t>(self)].roles),
          port(config, self, incarnation, transport),
          links(port, shape) {
        if ((roles & role_em) != 0) {
            em = std::make_unique<EventManager>(port, shape, ledger);
        }
        if ((roles & role_bu) != 0) {
            bu = std::make_unique<BuilderUnit>(port, shape, *sink, filter);
        }
        if ((roles & role_ru) != 0) {
            ru = std::make_unique<ReadoutUnit>(port, shape, *source, bu.get());
        }
    }

    Result<Ok> start(Time now);
    bool step(Time now);
    [[nodiscard]] Time next_deadline() const;
    void prefetch(unsigned level) const;

    std::unique_ptr<const Shape> own_shape;

    // What every step looks at are three cache lines: with many nodes in one thread they are cold each time. Units lie
    // apart, so that one that is not there takes no room between those that are.
    alignas(64) const Shape& shape;
    std::uint32_t roles;
    NodeState state = NodeState::joining;

private:
    bool said_hello_ = false;
    Time last_step_ = 0;
    Time em_heard_ = 0;
    Time next_beat_ = 0;

public:
    std::unique_ptr<EventManager> em;
    std::unique_ptr<BuilderUnit> bu;
    std::unique_ptr<ReadoutUnit> ru;
    Port port;
    Links links;

private:
    void handle(Time now, const Event& event);
    void on_up(Time now, Peer peer, std::uint32_t incarnation);
    void on_down(Time now, Peer peer, std::uint32_t incarnation);
    void on_message(Time now, Peer from, Bytes bytes);
    void on_view(Time now, const ControlView& message);
    [[nodiscard]] bool from_em(Peer from, ControlKind kind) const;
    void drop_evicted();
    void say_hello();
    void beat(Time now);
    void flush(Time now, bool idle);
    [[nodiscard]] bool is_self_em() const { return port.self() == port.config().em; }
};

Result<Ok> Node::Impl::start(Time now) {
    last_step_ = now;
    em_heard_ = now;
    next_beat_ = now + port.config().heartbeat;
    if (bu) {
        if (const Result<Ok> started = bu->start(now); !started) {
            return started;
        }
    }
    if (ru) {
        if (const Result<Ok> started = ru->start(); !started) {
            return started;
        }
    }
    if (em) {
        em->start(now);
    }
    return Ok{};
}

void Node::Impl::on_up(Time now, Peer peer, std::uint32_t incarnation) {
    if (!links.on_up(now, peer, incarnation)) {
        return;
    }
    if (peer == port.config().em) {
        em_heard_ = now;
    }
    const auto node = static_cast<std::size_t>(peer);
    if (ru && shape.bu_of_node[node] != no_index) {
        ru->on_connection_up(peer, incarnation);
    }
    if (bu && shape.ru_of_node[node] != no_index) {
        bu->on_connection_up(peer, incarnation);
    }
}

void Node::Impl::on_down(Time now, Peer peer, std::uint32_t incarnation) {
    if (!links.on_down(now, peer, incarnation)) {
        return;
    }
    const auto node = static_cast<std::size_t>(peer);
    if (ru && shape.bu_of_node[node] != no_index) {
        ru->on_connection_lost(now, peer);
    }
    if (bu && shape.ru_of_node[node] != no_index) {
        bu->on_connection_lost(now, peer);
    }
    if (em) {
        em->on_connection_lost(now, peer, incarnation);
        drop_evicted();
    }
    if (peer == port.config().em && state != NodeState::finished) {
        state = NodeState::evicted;
    }
}

bool Node::Impl::from_em(Peer from, ControlKind kind) const {
    switch (kind) {
        case ControlKind::view:
        case ControlKind::announce:
        case ControlKind::assign:
        case ControlKind::commit_verdict:
        case ControlKind::end:
        case ControlKind::phase:
        case ControlKind::clock_answer:
        case ControlKind::close:
            return from == port.config().em;
        default:
            return true;
    }
}

void Node::Impl::on_view(Time now, const ControlView& message) {
    for (std::uint32_t index = 0; index < message.header().count; ++index) {
        const wire::ViewEntry entry = message.entry<ControlKind::view>(index);
        if (entry.node >= shape.ru_of_node.size()) {
            ++port.counters().bad_messages;
            continue;
        }
        if (Peer{entry.node} == port.self() && entry.incarnation == port.incarnation() && state == NodeState::joining) {
            state = NodeState::running;
        }
        if (ru) {
            ru->on_view(now, entry);
        }
        if (bu) {
            bu->on_view(now, entry);
        }
        if (entry.change != wire::Change::up && Peer{entry.node} != port.self()) {
            links.drop(Peer{entry.node}, entry.incarnation);
        }
    }
    port.view = std::max(port.view, message.header().view);
}

void Node::Impl::on_message(Time now, Peer from, Bytes bytes) {
    ++port.counters().messages_received;
    const std::optional<ControlView> message = ControlView::parse(bytes, port.config().control_version);
    const bool known_sender =
        message && message->header().run == port.config().run &&
        message->header().incarnation == (from == port.self() ? port.incarnation() : links.incarnation(from));
    if (!known_sender || !from_em(from, message->kind())) {
        ++port.counters().bad_messages;
        return;
    }
    if (from == port.config().em) {
        em_heard_ = now;
    }
    const auto node = static_cast<std::size_t>(from);
    const bool from_ru = shape.ru_of_node[node] != no_index;
    const bool from_bu = shape.bu_of_node[node] != no_index;
    bool taken = true;
    switch (message->kind()) {
        case ControlKind::view:
            on_view(now, *message);
            break;
        case ControlKind::end:
            state = NodeState::finished;
            break;
        case ControlKind::announce:
            (taken = ru != nullptr) ? ru->on_announce(*message) : void();
            break;
        case ControlKind::abort:
            (taken = ru != nullptr) ? ru->on_abort(from, *message) : void();
            break;
        case ControlKind::region:
            (taken = ru && from_bu) ? ru->on_region(from, *message) : void();
            break;
        case ControlKind::request:
            (taken = ru && from_bu) ? ru->on_request(from, *message) : void();
            break;
        case ControlKind::grant:
            if (ru && ru->keeps_credits()) {
                (taken = from_bu) ? ru->on_grant(from, *message) : void();
                break;
            }
            taken = em && em->on_message(now, from, *message);
            break;
        case ControlKind::placed:
            (taken = ru && from_bu) ? ru->on_placed(now, from, *message) : void();
            break;
        case ControlKind::phase:
            (taken = ru != nullptr) ? ru->on_phase(*message) : void();
            break;
        case ControlKind::close:
            (taken = ru != nullptr) ? ru->on_close(now, *message) : void();
            break;
        case ControlKind::clock_answer:
            (taken = ru != nullptr) ? ru->on_clock_answer(now, *message) : void();
            break;
        case ControlKind::source_region:
            (taken = bu && from_ru) ? bu->on_source_region(from, *message) : void();
            break;
        case ControlKind::offer:
            (taken = bu && from_ru) ? bu->on_offer(now, from, *message) : void();
            break;
        case ControlKind::assign:
            (taken = bu != nullptr) ? bu->on_assign(now, *message) : void();
            break;
        case ControlKind::commit_verdict:
            (taken = bu != nullptr) ? bu->on_verdict(now, *message) : void();
            break;
        case ControlKind::abort_ack:
            (taken = bu && from_ru) ? bu->on_abort_ack(from, *message) : void();
            break;
        case ControlKind::beat:
            if (from == port.config().em && !is_self_em()) {
                break;
            }
            [[fallthrough]];
        default:
            taken = em && em->on_message(now, from, *message);
            drop_evicted();
    }
    port.counters().bad_messages += taken ? 0 : 1;
}

void Node::Impl::handle(Time now, const Event& event) {
    switch (event.kind) {
        case Event::Kind::message:
            on_message(now, event.peer, {event.data, event.size_or_value});
            break;
        case Event::Kind::notice:
            if (bu) {
                bu->on_notice(now, event.peer, event.size_or_value, event.status == Status::damaged);
            }
            break;
        case Event::Kind::completed:
            if (bu && (event.token & Reader::token_bit) != 0) {
                bu->on_completed(now, event.token, event.status);
            } else if (ru) {
                ru->on_completed(event.token);
            }
            break;
        case Event::Kind::room:
            if (ru && shape.bu_of_node[static_cast<std::size_t>(event.peer)] != no_index) {
                ru->on_room(event.peer);
            }
            break;
        case Event::Kind::peer_up:
            on_up(now, event.peer, event.incarnation);
            break;
        case Event::Kind::peer_down:
            on_down(now, event.peer, event.incarnation);
            break;
        case Event::Kind::knock:
            break;  // its endpoint has no room for peers that dial
    }
}

void Node::Impl::drop_evicted() {
    if (em) {
        for (const Peer peer : em->evicted()) {
            links.drop(peer);
        }
        em->evicted().clear();
    }
}

void Node::Impl::say_hello() {
    if (said_hello_ || (!is_self_em() && !links.is_up(port.config().em))) {
        return;
    }
    auto message = port.message<ControlKind::hello>();
    message.set_body({fingerprint(port.config()), ru ? ru->total_meps() : 0, roles, 0});
    said_hello_ = port.send(port.config().em, message);
}

void Node::Impl::beat(Time now) {
    if (is_self_em() || now < next_beat_) {
        return;
    }
    auto message = port.message<ControlKind::beat>();
    // One that finds no room is tried again soon: a few that are lost in a row would be this node's silence.
    const bool sent = port.send(port.config().em, message);
    next_beat_ = now + (sent ? port.config().heartbeat : port.config().heartbeat / 8);
}

void Node::Impl::flush(Time now, bool idle) {
    links.connect_due(now);
    say_hello();
    if (!said_hello_) {
        return;  // the EM takes nothing from a node it does not know
    }
    beat(now);
    links.flush_reports();
    if (em) {
        em->flush(now, idle);
    }
    if (ru) {
        ru->flush(now, idle);
    }
    if (bu) {
        bu->flush(now);
    }
}

bool Node::Impl::step(Time now) {
    // If this node was paused, the silence was its own.
    const Time gap = now - last_step_;
    last_step_ = now;
    if (gap > port.config().heartbeat) {
        em_heard_ += gap;
        if (bu) {
            bu->forgive(gap);
        }
    }
    // Several batches before anything is sent: what a node with many peers sends is then worth a message.
    std::array<Event, 128> events;
    bool any = false;
    for (int batch = 0; batch < max_batches; ++batch) {
        const std::size_t count = port.transport().poll(now, events);
        for (std::size_t index = 0; index < count; ++index) {
            if (index + prefetch_ahead < count && bu && events[index + prefetch_ahead].kind == Event::Kind::notice) {
                bu->prefetch(events[index + prefetch_ahead].peer, events[index + prefetch_ahead].size_or_value);
            }
            handle(now, events[index]);
        }
        any = any || count > 0;
        if (count < events.size()) {
            break;
        }
    }
    const bool own = port.drain_self([&](Bytes bytes) { on_message(now, port.self(), bytes); },
                                     [&](std::uint16_t slot) { bu->on_notice(now, port.self(), slot, false); });
    if (state == NodeState::evicted || state == NodeState::em_silent) {
        return false;
    }
    if (em) {
        em->tick(now);
        drop_evicted();
    } else if (links.is_up(port.config().em) && now - em_heard_ > port.config().detection_deadline) {
        state = NodeState::em_silent;
        return false;
    }
    flush(now, !any && !own);
    port.transport().flush();
    return any || own || port.self_pending();
}

Time Node::Impl::next_deadline() const {
    if (state == NodeState::evicted || state == NodeState::em_silent) {
        return time_never;
    }
    if (port.self_pending()) {
        return 0;
    }
    Time deadline = std::min(links.next_deadline(), port.transport().next_deadline());
    if (em) {
        deadline = std::min(deadline, em->next_deadline());
    } else if (said_hello_) {
        deadline = std::min(deadline, next_beat_);
        if (links.is_up(port.config().em)) {  // a finished node may have lost it
            deadline = std::min(deadline, em_heard_ + port.config().detection_deadline + 1);
        }
    }
    if (ru) {
        deadline = std::min(deadline, ru->next_deadline());
    }
    if (bu) {
        deadline = std::min(deadline, bu->next_deadline());
    }
    return deadline;
}

void Node::Impl::prefetch(unsigned level) const {
    if (level == 0) {
        base::prefetch(&shape, 64);
        base::prefetch(&port, 128);
        base::prefetch(&links, 64);
        return;
    }
    if (level == 1) {
        base::prefetch(&port.transport(), 128);
    }
    if (bu) {
        level == 1 ? base::prefetch(*bu) : bu->prefetch(level - 2);
    }
    if (ru) {
        level == 1 ? base::prefetch(ru.get(), ReadoutUnit::often_used_bytes) : ru->prefetch(level - 2);
    }
}

// --- the public face
// ----------------------------------------------------------------------------------------------------------------

Node::Node(const Config& config, Peer self, std::uint32_t incarnation, Transport& transport, Source* source, Sink* sink,
           Ledger* ledger, Filter* filter, const Shape* shape)
    : impl_(std::make_unique<Impl>(config, shape, self, incarnation, transport, source, sink, ledger, filter)) {}
Node::~Node() = default;

Result<Ok> Node::start(Time now) {
    return impl_->start(now);
}
void Node::update_peer(Time now, Peer peer, std::uint32_t incarnation, const Blob& address) {
    impl_->links.update_peer(now, peer, incarnation, address);
}
bool Node::step(Time now) {
    return impl_->step(now);
}
Time Node::next_deadline() const {
    return impl_->next_deadline();
}
void Node::prefetch(unsigned level) const {
    if (level == 0) {
        base::prefetch(impl_);
    } else {
        impl_->prefetch(level - 1);
    }
}
void Node::stop_admission() {
    if (impl_->em) {
        impl_->em->stop_admission();
    }
}
NodeState Node::state() const {
    return impl_->state;
}
const Counters& Node::counters() const {
    return impl_->port.counters();
}
bool Node::all_joined() const {
    return impl_->em && impl_->em->formed();
}
Time Node::bu_waiting() const {
    return impl_->bu ? impl_->bu->waiting() : 0;
}

}  // namespace incast::protocol

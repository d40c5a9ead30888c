#include "transport/mpi/endpoint.h"

#include <algorithm>
#include <array>
#include <string>
#include <utility>

#include "transport/mpi/descriptor/descriptor.h"

namespace incast::transport::mpi {

namespace {

constexpr std::uint32_t max_posted_limit = 65536;
constexpr Time deadline_unset = -1;  // the next poll, which knows the time, sets it

std::string node_text(std::uint32_t node) {
    return std::string(transport_name) + ": node " + std::to_string(node);
}

}  // namespace

Result<std::unique_ptr<Transport>> Endpoint::make(const EndpointSettings& settings, const EndpointOptions& options) {
    const Result<Ok> fits = framed::check_options(transport_name, options, max_posted_limit);
    if (!fits) return fits.error();
    const Result<Hub*> hub = Hub::of_process();
    if (!hub) return hub.error();
    return std::unique_ptr<Transport>(std::make_unique<Endpoint>(settings, options, **hub));
}

Endpoint::Endpoint(const EndpointSettings& settings, const EndpointOptions& options, Hub& hub)
    : framed::Endpoint(transport_name, options), settings_(settings), hub_(hub), peers_(options.max_peers) {
    capabilities_.nature = nature;
    capabilities_.max_dialled = 0;
    capabilities_.has_wait_fd = false;
    capabilities_.survives_peer_loss = false;
    capabilities_.fences_live_peer = false;
    active_.reserve(peers_.size());
    working_.reserve(peers_.size());
    raised_.reserve(peers_.size());
    down_.reserve(peers_.size());
    const auto guard = hub_.lock();
    hub_.enroll(mailbox_);
}

Endpoint::~Endpoint() {
    const auto guard = hub_.lock();
    // What was posted before goes out as far as MPI takes it at once.
    for (PeerState& peer : peers_) {
        if (peer.state != PeerState::State::up) continue;
        std::array<Event, 64> nowhere;
        framed::EventWriter events(nowhere);
        (void)peer.link->work(events, ++poll_number_);
    }
    hub_.leave(mailbox_);
    // What is under way goes on without this: nothing that it moves may go before.
    const auto regions = std::make_shared<const Regions>(std::move(regions_));
    for (PeerState& peer : peers_) {
        if (peer.state == PeerState::State::calling)
            hub_.say(static_cast<int>(peer.address.rank), call_to(peer, CallKind::give_up));
        if (peer.link == nullptr) continue;
        peer.link->stop();
        hub_.adopt(peer.number, std::move(peer.link), regions);
    }
    for (Abandoned& each : abandoned_)
        hub_.adopt(each.number, std::move(each.link), regions);
    hub_.progress();
}

Blob Endpoint::address() const {
    return to_blob(Address{
        .node = self(), .rank = static_cast<std::uint32_t>(hub_.library().rank()), .endpoint = mailbox_.number});
}

// --- progress
// -----------------------------------------------------------------------------------------------------------------

std::size_t Endpoint::poll(Time now, std::span<Event> span) {
    // One process has one MPI, which its endpoints use in turn; with one of them nobody ever waits here.
    const auto guard = hub_.lock();
    framed::EventWriter events(span);
    ++poll_number_;
    last_now_ = now;
    lost_links_.clear();
    if (regions_.has_retired()) [[unlikely]]
        free_retired();
    hub_.progress();
    for (const Peer peer : std::exchange(mailbox_.woken, {}))
        activate(peer);
    for (const Call& call : std::exchange(mailbox_.calls, {}))
        hear(call);
    if (now >= next_deadline_ || untimed_ > 0) handle_deadlines(now);
    announce(events);
    // Swapped, so that peers that stay busy can list themselves again; the first goes last next time.
    working_.swap(active_);
    for (const Peer peer : working_) {
        PeerState& state = peers_[index(peer)];
        state.listed = false;
        if (state.state == PeerState::State::ending && state.link->let_go()) {
            state.state = PeerState::State::down;
            down_.push_back(peer);
        }
        if (state.state != PeerState::State::up) continue;
        if (!state.announced || events.room() == 0) {
            activate(peer);
            continue;
        }
        if (!state.link->work(events, poll_number_)) {
            if (!state.link->why_lost().empty())
                log(node_text(index(peer)) + ": connection lost: " + state.link->why_lost());
            lose(peer, Status::peer_lost);
        } else if (state.link->busy()) {
            activate(peer);
        }
    }
    working_.clear();
    if (active_.size() > 1) std::ranges::rotate(active_, active_.begin() + 1);
    finish_losses(events);
    return events.count();
}

bool Endpoint::prepare_wait() {
    const auto guard = hub_.lock();
    return active_.empty() && down_.empty() && raised_.empty() && untimed_ == 0 && mailbox_.woken.empty() &&
           mailbox_.calls.empty();
}

std::uint64_t Endpoint::copied_bytes() const {
    std::uint64_t bytes = copied_for_lost_;
    for (const PeerState& state : peers_)
        if (state.link != nullptr) bytes += state.link->copied_bytes();
    return bytes;
}

bool Endpoint::uses(Bytes memory) const {
    const auto does = [&](const std::unique_ptr<Link>& link) {
        return link != nullptr && link->session().uses(memory);
    };
    return std::ranges::any_of(peers_, does, &PeerState::link) ||
           std::ranges::any_of(abandoned_, does, &Abandoned::link);
}

bool Endpoint::drained() const {
    return std::ranges::all_of(
        peers_, [](const PeerState& state) { return state.state != PeerState::State::up || state.link->drained(); });
}

// --- connecting
// -----------------------------------------------------------------------------------------------------------------

Post Endpoint::connect(Peer peer, const Blob& blob, std::uint32_t incarnation) {
    Address address;
    if (!is_node(peer) || peer == options_.self || !from_blob(blob, address) || address.node != index(peer) ||
        address.rank >= static_cast<std::uint32_t>(hub_.library().size()))
        return Post::refused;
    PeerState& state = peers_[index(peer)];
    if (const auto answer =
            answer_to_connect(state.connection(), state.incarnation, incarnation, [&] { disconnect(peer); })) {
        return *answer;
    }
    const auto guard = hub_.lock();
    state.incarnation = incarnation;
    state.address = address;
    state.deadline = deadline_unset;
    state.is_gone = false;
    ++untimed_;
    state.first_tag = hub_.take_tags(settings_.streams);
    if (self() < index(peer)) {
        state.state = PeerState::State::calling;
        state.dial = ++dials_;
        hub_.say(static_cast<int>(address.rank), call_to(state, CallKind::hello));
    } else {
        state.state = PeerState::State::waiting;
        match(peer);
    }
    return Post::pending;
}

Call Endpoint::call_to(const PeerState& peer, CallKind kind) const {
    return {.kind = kind,
            .run = options_.run,
            .token = options_.token,
            .from = self(),
            .from_rank = static_cast<std::uint32_t>(hub_.library().rank()),
            .from_endpoint = mailbox_.number,
            .from_incarnation = options_.incarnation,
            .to = peer.address.node,
            .to_endpoint = peer.address.endpoint,
            .to_incarnation = peer.incarnation,
            .dial = peer.dial,
            .first_tag = peer.first_tag,
            .max_posted = options_.max_posted,
            .streams = settings_.streams,
            .chunks = settings_.chunks,
            .chunk_bytes = settings_.chunk_bytes};
}

void Endpoint::hear(const Call& call) {
    if (call.kind == CallKind::hello) return hear_hello(call);
    if (call.from >= peers_.size()) return;
    const Peer peer{call.from};
    PeerState& state = peers_[call.from];
    switch (call.kind) {
        case CallKind::accept:
            if (state.state != PeerState::State::calling || state.dial != call.dial) return;
            if (call.token != options_.token || call.max_posted == 0 || call.max_posted > max_posted_limit)
                return fail(peer, "its answer makes no sense");
            return go_up(peer, call.first_tag, call.max_posted);
        case CallKind::refuse:
            if (state.state == PeerState::State::calling && state.dial == call.dial)
                fail(peer, std::string("refused: ") + to_string(call.verdict));
            return;
        case CallKind::give_up:
            if (state.parked && state.parked->dial == call.dial && state.parked->from_endpoint == call.from_endpoint)
                state.parked.reset();
            // It was let in, and does not want to any more: it receives nothing of that connection.
            if (state.link != nullptr && state.dial == call.dial && state.address.endpoint == call.from_endpoint)
                lose_gone(peer);
            return;
        case CallKind::hello:
            return;
    }
}

std::optional<Verdict> Endpoint::judge(const Call& call) const {
    if (call.version != Call::present_version) return Verdict::wrong_version;
    volatile std::uint64_t difference = call.token ^ options_.token;  // no early exit tells how much of it was right
    if (difference != 0) return Verdict::wrong_token;
    if (call.run != options_.run) return Verdict::wrong_run;
    if (call.to != self() || call.to_incarnation != options_.incarnation || call.from >= self())
        return Verdict::wrong_node;
    if (call.streams != settings_.streams || call.chunks != settings_.chunks ||
        call.chunk_bytes != settings_.chunk_bytes || call.max_posted == 0 || call.max_posted > max_posted_limit)
        return Verdict::unfit;
    return std::nullopt;
}

void Endpoint::refuse(const Call& call, Verdict verdict) {
    hub_.say(static_cast<int>(call.from_rank), {.kind = CallKind::refuse,
                                                .verdict = verdict,
                                                .from = self(),
                                                .to = call.from,
                                                .to_endpoint = call.from_endpoint,
                                                .dial = call.dial});
}

void Endpoint::hear_hello(const Call& call) {
    if (const std::optional<Verdict> verdict = judge(call)) {
        log(std::string(transport_name) + ": refused who says to be node " + std::to_string(call.from) + ", rank " +
            std::to_string(call.from_rank) + ": " + to_string(*verdict));
        return refuse(call, *verdict);
    }
    const Peer peer{call.from};
    PeerState& state = peers_[call.from];
    const bool connected = state.state == PeerState::State::up || state.state == PeerState::State::waiting;
    if ((connected && call.from_incarnation < state.incarnation) ||
        (state.parked && state.parked->from_incarnation > call.from_incarnation))
        return refuse(call, Verdict::stale);
    state.parked = call;
    if (state.state == PeerState::State::waiting) match(peer);
}

void Endpoint::match(Peer peer) {
    PeerState& state = peers_[index(peer)];
    if (state.state != PeerState::State::waiting || !state.parked) return;
    if (state.parked->from_incarnation > state.incarnation) return lose(peer, Status::peer_lost);
    const Call hello = *state.parked;
    state.parked.reset();
    if (hello.from_incarnation < state.incarnation) return refuse(hello, Verdict::stale);
    state.dial = hello.dial;
    state.address = {.node = hello.from, .rank = hello.from_rank, .endpoint = hello.from_endpoint};
    hub_.say(static_cast<int>(hello.from_rank), call_to(state, CallKind::accept));
    go_up(peer, hello.first_tag, hello.max_posted);
}

void Endpoint::go_up(Peer peer, std::uint32_t peer_tag, std::uint32_t peer_max_posted) {
    PeerState& state = peers_[index(peer)];
    stop_timing(state);
    state.number = hub_.take_number(mailbox_, peer);
    state.link = std::make_unique<Link>(hub_.library(),
                                        LinkOptions{.number = state.number,
                                                    .rank = static_cast<int>(state.address.rank),
                                                    .first_tag = state.first_tag,
                                                    .peer_tag = peer_tag,
                                                    .streams = settings_.streams,
                                                    .chunks = settings_.chunks,
                                                    .chunk_bytes = settings_.chunk_bytes,
                                                    .direct_bytes = settings_.copy_below_bytes},
                                        framed::SessionOptions{.self = options_.self,
                                                               .peer = peer,
                                                               .self_incarnation = options_.incarnation,
                                                               .peer_incarnation = state.incarnation,
                                                               .streams = settings_.streams,
                                                               .max_posted = options_.max_posted,
                                                               .max_peer_reads = peer_max_posted,
                                                               .staging_bytes = settings_.chunk_bytes,
                                                               .copied_bytes = std::size_t{4} * settings_.chunk_bytes,
                                                               .copy_below_bytes = copied_at_once},
                                        regions_);
    hub_.seat(state.number, *state.link);
    state.state = PeerState::State::up;
    state.announced = false;
    raised_.push_back(peer);
    activate(peer);
}

// --- losing
// -----------------------------------------------------------------------------------------------------------------

void Endpoint::disconnect(Peer peer) {
    if (!is_node(peer)) return;
    const auto guard = hub_.lock();
    const Connection connection = peers_[index(peer)].connection();
    if (connection == Connection::opening || connection == Connection::up) lose(peer, Status::cancelled);
}

void Endpoint::ended(Peer peer, std::uint32_t incarnation) {
    if (!is_node(peer) || peers_[index(peer)].incarnation != incarnation) return;
    const auto guard = hub_.lock();
    PeerState& state = peers_[index(peer)];
    if (state.state == PeerState::State::idle || state.state == PeerState::State::down) return;
    hub_.library().somebody_died();
    lose_gone(peer);
}

void Endpoint::lose_gone(Peer peer) {
    PeerState& state = peers_[index(peer)];
    if (state.state == PeerState::State::down) return;
    state.is_gone = true;
    if (state.state != PeerState::State::ending) return lose(peer, Status::peer_lost);
    state.link->abandon();
    state.state = PeerState::State::down;
    down_.push_back(peer);
}

void Endpoint::fail(Peer peer, std::string_view why) {
    PeerState& state = peers_[index(peer)];
    // One line per incarnation, however often its connecting is tried again.
    if (std::exchange(state.complained_of, state.incarnation) != state.incarnation)
        log(std::string(transport_name) + ": cannot connect to node " + std::to_string(index(peer)) + ", rank " +
            std::to_string(state.address.rank) + ": " + std::string(why));
    lose(peer, Status::peer_lost);
}

void Endpoint::lose(Peer peer, Status status) {
    PeerState& state = peers_[index(peer)];
    stop_timing(state);
    std::erase(raised_, peer);
    state.lost_as = status;
    if (state.state == PeerState::State::calling && !state.is_gone)
        hub_.say(static_cast<int>(state.address.rank), call_to(state, CallKind::give_up));
    state.state = PeerState::State::ending;
    if (state.link != nullptr) {
        if (state.is_gone) {
            state.link->abandon();
        } else {
            state.link->stop();
            activate(peer);  // the next poll looks whether that is all
            if (!state.link->let_go()) return;
        }
    }
    state.state = PeerState::State::down;
    down_.push_back(peer);
}

void Endpoint::finish_losses(framed::EventWriter& events) {
    std::erase_if(down_, [&](Peer peer) {
        PeerState& state = peers_[index(peer)];
        if (state.link != nullptr && !state.link->session().abandon(state.lost_as, events)) return false;
        if (events.room() == 0) return false;
        events.push(control_event(Event::Kind::peer_down, peer, state.incarnation));
        state.state = PeerState::State::idle;
        if (state.link == nullptr) return true;
        copied_for_lost_ += state.link->copied_bytes();
        if (state.link->is_under_way()) {
            abandoned_.push_back({state.number, std::move(state.link)});
        } else {
            hub_.give_back(state.number);
            // Messages of this poll may lie in its memory, and are valid until the next.
            lost_links_.push_back(std::move(state.link));
        }
        return true;
    });
}

void Endpoint::announce(framed::EventWriter& events) {
    std::size_t told = 0;
    for (; told < raised_.size() && events.room() > 0; ++told) {
        PeerState& state = peers_[index(raised_[told])];
        state.announced = true;
        events.push(control_event(Event::Kind::peer_up, raised_[told], state.incarnation));
    }
    raised_.erase(raised_.begin(), raised_.begin() + static_cast<std::ptrdiff_t>(told));
}

Event Endpoint::control_event(Event::Kind kind, Peer peer, std::uint32_t incarnation) {
    return {
        .kind = kind, .status = Status::ok, .size_or_value = 0, .peer = peer, .incarnation = incarnation, .token = 0};
}

void Endpoint::stop_timing(PeerState& state) {
    if (state.deadline == deadline_unset) --untimed_;
    state.deadline = time_never;
}

void Endpoint::handle_deadlines(Time now) {
    next_deadline_ = time_never;
    for (std::uint32_t at = 0; at < peers_.size(); ++at) {
        PeerState& state = peers_[at];
        if (state.deadline == deadline_unset) {
            state.deadline = now + settings_.connect_timeout;
            --untimed_;
        } else if (now >= state.deadline) {
            fail(Peer{at}, state.state == PeerState::State::waiting ? "it did not call in time" : "no answer in time");
        }
        next_deadline_ = std::min(next_deadline_, state.deadline);
    }
}

}  // namespace incast::transport::mpi

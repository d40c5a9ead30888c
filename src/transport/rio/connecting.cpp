// Connecting and losing peers. Each side writes a hello into its slot at the other; a connection is up for whoever
// reads a hello that answers its own. What ends it is a bye of either side, answered by the other's, or the end of a
// process, which the transfers to it tell.
#include <algorithm>
#include <atomic>
#include <cstring>
#include <utility>

#include "base/bitmap.h"
#include "transport/rio/endpoint.h"

namespace incast::transport::rio {

namespace {

constexpr std::size_t max_parked = 256;

}  // namespace

const char* to_string(Verdict verdict) {
    switch (verdict) {
        case Verdict::accepted:
            return "accepted";
        case Verdict::malformed:
            return "not an Incast hello";
        case Verdict::wrong_run:
            return "another run";
        case Verdict::wrong_token:
            return "wrong token";
        case Verdict::wrong_node:
            return "meant for another node or incarnation";
        case Verdict::stale_incarnation:
            return "an older incarnation";
    }
    return "unknown";
}

Post Endpoint::connect(Peer peer, const Blob& blob, std::uint32_t incarnation) {
    Address address;
    if (index(peer) >= peers_.size() || peer == options_.self || !from_blob(blob, address) ||
        (address.is_for_one == 0 && address.node != index(peer)) || there_by(address) >= address.peers ||
        address.ring_bytes != settings_.ring_bytes || address.notice != settings_.notice ||
        address.doorbell > UINT16_MAX) {
        return Post::refused;
    }
    PeerState& state = peers_[index(peer)];
    if (const auto answer =
            answer_to_connect(state.connection(), state.incarnation, incarnation, [&] { disconnect(peer); })) {
        return *answer;
    }
    if (regions_.permit(peer, address.destid)) {
        port_.take_permits();  // others may be waiting for this endpoint in the same way
        return Post::again;
    }
    state.state = PeerState::State::calling;
    state.gone = state.said_bye = state.heard_bye = state.owes_doorbell = state.wants_room = state.called_again = false;
    state.incarnation = incarnation;
    state.attempt = ++attempts_;
    state.theirs = state.heard = 0;
    state.deadline = time_unset;
    state.destid = address.destid;
    state.doorbell = static_cast<std::uint16_t>(address.doorbell);
    state.there = there_by(address);
    state.slot_address = address.slots + state.there * slot_bytes(settings_.ring_bytes);
    state.lane.drop_unsent();
    state.peer_read = state.announced = state.lane.sent();
    unset_deadlines_ = true;
    by_destid_[state.destid] = peer;
    known_.set(index(peer));
    active_.set(index(peer));  // it may have called before
    say_hello(peer);
    return Post::pending;
}

Blob Endpoint::address_for(Peer peer) {
    if (index(peer) >= peers_.size() || peer == options_.self || peers_[index(peer)].state != PeerState::State::idle)
        return {};
    // What somebody before has left there is none of its.
    std::memset(static_cast<void*>(&slot(index(peer)).hello), 0, sizeof(Hello));
    Address made = own_address();
    made.node = index(peer);
    made.is_for_one = 1;
    return to_blob(made);
}

std::uint32_t Endpoint::there_by(const Address& address) const {
    return address.is_for_one != 0 ? address.node : index(options_.self);
}

/// By CM: one of the two does.
bool Endpoint::dials(Peer peer) const {
    const PeerState& state = peers_[index(peer)];
    return state.there != index(peer) ? state.there < index(peer) : port_.destid() < state.destid;
}

void Endpoint::disconnect(Peer peer) {
    if (index(peer) >= peers_.size()) return;
    switch (peers_[index(peer)].state) {
        case PeerState::State::idle:
        case PeerState::State::draining:
        case PeerState::State::closing:
            return;
        case PeerState::State::calling:
        case PeerState::State::dialling:
        case PeerState::State::up:
            give_up(peer);
    }
}

Hello Endpoint::hello(Hello::Kind kind, Peer to) const {
    const PeerState& state = peers_[index(to)];
    Hello made;
    made.kind = kind;
    made.run = options_.run;
    made.token = options_.token;
    made.from = state.there;
    made.from_incarnation = options_.incarnation;
    made.to = index(to);
    made.to_incarnation = state.incarnation;
    made.attempt = state.attempt;
    made.seen = state.theirs;
    made.lane_start = state.peer_read;
    made.check = made.sum();
    return made;
}

void Endpoint::say_hello(Peer peer) {
    PeerState& state = peers_[index(peer)];
    state.next_hello = hello(Hello::Kind::call, peer);
    put_hello(peer);
}

void Endpoint::say_bye(Peer peer) {
    PeerState& state = peers_[index(peer)];
    state.said_bye = true;
    state.next_hello = hello(Hello::Kind::bye, peer);
    put_hello(peer);
}

Verdict Endpoint::judge(const Hello& hello, std::uint32_t from) const {
    volatile std::uint64_t difference = hello.token ^ options_.token;  // in constant time
    if (hello.magic != Hello::expected_magic || hello.from != from) return Verdict::malformed;
    if (hello.run != options_.run) return Verdict::wrong_run;
    if (difference != 0) return Verdict::wrong_token;
    if (hello.to != peers_[from].there || hello.to_incarnation != options_.incarnation) return Verdict::wrong_node;
    return Verdict::accepted;
}

/// Acts on what the peer has written into its slot.
void Endpoint::hear(Peer peer) {
    PeerState& state = peers_[index(peer)];
    Hello heard;
    std::memcpy(static_cast<void*>(&heard), &slot(index(peer)).hello, sizeof heard);
    std::atomic_thread_fence(std::memory_order_acquire);
    // Torn: a doorbell follows when all of it is there. Empty: nobody has written yet.
    if (heard.check == 0 || heard.check != heard.sum() || heard.check == state.heard) return;
    state.heard = heard.check;
    if (state.state == PeerState::State::idle || state.state == PeerState::State::draining) return;
    const bool of_this = heard.attempt == state.theirs && state.theirs != 0;
    if (heard.kind == Hello::Kind::refusal) {
        if (heard.seen == state.attempt && state.state == PeerState::State::calling)
            fail(peer, std::string("refused: ") + to_string(heard.verdict));
        return;
    }
    const Verdict verdict = judge(heard, index(peer));
    if (verdict == Verdict::accepted && heard.from_incarnation > state.incarnation) {
        // The node is there anew. Whether the process of before has ended it cannot say: that is seen by the transfers
        // to it, or it answers the bye. What it had said until now is still handed out.
        if (state.state == PeerState::State::calling) return fail(peer, "a later incarnation of it called");
        if (state.state == PeerState::State::dialling) return give_up(peer);
        if (state.state == PeerState::State::up) {
            state.state = PeerState::State::draining;
            active_.set(index(peer));
        }
        return;
    }
    if (heard.from_incarnation < state.incarnation && heard.magic == Hello::expected_magic) return;  // left behind
    if (verdict != Verdict::accepted) {
        if (state.state != PeerState::State::calling || heard.kind != Hello::Kind::call) return;
        return refuse(peer, heard.attempt, verdict);
    }
    if (heard.kind == Hello::Kind::bye) {
        if (of_this || heard.seen == state.attempt) ended(peer, false);
    } else if (heard.kind == Hello::Kind::call) {
        if (state.state == PeerState::State::calling) {
            hear_call(peer, heard);
        } else if (!of_this) {
            ended(peer, false);  // it has begun anew, which it does only when it has stopped
        }
    }
}

/// Nor can this side's own attempt come to anything; the refusal is its bye.
void Endpoint::refuse(Peer peer, std::uint64_t attempt, Verdict verdict) {
    PeerState& state = peers_[index(peer)];
    Hello refusal = hello(Hello::Kind::refusal, peer);
    refusal.verdict = verdict;
    refusal.token = 0;  // it may be anybody
    refusal.seen = attempt;
    refusal.check = refusal.sum();
    state.next_hello = refusal;
    put_hello(peer);
    state.said_bye = state.heard_bye = true;
    fail(peer, std::string("refused it: ") + to_string(verdict));
}

void Endpoint::hear_call(Peer peer, const Hello& hello) {
    PeerState& state = peers_[index(peer)];
    if (hello.attempt != state.theirs) {
        state.theirs = hello.attempt;
        state.their_lane_start = hello.lane_start;
        // In this order: by the time the peer reads the hello that answers its own, the word is of this connection. Not
        // before: in the slot may lie what an earlier incarnation said, and the peer has not read.
        put_written(peer, false);
        say_hello(peer);
    }
    if (hello.seen == state.attempt && state.state == PeerState::State::calling) matched(peer);
}

void Endpoint::matched(Peer peer) {
    if (settings_.notice != NoticeKind::cm) return go_up(peer);
    PeerState& state = peers_[index(peer)];
    state.state = PeerState::State::dialling;
    dialling_.set(index(peer));
    if (dials(peer)) {
        post_office_->dial(index(peer), state.destid, state.there, state.attempt);
        return;
    }
    const auto found = std::ranges::find_if(
        parked_, [&](const Arrived& each) { return each.node == index(peer) && each.attempt == state.theirs; });
    if (found == parked_.end()) return;
    Arrived arrival = std::move(*found);
    parked_.erase(found);
    arrived(std::move(arrival));
}

void Endpoint::look_for_letters() {
    while (auto arrival = post_office_->dialled())
        arrived(std::move(*arrival));
    // Accepting waits for a moment: only where somebody is to come.
    std::size_t first = dialling_.next(0);
    while (first != base::Bitmap::none && dials(Peer{static_cast<std::uint32_t>(first)}))
        first = dialling_.next(first + 1);
    if (first == base::Bitmap::none) return;
    if (auto arrival = post_office_->accept()) arrived(std::move(*arrival));
}

void Endpoint::arrived(Arrived arrival) {
    if (arrival.node >= peers_.size()) return;
    const Peer peer{arrival.node};
    PeerState& state = peers_[arrival.node];
    const bool dialled = dials(peer);
    const bool waits = state.state == PeerState::State::dialling;
    if (waits && arrival.attempt == (dialled ? state.attempt : state.theirs)) {
        if (!arrival.socket.is_open()) return fail(peer, arrival.why);
        state.socket = std::move(arrival.socket);
        go_up(peer);
    } else if (!dialled) {
        if (parked_.size() == max_parked) parked_.pop_front();
        parked_.push_back(std::move(arrival));
    }
}

void Endpoint::go_up(Peer peer) {
    PeerState& state = peers_[index(peer)];
    dialling_.reset(index(peer));
    state.deadline = time_never;
    state.reader.start(state.their_lane_start);
    state.reported = state.their_lane_start;
    state.letters_unreported = 0;
    state.state = PeerState::State::up;
    own_events_.push_back(control_event(Event::Kind::peer_up, peer));
    active_.set(index(peer));  // it may have written before this side was up
}

/// The end of a process is told to whoever writes to it next. The first call of an attempt may so fail although its
/// successor is there: it is made once more.
void Endpoint::lost(Peer peer) {
    PeerState& state = peers_[index(peer)];
    const bool was_first = state.state == PeerState::State::calling && state.theirs == 0;
    if (was_first && !std::exchange(state.called_again, true)) return say_hello(peer);
    ended(peer, true);
}

void Endpoint::ended(Peer peer, bool gone) {
    PeerState& state = peers_[index(peer)];
    if (state.state == PeerState::State::idle) return;
    state.heard_bye = true;
    if (gone && !std::exchange(state.gone, true)) state.owes_doorbell = false;
    busy_.set(index(peer));  // work() goes on with it
    switch (state.state) {
        case PeerState::State::calling:
        case PeerState::State::dialling:
            if (gone) return fail(peer, "nobody is there");
            return give_up(peer);
        case PeerState::State::up:
            state.state = PeerState::State::draining;
            active_.set(index(peer));
            return;
        default:
            return;
    }
}

/// Stops using the connection, when all that is under way has ended. The peer stops when it reads the bye, and answers
/// with its own. Whoever does not know of this attempt will not.
void Endpoint::give_up(Peer peer) {
    PeerState& state = peers_[index(peer)];
    if (state.state == PeerState::State::dialling) {
        dialling_.reset(index(peer));
        post_office_->cancel(index(peer));
    }
    if (state.theirs == 0) state.heard_bye = true;
    state.state = PeerState::State::closing;
    state.wants_room = false;
    state.deadline = time_never;
    active_.reset(index(peer));
    busy_.set(index(peer));
}

void Endpoint::finish_if_quiet(Peer peer) {
    PeerState& state = peers_[index(peer)];
    if (state.state != PeerState::State::closing) return;
    if (!state.said_bye && !state.gone && !is_under_way(state)) say_bye(peer);
    if ((state.said_bye || state.gone) && state.heard_bye && !is_under_way(state)) finish(peer);
}

void Endpoint::finish(Peer peer) {
    PeerState& state = peers_[index(peer)];
    regions_.forbid(peer);
    own_events_.push_back(control_event(Event::Kind::peer_down, peer));
    state.state = PeerState::State::idle;
    state.socket.close();
    state.letters.clear();
    state.reader.start(state.reader.read());
    state.lane.drop_unsent();
    if (const auto known = by_destid_.find(state.destid); known != by_destid_.end() && known->second == peer)
        by_destid_.erase(known);
    known_.reset(index(peer));
    active_.reset(index(peer));
}

void Endpoint::fail(Peer peer, const std::string& why) {
    PeerState& state = peers_[index(peer)];
    if (std::exchange(state.complained_of, state.incarnation) != state.incarnation)
        log("node " + std::to_string(index(peer)) + ": " + why);
    give_up(peer);
}

void Endpoint::handle_deadlines(Time now) {
    unset_deadlines_ = false;
    next_deadline_ = time_never;
    for (std::size_t number = known_.next(0); number != base::Bitmap::none; number = known_.next(number + 1)) {
        PeerState& state = peers_[number];
        if (state.deadline == time_unset) state.deadline = now + settings_.connect_timeout;
        if (now >= state.deadline) {
            const bool met = state.theirs != 0;
            fail(Peer{static_cast<std::uint32_t>(number)}, met ? "no connection in time" : "it did not call in time");
        }
        next_deadline_ = std::min(next_deadline_, state.deadline);
    }
}

}  // namespace incast::transport::rio

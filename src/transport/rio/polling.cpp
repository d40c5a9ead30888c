// Progress of an endpoint: doorbells heard, slots looked at, lanes read.
#include <algorithm>
#include <atomic>
#include <cstring>
#include <system_error>

#include "base/bitmap.h"
#include "transport/rio/endpoint.h"

namespace incast::transport::rio {

namespace {

constexpr std::size_t doorbells_per_poll = 1024;  // twice a queue
constexpr std::uint32_t report_letters = 32;
constexpr Time settle_every = 50 * ps_per_us;  // whether something under way has ended

}  // namespace

std::size_t Endpoint::poll(Time now, std::span<Event> events) {
    last_now_ = now;
    release_read();
    hear_doorbells();
    unsent_ = false;
    for (std::size_t peer = busy_.next(0); peer != base::Bitmap::none; peer = busy_.next(peer + 1))
        work(Peer{static_cast<std::uint32_t>(peer)});
    if (now >= next_look_) {
        next_look_ = now + settings_.look_every;
        look_at_all_ = true;
        port_.take_permits();
        for (std::size_t peer = known_.next(0); peer != base::Bitmap::none; peer = known_.next(peer + 1)) {
            put_beat(Peer{static_cast<std::uint32_t>(peer)});
        }
    }
    if (settings_.notice == NoticeKind::memory || std::exchange(look_at_all_, false)) look_at_all();
    for (std::size_t peer = active_.next(0); peer != base::Bitmap::none; peer = active_.next(peer + 1))
        look_at(Peer{static_cast<std::uint32_t>(peer)});
    if (dialling_.any()) look_for_letters();
    if (unset_deadlines_ || now >= next_deadline_) handle_deadlines(now);
    std::size_t count = take_own(events);
    if (own_events_.empty()) count += read_lanes(events.subspan(count));
    if (!own_events_.empty()) count += take_own(events.subspan(count));
    return count;
}

Time Endpoint::next_deadline() const {
    if (unset_deadlines_) return last_now_;
    Time next = next_deadline_;
    if (known_.any()) next = std::min(next, next_look_);
    if (busy_.any()) next = std::min(next, last_now_ + settle_every);
    if (dialling_.any()) next = std::min(next, last_now_ + ps_per_ms);
    if (known_.any() && settings_.notice == NoticeKind::memory) next = std::min(next, last_now_ + settings_.poll_every);
    return next;
}

bool Endpoint::prepare_wait() {
    // What was read last is told with the next poll: its sender may wait for the room.
    if (!own_events_.empty() || !touched_.empty() || active_.any() || unsent_ || unset_deadlines_) return false;
    if (settings_.notice == NoticeKind::memory) {
        look_at_all();
        if (active_.any()) return false;
    }
    return port_.arm();
}

void Endpoint::release_read() {
    for (const Peer peer : touched_) {
        PeerState& state = peers_[index(peer)];
        if (state.state != PeerState::State::up) continue;
        if (state.reader.read() - state.reported < settings_.ring_bytes / 4 &&
            state.letters_unreported < report_letters) {
            continue;
        }
        state.reported = state.reader.read();
        state.letters_unreported = 0;
        put_read(peer, settings_.notice != NoticeKind::memory);
    }
    touched_.clear();
}

void Endpoint::hear_doorbells() {
    for (std::size_t heard = 0; heard < doorbells_per_poll; ++heard) {
        const auto doorbell = port_.hear();
        if (!doorbell) return;
        const auto found = by_destid_.find(doorbell->source);
        if (found == by_destid_.end()) {
            look_at_all_ = true;
        } else {
            active_.set(index(found->second));
        }
    }
}

bool Endpoint::has_news(std::uint32_t peer) const {
    const PeerState& state = peers_[peer];
    Slot& its = slot(peer);
    const bool reads = state.state == PeerState::State::up || state.state == PeerState::State::draining;
    return std::atomic_ref(its.hello.check).load(std::memory_order_acquire) != state.heard ||
           (reads && its.written.load(std::memory_order_acquire) != state.reader.read()) ||
           (state.wants_room && its.read.load(std::memory_order_acquire) > state.peer_read);
}

void Endpoint::look_at_all() {
    for (std::size_t peer = known_.next(0); peer != base::Bitmap::none; peer = known_.next(peer + 1)) {
        if (has_news(static_cast<std::uint32_t>(peer))) active_.set(peer);
    }
}

void Endpoint::look_at(Peer peer) {
    PeerState& state = peers_[index(peer)];
    if (std::atomic_ref(slot(index(peer)).hello.check).load(std::memory_order_acquire) != state.heard) hear(peer);
    if (state.state != PeerState::State::up && state.state != PeerState::State::closing) return;
    see_read(peer);
    if (state.lane.sent() != state.lane.written()) busy_.set(index(peer));
    give_room(peer);
}

void Endpoint::give_room(Peer peer) {
    PeerState& state = peers_[index(peer)];
    if (!state.wants_room || state.state != PeerState::State::up) return;
    if (!has_room(peer, max_message_bytes) || state.dmas.size() > state.dmas.capacity() / 2 ||
        state.faults >= capabilities_.max_posted) {
        return;
    }
    state.wants_room = false;
    own_events_.push_back(control_event(Event::Kind::room, peer));
}

void Endpoint::completed(Peer peer, Token token, Status status) {
    Event event = control_event(Event::Kind::completed, peer);
    event.status = status;
    event.token = token;
    ++peers_[index(peer)].faults;
    own_events_.push_back(event);
}

std::size_t Endpoint::take_own(std::span<Event> events) {
    std::size_t count = 0;
    while (count < events.size() && !own_events_.empty()) {
        const Event event = own_events_.front();
        own_events_.pop_front();
        if (event.kind == Event::Kind::completed) {
            --peers_[index(event.peer)].faults;
            give_room(event.peer);
        }
        events[count++] = event;
    }
    return count;
}

std::size_t Endpoint::read_lanes(std::span<Event> events) {
    // Round robin, so that a busy one does not starve the others; each at most once.
    std::size_t count = 0;
    const std::size_t lanes = active_.count();
    for (std::size_t turn = 0; turn < lanes && count < events.size() && active_.any(); ++turn) {
        const std::size_t peer = active_.next_cyclic(first_lane_);
        first_lane_ = peer + 1;
        count += read_lane(Peer{static_cast<std::uint32_t>(peer)}, events.subspan(count));
    }
    return count;
}

/// False: one is announced, and not there yet.
bool Endpoint::receive_letter(Peer peer) {
    PeerState& state = peers_[index(peer)];
    if (state.reader.has_taken() || slot(index(peer)).written.load(std::memory_order_acquire) == state.reader.read())
        return true;
    // It was sent before the doorbell that says so, so this hardly ever waits.
    constexpr std::uint32_t moment_ms = 1;
    const std::error_code error = state.socket.receive(state.letter, moment_ms);
    if (error == std::errc::timed_out) return false;
    const std::span<const std::byte> payload = state.letter.payload();
    LetterHead head;
    std::memcpy(&head, payload.data(), sizeof head);
    if (error || head.bytes > payload.size() - sizeof head ||
        !state.reader.take(head.start, payload.subspan(sizeof head, head.bytes), settings_.ring_bytes)) {
        ended(peer, true);
        return true;
    }
    ++state.letters_unreported;
    return true;
}

LaneReader::Got Endpoint::next_record(Peer peer, Record& record, Bytes& message) {
    PeerState& state = peers_[index(peer)];
    if (settings_.notice == NoticeKind::cm) return state.reader.next_taken(record, message);
    Slot& its = slot(index(peer));
    return state.reader.next(its.ring(), settings_.ring_bytes, its.written.load(std::memory_order_acquire), record,
                             message);
}

std::size_t Endpoint::read_lane(Peer peer, std::span<Event> events) {
    PeerState& state = peers_[index(peer)];
    const auto may_read = [&] {
        return state.state == PeerState::State::up || state.state == PeerState::State::draining;
    };
    if (settings_.notice == NoticeKind::cm && may_read() && !receive_letter(peer)) return 0;
    if (!may_read()) {
        active_.reset(index(peer));
        return 0;
    }
    std::size_t count = 0;
    bool more = true;
    while (more && count < events.size()) {
        Record record;
        Bytes message;
        const LaneReader::Got got = next_record(peer, record, message);
        more = got == LaneReader::Got::record;
        if (more) {
            Event event = control_event(Event::Kind::notice, peer);
            event.size_or_value = record.value;
            if (record.kind == Record::Kind::message) {
                event.kind = Event::Kind::message;
                event.size_or_value = static_cast<std::uint16_t>(record.size);
                event.data = message.data();
            }
            events[count++] = event;
        } else if (got == LaneReader::Got::nonsense) {
            log("node " + std::to_string(index(peer)) + " wrote nonsense into its lane: dropped");
            active_.reset(index(peer));
            give_up(peer);
        } else if (settings_.notice != NoticeKind::cm ||
                   slot(index(peer)).written.load(std::memory_order_acquire) == state.reader.read() || state.gone) {
            active_.reset(index(peer));
            if (state.state == PeerState::State::draining) give_up(peer);
        }
    }
    if (count > 0) touched_.push_back(peer);
    return count;
}

Event Endpoint::control_event(Event::Kind kind, Peer peer) const {
    return {.kind = kind,
            .status = Status::ok,
            .size_or_value = 0,
            .peer = peer,
            .incarnation = peers_[index(peer)].incarnation,
            .token = 0};
}

}  // namespace incast::transport::rio

// What is under way to the peers of an endpoint: parts of their slots, bodies, records, doorbells.
#include <algorithm>
#include <cstddef>
#include <cstring>
#include <system_error>

#include "transport/rio/endpoint.h"

namespace incast::transport::rio {

namespace {

constexpr std::size_t letters_at_a_time = 100;  // CM waits at 128 unread ones

template <class T>
Bytes bytes_of(const T& value) {
    return std::as_bytes(std::span(&value, 1));
}

}  // namespace

template <class T>
void Endpoint::put(Peer peer, Cell& cell, T& out, const T& value, std::uint64_t offset, bool ring) {
    PeerState& state = peers_[index(peer)];
    if (state.gone) return;
    cell.ring = cell.ring || ring;
    if (cell.cookie) {
        cell.again = true;
        return;
    }
    out = value;
    api::Cookie cookie = 0;
    if (port_.start_write(state.destid, state.slot_address + offset, bytes_of(out), cookie)) return lost(peer);
    cell.cookie = cookie;
    settle(peer, cell, out, value, offset);
    if (cell.cookie) busy_.set(index(peer));
}

template <class T>
void Endpoint::settle(Peer peer, Cell& cell, T& out, const T& value, std::uint64_t offset) {
    if (!cell.cookie) return;
    const auto ended = port_.ended(*cell.cookie);
    if (!ended) return;
    const bool ring = cell.ring;
    const bool again = cell.again;
    cell = {};
    if (*ended) return lost(peer);
    if (ring) this->ring(peer);
    if (again) put(peer, cell, out, value, offset, ring);
}

void Endpoint::put_hello(Peer peer) {
    PeerState& state = peers_[index(peer)];
    put(peer, state.hello_cell, state.hello, state.next_hello, offsetof(Slot, hello), true);
}

void Endpoint::put_written(Peer peer, bool ring) {
    PeerState& state = peers_[index(peer)];
    put(peer, state.written_cell, state.written, state.announced, offsetof(Slot, written), ring);
}

void Endpoint::put_read(Peer peer, bool ring) {
    PeerState& state = peers_[index(peer)];
    put(peer, state.read_cell, state.read, state.reported, offsetof(Slot, read), ring);
}

void Endpoint::put_beat(Peer peer) {
    PeerState& state = peers_[index(peer)];
    if (!state.beat_cell.cookie) put(peer, state.beat_cell, state.beat, state.beat + 1, offsetof(Slot, beat), false);
}

void Endpoint::settle_cells(Peer peer) {
    PeerState& state = peers_[index(peer)];
    settle(peer, state.hello_cell, state.hello, state.next_hello, offsetof(Slot, hello));
    settle(peer, state.written_cell, state.written, state.announced, offsetof(Slot, written));
    settle(peer, state.read_cell, state.read, state.reported, offsetof(Slot, read));
    settle(peer, state.beat_cell, state.beat, state.beat, offsetof(Slot, beat));
}

void Endpoint::settle_dmas(Peer peer) {
    PeerState& state = peers_[index(peer)];
    while (!state.dmas.empty()) {
        const Dma dma = state.dmas.front();
        const auto ended = port(dma.port).ended(dma.cookie);
        if (!ended) return;
        state.dmas.pop();
        state.gate.leave();
        const bool refused = dma.is_guarded && *ended == std::errc::io_error;
        if (*ended && !refused) lost(peer);
        state.refused = state.refused || refused || dma.refused;
        // The token is the last piece's: one before it may have failed.
        const Status status = state.gone ? Status::peer_lost : state.refused ? Status::remote_fault : Status::ok;
        if (dma.token != 0) completed(peer, dma.token, status);
        if (dma.is_last) state.refused = false;
    }
}

/// Records leave when every body that was posted before them is placed. The ring and the word that says how far it is
/// written go by one DMA channel, and so in order; a doorbell or message would overtake them, so it comes after the
/// response (TC-O3).
void Endpoint::send_records(Peer peer) {
    PeerState& state = peers_[index(peer)];
    const std::uint64_t end = state.gate.open_until(state.lane.written());
    if (settings_.notice == NoticeKind::cm) {
        if (!send_letters(peer, end)) return lost(peer);
    } else {
        while (state.lane.sent() != end) {
            const Bytes bytes = state.lane.bytes(end);
            const std::uint64_t at = offsetof(Slot, ring_start) + (state.lane.sent() & (settings_.ring_bytes - 1));
            if (port_.post(state.destid, state.slot_address + at, bytes)) return lost(peer);
            state.lane.sent(state.lane.sent() + bytes.size());
        }
    }
    if (state.announced == state.lane.sent()) return;
    state.announced = state.lane.sent();
    put_written(peer, settings_.notice != NoticeKind::memory);
}

bool Endpoint::send_letters(Peer peer, std::uint64_t end) {
    PeerState& state = peers_[index(peer)];
    while (state.lane.sent() != end && state.letters.size() < letters_at_a_time) {
        const std::span<std::byte> payload = out_letter_.payload();
        LetterHead head;
        const Bytes records = state.lane.records(end, payload.size() - sizeof head, head.start);
        head.bytes = static_cast<std::uint32_t>(records.size());
        std::memcpy(payload.data(), &head, sizeof head);
        std::memcpy(payload.data() + sizeof head, records.data(), records.size());
        if (state.socket.send(out_letter_, sizeof head + records.size())) return false;
        state.lane.sent(head.start + records.size());
        state.letters.must_push(state.lane.sent());
    }
    return true;
}

void Endpoint::ring(Peer peer) {
    PeerState& state = peers_[index(peer)];
    if (state.gone) return;
    const std::error_code error = port_.ring(state.destid, state.doorbell);
    // A full queue wakes the peer as well as one more would; but it may have looked at this slot already.
    state.owes_doorbell = error == std::errc::resource_unavailable_try_again;
    if (state.owes_doorbell) {
        busy_.set(index(peer));
    } else if (error) {
        lost(peer);
    }
}

bool Endpoint::has_transfers(const PeerState& state) {
    return !state.dmas.empty() || state.hello_cell.cookie.has_value() || state.written_cell.cookie.has_value() ||
           state.read_cell.cookie.has_value() || state.beat_cell.cookie.has_value();
}

bool Endpoint::is_under_way(const PeerState& state) const {
    const bool unsent = state.lane.sent() != state.lane.written() && !state.gone &&
                        state.letters.size() < letters_at_a_time &&
                        (state.state == PeerState::State::up || state.state == PeerState::State::closing);
    return unsent || state.owes_doorbell || has_transfers(state);
}

bool Endpoint::drained() const {
    return std::ranges::none_of(peers_, [&](const PeerState& state) { return is_under_way(state); });
}

void Endpoint::work(Peer peer) {
    PeerState& state = peers_[index(peer)];
    if (state.owes_doorbell) ring(peer);
    settle_cells(peer);
    settle_dmas(peer);
    if (!state.gone && (state.state == PeerState::State::up || state.state == PeerState::State::closing))
        send_records(peer);
    give_room(peer);
    finish_if_quiet(peer);
    if (!is_under_way(state)) busy_.reset(index(peer));
}

}  // namespace incast::transport::rio

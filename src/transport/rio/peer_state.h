// What a rio endpoint knows of each peer.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>

#include "base/fifo.h"
#include "transport/connect_rule.h"
#include "transport/order_gate.h"
#include "transport/rio/lane.h"
#include "transport/rio/post_office.h"
#include "transport/rio/slot.h"

namespace incast::transport::rio {

/// A part of the peer's slot that is being written: its bytes stay as they are until that has ended.
struct Cell {
    std::optional<api::Cookie> cookie;  // under way
    bool again = false;                 // and has changed meanwhile
    bool ring = false;                  // the peer is to look once it is there
};

/// A transfer of a body that has not ended.
struct Dma {
    api::Cookie cookie = 0;
    std::uint32_t port = 0;   // by which it was started
    Token token = 0;          // completes with it
    bool is_guarded = false;  // to or from memory that the peer may not grant
    bool is_last = false;     // of its post
    bool refused = false;     // so was what its post had behind it
};

struct PeerState {
    enum class State : std::uint8_t {
        idle,
        calling,   // a hello is out; for the peer's, which answers it
        dialling,  // both know each other; for the connection by CM
        up,
        draining,  // the peer has stopped, or is gone; what it had sent is still handed out
        closing,   // given up here; the peer may still write until it says bye, or is gone
    };
    PeerState(std::uint32_t ring_bytes, std::size_t max_dmas)
        : lane(ring_bytes), dmas(max_dmas), heads(new std::byte[dmas.capacity() * max_head_bytes]), letters(128) {}

    [[nodiscard]] Connection connection() const {
        if (state == State::idle) return Connection::none;
        if (state == State::up) return Connection::up;
        return state == State::draining || state == State::closing ? Connection::ending : Connection::opening;
    }

    State state = State::idle;
    bool wants_room = false;
    bool gone = false;      // nothing can be written to it any more
    bool said_bye = false;  // in this attempt; closing: once it is there, only the peer's end is waited for
    bool heard_bye = false;
    bool owes_doorbell = false;  // its queue was full
    bool called_again = false;   // in this attempt
    bool refused = false;        // a part of the transfer that ends next
    std::uint32_t faults = 0;    // completions among the endpoint's own events
    std::uint32_t there = 0;     // this endpoint's number at the peer
    std::uint32_t incarnation = 0;
    std::uint32_t complained_of = 0;  // incarnation for which a failure to connect was logged
    std::uint64_t attempt = 0;
    std::uint64_t theirs = 0;  // the peer's attempt; 0: not known yet
    std::uint64_t their_lane_start = 0;
    std::uint64_t heard = 0;  // check sum of the hello that was looked at last
    Time deadline = time_never;
    api::Destid destid = 0;
    std::uint16_t doorbell = 0;
    std::uint64_t slot_address = 0;  // of this node's slot at the peer

    // What is written to the peer's slot, beside the value that it shall have.
    Hello hello;
    Hello next_hello;
    std::uint64_t written = 0;
    std::uint64_t read = 0;
    std::uint64_t beat = 0;
    Cell hello_cell;
    Cell written_cell;
    Cell read_cell;
    Cell beat_cell;

    LaneWriter lane;
    std::uint64_t peer_read = 0;  // of lane, as far as known
    std::uint64_t announced = 0;  // of lane, in the written word
    LaneReader reader;
    std::uint64_t reported = 0;  // of what was read
    base::Fifo<Dma> dmas;
    OrderGate gate{dmas.capacity()};     // with an entry for each of these
    std::unique_ptr<std::byte[]> heads;  // of writes under way, as many as there can be
    std::size_t next_head = 0;

    // By CM.
    api::Socket socket;
    api::Letter letter;  // the one being handed out
    std::uint32_t letters_unreported = 0;
    base::Fifo<std::uint64_t> letters;  // that were sent and not read, by where they end
};

}  // namespace incast::transport::rio

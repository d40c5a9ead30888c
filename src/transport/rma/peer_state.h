// What an endpoint with one-sided writes knows of each peer, whatever the library.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <incast/transport.h>

#include "os/descriptor.h"
#include "transport/connect_rule.h"
#include "transport/rma/wire.h"

namespace incast::transport::rma {

/// Whom a send or write counts for that nobody sent.
inline constexpr std::uint32_t nobody = ~std::uint32_t{0};

struct PeerState {
    enum class State : std::uint8_t {
        idle,
        dialling,  // it is to be called from here
        waiting,   // for it to call
        joining,   // both know each other; their connection on the fabric is awaited
        greeting,  // connected, or about to be; its welcome is awaited
        up,
        ending,  // given up; what is under way is still to end, and perhaps the peer's side of it
    };
    [[nodiscard]] Connection connection() const {
        if (state == State::idle) return Connection::none;
        if (state == State::up) return Connection::up;
        return state == State::ending ? Connection::ending : Connection::opening;
    }
    [[nodiscard]] bool has_connection() const { return state == State::greeting || state == State::up; }
    [[nodiscard]] std::uint16_t credits() const { return static_cast<std::uint16_t>(allowed - used); }

    State state = State::idle;
    bool wants_room = false;
    bool is_silent = false;      // ending: what it had sent is not handed out
    bool was_welcomed = false;   // by this side
    bool has_changes = false;    // to tell or to answer
    bool is_overdue = false;     // ending takes too long
    bool has_hung_up = false;    // it writes nothing more, or is gone
    std::uint32_t wanted = 0;    // transfers that the last post which was told `again` needed
    std::uint32_t unpolled = 0;  // completions among the endpoint's own events
    Status lost_as = Status::peer_lost;

    // Receives: those that this side may use up at the peer, and has; those that the peer gets back, and was told of.
    // Numbers that go round.
    std::uint16_t granted = 0;
    std::uint16_t allowed = 0;
    std::uint16_t used = 0;
    std::uint16_t returned = 0;
    std::uint16_t announced = 0;
    void clear_credits() { granted = allowed = used = returned = announced = 0; }

    std::uint32_t incarnation = 0;
    std::uint32_t complained_of = 0;  // incarnation for which a failure to connect was logged
    std::uint64_t ended_at = 0;       // looks for what it sent until it was given up, and hung up
    Time deadline = time_never;

    os::Descriptor socket;     // a TCP connection beside the fabric: its end is the connection's end
    std::size_t answered = 0;  // bytes of the answer to a call
    bool has_called = false;

    std::vector<Change> to_tell;      // regions of this endpoint that were released
    std::vector<Change> to_answer;    // regions of the peer that were, and are used no more
    std::vector<std::uint16_t> uses;  // of the peer's regions, as far as it has said
};

}  // namespace incast::transport::rma

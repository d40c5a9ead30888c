// What a verbs endpoint knows of each peer.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "transport/connect_rule.h"
#include "transport/verbs/device.h"
#include "transport/verbs/send_queue.h"
#include "transport/verbs/wire.h"

namespace incast::transport::verbs {

/// What a peer costs, from its first connection to the endpoint's end: receives that are posted, and staging.
struct Share {
    std::byte* memory = nullptr;
    std::size_t bytes = 0;
    MemoryRegion registration;
    std::unique_ptr<SendQueue> out;
};

struct PeerState {
    enum class State : std::uint8_t {
        idle,
        dialling,  // it has the higher number
        waiting,   // for it to dial
        greeting,  // connected, or about to be; its welcome is awaited
        up,
        ending,  // fenced; what is under way is still to end
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
    bool is_silent = false;     // ending: what it had sent is not handed out
    bool was_welcomed = false;  // by this side
    bool has_changes = false;   // to tell or to answer
    bool is_overdue = false;    // ending takes too long
    bool is_wedged = false;     // at the last beat something was under way that still was at the one before
    std::uint32_t wanted_requests = 0;
    std::uint32_t unpolled = 0;  // completions among the endpoint's own events
    Status lost_as = Status::peer_lost;

    // Receives: those that this side may use up at the peer, and has; those that the peer gets back, and was told of.
    // Numbers that go round.
    std::uint16_t granted = 0;
    std::uint16_t allowed = 0;
    std::uint16_t used = 0;
    std::uint16_t returned = 0;
    std::uint16_t announced = 0;

    std::uint32_t inline_bytes = 0;
    rdma_cm_id* id = nullptr;  // with its queue pair
    std::uint32_t pair_number = 0;
    Share share;

    std::uint32_t incarnation = 0;
    std::uint32_t complained_of = 0;  // incarnation for which a failure to connect was logged
    std::uint64_t ended_at = 0;       // polls of the completion queue until it was fenced
    std::uint64_t ended_then = 0;     // requests that had ended at the last beat
    Time deadline = time_never;
    Time stuck_since = 0;
    SocketAddress address;

    // It dialled, and this side has not called connect() yet.
    rdma_cm_id* parked = nullptr;
    std::uint32_t parked_incarnation = 0;
    std::uint8_t parked_responder = 0;  // reads at a time that it can have
    std::uint8_t parked_initiator = 0;

    std::vector<Change> to_tell;      // regions of this endpoint that were released
    std::vector<Change> to_answer;    // regions of the peer that were, and are used no more
    std::vector<std::uint16_t> uses;  // of the peer's regions, as far as it has said
};

}  // namespace incast::transport::verbs

// What a verbs endpoint knows of each peer.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "os/descriptor.h"
#include "transport/connect_rule.h"
#include "transport/verbs/device.h"
#include "transport/verbs/send_queue.h"
#include "transport/verbs/wire.h"

namespace incast::transport::verbs {

/// Who dialled, and is to be let in or turned away.
struct Caller {
    rdma_cm_id* id = nullptr;
    // Without rdma_cm.
    os::Descriptor socket;
    PairAddress from;

    std::uint32_t incarnation = 0;
    std::uint8_t responder = 0;  // reads at a time that it can have
    std::uint8_t initiator = 0;
    [[nodiscard]] bool is_there() const { return id != nullptr || socket.is_open(); }
};

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
    ibv_qp* pair = nullptr;
    std::uint32_t pair_number = 0;
    rdma_cm_id* id = nullptr;  // that the queue pair is of
    // Without rdma_cm: its end is the connection's end.
    os::Descriptor socket;
    PairAddress own;
    std::array<std::byte, sizeof(Answer)> answer{};
    std::size_t answered = 0;
    bool has_called = false;

    Share share;

    std::uint32_t incarnation = 0;
    std::uint32_t there = 0;          // the number of this node at the peer
    std::uint32_t invitation = 0;     // that whoever calls with this number has to say; 0: it is a node of this run
    std::uint32_t invited_to = 0;     // the same, of the peer's
    std::uint32_t complained_of = 0;  // incarnation for which a failure to connect was logged
    std::uint64_t ended_at = 0;       // polls of the completion queue until it was fenced
    std::uint64_t ended_then = 0;     // requests that had ended at the last beat
    Time deadline = time_never;
    Time stuck_since = 0;
    SocketAddress address;

    Caller parked;  // this side has not called connect() yet

    std::vector<Change> to_tell;      // regions of this endpoint that were released
    std::vector<Change> to_answer;    // regions of the peer that were, and are used no more
    std::vector<std::uint16_t> uses;  // of the peer's regions, as far as it has said
};

}  // namespace incast::transport::verbs

// What a verbs endpoint knows of each peer.
#pragma once

#include <array>
#include <cstdint>
#include <memory>

#include "os/descriptor.h"
#include "transport/rma/peer_state.h"
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

struct PeerState : rma::PeerState {
    bool is_wedged = false;  // at the last beat something was under way that still was at the one before
    std::uint32_t inline_bytes = 0;
    ibv_qp* pair = nullptr;
    std::uint32_t pair_number = 0;
    rdma_cm_id* id = nullptr;  // that the queue pair is of
    // Without rdma_cm.
    PairAddress own;
    std::array<std::byte, sizeof(Answer)> answer{};

    Share share;

    std::uint32_t there = 0;       // the number of this node at the peer
    std::uint32_t invitation = 0;  // that whoever calls with this number has to say; 0: it is a node of this run
    std::uint32_t invited_to = 0;  // the same, of the peer's
    std::uint64_t ended_then = 0;  // requests that had ended at the last beat
    Time stuck_since = 0;
    SocketAddress address;

    Caller parked;  // this side has not called connect() yet
};

}  // namespace incast::transport::verbs

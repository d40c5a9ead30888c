// What a shm endpoint knows of each peer.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "transport/connect_rule.h"
#include "transport/shm/channel.h"
#include "transport/shm/inbox.h"
#include "transport/shm/memory.h"

namespace incast::transport::shm {

/// A hello that waits for the local connect call.
struct Parked {
    Packet hello;
    os::Descriptor socket;
    os::Descriptor inbox;
    os::Descriptor bell;
};

/// What was heard of a number of a peer's regions.
struct PeerRegion {
    std::shared_ptr<os::Mapping> mapping;  // of the region that has it, if it is exposed
    std::uint32_t use = 0;                 // how many regions of that number were released
    bool writable = false;
};

struct PeerState {
    enum class State : std::uint8_t {
        idle,
        waiting,   // for the peer to dial: it has the lower index
        dialling,  // or waiting for the answer
        knocking,  // here, until its owner has accepted it
        up,
        draining,  // the peer is gone; what it had published is still handed out
        closing,   // given up here; the peer may still write until it has noticed, or is gone
    };
    [[nodiscard]] Connection connection() const {
        if (state == State::idle) return Connection::none;
        if (state == State::up) return Connection::up;
        return state == State::draining || state == State::closing ? Connection::ending : Connection::opening;
    }

    State state = State::idle;
    bool wants_room = false;   // a post found the lane, or the list of faults, full
    bool unpublished = false;  // in the endpoint's list
    bool streamed = false;     // streaming stores since the last publishing
    std::uint32_t faults = 0;  // completions of this peer in the endpoint's list
    bool taken = false;        // a number for one that dials: until its peer_down was polled
    std::uint32_t node = 0;    // its number at home
    std::uint32_t there = 0;   // this side's number at the peer
    std::uint32_t incarnation = 0;
    std::uint32_t complained_of = 0;  // incarnation for which a failure to connect was logged
    std::uint32_t serial = 0;         // of the present socket, in epoll ids
    std::uint64_t unpublished_bytes = 0;
    Time deadline = time_never;
    Time dial_at = time_never;  // there was no room in the peer's backlog
    SocketName name;
    os::Descriptor socket;
    os::Descriptor bell;  // the peer's
    std::shared_ptr<os::Mapping> inbox_mapping;
    Inbox inbox;  // the peer's
    LaneWriter writer;
    LaneReader reader;
    std::vector<PeerRegion> regions;    // the peer's, by number
    std::deque<std::uint16_t> to_tell;  // numbers of this side's regions: exposed or released, and not told yet
    Parked parked;
    std::vector<std::byte> greeting;  // its own, or the one for it
};

}  // namespace incast::transport::shm

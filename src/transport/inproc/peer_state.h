// What the endpoints of a hub hand to each other, and know of each other.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include <incast/transport.h>

namespace incast::transport::inproc {

class Endpoint;

inline constexpr std::uint32_t nobody = ~std::uint32_t{0};  // no endpoint has that id

struct Address {
    static constexpr std::uint32_t expected_magic = 0x41504E49;  // "INPA"
    std::uint32_t magic = expected_magic;
    std::uint32_t peer = 0;
    std::uint64_t hub = 0;
    std::uint64_t endpoint = 0;
    std::uint64_t run = 0;
    std::uint64_t token = 0;
};

struct Key {
    static constexpr std::uint32_t expected_magic = 0x4B504E49;  // "INPK"
    std::uint32_t magic = expected_magic;
    std::uint32_t region = 0;
    std::uint32_t use = 0;  // of that number
    std::uint32_t zero = 0;
    std::uint64_t hub = 0;
    std::uint64_t endpoint = 0;
};

/// What the endpoints of one Medium share: who exists. Endpoints are never renumbered, so that an old address names
/// nobody.
struct Hub {
    std::vector<Endpoint*> endpoints;  // nullptr once destroyed
    std::uint64_t id = 0;
};

/// What one endpoint knows of one peer: half a cache line, because with many peers it is cold when it is needed.
struct alignas(32) PeerState {
    enum class State : std::uint8_t {
        idle,
        connecting,  // waiting for the other side's connect, or accept
        knocking,    // at this side
        up,
        down,  // peer_down is queued but not polled yet
    };
    Endpoint* remote = nullptr;  // while up, or one of the two knocks
    std::uint32_t remote_id = 0;
    std::uint32_t incarnation = 0;
    std::uint32_t there = 0;  // this endpoint's number at the peer
    State state = State::idle;
    bool peer_waits = false;   // the peer got `again` and is owed a room event
    bool self_waits = false;   // an own post got `again` for want of room in the own queue
    bool listed = false;       // in waiting_
    bool room_queued = false;  // a room event is in the own queue already: it answers every `again` before it is polled
};
static_assert(sizeof(PeerState) == 32);

struct Import {
    Peer peer{};
    std::uint32_t remote_id = nobody;
    std::uint32_t region = 0;
    std::span<std::byte> memory;  // valid while that endpoint lives
};

}  // namespace incast::transport::inproc

// What a udp endpoint knows of each peer: the connection, or how far it has come.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "datagram/address.h"
#include "transport/connect_rule.h"
#include "transport/udp/hello.h"
#include "transport/udp/link.h"

namespace incast::transport::udp {

using datagram::Address;

/// A hello from an address that has proven itself, which waits for the local connect or accept.
struct Parked {
    bool is_there = false;
    Hello hello;
    Address from;
    Time heard = 0;
};

struct PeerState {
    enum class State : std::uint8_t {
        idle,
        waiting,  // for the peer to dial: it has the lower index
        dialling,
        knocking,  // here, until its owner has accepted it
        up,
        down,  // closed; completions and peer_down still have to be polled
    };
    [[nodiscard]] Connection connection() const {
        if (state == State::idle) return Connection::none;
        if (state == State::up) return Connection::up;
        return state == State::down ? Connection::ending : Connection::opening;
    }

    State state = State::idle;
    bool announced = false;  // its knock, or its peer_up, was polled
    bool listed = false;     // in active_
    Status lost_as = Status::peer_lost;
    std::uint32_t node = 0;  // its number at home
    std::uint32_t incarnation = 0;
    std::uint32_t complained_of = 0;  // incarnation for which a failure to connect was logged
    Time deadline = time_never;       // of connecting
    Address address;
    std::unique_ptr<Link> link;

    // Dialled from here.
    Hello hello;
    std::vector<std::byte> greeting;  // its own, or the one for it
    Time repeat = 0;
    Time wait = 0;

    // Dialled from there.
    Parked parked;
    Answer answer;                         // that it was let in with, for when it asks again
    std::uint32_t let_in_incarnation = 0;  // the newest that was let in, or turned away, and its group
    std::uint32_t let_in_group = 0;
    Address let_in_from;
};

}  // namespace incast::transport::udp

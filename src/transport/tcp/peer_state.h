// What a tcp endpoint knows of each peer: the connection, or how far it has come.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "transport/connect_rule.h"
#include "transport/framed/link.h"
#include "transport/tcp/hello.h"
#include "transport/tcp/socket.h"

namespace incast::transport::tcp {

using framed::Link;

/// A connection being dialled, one stream of it.
struct Dial {
    os::Descriptor socket;
    bool said_hello = false;
    bool accepted = false;
    std::size_t received = 0;
    std::array<std::byte, sizeof(Answer)> answer{};
};

/// Streams that said hello and wait for the local connect call. Only a node that knows the token gets here, and only
/// once per node.
struct Parked {
    std::uint32_t incarnation = 0;
    std::uint32_t max_posted = 0;
    std::uint32_t group = 0;
    Answer answer;                        // that lets it in
    std::vector<os::Descriptor> sockets;  // by stream number; empty if nothing is parked
    [[nodiscard]] bool complete() const {
        return !sockets.empty() &&
               std::ranges::all_of(sockets, [](const os::Descriptor& socket) { return socket.is_open(); });
    }
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
    std::uint64_t serial = 0;         // of the present connection, in epoll ids
    Time deadline = time_never;
    SocketAddress address;
    std::vector<Dial> dials;
    std::unique_ptr<Link> link;
    Parked parked;
    std::vector<std::byte> greeting;  // its own, or the one for it
};

}  // namespace incast::transport::tcp

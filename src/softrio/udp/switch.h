// A switch: endpoints at its ports, and what goes on where. Datagrams carry no destination id; which it is says the
// socket that they arrive at (data_plane.h), and from whom they are, their address. Without sockets.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <unordered_map>

#include "softrio/udp/address.h"
#include "softrio/udp/routing.h"

namespace incast::softrio::udp {

/// For one thread.
class Switch {
public:
    /// Of a port since the switch began, whoever was at it.
    struct Counters {
        std::uint64_t datagrams_in = 0;
        std::uint64_t bytes_in = 0;
        std::uint64_t discarded = 0;  // of those in: they had no route, or one to a port with nobody
        std::uint64_t datagrams_out = 0;
        std::uint64_t bytes_out = 0;
    };
    struct Port {
        std::uint32_t destid = 0;  // of the endpoint; 0: nobody is there
        Address at;
        Counters counters;
    };
    /// Sent to that address, from the socket of that destination id.
    struct Onward {
        std::uint32_t source = 0;
        Address to;
    };

    /// Goes by that table from now on. Endpoints stay at their ports.
    void program(RoutingTable table);

    /// Another endpoint: it has an id and an address that no other has. Returns the number of its port.
    std::uint32_t plug(std::uint32_t destid, const Address& at);
    void rename(std::uint32_t before, std::uint32_t destid);
    void unplug(std::uint32_t destid);
    [[nodiscard]] bool knows(const Address& at) const { return by_address_.contains(at); }
    /// Of an endpoint that is there.
    [[nodiscard]] std::uint32_t port_of(std::uint32_t destid) const { return by_destid_.at(destid); }

    /// Judges a datagram for `destid`, and counts it; nothing: it is discarded.
    std::optional<Onward> forward(const Address& from, std::uint32_t destid, std::size_t bytes);

    /// All that anybody has been at, by number.
    [[nodiscard]] const std::map<std::uint32_t, Port>& ports() const { return ports_; }
    /// Datagrams from addresses of nobody.
    [[nodiscard]] std::uint64_t strangers() const { return strangers_; }

private:
    struct Path {
        Address from;
        std::uint32_t destid = 0;
        Port* in = nullptr;   // nullptr: from a stranger
        Port* out = nullptr;  // nullptr: discarded
    };
    struct Hash {
        std::size_t operator()(const Address& address) const;
    };

    [[nodiscard]] std::uint32_t free_port() const;
    [[nodiscard]] Path find_path(const Address& from, std::uint32_t destid);

    RoutingTable table_;
    std::map<std::uint32_t, Port> ports_;                         // by number
    std::unordered_map<std::uint32_t, std::uint32_t> by_destid_;  // numbers of ports
    std::unordered_map<Address, std::uint32_t, Hash> by_address_;
    Path path_;  // of the last datagram, as most go the same way
    std::uint64_t strangers_ = 0;
};

}  // namespace incast::softrio::udp

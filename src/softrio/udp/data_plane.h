// The sockets of a switch: one for each destination id that has joined, which the others are told as its address. What
// comes there from one of them goes on from its own socket, so each sees every other at one address, and none need know
// of the switch.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include <incast/result.h>

#include "datagram/socket.h"
#include "os/descriptor.h"
#include "softrio/udp/address.h"
#include "softrio/udp/switch.h"

namespace incast::softrio::udp {

/// For one thread. Nothing here waits, but for room in the kernel's buffers.
class DataPlane {
public:
    /// `at`: where its sockets are; the kernel chooses their ports.
    static Result<std::unique_ptr<DataPlane>> open(const Address& at);
    DataPlane(const DataPlane&) = delete;
    DataPlane& operator=(const DataPlane&) = delete;

    void program(RoutingTable table) { switch_.program(std::move(table)); }
    [[nodiscard]] const Switch& state() const { return switch_; }

    /// As of Switch; an id that nobody has. The UDP port where it takes what is for the endpoint.
    Result<std::uint16_t> plug(std::uint32_t destid, const Address& at);
    Result<std::uint16_t> rename(std::uint32_t before, std::uint32_t destid);
    void unplug(std::uint32_t destid);

    /// Polls readable when there is something to forward.
    [[nodiscard]] int fd() const { return poll_.fd(); }
    /// Forwards what is there, or much of it.
    void forward();

private:
    DataPlane(const Address& at, os::Descriptor poll);
    Result<std::uint16_t> open_socket(std::uint32_t destid);
    void relay(std::uint32_t destid, bool has_errors);

    Address at_;
    os::Descriptor poll_;  // the sockets
    Switch switch_;
    std::map<std::uint32_t, std::unique_ptr<datagram::Socket>> sockets_;  // by destination id
    std::vector<datagram::Socket*> filled_;                               // with what is to be sent
};

}  // namespace incast::softrio::udp

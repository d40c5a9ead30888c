// TCP sockets.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include <netinet/in.h>
#include <sys/socket.h>

#include <incast/transport.h>

#include "os/descriptor.h"
#include "os/poller.h"
#include "transport/settings.h"

namespace incast::transport::tcp {

struct EndpointAddress;

/// An IPv4 or IPv6 address with a port.
class SocketAddress {
public:
    SocketAddress() = default;
    /// Numeric only: names are for the rendezvous.
    static Result<SocketAddress> parse(std::string_view ip, std::uint16_t port);
    static SocketAddress of_peer(const os::Descriptor& socket);
    static SocketAddress of_self(const os::Descriptor& socket);

    /// As an endpoint address: whose it is travels with it, so that an address given for another one is noticed.
    [[nodiscard]] Blob to_blob(std::uint32_t node, std::uint32_t incarnation) const;
    static std::optional<EndpointAddress> from_blob(const Blob& blob);

    [[nodiscard]] const sockaddr* data() const { return reinterpret_cast<const sockaddr*>(&storage_); }
    [[nodiscard]] socklen_t size() const { return size_; }
    [[nodiscard]] int family() const { return storage_.ss_family; }
    [[nodiscard]] std::uint16_t port() const;
    void set_port(std::uint16_t port);
    [[nodiscard]] bool is_loopback() const;
    /// 0.0.0.0 or ::
    [[nodiscard]] bool is_wildcard() const;
    [[nodiscard]] std::string to_string() const;  // "127.0.0.1:4711", "[::1]:4711"

private:
    sockaddr_storage storage_{};
    socklen_t size_ = 0;
};

struct EndpointAddress {
    SocketAddress socket;
    std::uint32_t node = 0;
    std::uint32_t incarnation = 0;
};

struct SocketOptions {
    /// A name the kernel knows, empty for the system's default, or "auto": reno within a host, else the system's
    /// default.
    std::string congestion_control;
    int buffer_bytes = 0;                    // of sending and of receiving; 0: the kernel's choice
    std::uint64_t max_rate_bytes_per_s = 0;  // per stream; 0: no limit
    std::uint8_t dscp = 0;
    /// Sockets are made and accepted only by calls that stand-ins for them know (librspreload): without flags.
    bool plain = false;
};

/// At the first port of the range that is free.
Result<os::Descriptor> listen_at(SocketAddress address, PortRange ports, const SocketOptions& options);
/// Starts connecting; writable, or in error, once decided. The error text says why it cannot even start.
Result<os::Descriptor> dial(const SocketAddress& address, const SocketOptions& options);
/// The next connection that waits at a listener.
os::Descriptor accept_from(const os::Descriptor& listener, const SocketOptions& options);
/// For an accepted socket (which inherits the buffer sizes of its listener).
void tune(const os::Descriptor& socket, const SocketAddress& peer, const SocketOptions& options);
/// The outcome of connecting: 0 or an errno.
int connect_error(const os::Descriptor& socket);
/// Sends a few bytes on a fresh connection, whose buffer always has room for them. False: the connection is gone.
bool send_small(const os::Descriptor& socket, Bytes bytes);
std::string errno_text(int error);

}  // namespace incast::transport::tcp

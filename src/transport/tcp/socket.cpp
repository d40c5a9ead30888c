#include "transport/tcp/socket.h"

#include <array>
#include <cerrno>
#include <cstring>
#include <system_error>

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/tcp.h>

#include "transport/blob.h"
#include "transport/tcp/tcp.h"

namespace incast::transport::tcp {

namespace {

/// An endpoint address as it travels.
struct WireAddress {
    static constexpr std::uint32_t expected_magic = 0x41504354;  // "TCPA"
    std::uint32_t magic = expected_magic;
    std::uint32_t node = 0;
    std::uint16_t family = 0;  // 4 or 6
    std::uint16_t port = 0;
    std::array<std::byte, 16> ip{};
    std::uint32_t incarnation = 0;
};
static_assert(sizeof(WireAddress) == 32);

template <class T>
void set_option(int fd, int level, int option, T value) {
    // Failure costs speed, never correctness, and depends on the rights of the process: not an error.
    (void)::setsockopt(fd, level, option, &value, sizeof value);
}

os::Descriptor set_flags(int fd) {
    if (fd >= 0) {
        (void)::fcntl(fd, F_SETFD, FD_CLOEXEC);
        (void)::fcntl(fd, F_SETFL, O_NONBLOCK);
    }
    return os::Descriptor(fd);
}

os::Descriptor make(int family, const SocketOptions& options) {
    if (options.plain) return set_flags(::socket(family, SOCK_STREAM, 0));
    return os::Descriptor(::socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
}

void set_buffers(int fd, const SocketOptions& options) {
    if (options.buffer_bytes == 0) return;
    set_option(fd, SOL_SOCKET, SO_SNDBUF, options.buffer_bytes);
    set_option(fd, SOL_SOCKET, SO_RCVBUF, options.buffer_bytes);
}

template <class T>
T* as(sockaddr_storage& storage) {
    return reinterpret_cast<T*>(&storage);
}
template <class T>
const T* as(const sockaddr_storage& storage) {
    return reinterpret_cast<const T*>(&storage);
}

}  // namespace

Result<SocketAddress> SocketAddress::parse(std::string_view ip, std::uint16_t port) {
    SocketAddress address;
    const std::string text(ip);
    if (::inet_pton(AF_INET, text.c_str(), &as<sockaddr_in>(address.storage_)->sin_addr) == 1) {
        address.storage_.ss_family = AF_INET;
        address.size_ = sizeof(sockaddr_in);
    } else if (::inet_pton(AF_INET6, text.c_str(), &as<sockaddr_in6>(address.storage_)->sin6_addr) == 1) {
        address.storage_.ss_family = AF_INET6;
        address.size_ = sizeof(sockaddr_in6);
    } else {
        return Error{"'" + text + "': expected an IPv4 or IPv6 address"};
    }
    address.set_port(port);
    return address;
}

SocketAddress SocketAddress::of_peer(const os::Descriptor& socket) {
    SocketAddress address;
    address.size_ = sizeof address.storage_;
    if (::getpeername(socket.fd(), as<sockaddr>(address.storage_), &address.size_) != 0) address.size_ = 0;
    return address;
}

SocketAddress SocketAddress::of_self(const os::Descriptor& socket) {
    SocketAddress address;
    address.size_ = sizeof address.storage_;
    if (::getsockname(socket.fd(), as<sockaddr>(address.storage_), &address.size_) != 0) address.size_ = 0;
    return address;
}

Blob SocketAddress::to_blob(std::uint32_t node, std::uint32_t incarnation) const {
    WireAddress wire;
    wire.node = node;
    wire.incarnation = incarnation;
    wire.port = port();
    if (family() == AF_INET) {
        wire.family = 4;
        std::memcpy(wire.ip.data(), &as<sockaddr_in>(storage_)->sin_addr, 4);
    } else {
        wire.family = 6;
        std::memcpy(wire.ip.data(), &as<sockaddr_in6>(storage_)->sin6_addr, 16);
    }
    return transport::to_blob(wire);
}

std::optional<EndpointAddress> SocketAddress::from_blob(const Blob& blob) {
    WireAddress wire;
    if (!transport::from_blob(blob, wire) || wire.port == 0) return {};
    SocketAddress address;
    if (wire.family == 4) {
        address.storage_.ss_family = AF_INET;
        address.size_ = sizeof(sockaddr_in);
        std::memcpy(&as<sockaddr_in>(address.storage_)->sin_addr, wire.ip.data(), 4);
    } else if (wire.family == 6) {
        address.storage_.ss_family = AF_INET6;
        address.size_ = sizeof(sockaddr_in6);
        std::memcpy(&as<sockaddr_in6>(address.storage_)->sin6_addr, wire.ip.data(), 16);
    } else {
        return {};
    }
    address.set_port(wire.port);
    return EndpointAddress{address, wire.node, wire.incarnation};
}

Blob with_host(const Blob& blob, std::string_view ip) {
    const auto address = SocketAddress::from_blob(blob);
    if (!address) return blob;
    const auto host = SocketAddress::parse(ip, address->socket.port());
    return host ? host->to_blob(address->node, address->incarnation) : blob;
}

std::uint16_t SocketAddress::port() const {
    // sin_port and sin6_port lie at the same place.
    return ntohs(as<sockaddr_in>(storage_)->sin_port);
}

void SocketAddress::set_port(std::uint16_t port) {
    as<sockaddr_in>(storage_)->sin_port = htons(port);
}

bool SocketAddress::is_wildcard() const {
    if (family() == AF_INET) return as<sockaddr_in>(storage_)->sin_addr.s_addr == htonl(INADDR_ANY);
    return IN6_IS_ADDR_UNSPECIFIED(&as<sockaddr_in6>(storage_)->sin6_addr);
}

bool SocketAddress::is_loopback() const {
    if (family() == AF_INET) return (ntohl(as<sockaddr_in>(storage_)->sin_addr.s_addr) >> 24) == IN_LOOPBACKNET;
    return IN6_IS_ADDR_LOOPBACK(&as<sockaddr_in6>(storage_)->sin6_addr);
}

std::string SocketAddress::to_string() const {
    std::array<char, INET6_ADDRSTRLEN> text{};
    if (size_ == 0) return "an unknown address";
    if (family() == AF_INET) {
        (void)::inet_ntop(AF_INET, &as<sockaddr_in>(storage_)->sin_addr, text.data(), text.size());
        return std::string(text.data()) + ":" + std::to_string(port());
    }
    (void)::inet_ntop(AF_INET6, &as<sockaddr_in6>(storage_)->sin6_addr, text.data(), text.size());
    return std::string("[").append(text.data()).append("]:") + std::to_string(port());
}

Result<os::Descriptor> listen_at(SocketAddress address, PortRange ports, const SocketOptions& options) {
    os::Descriptor socket;
    const Result<Ok> bound = bind_in(ports, address.to_string(), [&](std::uint16_t port) {
        address.set_port(port);
        socket = make(address.family(), options);
        if (!socket.is_open()) return errno;
        set_buffers(socket.fd(), options);  // before listen: the window scale is agreed when a connection comes in
        // A port that was used a moment ago may be used again.
        if (port != 0) set_option(socket.fd(), SOL_SOCKET, SO_REUSEADDR, 1);
        const bool listens =
            ::bind(socket.fd(), address.data(), address.size()) == 0 && ::listen(socket.fd(), SOMAXCONN) == 0;
        return listens ? 0 : errno;
    });
    if (!bound) return bound.error();
    return socket;
}

Result<os::Descriptor> dial(const SocketAddress& address, const SocketOptions& options) {
    os::Descriptor socket = make(address.family(), options);
    if (!socket.is_open()) return Error{"socket: " + errno_text(errno)};
    set_buffers(socket.fd(), options);
    tune(socket, address, options);
    if (::connect(socket.fd(), address.data(), address.size()) != 0 && errno != EINPROGRESS)
        return Error{errno_text(errno)};
    return socket;
}

os::Descriptor accept_from(const os::Descriptor& listener, const SocketOptions& options) {
    if (options.plain) return set_flags(::accept(listener.fd(), nullptr, nullptr));
    return os::Descriptor(::accept4(listener.fd(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
}

void tune(const os::Descriptor& socket, const SocketAddress& peer, const SocketOptions& options) {
    set_option(socket.fd(), IPPROTO_TCP, TCP_NODELAY, 1);
    std::string name = options.congestion_control;
    // Nothing is congested within a host: algorithms that pace (bbr is some systems' default) only cost timers and
    // sleep there.
    if (name == "auto") name = peer.is_loopback() ? "reno" : "";
    if (!name.empty()) {
        (void)::setsockopt(socket.fd(), IPPROTO_TCP, TCP_CONGESTION, name.data(), static_cast<socklen_t>(name.size()));
    }
    if (const int traffic_class = options.dscp << 2; traffic_class != 0 && peer.family() == AF_INET6) {
        set_option(socket.fd(), IPPROTO_IPV6, IPV6_TCLASS, traffic_class);
    } else if (traffic_class != 0) {
        set_option(socket.fd(), IPPROTO_IP, IP_TOS, traffic_class);
    }
    if (options.max_rate_bytes_per_s > 0) {
        set_option(socket.fd(), SOL_SOCKET, SO_MAX_PACING_RATE, options.max_rate_bytes_per_s);
    }
}

int connect_error(const os::Descriptor& socket) {
    int error = 0;
    socklen_t size = sizeof error;
    return ::getsockopt(socket.fd(), SOL_SOCKET, SO_ERROR, &error, &size) == 0 ? error : errno;
}

bool send_small(const os::Descriptor& socket, Bytes bytes) {
    return ::send(socket.fd(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT) ==
           static_cast<ssize_t>(bytes.size());
}

std::string errno_text(int error) {
    return std::generic_category().message(error);
}

}  // namespace incast::transport::tcp

// Sockets and epoll with owners.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include <netinet/in.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <incast/transport.h>

namespace incast::transport::tcp {

/// A file descriptor, closed with its owner.
class Socket {
public:
    Socket() = default;
    explicit Socket(int fd) : fd_(fd) {}
    Socket(Socket&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
    Socket& operator=(Socket&& other) noexcept {
        if (this != &other) {
            close();
            fd_ = std::exchange(other.fd_, -1);
        }
        return *this;
    }
    Socket(const Socket&) = delete;
    Socket& operator=(const Socket&) = delete;
    ~Socket() { close(); }

    [[nodiscard]] int fd() const { return fd_; }
    [[nodiscard]] bool is_open() const { return fd_ >= 0; }
    void close();

private:
    int fd_ = -1;
};

/// An IPv4 or IPv6 address with a port.
class SocketAddress {
public:
    SocketAddress() = default;
    /// Numeric only: names are for the rendezvous.
    static Result<SocketAddress> parse(std::string_view ip, std::uint16_t port);
    static SocketAddress of_peer(const Socket& socket);
    static SocketAddress of_self(const Socket& socket);

    /// As an endpoint address: `node` travels with it, so that an address given for another node is noticed.
    [[nodiscard]] Blob to_blob(std::uint32_t node) const;
    static bool from_blob(const Blob& blob, SocketAddress& address, std::uint32_t& node);

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

struct SocketOptions {
    /// A name the kernel knows, empty for the system's default, or "auto": reno within a host, else the system's
    /// default.
    std::string congestion_control;
    int buffer_bytes = 0;                    // of sending and of receiving; 0: the kernel's choice
    std::uint64_t max_rate_bytes_per_s = 0;  // per stream; 0: no limit
};

/// Port 0: the kernel chooses.
Result<Socket> listen_at(const SocketAddress& address, const SocketOptions& options);
/// Starts connecting; writable, or in error, once decided. The error text says why it cannot even start.
Result<Socket> dial(const SocketAddress& address, const SocketOptions& options);
/// For an accepted socket (which inherits the buffer sizes of its listener).
void tune(const Socket& socket, const SocketAddress& peer, const SocketOptions& options);
/// The outcome of connecting: 0 or an errno.
int connect_error(const Socket& socket);
/// Sends a few bytes on a fresh connection, whose buffer always has room for them. False: the connection is gone.
bool send_small(const Socket& socket, Bytes bytes);
std::string errno_text(int error);

/// An epoll instance.
class Poller {
public:
    Poller();
    [[nodiscard]] int fd() const { return epoll_.fd(); }
    [[nodiscard]] bool add(const Socket& socket, std::uint32_t events, std::uint64_t id);
    void remove(const Socket& socket);
    /// Does not wait. Returns how many events it filled in.
    [[nodiscard]] std::size_t ready(std::span<epoll_event> events);

private:
    Socket epoll_;
};

}  // namespace incast::transport::tcp

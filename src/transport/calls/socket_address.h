// IPv4 and IPv6 addresses with a port.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include <netinet/in.h>
#include <sys/socket.h>

namespace incast::transport {

struct SocketAddress {
    sockaddr_storage storage{};
    /// Nothing: no IPv4 or IPv6 address.
    static std::optional<SocketAddress> parse(const std::string& text, std::uint16_t port);
    [[nodiscard]] sockaddr* get() { return reinterpret_cast<sockaddr*>(&storage); }
    [[nodiscard]] socklen_t size() const {
        return storage.ss_family == AF_INET6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in);
    }
    [[nodiscard]] std::string to_string() const;
    /// 0.0.0.0 or ::
    [[nodiscard]] bool is_wildcard() const;
    [[nodiscard]] std::uint16_t port() const;
    void set_port(std::uint16_t port);
};

}  // namespace incast::transport

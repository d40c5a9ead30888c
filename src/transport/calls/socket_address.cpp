#include "transport/calls/socket_address.h"

#include <array>

#include <arpa/inet.h>

namespace incast::transport {

std::optional<SocketAddress> SocketAddress::parse(const std::string& text, std::uint16_t port) {
    SocketAddress made;
    auto& v4 = reinterpret_cast<sockaddr_in&>(made.storage);
    auto& v6 = reinterpret_cast<sockaddr_in6&>(made.storage);
    if (::inet_pton(AF_INET, text.c_str(), &v4.sin_addr) == 1) {
        v4.sin_family = AF_INET;
    } else if (::inet_pton(AF_INET6, text.c_str(), &v6.sin6_addr) == 1) {
        v6.sin6_family = AF_INET6;
    } else {
        return std::nullopt;
    }
    made.set_port(port);
    return made;
}

std::string SocketAddress::to_string() const {
    std::array<char, INET6_ADDRSTRLEN> text{};
    const bool is_v6 = storage.ss_family == AF_INET6;
    const void* const ip = is_v6 ? static_cast<const void*>(&reinterpret_cast<const sockaddr_in6&>(storage).sin6_addr)
                                 : &reinterpret_cast<const sockaddr_in&>(storage).sin_addr;
    (void)::inet_ntop(storage.ss_family, ip, text.data(), text.size());
    const std::string name(text.data());
    return (is_v6 ? "[" + name + "]" : name) + ":" + std::to_string(port());
}

bool SocketAddress::is_wildcard() const {
    if (storage.ss_family == AF_INET6)
        return IN6_IS_ADDR_UNSPECIFIED(&reinterpret_cast<const sockaddr_in6&>(storage).sin6_addr);
    return reinterpret_cast<const sockaddr_in&>(storage).sin_addr.s_addr == htonl(INADDR_ANY);
}

std::uint16_t SocketAddress::port() const {
    const bool is_v6 = storage.ss_family == AF_INET6;
    return ntohs(is_v6 ? reinterpret_cast<const sockaddr_in6&>(storage).sin6_port
                       : reinterpret_cast<const sockaddr_in&>(storage).sin_port);
}

void SocketAddress::set_port(std::uint16_t port) {
    if (storage.ss_family == AF_INET6) {
        reinterpret_cast<sockaddr_in6&>(storage).sin6_port = htons(port);
    } else {
        reinterpret_cast<sockaddr_in&>(storage).sin_port = htons(port);
    }
}

}  // namespace incast::transport

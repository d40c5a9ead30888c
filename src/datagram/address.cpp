#include "datagram/address.h"

#include <algorithm>

#include <arpa/inet.h>
#include <netinet/in.h>

namespace incast::datagram {

socklen_t fill(const Address& address, sockaddr_storage& into) {
    into = {};
    if (address.is_v6) {
        auto& v6 = reinterpret_cast<sockaddr_in6&>(into);
        v6.sin6_family = AF_INET6;
        v6.sin6_port = htons(address.port);
        std::memcpy(&v6.sin6_addr, address.ip.data(), 16);
        return sizeof v6;
    }
    auto& v4 = reinterpret_cast<sockaddr_in&>(into);
    v4.sin_family = AF_INET;
    v4.sin_port = htons(address.port);
    std::memcpy(&v4.sin_addr, address.ip.data(), 4);
    return sizeof v4;
}

Address address_of(const sockaddr_storage& from) {
    Address address;
    address.is_v6 = from.ss_family == AF_INET6;
    if (address.is_v6) {
        const auto& v6 = reinterpret_cast<const sockaddr_in6&>(from);
        address.port = ntohs(v6.sin6_port);
        std::memcpy(address.ip.data(), &v6.sin6_addr, 16);
    } else {
        const auto& v4 = reinterpret_cast<const sockaddr_in&>(from);
        address.port = ntohs(v4.sin_port);
        std::memcpy(address.ip.data(), &v4.sin_addr, 4);
    }
    return address;
}

std::string to_string(const Address& address) {
    char text[INET6_ADDRSTRLEN] = {};
    ::inet_ntop(address.is_v6 ? AF_INET6 : AF_INET, address.ip.data(), text, sizeof text);
    return (address.is_v6 ? "[" + std::string(text) + "]" : std::string(text)) + ":" + std::to_string(address.port);
}

std::optional<Address> parse_ip(std::string_view text) {
    const std::string ended(text);
    Address address;
    if (::inet_pton(AF_INET, ended.c_str(), address.ip.data()) == 1) return address;
    address.ip = {};
    address.is_v6 = true;
    if (::inet_pton(AF_INET6, ended.c_str(), address.ip.data()) == 1) return address;
    return std::nullopt;
}

bool is_wildcard(const Address& address) {
    return std::ranges::all_of(address.ip, [](std::uint8_t byte) { return byte == 0; });
}

}  // namespace incast::datagram

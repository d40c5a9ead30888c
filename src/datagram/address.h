// Where datagrams come from and go to: an IP address and a port.
#pragma once

#include <array>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>

#include <sys/socket.h>

namespace incast::datagram {

struct Address {
    std::array<std::uint8_t, 16> ip{};  // IPv4: the first four
    std::uint16_t port = 0;
    bool is_v6 = false;
    /// Asked for every datagram: as two words, which a default does not make of it.
    bool operator==(const Address& other) const {
        return std::memcmp(ip.data(), other.ip.data(), ip.size()) == 0 && port == other.port && is_v6 == other.is_v6;
    }
};
std::string to_string(const Address& address);
/// Numbers only: "10.0.0.1", "::1". The port is 0.
std::optional<Address> parse_ip(std::string_view text);
/// 0.0.0.0 or ::
bool is_wildcard(const Address& address);

/// For the kernel; returns how many bytes of it count.
socklen_t fill(const Address& address, sockaddr_storage& into);
Address address_of(const sockaddr_storage& from);

}  // namespace incast::datagram

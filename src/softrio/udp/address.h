// Where an endpoint is: an IP address and a UDP port; and which destination id has which.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <incast/result.h>

#include "datagram/address.h"

namespace incast::softrio::udp {

using datagram::Address;
using datagram::address_of;
using datagram::to_string;

/// What may be said of a port: any_too: 0, for one that is free.
enum class Ports : std::uint8_t { known, any_too };
/// 10.0.0.1:7000, [::1]:7000, or a name of the host's resolver.
Result<Address> parse_address(std::string_view text, Ports ports = Ports::known);

/// Every destination id and its address. Either a list, or a network, in which an id is the number of a host, or what
/// an enumerating host says (enumerator.h).
class Directory {
public:
    /// What follows `udp:` in RIO_FABRIC: NETWORK/BITS:PORT, loopback:PORT, ID=ADDRESS,..., host:ADDRESS, or a
    /// TOML file with [endpoints].
    static Result<Directory> parse(std::string_view text);

    [[nodiscard]] std::optional<Address> find(std::uint32_t destid) const;
    /// All that can be, by ascending id.
    [[nodiscard]] std::vector<std::uint32_t> all() const;
    [[nodiscard]] bool has_v6() const;

    /// The enumerating host, which all of this comes from.
    [[nodiscard]] const std::optional<Address>& host() const { return host_; }
    /// What it says: somebody is there now, or nobody.
    void set(std::uint32_t destid, const std::optional<Address>& at);

private:
    Result<Ok> add(std::string_view destid, std::string_view address);
    Result<Ok> parse_list(std::string_view text);
    Result<Ok> parse_network(std::string_view text, std::size_t slash);
    Result<Ok> read_file(const std::string& path);

    std::optional<Address> host_;
    std::map<std::uint32_t, Address> list_;
    std::uint32_t network_ = 0;  // IPv4
    std::uint32_t hosts_ = 0;    // 0: a list
    std::uint16_t port_ = 0;
};

}  // namespace incast::softrio::udp

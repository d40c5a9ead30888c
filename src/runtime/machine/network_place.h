// Where a node is in its host's networks: which of its addresses it uses, and what that is on.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <incast/result.h>

namespace incast::runtime {

struct NetworkPlace {
    std::string address;    // "10.0.0.1"
    std::string interface;  // "eth0"
    std::uint32_t mtu = 0;
    std::optional<std::uint64_t> link_bits_per_s;  // nothing: it does not say
    std::optional<std::uint32_t> numa_node;        // of its device
};

/// Whether an address lies in a subnet ("10.1.0.0/16", "fd00::/8"). Error: it is none.
Result<bool> lies_in(std::string_view address, const std::string& subnet);
/// The address of this host on an interface ("ib0") or in a subnet; of several the first, IPv4 before IPv6. Error:
/// which there are.
Result<std::string> address_on(const std::string& network);
/// What is known of an address of this host.
NetworkPlace place_of(const std::string& address);

}  // namespace incast::runtime

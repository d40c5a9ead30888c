// What `incast netdev up` is told.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tap.h"

namespace incast::netdev {

inline constexpr std::uint32_t most_queues = 16;

/// Another device of the network, or this one.
struct Member {
    std::uint16_t id = 0;
    std::string address;  // of its first queue, as include/incast/channel.h has addresses
};

struct Settings {
    std::string name;
    std::string netns;  // that the device is in; empty: that of the process
    std::string transport;
    std::uint16_t id = 0;
    std::vector<Member> members;  // without this one
    std::string address;          // of this one
    std::vector<Cidr> addresses;  // of IP
    std::uint32_t mtu = 1500;
    std::uint32_t queues = 1;
    std::size_t backlog_bytes = 0;  // for each peer and queue
    std::uint64_t secret = 0;
    std::string fabric, bind, transport_settings;
    std::uint32_t buffers = 0, buffer_bytes = 0;  // of the rings; 0: the library chooses
};

/// Of `1-4,7` and `9=tcp://10.0.0.9:7000`, in the order of ids; `pattern`: the address of those that say none, with
/// `{id}` for the id. Failure: what is wrong with it.
[[nodiscard]] std::vector<Member> parse_members(std::string_view text, const std::string& pattern);
/// `address` of that queue: the port, or CM channel, is so much higher; a path ends in `.1`, `.2`.
[[nodiscard]] std::string address_of_queue(const std::string& address, std::uint32_t queue);

}  // namespace incast::netdev

// Which fabric this process joins, and how: the variables RIO_FABRIC, RIO_DESTID and RIO_DEBUG.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <incast/result.h>

namespace incast::softrio {

inline constexpr std::uint32_t max_mports = 8;
inline constexpr std::uint32_t max_destid = 0xFFFE;
inline constexpr std::uint32_t any_destid = 0xFFFF;
/// The "nobody" of systems with ids of 8 bits; programs also use it for "any".
inline constexpr std::uint32_t small_any_destid = 0xFF;

/// An address of many endpoints. It belongs to nobody; who sends to it has to know its members.
struct MulticastGroup {
    std::uint32_t destid = 0;
    std::vector<std::uint32_t> members;
};

struct Options {
    enum class Order : std::uint8_t { strict, weak };
    enum class Limits : std::uint8_t { none, old };
    enum class Link : std::uint8_t { none, tsi721 };
    enum class Kind : std::uint8_t { shm, udp, device };
    Kind kind = Kind::shm;
    std::string fabric;               // its name; udp: where endpoints are; device: a number, or any
    std::uint32_t destid = 0;         // 0: the lowest that is free; master port n gets destid + n
    bool is_new = false;              // a forked child that opens a port is an endpoint of its own
    std::uint32_t mports = 1;         // of this process
    Order order = Order::strict;      // weak: see ordering.h
    Limits limits = Limits::none;     // old: 8 allocations of 2 MB
    Link link = Link::none;           // tsi721: transfers take the time they would over that adapter (link.h)
    std::uint32_t link_slowdown = 1;  // tsi721/N: all of its times are N times as long
    std::uint32_t retry_ms = 1000;    // how long a doorbell is tried again at a full queue
    std::uint32_t hold_us = 200;      // weak: how long at most a write without response is held back
    std::uint64_t seed = 1;           // weak: of what is held back for how long
    std::vector<MulticastGroup> groups;
    struct Udp {
        std::uint32_t mtu = 1500;          // bytes of an IP packet
        std::uint32_t ids = 16;            // bits of destination ids in packets
        std::uint32_t deadline_ms = 3000;  // a peer that is silent for so long is gone
        std::uint32_t drop = 0;            // of a million datagrams, so many are not sent, for tests
    } udp;

    [[nodiscard]] const MulticastGroup* group(std::uint32_t id) const {
        for (const MulticastGroup& each : groups) {
            if (each.destid == id) return &each;
        }
        return nullptr;
    }
};

inline bool is_destid(std::uint32_t id) {
    return id <= max_destid && id != small_any_destid;
}

/// `shm:NAME[?key=value&...]`, `udp:ENDPOINTS[?...]` (udp/address.h), `linux:NUMBER[?...]`. `destid` is what RIO_DESTID
/// says, or empty.
Result<Options> parse_fabric(std::string_view url, std::string_view destid);
/// From the environment.
Result<Options> options_of_environment();

/// With RIO_DEBUG=1: one line on stderr, for whoever writes a first program.
bool debugging();
void debug(const std::string& line);

}  // namespace incast::softrio

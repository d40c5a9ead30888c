// What travels: one header of 32 bytes, little-endian, and what its kind says.
//
//    0  u16  magic 0x5244
//    2  u8   version 2
//    3  u8   kind
//    4  u32  time of the sender, in us; an acknowledgement echoes it
//    8  u64  token: the random number that the addressee chose for this session; hello: 0
//   16  u64  data: sequence; acknowledgement: all below are here; hello, welcome: bytes of the largest datagram
//   24  u32  data: number within its lane, from 2^32 - 8 on; hello, welcome: packets that may be on their way
//   28  u8   lane of data
//   29  u8   0
//   30  u16  bytes that follow
//
// An acknowledgement goes on with a bitmap: bit i says that packet sequence + 1 + i is here. Hello and welcome go on
// with the sender's own token (u64) and a greeting of the user's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

namespace incast::reliable {

enum class Kind : std::uint8_t {
    hello = 1,  // asks for a session
    welcome,    // grants it; the asker's next packet proves that it has read this
    data,
    ack,
    ping,     // asks for an acknowledgement
    bye,      // the session ends
    unknown,  // the sender knows no session of that token (any more)
};

inline constexpr std::uint8_t max_lanes = 16;
/// A lane's numbers begin anew after 2^32 packets; so that this happens in every session, they begin shortly before.
inline constexpr std::uint32_t first_in_lane = 0U - 8;
inline constexpr std::size_t header_bytes = 32;
inline constexpr std::size_t max_greeting_bytes = 32;
inline constexpr std::size_t max_datagram_bytes = 65'507;  // of UDP over IPv4

struct Packet {
    Kind kind = Kind::data;
    std::uint8_t lane = 0;
    std::uint32_t time_us = 0;
    std::uint64_t token = 0;
    std::uint64_t sequence = 0;
    std::uint32_t lane_sequence = 0;
    std::span<const std::byte> body;
};

/// What hello and welcome carry.
struct Greeting {
    std::uint64_t token = 0;
    std::span<const std::byte> text;
};

/// Nothing: it is none of ours, or not whole. `body` stays in the datagram.
std::optional<Packet> parse(std::span<const std::byte> datagram);
std::optional<Greeting> parse_greeting(const Packet& packet);
/// Writes the header; packet.body says how many bytes follow, which are written already. `at` has room for it.
void write_header(const Packet& packet, std::byte* at);

}  // namespace incast::reliable

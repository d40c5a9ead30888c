// The first message of a channel, both ways: who is there.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

namespace incast::netdev {

/// 16 bytes, little-endian: u32 "INET", u16 version, id, queue, queues, u32 MTU.
struct Greeting {
    std::uint16_t id = 0;
    std::uint16_t queue = 0;   // of the sender, which this channel is of
    std::uint16_t queues = 1;  // of its device
    std::uint32_t mtu = 0;     // bytes
};

inline constexpr std::uint16_t greeting_version = 1;
inline constexpr std::size_t greeting_bytes = 16;

[[nodiscard]] std::array<std::byte, greeting_bytes> encode(const Greeting& greeting);
/// Nothing: it is none, or one of another version.
[[nodiscard]] std::optional<Greeting> decode_greeting(std::span<const std::byte> message);

}  // namespace incast::netdev

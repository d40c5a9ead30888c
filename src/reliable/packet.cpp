#include "reliable/packet.h"

#include <bit>
#include <cstring>

namespace incast::reliable {

namespace {

static_assert(std::endian::native == std::endian::little, "headers are written in place");

constexpr std::uint64_t magic = 0x5244;
constexpr std::uint64_t version = 2;
constexpr std::uint64_t mark = magic | version << 16;

}  // namespace

// By words, each one load or store: what is stored by fields can be loaded as a whole only when all stores before it
// are done, those of payload among them.

std::optional<Packet> parse(std::span<const std::byte> datagram) {
    if (datagram.size() < header_bytes) return std::nullopt;
    const auto word = [&](std::size_t index) {
        std::uint64_t value = 0;
        std::memcpy(&value, datagram.data() + index * sizeof value, sizeof value);
        return value;
    };
    const std::uint64_t first = word(0);
    const std::uint64_t last = word(3);
    const auto kind = static_cast<Kind>(first >> 24 & 0xFF);
    const auto lane = static_cast<std::uint8_t>(last >> 32);
    const bool is_zero = (last >> 40 & 0xFF) == 0;
    if ((first & 0xFF'FFFF) != mark || kind < Kind::hello || kind > Kind::unknown || lane >= max_lanes || !is_zero ||
        last >> 48 != datagram.size() - header_bytes) {
        return std::nullopt;
    }
    return Packet{kind,
                  lane,
                  static_cast<std::uint32_t>(first >> 32),
                  word(1),
                  word(2),
                  static_cast<std::uint32_t>(last),
                  datagram.subspan(header_bytes)};
}

std::optional<Greeting> parse_greeting(const Packet& packet) {
    Greeting greeting;
    if ((packet.kind != Kind::hello && packet.kind != Kind::welcome) || packet.body.size() < sizeof greeting.token ||
        packet.body.size() > sizeof greeting.token + max_greeting_bytes) {
        return std::nullopt;
    }
    std::memcpy(&greeting.token, packet.body.data(), sizeof greeting.token);
    greeting.text = packet.body.subspan(sizeof greeting.token);
    return greeting;
}

void write_header(const Packet& packet, std::byte* at) {
    const auto put = [&](std::size_t index, std::uint64_t value) {
        std::memcpy(at + index * sizeof value, &value, sizeof value);
    };
    put(0, mark | std::uint64_t{static_cast<std::uint8_t>(packet.kind)} << 24 | std::uint64_t{packet.time_us} << 32);
    put(1, packet.token);
    put(2, packet.sequence);
    put(3, packet.lane_sequence | std::uint64_t{packet.lane} << 32 | std::uint64_t{packet.body.size()} << 48);
}

}  // namespace incast::reliable

#include "transport/reliable/packet.h"

#include <bit>
#include <cstring>

namespace incast::transport::reliable {

namespace {

static_assert(std::endian::native == std::endian::little, "headers are written in place");

constexpr std::uint16_t magic = 0x5244;
constexpr std::uint8_t version = 1;

struct Header {
    std::uint16_t magic;
    std::uint8_t version;
    Kind kind;
    std::uint32_t time_us;
    std::uint64_t token;
    std::uint64_t sequence;
    std::uint32_t lane_sequence;
    std::uint8_t lane;
    std::uint8_t zero;
    std::uint16_t bytes;
};
static_assert(sizeof(Header) == header_bytes);

}  // namespace

std::optional<Packet> parse(std::span<const std::byte> datagram) {
    if (datagram.size() < header_bytes) return std::nullopt;
    Header header;
    std::memcpy(&header, datagram.data(), sizeof header);
    if (header.magic != magic || header.version != version || header.kind < Kind::hello ||
        header.kind > Kind::unknown || header.lane >= max_lanes || header.zero != 0 ||
        header.bytes != datagram.size() - header_bytes) {
        return std::nullopt;
    }
    return Packet{header.kind,
                  header.lane,
                  header.time_us,
                  header.token,
                  header.sequence,
                  header.lane_sequence,
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
    const Header header{magic,
                        version,
                        packet.kind,
                        packet.time_us,
                        packet.token,
                        packet.sequence,
                        packet.lane_sequence,
                        packet.lane,
                        0,
                        static_cast<std::uint16_t>(packet.body.size())};
    std::memcpy(at, &header, sizeof header);
}

}  // namespace incast::transport::reliable

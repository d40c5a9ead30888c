#include "frame.h"

#include <algorithm>

namespace incast::netdev {

namespace {

// <linux/virtio_net.h> has these; a program that reads a peer's bytes says itself what it takes.
constexpr std::uint8_t needs_checksum = 1;
constexpr std::uint8_t data_is_valid = 2;
constexpr std::uint8_t has_ecn = 0x80;
enum Segments : std::uint8_t { none = 0, tcp_v4 = 1, udp_fragments = 3, tcp_v6 = 4, udp = 5 };

constexpr std::size_t flags_at = 0;
constexpr std::size_t segments_at = 1;
constexpr std::size_t header_bytes_at = 2;
constexpr std::size_t segment_bytes_at = 4;
constexpr std::size_t checksum_start_at = 6;
constexpr std::size_t checksum_offset_at = 8;

constexpr std::size_t type_at = 12;
constexpr std::uint16_t vlan_type = 0x8100;
constexpr std::uint16_t service_vlan_type = 0x88A8;
constexpr std::uint16_t ipv4_type = 0x0800;
constexpr std::uint16_t ipv6_type = 0x86DD;
constexpr std::size_t ipv4_least_bytes = 20;
constexpr std::size_t ipv6_bytes = 40;
constexpr std::uint8_t ecn_bits = 3;

constexpr std::array<std::byte, 4> prefix{std::byte{0xC2}, std::byte{0}, std::byte{0}, std::byte{0}};

std::uint8_t number(std::byte byte) {
    return std::to_integer<std::uint8_t>(byte);
}
std::uint16_t little(Bytes bytes, std::size_t at) {
    return static_cast<std::uint16_t>(number(bytes[at]) | number(bytes[at + 1]) << 8U);
}
std::uint16_t big(Bytes bytes, std::size_t at) {
    return static_cast<std::uint16_t>(number(bytes[at]) << 8U | number(bytes[at + 1]));
}
std::optional<std::uint16_t> destid_of(Bytes mac) {
    if (!std::equal(prefix.begin(), prefix.end(), mac.begin())) return std::nullopt;
    return big(mac, prefix.size());
}

bool mark_ipv4(std::span<std::byte> packet) {
    if (packet.size() < ipv4_least_bytes || number(packet[0]) >> 4U != 4) return false;
    const std::uint8_t old = number(packet[1]);
    if ((old & ecn_bits) == 0) return false;
    if ((old & ecn_bits) == ecn_bits) return true;
    const auto before = big(packet, 0);
    packet[1] = static_cast<std::byte>(old | ecn_bits);
    const auto after = big(packet, 0);
    // RFC 1624, equation 3: HC' = ~(~HC + ~m + m').
    std::uint32_t sum = static_cast<std::uint16_t>(~big(packet, 10));
    sum += static_cast<std::uint16_t>(~before);
    sum += after;
    sum = (sum & 0xFFFFU) + (sum >> 16U);
    sum = (sum & 0xFFFFU) + (sum >> 16U);
    const auto checksum = static_cast<std::uint16_t>(~sum);
    packet[10] = static_cast<std::byte>(checksum >> 8U);
    packet[11] = static_cast<std::byte>(checksum & 0xFFU);
    return true;
}

bool mark_ipv6(std::span<std::byte> packet) {
    if (packet.size() < ipv6_bytes || number(packet[0]) >> 4U != 6) return false;
    // Of the traffic class the last two bits: bits 5 and 4 of the second byte.
    if ((number(packet[1]) >> 4U & ecn_bits) == 0) return false;
    packet[1] |= static_cast<std::byte>(ecn_bits << 4U);
    return true;
}

}  // namespace

Mac mac_of(std::uint16_t destid) {
    return {number(prefix[0]), 0, 0, 0, static_cast<std::uint8_t>(destid >> 8U), static_cast<std::uint8_t>(destid)};
}

Target target_of(Bytes frame) {
    if (frame.size() < ethernet_bytes) return {};
    if ((number(frame[0]) & 1U) != 0) return {.kind = Target::Kind::all};
    const auto destid = destid_of(frame);
    return destid ? Target{.kind = Target::Kind::one, .destid = *destid} : Target{};
}

std::optional<std::uint16_t> source_of(Bytes frame) {
    return frame.size() < ethernet_bytes ? std::nullopt : destid_of(frame.subspan(sizeof(Mac)));
}

std::optional<std::string_view> fault_of(Bytes message, std::uint16_t sender) {
    if (message.size() < offload_bytes + ethernet_bytes) return "it is too short";
    if (message.size() > most_message_bytes) return "it is too long";
    const Bytes frame = message.subspan(offload_bytes);
    const std::uint8_t flags = number(message[flags_at]);
    if ((flags & ~(needs_checksum | data_is_valid)) != 0) return "unknown flags";
    if ((flags & needs_checksum) != 0 &&
        std::size_t{little(message, checksum_start_at)} + little(message, checksum_offset_at) + 2 > frame.size())
        return "its checksum lies outside";
    const std::uint8_t segments = number(message[segments_at]);
    switch (segments & ~has_ecn) {
        case none:
            if (segments != none) return "unknown segments";
            break;
        case tcp_v4:
        case tcp_v6:
        case udp:
        case udp_fragments:
            if (little(message, segment_bytes_at) == 0) return "segments of no bytes";
            if (little(message, header_bytes_at) > frame.size()) return "its headers lie outside";
            break;
        default:
            return "unknown segments";
    }
    const auto source = source_of(frame);
    if (!source || *source != sender) return "the address of another sender";
    return std::nullopt;
}

bool try_mark(std::span<std::byte> frame) {
    std::size_t at = type_at;
    for (int tags = 0; tags < 2 && at + 6 <= frame.size(); ++tags) {
        const std::uint16_t type = big(frame, at);
        if (type != vlan_type && type != service_vlan_type) break;
        at += 4;
    }
    if (at + 2 > frame.size()) return false;
    const std::span<std::byte> packet = frame.subspan(at + 2);
    switch (big(frame, at)) {
        case ipv4_type:
            return mark_ipv4(packet);
        case ipv6_type:
            return mark_ipv6(packet);
        default:
            return false;
    }
}

}  // namespace incast::netdev

#include "ingest/emit/frames.h"

#include <algorithm>
#include <array>
#include <cstring>

namespace incast::ingest {

namespace {

constexpr std::uint16_t type_v4 = 0x0800;
constexpr std::uint16_t type_v6 = 0x86DD;
constexpr std::array<std::uint16_t, 3> vlan_types{0x8100, 0x88A8, 0x9100};
constexpr std::size_t vlan_bytes = 4;
constexpr std::uint8_t protocol_udp = 17;
constexpr std::uint8_t protocol_piece = 44;  // IPv6's fragment header
constexpr std::size_t v4_bytes = 20;         // without options
constexpr std::size_t v6_bytes = 40;
constexpr std::size_t udp_bytes = 8;
constexpr std::size_t most_open = 64;  // datagrams of which pieces are missing; the oldest goes
constexpr std::size_t most_datagram_bytes = 65'535;

std::uint8_t byte_at(std::span<const std::byte> bytes, std::size_t offset) {
    return std::to_integer<std::uint8_t>(bytes[offset]);
}

std::uint16_t big_16(std::span<const std::byte> bytes, std::size_t offset) {
    return static_cast<std::uint16_t>(byte_at(bytes, offset) << 8U | byte_at(bytes, offset + 1));
}

std::uint32_t big_32(std::span<const std::byte> bytes, std::size_t offset) {
    return std::uint32_t{big_16(bytes, offset)} << 16U | big_16(bytes, offset + 2);
}

/// Where the IP packet begins in a frame; nullopt: in none. A VLAN's tags are passed over.
std::optional<std::size_t> begin_of_ip(std::span<const std::byte> frame, std::size_t type_at, std::size_t begin) {
    if (frame.size() < begin) return std::nullopt;
    std::uint16_t type = big_16(frame, type_at);
    while (std::ranges::find(vlan_types, type) != vlan_types.end()) {
        begin += vlan_bytes;
        if (frame.size() < begin) return std::nullopt;
        type = big_16(frame, begin - sizeof type);
    }
    return type == type_v4 || type == type_v6 ? std::optional(begin) : std::nullopt;
}

std::optional<std::size_t> begin_of_ip(LinkType link, std::span<const std::byte> frame) {
    switch (link) {
        case LinkType::loopback:  // a family in the byte order of the host that captured
            return 4;
        case LinkType::raw:
        case LinkType::raw_ip:
            return 0;
        case LinkType::ethernet:
            return begin_of_ip(frame, 12, 14);
        case LinkType::cooked:
            return begin_of_ip(frame, 14, 16);
        case LinkType::cooked_2: {
            if (frame.size() < 20) return std::nullopt;
            const std::uint16_t type = big_16(frame, 0);
            return type == type_v4 || type == type_v6 ? std::optional<std::size_t>(20) : std::nullopt;
        }
    }
    return std::nullopt;
}

}  // namespace

std::optional<Frames> Frames::of(int link_type) {
    constexpr std::array known{LinkType::loopback, LinkType::ethernet, LinkType::raw,
                               LinkType::raw_ip,   LinkType::cooked,   LinkType::cooked_2};
    for (const LinkType link : known) {
        if (static_cast<int>(link) == link_type) return Frames(link);
    }
    return std::nullopt;
}

std::optional<CapturedDatagram> Frames::take(std::span<const std::byte> frame, std::size_t frame_bytes) {
    const std::optional<std::size_t> begin = begin_of_ip(link_, frame);
    if (!begin || frame.size() <= *begin) {
        ++(frame.size() < frame_bytes ? skipped_.cut : skipped_.others);
        return std::nullopt;
    }
    return take_ip(frame.subspan(*begin), frame.size() >= frame_bytes);
}

std::optional<CapturedDatagram> Frames::take_ip(std::span<const std::byte> packet, bool is_whole) {
    switch (byte_at(packet, 0) >> 4U) {
        case 4:
            return take_v4(packet, is_whole);
        case 6:
            return take_v6(packet, is_whole);
        default:
            ++skipped_.others;
            return std::nullopt;
    }
}

std::optional<CapturedDatagram> Frames::take_v4(std::span<const std::byte> packet, bool is_whole) {
    const std::size_t header = std::size_t{byte_at(packet, 0) & 0xFU} * 4;
    if (packet.size() < v4_bytes || header < v4_bytes || packet.size() < header) {
        ++(is_whole ? skipped_.others : skipped_.cut);
        return std::nullopt;
    }
    if (byte_at(packet, 9) != protocol_udp) {
        ++skipped_.others;
        return std::nullopt;
    }
    // A length of 0: the host cut it into segments only behind the capture (TSO); then the frame says how long it is.
    const std::size_t length = big_16(packet, 2) == 0 ? packet.size() : big_16(packet, 2);
    if (length < header || packet.size() < length) {
        ++(is_whole ? skipped_.others : skipped_.cut);
        return std::nullopt;
    }
    std::span<const std::byte> body = packet.subspan(header, length - header);
    constexpr std::uint16_t more_pieces = 0x2000;
    const std::uint16_t piece = big_16(packet, 6);
    const std::size_t offset = std::size_t{piece & 0x1FFFU} * 8;
    const bool is_last = (piece & more_pieces) == 0;
    if (offset != 0 || !is_last) {
        const auto joined = join({big_32(packet, 12), big_32(packet, 16), big_16(packet, 4)}, offset, is_last, body);
        if (!joined) return std::nullopt;
        body = *joined;
    }
    datagram::Address to;
    std::memcpy(to.ip.data(), packet.data() + 16, 4);
    return take_udp(to, body);
}

std::optional<CapturedDatagram> Frames::take_v6(std::span<const std::byte> packet, bool is_whole) {
    if (packet.size() < v6_bytes || packet.size() - v6_bytes < big_16(packet, 4)) {
        ++(is_whole ? skipped_.others : skipped_.cut);
        return std::nullopt;
    }
    const std::uint8_t next = byte_at(packet, 6);
    if (next != protocol_udp) {
        ++(next == protocol_piece ? skipped_.pieces : skipped_.others);
        return std::nullopt;
    }
    datagram::Address to;
    to.is_v6 = true;
    std::memcpy(to.ip.data(), packet.data() + 24, to.ip.size());
    return take_udp(to, packet.subspan(v6_bytes, big_16(packet, 4)));
}

std::optional<CapturedDatagram> Frames::take_udp(datagram::Address to, std::span<const std::byte> udp) {
    const std::size_t length = udp.size() < udp_bytes ? 0 : big_16(udp, 4);
    if (length < udp_bytes || length > udp.size()) {
        ++skipped_.others;
        return std::nullopt;
    }
    to.port = big_16(udp, 2);
    return CapturedDatagram{to, udp.subspan(udp_bytes, length - udp_bytes)};
}

/// The datagram, once all its pieces came. Pieces that come twice or overlap spoil it, as RFC 5722 has it for IPv6.
std::optional<std::span<const std::byte>> Frames::join(const PieceKey& key, std::size_t offset, bool is_last,
                                                       std::span<const std::byte> piece) {
    if (offset + piece.size() > most_datagram_bytes) {
        ++skipped_.pieces;
        return std::nullopt;
    }
    if (open_.size() == most_open && !open_.contains(key)) {
        const auto oldest = std::ranges::min_element(open_, {}, [](const auto& each) { return each.second.serial; });
        skipped_.pieces += oldest->second.frames;
        open_.erase(oldest);
    }
    Pieces& pieces = open_[key];
    if (pieces.frames++ == 0) pieces.serial = next_serial_++;
    pieces.parts[offset].assign(piece.begin(), piece.end());
    pieces.held += piece.size();
    if (is_last) pieces.total = offset + piece.size();
    if (pieces.total == 0 || pieces.held < pieces.total) return std::nullopt;
    joined_.clear();
    for (const auto& [begin, part] : pieces.parts) {
        if (begin != joined_.size()) break;
        joined_.insert(joined_.end(), part.begin(), part.end());
    }
    const bool is_whole = pieces.held == pieces.total && joined_.size() == pieces.total;
    if (!is_whole) skipped_.pieces += pieces.frames;
    open_.erase(key);
    return is_whole ? std::optional(std::span<const std::byte>(joined_)) : std::nullopt;
}

Frames::Skipped Frames::skipped() const {
    Skipped skipped = skipped_;
    for (const auto& [key, pieces] : open_) {
        skipped.pieces += pieces.frames;
    }
    return skipped;
}

}  // namespace incast::ingest

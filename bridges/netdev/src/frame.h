// What travels between devices: a frame of Ethernet behind the header that TAP puts before it, and who it is for.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

namespace incast::netdev {

using Bytes = std::span<const std::byte>;

/// struct virtio_net_hdr_mrg_rxbuf (virtio 1.2, 5.1.6; <linux/virtio_net.h>), little-endian: flags, kind of segments,
/// u16 bytes of the headers, bytes of a segment, where the checksum begins, where it goes from there, buffers.
inline constexpr std::size_t offload_bytes = 12;
inline constexpr std::size_t ethernet_bytes = 14;
inline constexpr std::uint32_t least_mtu = 1280;  // of IPv6, RFC 8200, section 5
inline constexpr std::uint32_t most_mtu = 65520;  // what the kernel's TAP takes, rounded down to 16
/// The kernel makes no longer ones: 64 KiB of IP, or the longest MTU, behind Ethernet and two tags of VLANs.
inline constexpr std::size_t most_frame_bytes = 65536 + ethernet_bytes + 8;
inline constexpr std::size_t most_message_bytes = offload_bytes + most_frame_bytes;

using Mac = std::array<std::uint8_t, 6>;

/// c2:00:00:00:HH:LL, as RIOsockets have it (github.com/centauruscomputing/riosocket): local, not of a group. `destid`
/// is HHLL.
[[nodiscard]] Mac mac_of(std::uint16_t destid);

/// Who a frame is for.
struct Target {
    enum class Kind : std::uint8_t { one, all, nobody };
    Kind kind = Kind::nobody;
    std::uint16_t destid = 0;  // of one
};

/// `frame` begins with the address of the receiver. `nobody`: it is short, or the address is none of these devices.
[[nodiscard]] Target target_of(Bytes frame);
/// Whose address the frame says that it comes from; nothing: none of these devices, or it is short.
[[nodiscard]] std::optional<std::uint16_t> source_of(Bytes frame);

/// Why a message of a peer is no frame that the kernel may be given; nothing: it is one. `sender`: the peer's id.
[[nodiscard]] std::optional<std::string_view> fault_of(Bytes message, std::uint16_t sender);

/// Marks the packet in the frame "congestion experienced" (RFC 3168, section 5), the checksum of IPv4 too (RFC 1624).
/// False: it is not IP, or its sender does not know of marks: then it has to be dropped.
bool try_mark(std::span<std::byte> frame);

}  // namespace incast::netdev

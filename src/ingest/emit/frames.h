// Datagrams in captured frames. Sans IO; nothing in a frame is trusted.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <tuple>
#include <vector>

#include "datagram/address.h"

namespace incast::ingest {

/// What a frame begins with: the values of libpcap's pcap_datalink() (www.tcpdump.org/linktypes.html).
enum class LinkType : int { loopback = 0, ethernet = 1, raw = 12, raw_ip = 101, cooked = 113, cooked_2 = 276 };

/// One UDP datagram of a capture; its bytes are good until the next frame is taken.
struct CapturedDatagram {
    datagram::Address to;
    std::span<const std::byte> bytes;
};

/// Takes frames in the order of the capture, and puts IPv4 datagrams that travelled in pieces together again (RFC 791).
class Frames {
public:
    /// Frames that gave no datagram.
    struct Skipped {
        std::uint64_t others = 0;  // not IP, or not UDP
        std::uint64_t cut = 0;     // shorter in the capture than on the network
        std::uint64_t pieces = 0;  // of datagrams of which a piece is missing, and all pieces of IPv6 datagrams
    };

    /// nullopt: a link type that is not known; what is known is in LinkType.
    static std::optional<Frames> of(int link_type);

    /// `frame`: what was captured of `frame_bytes` bytes.
    std::optional<CapturedDatagram> take(std::span<const std::byte> frame, std::size_t frame_bytes);
    /// Whole once the capture has ended.
    [[nodiscard]] Skipped skipped() const;

private:
    using PieceKey = std::tuple<std::uint32_t, std::uint32_t, std::uint16_t>;  // from, to, identification
    struct Pieces {
        std::map<std::size_t, std::vector<std::byte>> parts;  // by offset
        std::size_t held = 0;                                 // bytes that came
        std::size_t total = 0;                                // 0: the last piece did not come yet
        std::uint64_t frames = 0;
        std::uint64_t serial = 0;  // the lowest is the oldest
    };

    explicit Frames(LinkType link) : link_(link) {}
    std::optional<CapturedDatagram> take_ip(std::span<const std::byte> packet, bool is_whole);
    std::optional<CapturedDatagram> take_v4(std::span<const std::byte> packet, bool is_whole);
    std::optional<CapturedDatagram> take_v6(std::span<const std::byte> packet, bool is_whole);
    std::optional<CapturedDatagram> take_udp(datagram::Address to, std::span<const std::byte> udp);
    std::optional<std::span<const std::byte>> join(const PieceKey& key, std::size_t offset, bool is_last,
                                                   std::span<const std::byte> piece);

    LinkType link_;
    std::map<PieceKey, Pieces> open_;
    std::uint64_t next_serial_ = 0;
    std::vector<std::byte> joined_;
    Skipped skipped_;
};

}  // namespace incast::ingest

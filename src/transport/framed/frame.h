// The frames of the framed engine: what transports without one-sided writes of their own send over an ordered byte
// stream.
//
// A frame is a FrameHeader (little-endian, packed by construction), then `length` bytes. The head of a write is simply
// the first bytes of its payload: it lands right before the body.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

#include <incast/transport.h>

#include "base/versions.h"
#include "transport/blob.h"

namespace incast::transport::framed {

static_assert(std::endian::native == std::endian::little, "frame headers are little-endian structures in memory");

inline constexpr base::Versions frame_versions{1, 1};

enum class FrameKind : std::uint8_t {
    message = 1,   // length bytes for the peer's owner
    write,         // length bytes to (region, offset)
    write_notice,  // the same, then a notice
    read_request,  // asks for length bytes of (region, offset); no payload
    read_reply,    // length bytes for the read of that tag
    read_refused,  // the read of that tag was outside the region; no payload
    piece,         // beside the stream: length bytes of a body, for (region, offset); sequence is the body's number
};

struct FrameHeader {
    FrameKind kind{};
    std::uint8_t zero_8 = 0;
    std::uint16_t notice = 0;      // write_notice
    std::uint32_t length = 0;      // bytes
    std::uint32_t sequence = 0;    // posting order of the pair, over all its streams, modulo 2^32
    std::uint32_t generation = 0;  // incarnation that exposed the region: write, write_notice, read_request
    std::uint16_t region = 0;      // of the receiver: write, write_notice, read_request
    std::uint16_t use = 0;         // of the region's number: write, write_notice, read_request
    std::uint32_t tag = 0;     // the reader's name of a read; of a write, bytes of its body that went beside the stream
    std::uint64_t offset = 0;  // in the region: write, write_notice, read_request
};
static_assert(sizeof(FrameHeader) == 32);
inline constexpr std::size_t frame_header_bytes = sizeof(FrameHeader);

/// No place at all lies nowhere.
[[nodiscard]] inline bool lies_in(const std::byte* place, Bytes memory) {
    return place != nullptr && place >= memory.data() && place < memory.data() + memory.size();
}

using Key = RegionKey<0x594B4346>;  // "FCKY"

}  // namespace incast::transport::framed

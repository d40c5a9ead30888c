// Arbitrary frames of a capture: the first byte chooses the link type, then comes each frame behind its length (2
// bytes; above 32767 the capture cut it). Whatever comes, every frame is taken or counted once.
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>

#include "ingest/emit/frames.h"

namespace {

namespace ingest = incast::ingest;

void must(bool holds) {
    if (!holds) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    constexpr std::array links{0, 1, 12, 101, 113, 276};
    if (size < 1) return 0;
    ingest::Frames frames = ingest::Frames::of(links.at(data[0] % links.size())).value();
    std::uint64_t taken = 0;
    std::uint64_t given = 0;
    std::uint64_t payload = 0;
    std::uint64_t captured = 0;
    for (std::size_t offset = 1; offset + 2 <= size;) {
        const std::size_t said = std::size_t{data[offset]} | std::size_t{data[offset + 1]} << 8U;
        offset += 2;
        const std::size_t bytes = std::min<std::size_t>(said & 0x7FFFU, size - offset);
        const auto frame = std::as_bytes(std::span(data + offset, bytes));
        const auto datagram = frames.take(frame, bytes + (said >> 15U));
        offset += bytes;
        ++given;
        captured += bytes;
        if (!datagram) continue;
        ++taken;
        payload += datagram->bytes.size();
        must(datagram->bytes.size() <= 65'535);
    }
    const ingest::Frames::Skipped skipped = frames.skipped();
    must(payload <= captured);
    must(taken + skipped.others + skipped.cut + skipped.pieces <= given);  // a datagram may have been several pieces
    return 0;
}

// Arbitrary bytes of a board that is connected by TCP: the first byte says in which pieces they come. Whatever comes,
// and however it is cut, the packets are the same, each is a valid MFP, and they lie back to back.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <utility>
#include <vector>

#include "ingest/stream.h"

namespace {

namespace ingest = incast::ingest;
namespace wire = incast::wire;

constexpr std::size_t most_packet_bytes = 1500;

void must(bool holds) {
    if (!holds) std::abort();
}

struct Seen {
    std::vector<std::byte> bytes;  // of all packets
    bool is_broken = false;
    bool is_empty = true;
    bool operator==(const Seen&) const = default;
};

Seen read(incast::Bytes all, std::size_t step) {
    ingest::Stream stream(most_packet_bytes);
    Seen seen;
    while (!all.empty() && !seen.is_broken) {
        const wire::MutableBytes room = stream.room();
        must(!room.empty());
        const std::size_t some = std::min({room.size(), step, all.size()});
        std::ranges::copy(all.first(some), room.begin());
        stream.took(some);
        all = all.subspan(some);
        for (;;) {
            const auto packet = stream.peek();
            seen.is_broken = !packet;
            if (!packet || !*packet) break;
            const incast::Bytes bytes = (*packet)->bytes();
            must(bytes.size() <= most_packet_bytes);
            must(wire::MfpView::parse(bytes).ok());
            seen.bytes.insert(seen.bytes.end(), bytes.begin(), bytes.end());
            stream.pop(**packet);
        }
    }
    seen.is_empty = seen.is_broken || stream.is_empty();
    return seen;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    if (size < 1) return 0;
    const incast::Bytes all = std::as_bytes(std::span(data, size)).subspan(1);
    const Seen at_once = read(all, all.size());
    must(read(all, std::size_t{1} + data[0]) == at_once);
    must(at_once.bytes.size() <= all.size());
    return 0;
}

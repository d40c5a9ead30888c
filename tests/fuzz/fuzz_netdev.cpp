// Arbitrary bytes as what a peer of a network device says, and as frames that are marked: the first byte says which. No
// read outside; what is taken keeps what frame.h says of it.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <vector>

#include "frame.h"
#include "greeting.h"

namespace netdev = incast::netdev;

namespace {

void require(bool holds) {
    if (!holds) std::abort();
}

void greet(std::span<const std::byte> bytes) {
    const auto said = netdev::decode_greeting(bytes);
    if (!said) return;
    require(said->queue < said->queues && said->mtu <= netdev::most_mtu);
    const auto again = netdev::encode(*said);
    require(std::equal(again.begin(), again.end(), bytes.begin(), bytes.end()));
}

void take(std::span<const std::byte> bytes) {
    constexpr std::uint16_t sender = 7;
    if (netdev::fault_of(bytes, sender)) return;
    require(bytes.size() >= netdev::offload_bytes + netdev::ethernet_bytes);
    const std::span<const std::byte> frame = bytes.subspan(netdev::offload_bytes);
    require(netdev::source_of(frame) == sender);
    (void)netdev::target_of(frame);
}

void mark(std::span<const std::byte> bytes) {
    std::vector<std::byte> frame(bytes.begin(), bytes.end());
    if (!netdev::try_mark(frame)) {
        require(std::equal(frame.begin(), frame.end(), bytes.begin(), bytes.end()));
        return;
    }
    const std::vector<std::byte> once = frame;
    require(netdev::try_mark(frame) && frame == once);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    if (size == 0) return 0;
    const std::vector<std::byte> copied(reinterpret_cast<const std::byte*>(data + 1),
                                        reinterpret_cast<const std::byte*>(data + size));
    switch (data[0] % 3) {
        case 0:
            greet(copied);
            break;
        case 1:
            take(copied);
            break;
        default:
            mark(copied);
            break;
    }
    return 0;
}

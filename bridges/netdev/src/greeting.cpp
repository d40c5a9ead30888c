#include "greeting.h"

#include "frame.h"

namespace incast::netdev {

namespace {

constexpr std::uint64_t magic = 0x54454E49;  // "INET"
constexpr std::uint16_t most_queues = 256;   // of a TAP device: MAX_TAP_QUEUES of the kernel

void put(std::span<std::byte> into, std::uint64_t value) {
    for (std::byte& byte : into) {
        byte = static_cast<std::byte>(value & 0xFFU);
        value >>= 8U;
    }
}

template <class Number>
Number get(std::span<const std::byte> from) {
    Number value = 0;
    for (std::size_t at = sizeof(Number); at > 0; --at)
        value = static_cast<Number>(value << 8U | std::to_integer<Number>(from[at - 1]));
    return value;
}

}  // namespace

std::array<std::byte, greeting_bytes> encode(const Greeting& greeting) {
    std::array<std::byte, greeting_bytes> bytes{};
    const std::span<std::byte> all = bytes;
    put(all.subspan(0, 4), magic);
    put(all.subspan(4, 2), greeting_version);
    put(all.subspan(6, 2), greeting.id);
    put(all.subspan(8, 2), greeting.queue);
    put(all.subspan(10, 2), greeting.queues);
    put(all.subspan(12, 4), greeting.mtu);
    return bytes;
}

std::optional<Greeting> decode_greeting(std::span<const std::byte> message) {
    if (message.size() != greeting_bytes || get<std::uint32_t>(message.first(4)) != magic ||
        get<std::uint16_t>(message.subspan(4, 2)) != greeting_version)
        return std::nullopt;
    const Greeting said{.id = get<std::uint16_t>(message.subspan(6, 2)),
                        .queue = get<std::uint16_t>(message.subspan(8, 2)),
                        .queues = get<std::uint16_t>(message.subspan(10, 2)),
                        .mtu = get<std::uint32_t>(message.subspan(12, 4))};
    if (said.queues == 0 || said.queues > most_queues || said.queue >= said.queues || said.mtu < least_mtu ||
        said.mtu > most_mtu)
        return std::nullopt;
    return said;
}

}  // namespace incast::netdev

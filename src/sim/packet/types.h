// Indices, rates and the packet of the packet model. Everything is addressed by 32-bit index into arrays that belong to
// one network, so that networks share nothing and a packet fits half a cache line.
#pragma once

#include <cstdint>

#include <incast/transport.h>

namespace incast::sim::packet {

using NodeIndex = std::uint32_t;     // a host or a switch, in the order of the topology
using HostIndex = std::uint32_t;     // 0 .. hosts-1, in the order of the topology
using PortIndex = std::uint32_t;     // an egress port and the direction of the cable that it feeds
using FlowIndex = std::uint32_t;     // a queue pair, or a stream of datagrams
using PacketIndex = std::uint32_t;   // into the pool
using MessageIndex = std::uint32_t;  // into the pool

inline constexpr std::uint32_t nil = ~std::uint32_t{0};

/// Traffic classes: 802.1p priorities, or InfiniBand virtual lanes. The highest number is served first where service is
/// strict.
inline constexpr unsigned max_classes = 8;
constexpr std::uint8_t bit_of(unsigned traffic_class) {
    return static_cast<std::uint8_t>(1U << traffic_class);
}

/// Data bits per second, after line encoding: 10 Gbaud x 4 lanes x 8/10 is 32 Gb/s.
struct Rate {
    std::uint64_t bits_per_s = 0;
    friend constexpr bool operator==(Rate, Rate) = default;
};
constexpr Rate gbit_per_s(std::uint64_t gbit) {
    return {gbit * 1'000'000'000};
}
constexpr Rate mbit_per_s(std::uint64_t mbit) {
    return {mbit * 1'000'000};
}

/// What a byte takes, in units of 2^-16 ps, to the nearest: exact for every rate that divides 8 Tb/s x 2^16, and within
/// 2e-7 for all others up to 1 Tb/s.
class BytePace {
public:
    constexpr BytePace() = default;
    constexpr explicit BytePace(Rate rate)
        : ps_q16_((8'000'000'000'000ULL * 65536 + rate.bits_per_s / 2) / rate.bits_per_s) {}
    /// To the nearest picosecond; up to 2^24 bytes at 1 Mb/s and more.
    [[nodiscard]] constexpr Time of(std::uint64_t bytes) const {
        return static_cast<Time>((bytes * ps_q16_ + 32768) >> 16);
    }
    /// Zero: nothing takes any time.
    [[nodiscard]] constexpr bool unlimited() const { return ps_q16_ == 0; }

private:
    std::uint64_t ps_q16_ = 0;
};

enum class PacketKind : std::uint8_t {
    data,
    ack,           // `psn`: everything below has arrived
    nak,           // the same, and the packet `psn` is missing
    cnp,           // congestion notification (IBTA RoCE annex A17)
    read_request,  // `psn` is the number of the message asked for
    pause          // PFC: `psn` holds the classes to pause; never leaves the cable
};

/// One packet, or a train of them, on its way. Lives in the pool of its network; belongs to exactly one list at a time.
struct Packet {
    std::uint32_t next = nil;  // in that list
    FlowIndex flow = nil;
    std::uint32_t psn = 0;
    HostIndex destination = 0;
    std::uint32_t entropy = 0;     // what static ECMP hashes
    std::uint32_t wire_bytes = 0;  // with headers, preamble and gap
    // On a cable: the low half of the time at which the *next* packet in the list arrives, less than 2^32 ps after this
    // one, so that one look at a packet that arrives is enough. In a switch: the own port through which it came.
    std::uint32_t next_arrival_or_ingress = 0;
    PacketKind kind = PacketKind::data;
    std::uint8_t traffic_class = 0;
    bool marked : 1 = false;  // congestion experienced
    bool last : 1 = false;    // of its message
    std::uint8_t place = 0;   // in a switch with deep buffers: see DeepPlace
};
static_assert(sizeof(Packet) == 32);

}  // namespace incast::sim::packet

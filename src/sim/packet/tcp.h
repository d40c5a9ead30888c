// What a TCP connection of the packet model remembers, at both ends: tcp.cpp.
#pragma once

#include <array>
#include <cstdint>

#include <incast/transport.h>

namespace incast::sim::packet {

struct TcpState {
    static constexpr std::uint32_t most = 256;  // packets in flight
    /// Packets by number modulo `most`, of which at most that many are told apart at a time.
    using Packets = std::array<std::uint64_t, most / 64>;

    // Sender.
    std::uint32_t window_q8 = 10 << 8;  // RFC 6928
    std::uint32_t threshold = most;
    std::uint32_t limit = most;    // of the flow's settings
    std::uint32_t recover = 0;     // recovery ends when all below has arrived
    std::uint32_t lost_below = 0;  // what has not arrived below this is taken for lost
    std::uint32_t highest = 0;     // the last packet known to have arrived
    std::uint32_t newly = 0;       // of the acknowledgement in hand: packets that have arrived in order
    std::uint8_t reported = 0;     // and the number of another one that has, beyond them
    bool recovering = false;
    bool timed_out = false;         // and so in slow start
    bool probed = false;            // the last packet has been sent again, as nothing was heard
    std::uint32_t sent_before = 0;  // next_psn when it was looked whether to do so
    Time silent_since = 0;          // nothing has been heard, nor sent as far as that was looked for
    bool timing = false;
    std::uint32_t timed = 0;  // a packet whose round trip is measured
    Time timed_since = 0;
    Time round_trip = 0;                // smoothed; 0: not known yet
    Time reordered_until = time_never;  // what is missing below `highest` may still come, until then
    Packets sacked{};                   // have arrived beyond the oldest missing one
    Packets resent{};                   // have been sent again since they were taken for lost
    /// [psn % most], where resent: the first packet sent after that, in 16 bits. If it has arrived and the other has
    /// not, that was lost once more (RFC 8985).
    std::array<std::uint16_t, most> resent_before{};

    // Receiver.
    Packets arrived{};  // beyond `expected`
    Time heard = 0;     // the last packet
    static constexpr std::uint8_t most_quick_acks = 16;
    std::uint8_t quick_acks = 0;  // of the next packets, each is acknowledged at once

    /// So long a packet may come later than another one that was sent after it (RFC 8985, section 6.2).
    [[nodiscard]] Time reordering_time() const { return round_trip / 4; }
    /// If nothing is heard or sent for two round trips, the last packet is sent again (RFC 8985, section 7), once.
    [[nodiscard]] bool may_probe() const { return !probed && !recovering && round_trip != 0; }
    [[nodiscard]] Time probe_after() const { return 2 * round_trip; }
    /// If nothing is heard for so long, all is taken for lost.
    [[nodiscard]] Time give_up_after(Time timeout) const { return timeout + round_trip; }

    static bool test(const Packets& set, std::uint32_t psn) { return (set[psn % most / 64] >> (psn % 64) & 1) != 0; }
    static void insert(Packets& set, std::uint32_t psn) { set[psn % most / 64] |= std::uint64_t{1} << (psn % 64); }
    static void erase(Packets& set, std::uint32_t psn) { set[psn % most / 64] &= ~(std::uint64_t{1} << (psn % 64)); }
};

}  // namespace incast::sim::packet

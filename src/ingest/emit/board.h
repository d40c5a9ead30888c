// A board as a builder sees it: packets of consecutive events, of which some are lost, come twice or late, all by a
// seed. Sans IO.
//
// A fragment is the id of its event (8 bytes, little-endian), then that of its source (2 bytes), then bytes that count
// up, the first of them being the low byte of the sum of both ids plus its position; as many of all that as it is long.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include <incast/result.h>

#include "base/prng.h"
#include "ingest/packet.h"

namespace incast::ingest {

/// What happens to one board, once it has made so many events.
struct Turn {
    std::uint16_t source = 0;
    std::uint64_t at = 0;
    std::uint32_t events = 0;  // in a packet from then on, where that is what changes
};

struct BoardSettings {
    Format format = Format::mfp;
    std::uint64_t first_event = 0;               // its id
    std::uint64_t events = 0;                    // 0: without end
    std::size_t most_bytes = most_packet_bytes;  // of a packet
    std::uint32_t packet_events = 1;             // in a packet
    std::uint32_t fragment_bytes = 100;          // on average
    double spread = 0;                           // sizes are even between 1 - spread and 1 + spread times that
    std::uint32_t lost_per_million = 0;          // packets
    std::uint32_t twice_per_million = 0;
    std::uint32_t late_per_million = 0;  // sent behind the next few
    std::vector<Turn> restarts{};        // it counts from 0 again
    std::vector<Turn> silences{};        // it sends nothing any more
    std::vector<Turn> sizes{};           // it packs other numbers of events
    std::uint64_t seed = 1;
};

/// Bytes of that event's fragment.
[[nodiscard]] std::uint32_t fragment_bytes(const BoardSettings& settings, std::uint16_t source, std::uint64_t event);
void fill_fragment(std::uint16_t source, std::uint64_t event, std::span<std::byte> fragment);

class Board {
public:
    /// What became of the packets that were made.
    struct Sums {
        std::uint64_t packets = 0;
        std::uint64_t events = 0;  // made; all but those of packets that were lost were sent
        std::uint64_t lost_packets = 0;
        std::uint64_t lost_events = 0;
        std::uint64_t twice_packets = 0;
        std::uint64_t twice_events = 0;
        std::uint64_t late_packets = 0;
        std::uint64_t sent_bytes = 0;
        std::uint64_t restarts = 0;
        bool is_silent = false;
    };
    struct Packet {
        std::uint64_t first_event = 0;
        std::uint32_t events = 0;
        bool is_lost = false;
        bool is_twice = false;
        std::uint32_t behind = 0;  // so many packets that it waits for
    };

    /// The error names what a packet cannot hold.
    static Result<Board> make(const BoardSettings& settings, std::uint16_t source);

    /// All events were made.
    [[nodiscard]] bool is_done() const {
        return sums_.is_silent || (settings_.events != 0 && sums_.events >= settings_.events);
    }
    /// Makes the next packet: send(bytes) for each datagram that goes out now, good during the call.
    template <class Send>
    Packet next(Send&& send) {
        const Packet packet = make_packet();
        if (packet.events == 0) return packet;
        const std::span<const std::byte> bytes(packet_.data(), packet_bytes_);
        if (!packet.is_lost && packet.behind > 0) {
            held_.emplace_back(std::vector<std::byte>(bytes.begin(), bytes.end()), packet.behind);
        } else if (!packet.is_lost) {
            for (int copies = packet.is_twice ? 2 : 1; copies > 0; --copies) {
                sums_.sent_bytes += bytes.size();
                send(bytes);
            }
        }
        std::size_t kept = 0;
        for (auto& [late, behind] : held_) {
            if (packet.behind > 0 && &late == &held_.back().first) {
                // made just now
            } else if (--behind == 0) {
                sums_.sent_bytes += late.size();
                send(std::span<const std::byte>(late));
                continue;
            }
            if (&held_[kept].first != &late) held_[kept] = {std::move(late), behind};
            ++kept;
        }
        held_.resize(kept);
        return packet;
    }
    /// Those that nothing came behind of.
    template <class Send>
    void finish(Send&& send) {
        for (const auto& [late, behind] : held_) {
            sums_.sent_bytes += late.size();
            send(std::span<const std::byte>(late));
        }
        held_.clear();
    }

    [[nodiscard]] std::uint16_t source() const { return source_; }
    [[nodiscard]] const Sums& sums() const { return sums_; }

private:
    Board(const BoardSettings& settings, std::uint16_t source);
    Packet make_packet();
    void write(const Packet& packet);

    BoardSettings settings_;
    std::uint16_t source_;
    base::Prng random_;
    std::uint64_t next_event_ = 0;
    std::vector<std::byte> packet_;
    std::size_t packet_bytes_ = 0;
    std::vector<std::byte> banks_;
    std::vector<std::uint32_t> sizes_;
    std::vector<std::pair<std::vector<std::byte>, std::uint32_t>> held_;
    Sums sums_;
};

}  // namespace incast::ingest

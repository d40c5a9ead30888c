// The receiving half of a session: every packet once, those of a lane in the order in which they were added. Packets of
// lane 0 have no order: they are delivered as they come.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "reliable/packet.h"
#include "reliable/settings.h"

namespace incast::reliable {

/// A packet's body, valid until the next call. What is in order is where it was received; what waited is copied.
struct Delivery {
    std::uint8_t lane = 0;
    std::span<const std::byte> body;
};

class ReceiveWindow {
public:
    explicit ReceiveWindow(const Settings& settings);
    void reset();

    [[nodiscard]] bool is_new(const Packet& packet) const {
        return packet.sequence >= complete_below_ && packet.sequence - complete_below_ < here_.size() &&
               here_[place(packet.sequence)] == 0;
    }
    /// Takes a packet of data in, whose body stays where it is until all deliveries are taken. False: it makes no
    /// sense.
    bool take(const Packet& packet);
    std::optional<Delivery> next();

    [[nodiscard]] std::uint64_t complete_below() const { return complete_below_; }
    /// The bitmap behind complete_below, without zeros at its end; returns its bytes.
    std::size_t write_bitmap(std::span<std::byte> into) const;
    [[nodiscard]] const ReceiveCounters& counters() const { return counters_; }

private:
    struct Held {
        bool used = false;
        std::uint8_t lane = 0;
        std::uint16_t body_bytes = 0;
        std::uint32_t lane_sequence = 0;
    };

    [[nodiscard]] std::size_t place(std::uint64_t sequence) const { return sequence & (held_.size() - 1); }
    [[nodiscard]] std::span<std::byte> bytes(std::size_t place) {
        return {bytes_.get() + place * body_bytes_, body_bytes_};
    }

    std::uint32_t body_bytes_ = 0;
    std::vector<std::uint8_t> here_;  // of complete_below .. + window
    std::vector<Held> held_;
    std::unique_ptr<std::byte[]> bytes_;  // not touched until it is used
    std::array<std::uint32_t, max_lanes> lane_next_{};
    std::array<std::uint32_t, max_lanes> held_in_lane_{};
    std::uint64_t complete_below_ = 0;
    std::uint64_t end_ = 0;  // above all that is here
    // A body that can be delivered from where it was received. (Two members of different sizes: as a span it would be
    // copied whole, and the CPU waits for that until what its packet was put together with is stored.)
    bool is_ready_ = false;
    const std::byte* ready_ = nullptr;
    std::uint32_t ready_bytes_ = 0;
    std::uint8_t lane_ = 0;  // whose held packets are being delivered
    std::uint64_t look_from_ = 0;
    std::optional<std::size_t> lent_;  // the place of the last delivery
    ReceiveCounters counters_;
};

}  // namespace incast::reliable

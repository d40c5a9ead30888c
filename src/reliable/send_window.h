// The sending half of a session: packets kept until they are acknowledged, when to send which again, and how many may
// be on their way. Round trips and time-outs after RFC 6298, losses from selective acknowledgements by order of
// transmission (RFC 8985, RFC 9002), congestion window with multiplicative decrease (RFC 5681, factor of RFC 9438).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "reliable/packet.h"
#include "reliable/settings.h"

namespace incast::reliable {

class SendWindow {
public:
    explicit SendWindow(const Settings& settings);
    /// Forgets everything, as for a new session.
    void reset();

    /// Packets that can be added now.
    [[nodiscard]] std::uint32_t room() const {
        return settings_.window_packets - static_cast<std::uint32_t>(next_ - first_);
    }
    [[nodiscard]] bool is_empty() const { return next_ == first_; }
    /// Some were never sent.
    [[nodiscard]] bool has_fresh() const { return fresh_ < next_; }
    [[nodiscard]] bool has_in_flight() const { return in_flight_ > 0; }
    /// Where the next packet's body goes; there must be room(). Until add() it may be asked for again.
    [[nodiscard]] std::span<std::byte> body() { return datagram(next_).subspan(header_bytes); }
    void add(std::uint8_t lane, std::size_t body_bytes);
    /// A packet could be sent at once, ahead of nobody.
    [[nodiscard]] bool may_pass(std::int64_t now_ns) const {
        return room() > 0 && fresh_ == next_ && lost_ == 0 && fresh_ - first_ < limit_ &&
               in_flight_ < static_cast<std::uint32_t>(congestion_) && !is_paced(now_ns);
    }
    /// Why not: the pace, which allows it again at deadline_ns().
    void wait_for_pace(std::int64_t now_ns) { held_by_pace_ = held_by_pace_ || is_paced(now_ns); }
    /// Sends at once what is sent once, in lane 0: `kept_bytes` of body(), and `rest_bytes` that lie elsewhere and that
    /// the caller puts behind. Should it get lost, its number comes again, with an empty body. Precondition:
    /// may_pass().
    std::span<const std::byte> pass(std::int64_t now_ns, std::uint64_t token, std::size_t kept_bytes,
                                    std::size_t rest_bytes);

    /// The most that the other side takes in ahead of what is complete there.
    void set_limit(std::uint32_t packets) { limit_ = packets; }
    /// The next datagram to be sent for `token`, counted as sent now. Empty: none may be. It stays until acknowledged.
    std::span<const std::byte> next(std::int64_t now_ns, std::uint64_t token);
    /// False: it acknowledges what was never sent.
    bool acknowledge(std::int64_t now_ns, const Packet& ack);
    /// When something is to be done even if nothing arrives.
    [[nodiscard]] std::int64_t deadline_ns() const;
    void advance(std::int64_t now_ns);

    [[nodiscard]] const SendCounters& counters() const { return counters_; }
    [[nodiscard]] std::int64_t round_trip_ns() const { return smoothed_ns_; }

private:
    enum class State : std::uint8_t { waiting, in_flight, lost, acknowledged };
    struct Slot {
        State state = State::waiting;
        std::uint8_t lane = 0;
        std::uint16_t body_bytes = 0;
        std::uint32_t lane_sequence = 0;
        bool sent_once = false;          // its body is
        std::uint64_t transmission = 0;  // number of its last one
        std::int64_t sent_ns = 0;
    };

    [[nodiscard]] std::size_t place(std::uint64_t sequence) const { return sequence & (slots_.size() - 1); }
    [[nodiscard]] Slot& slot(std::uint64_t sequence) { return slots_[place(sequence)]; }
    [[nodiscard]] std::span<std::byte> datagram(std::uint64_t sequence) {
        return {bytes_.get() + place(sequence) * settings_.datagram_bytes, settings_.datagram_bytes};
    }
    std::span<const std::byte> transmit(std::int64_t now_ns, std::uint64_t token, std::uint64_t sequence);
    void settle(Slot& slot, std::uint64_t& newest, std::uint32_t& newly);
    void measure(std::int64_t round_trip_ns);
    void find_losses(std::int64_t now_ns, std::uint64_t end);
    void lose(Slot& slot);
    void shrink(std::uint64_t transmission);
    [[nodiscard]] std::int64_t timeout_ns() const;
    [[nodiscard]] bool is_paced(std::int64_t now_ns) const {
        return settings_.pace_bytes_per_s != 0 && paced_ns_ > now_ns;
    }

    Settings settings_;
    std::vector<Slot> slots_;
    std::unique_ptr<std::byte[]> bytes_;  // not touched until it is used
    std::array<std::uint32_t, max_lanes> lane_next_{};
    std::uint64_t first_ = 0;  // not acknowledged
    std::uint64_t fresh_ = 0;  // never sent
    std::uint64_t next_ = 0;   // to be added
    std::uint32_t limit_ = 0;
    std::uint32_t in_flight_ = 0;
    std::uint32_t lost_ = 0;
    std::uint64_t lost_from_ = 0;  // none is lost below
    std::uint64_t transmissions_ = 0;
    std::uint64_t newest_ = 0;   // transmission that was acknowledged
    std::uint64_t reduced_ = 0;  // losses of transmissions up to this one have been answered
    double congestion_ = 0;      // packets
    double threshold_ = 0;
    std::int64_t smoothed_ns_ = 0;
    std::int64_t variance_ns_ = 0;
    std::uint32_t backoff_ = 0;
    std::int64_t retransmit_ns_ = never_ns;
    std::int64_t paced_ns_ = 0;  // before that the pace allows nothing
    bool held_by_pace_ = false;
    SendCounters counters_;
};

}  // namespace incast::reliable

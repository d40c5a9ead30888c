// CoDel: when a queue has stood for too long (RFC 8289).
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>

namespace incast::netdev {

/// Asked for each frame that leaves a queue, in its order. It reads no clock.
class Codel {
public:
    static constexpr std::int64_t target_ns = 5'000'000;      // RFC 8289, section 4.2
    static constexpr std::int64_t interval_ns = 100'000'000;  // RFC 8289, section 4.3

    /// Whether this frame is to be marked, or dropped. `waited_ns`: how long it was in the queue; `left_bytes`: what is
    /// in the queue behind it. A queue that has no more than a frame's worth behind it does not stand.
    bool should_signal(std::int64_t now_ns, std::int64_t waited_ns, std::size_t left_bytes, std::size_t frame_bytes) {
        const bool stands = has_stood(now_ns, waited_ns, left_bytes, frame_bytes);
        if (!is_signalling_) {
            if (!stands) return false;
            is_signalling_ = true;
            // Soon after the last time: go on about where that was.
            const std::uint32_t more = count_ - last_count_;
            count_ = more > 1 && now_ns - next_ns_ < 16 * interval_ns ? more : 1;
            next_ns_ = after(now_ns);
            last_count_ = count_;
            return true;
        }
        if (!stands) {
            is_signalling_ = false;
            return false;
        }
        if (now_ns < next_ns_) return false;
        ++count_;
        next_ns_ = after(next_ns_);
        return true;
    }

private:
    bool has_stood(std::int64_t now_ns, std::int64_t waited_ns, std::size_t left_bytes, std::size_t frame_bytes) {
        if (waited_ns < target_ns || left_bytes <= frame_bytes) {
            first_above_ns_ = 0;
            return false;
        }
        if (first_above_ns_ == 0) {
            first_above_ns_ = now_ns + interval_ns;
            return false;
        }
        return now_ns >= first_above_ns_;
    }
    /// The more often it was told, the sooner again: the control law of RFC 8289, section 3.2.
    [[nodiscard]] std::int64_t after(std::int64_t time_ns) const {
        return time_ns + static_cast<std::int64_t>(static_cast<double>(interval_ns) / std::sqrt(count_));
    }

    std::int64_t first_above_ns_ = 0;  // 0: it was below, lately
    std::int64_t next_ns_ = 0;
    std::uint32_t count_ = 0;
    std::uint32_t last_count_ = 0;
    bool is_signalling_ = false;
};

}  // namespace incast::netdev

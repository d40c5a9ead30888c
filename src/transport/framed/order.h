// The posting order of one ordered pair, as the receiver rebuilds it from several streams.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace incast::transport::framed {

/// Frames are numbered over all streams; a message or notice is handed out when every frame before it is complete.
/// Within a stream frames are in order already, so only completed frames of other streams have to be remembered: one
/// bit each, in a window.
class Order {
public:
    static constexpr std::uint32_t window = 4096;

    enum class Place : std::uint8_t {
        next,    // every earlier frame is complete
        later,   // inside the window
        beyond,  // outside it: look at it again when others completed
        past,    // complete already: a peer that counts right never sends this
    };

    explicit Order(std::uint32_t first) : next_(first) {}

    [[nodiscard]] std::uint32_t next() const { return next_; }

    [[nodiscard]] Place place(std::uint32_t sequence) const {
        const std::uint32_t distance = sequence - next_;
        if (distance == 0) return Place::next;
        if (distance < window) return bit(sequence) ? Place::past : Place::later;
        return distance < half ? Place::beyond : Place::past;
    }

    /// Precondition: place is next or later.
    void complete(std::uint32_t sequence) {
        if (sequence != next_) {
            done_[word(sequence)] |= mask(sequence);
            ++ahead_;
            return;
        }
        ++next_;
        while (ahead_ > 0 && bit(next_)) {
            done_[word(next_)] &= ~mask(next_);
            --ahead_;
            ++next_;
        }
    }

private:
    static constexpr std::uint32_t half = 1U << 31;
    static std::size_t word(std::uint32_t sequence) { return sequence % window / 64; }
    static std::uint64_t mask(std::uint32_t sequence) { return std::uint64_t{1} << (sequence % 64); }
    [[nodiscard]] bool bit(std::uint32_t sequence) const { return (done_[word(sequence)] & mask(sequence)) != 0; }

    std::uint32_t next_;
    std::uint32_t ahead_ = 0;  // bits set
    std::array<std::uint64_t, window / 64> done_{};
};

}  // namespace incast::transport::framed

// One end of the connection between a dispatcher and a farm node in a simulated world: it is made, kept up, and made
// again when it was lost.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <span>
#include <vector>

#include <incast/transport.h>

#include "farm/book/frames.h"

namespace incast::farm::simulated {

/// How the other side is reached; a new incarnation has another address.
struct Whereabouts {
    Peer peer{};
    std::uint32_t incarnation = 0;  // 0: nobody is there
    Blob address;
    Blob key;  // of what may be written to there; empty: nothing
};

class Link {
public:
    static constexpr Time retry_interval = 100 * ps_per_us;

    /// `body`: as long as any that is written; its bytes do not matter.
    void set_up(Transport& transport, Local body) {
        transport_ = &transport;
        body_ = body;
    }
    /// From now on the other side is there.
    void expect(const Whereabouts& there);
    /// Connects when it is time to.
    void call(Time now);
    /// Gives the connection up, after which it is made anew.
    void drop(Time now);

    /// False: an earlier incarnation, which is none of this.
    bool came_up(const Event& event);
    void went_down(Time now);
    [[nodiscard]] bool is_up() const { return is_up_; }
    [[nodiscard]] Peer peer() const { return there_.peer; }
    [[nodiscard]] Time next_call() const { return is_called_ || there_.incarnation == 0 ? time_never : next_call_; }

    void say(Bytes message);
    /// `head`, and so many bytes behind it, into that place of the other side's.
    void write(Bytes head, std::uint64_t bytes, std::uint64_t offset, std::uint16_t notice);
    /// As much as there is room for.
    void push();
    [[nodiscard]] bool has_said_all() const { return out_.empty(); }

private:
    struct Out {
        std::array<std::byte, max_head_bytes> head{};
        std::vector<std::byte> message;  // empty: it is a write
        std::uint8_t head_bytes = 0;
        std::uint16_t notice = 0;
        std::uint64_t bytes = 0;
        std::uint64_t offset = 0;
    };

    Transport* transport_ = nullptr;
    Local body_{};
    Whereabouts there_;
    Remote remote_{};
    std::deque<Out> out_;
    Time next_call_ = 0;
    bool is_called_ = false;
    bool is_up_ = false;
    bool is_leaving_ = false;
};

}  // namespace incast::farm::simulated

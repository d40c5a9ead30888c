// What one stream has received: headers and messages in a staging buffer, payload straight in its final place.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include <incast/transport.h>

#include "transport/framed/event_writer.h"
#include "transport/framed/frame.h"

namespace incast::transport::framed {

class Session;

enum class Parse : std::uint8_t {
    hungry,     // needs more bytes
    blocked,    // holds back an event: for room in `events`, or for earlier frames of other streams
    violation,  // the peer broke the rules (Session::violation()): drop it
};

class Receiver {
public:
    explicit Receiver(std::size_t staging_bytes);

    /// Where the link puts the next bytes: `payload` first, then `staging`. Both empty: no bytes can be taken before
    /// parse() made progress, or before the next poll (messages handed out in this one lie in the staging buffer).
    struct Space {
        std::span<std::byte> payload;
        std::span<std::byte> staging;
        [[nodiscard]] std::size_t bytes() const { return payload.size() + staging.size(); }
    };
    [[nodiscard]] Space space(std::uint64_t poll_number);
    /// The link put that many bytes there.
    void filled(std::size_t bytes);
    /// Acts on what was received.
    Parse parse(Session& session, EventWriter& events, std::uint64_t poll_number);

    /// What is being received goes there.
    [[nodiscard]] bool fills(Bytes memory) const { return state_ == State::payload && lies_in(place_, memory); }

    /// True if parse() might do something without further bytes.
    [[nodiscard]] bool blocked() const { return blocked_; }

private:
    enum class State : std::uint8_t {
        header,   // of the next frame
        start,    // header read, its sequence number not yet looked at
        message,  // waits for the whole message in the staging buffer
        payload,  // left_ bytes go to place_, or nowhere if that is null
        placed,   // all there; the frame takes effect once its turn comes
    };
    [[nodiscard]] std::size_t staged() const { return end_ - begin_; }
    Parse block() {
        blocked_ = true;
        return Parse::blocked;
    }

    std::size_t staging_bytes_;
    std::unique_ptr<std::byte[]> staging_;
    std::size_t begin_ = 0;  // unparsed bytes of the staging buffer
    std::size_t end_ = 0;
    std::byte* place_ = nullptr;
    std::size_t left_ = 0;
    std::uint64_t pinned_poll_ = 0;  // the poll that handed out messages from the staging buffer
    FrameHeader frame_{};
    State state_ = State::header;
    bool blocked_ = false;
    bool large_frames_ = false;
};

}  // namespace incast::transport::framed

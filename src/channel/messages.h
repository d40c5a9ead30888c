// Messages on a channel: the bytes of each stand behind their number, 4 bytes little-endian. Both sides know that the
// channel carries messages; a stream of bytes is the same without these numbers.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>

#include <incast/transport.h>

#include "channel/receiver.h"
#include "channel/sender.h"

namespace incast::channel {

inline constexpr std::uint32_t max_message = 1U << 30U;  // bytes, unless less was agreed

class MessageWriter {
public:
    explicit MessageWriter(Sender& sender) : sender_(sender) {}

    /// A message of that length begins. False: the one before is not whole, it is too long, or there is no room now.
    [[nodiscard]] bool begin(std::uint32_t length);
    /// Copies what fits of the next bytes of the message, and returns how many. None beyond its length.
    std::size_t write(Bytes bytes);
    /// All of the message that was begun was taken. If not, write() goes on, of no bytes too.
    [[nodiscard]] bool is_whole() const { return prefix_left_ == 0 && left_ == 0; }

private:
    void put_prefix();

    Sender& sender_;
    std::array<std::byte, 4> prefix_{};
    std::uint32_t prefix_left_ = 0;
    std::uint32_t left_ = 0;
};

class MessageReader {
public:
    /// A peer that announces a longer message than `longest` is broken.
    explicit MessageReader(Receiver& receiver, std::uint32_t longest = max_message)
        : receiver_(receiver), longest_(longest) {}

    /// The length of the message that is read now, once it is known. The message ends with read() of its last byte;
    /// one of no bytes with done().
    std::optional<std::uint32_t> length();
    /// Copies what there is of the message, and returns how much.
    std::size_t read(std::span<std::byte> into);
    [[nodiscard]] std::uint32_t left() const { return left_; }
    /// Precondition: a length() with nothing left(). The next message may begin.
    void done() { has_ = 0; }
    /// The peer announced what may not be, or ended within a message.
    [[nodiscard]] bool is_broken() const { return is_broken_ || (receiver_.has_ended() && has_ != 0 && !is_whole()); }
    /// Nothing follows, and nothing was torn.
    [[nodiscard]] bool has_ended() const { return receiver_.has_ended() && has_ == 0; }

private:
    [[nodiscard]] bool is_whole() const { return has_ == prefix_.size() && left_ == 0; }

    Receiver& receiver_;
    std::uint32_t longest_;
    std::array<std::byte, 4> prefix_{};
    std::uint32_t has_ = 0;  // bytes of the prefix
    std::uint32_t length_ = 0;
    std::uint32_t left_ = 0;
    bool is_broken_ = false;
};

}  // namespace incast::channel

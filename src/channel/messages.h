// Messages on a channel: the bytes of each stand behind their number, 4 bytes little-endian. Both sides know that the
// channel carries messages; a stream of bytes is the same without these numbers.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>

#include <incast/transport.h>

#include "channel/receiver.h"
#include "channel/sender.h"

namespace incast::channel {

inline constexpr std::uint32_t max_message = 1U << 30U;  // bytes, unless less was agreed

/// `Stream`: what takes bytes, as a Sender does.
template <class Stream>
class BasicMessageWriter {
public:
    explicit BasicMessageWriter(Stream& sender) : sender_(sender) {}

    /// A message of that length begins. False: the one before is not whole, it is too long, or there is no room now.
    [[nodiscard]] bool begin(std::uint32_t length) {
        if (!is_whole() || length > max_message || !sender_.has_room()) return false;
        std::memcpy(prefix_.data(), &length, prefix_.size());
        prefix_left_ = static_cast<std::uint32_t>(prefix_.size());
        left_ = length;
        put_prefix();
        return true;
    }
    /// Copies what fits of the next bytes of the message, and returns how many. None beyond its length.
    std::size_t write(Bytes bytes) {
        if (prefix_left_ > 0) put_prefix();
        if (prefix_left_ > 0) return 0;
        const std::size_t done = sender_.write(bytes.first(std::min<std::size_t>(bytes.size(), left_)));
        left_ -= static_cast<std::uint32_t>(done);
        return done;
    }
    /// All of the message that was begun was taken. If not, write() goes on, of no bytes too.
    [[nodiscard]] bool is_whole() const { return prefix_left_ == 0 && left_ == 0; }

private:
    void put_prefix() { prefix_left_ -= static_cast<std::uint32_t>(sender_.write(Bytes(prefix_).last(prefix_left_))); }

    Stream& sender_;
    std::array<std::byte, 4> prefix_{};
    std::uint32_t prefix_left_ = 0;
    std::uint32_t left_ = 0;
};

/// `Stream`: what gives bytes, as a Receiver does.
template <class Stream>
class BasicMessageReader {
public:
    /// A peer that announces a longer message than `longest` is broken.
    explicit BasicMessageReader(Stream& receiver, std::uint32_t longest = max_message)
        : receiver_(receiver), longest_(longest) {}

    /// The length of the message that is read now, once it is known. The message ends with read() of its last byte;
    /// one of no bytes with done().
    std::optional<std::uint32_t> length() {
        if (is_broken_) return std::nullopt;
        if (has_ < prefix_.size()) {
            has_ += static_cast<std::uint32_t>(receiver_.read(std::span(prefix_).subspan(has_)));
            if (has_ < prefix_.size()) return std::nullopt;
            std::memcpy(&length_, prefix_.data(), prefix_.size());
            is_broken_ = length_ > longest_;
            if (is_broken_) return std::nullopt;
            left_ = length_;
        }
        return length_;
    }
    /// Copies what there is of the message, and returns how much.
    std::size_t read(std::span<std::byte> into) {
        if (!length()) return 0;
        const std::size_t done = receiver_.read(into.first(std::min<std::size_t>(into.size(), left_)));
        left_ -= static_cast<std::uint32_t>(done);
        return done;
    }
    [[nodiscard]] std::uint32_t left() const { return left_; }
    /// Precondition: a length() with nothing left(). The next message may begin.
    void done() { has_ = 0; }
    /// The peer announced what may not be, or ended within a message.
    [[nodiscard]] bool is_broken() const { return is_broken_ || (receiver_.has_ended() && has_ != 0 && !is_whole()); }
    /// Nothing follows, and nothing was torn.
    [[nodiscard]] bool has_ended() const { return receiver_.has_ended() && has_ == 0; }

private:
    [[nodiscard]] bool is_whole() const { return has_ == prefix_.size() && left_ == 0; }

    Stream& receiver_;
    std::uint32_t longest_;
    std::array<std::byte, 4> prefix_{};
    std::uint32_t has_ = 0;  // bytes of the prefix
    std::uint32_t length_ = 0;
    std::uint32_t left_ = 0;
    bool is_broken_ = false;
};

using MessageWriter = BasicMessageWriter<Sender>;
using MessageReader = BasicMessageReader<Receiver>;

}  // namespace incast::channel

#include "channel/messages.h"

#include <algorithm>
#include <cstring>

namespace incast::channel {

bool MessageWriter::begin(std::uint32_t length) {
    if (!is_whole() || length > max_message || !sender_.has_room()) return false;
    std::memcpy(prefix_.data(), &length, prefix_.size());
    prefix_left_ = static_cast<std::uint32_t>(prefix_.size());
    left_ = length;
    put_prefix();
    return true;
}

void MessageWriter::put_prefix() {
    const std::size_t done = sender_.write(Bytes(prefix_).last(prefix_left_));
    prefix_left_ -= static_cast<std::uint32_t>(done);
}

std::size_t MessageWriter::write(Bytes bytes) {
    if (prefix_left_ > 0) put_prefix();
    if (prefix_left_ > 0) return 0;
    const std::size_t done = sender_.write(bytes.first(std::min<std::size_t>(bytes.size(), left_)));
    left_ -= static_cast<std::uint32_t>(done);
    return done;
}

std::optional<std::uint32_t> MessageReader::length() {
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

std::size_t MessageReader::read(std::span<std::byte> into) {
    if (!length()) return 0;
    const std::size_t done = receiver_.read(into.first(std::min<std::size_t>(into.size(), left_)));
    left_ -= static_cast<std::uint32_t>(done);
    return done;
}

}  // namespace incast::channel

// What travels beside the payload: the head of a message in its slot, and control messages. Little-endian.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>

#include <incast/transport.h>

#include "net/config.h"

namespace incast::net {

static_assert(std::endian::native == std::endian::little, "heads and control messages are read in place");

struct Head {
    std::uint64_t run = 0;       // fingerprint of the config
    std::uint64_t sequence = 0;  // of the queue, from 0; an answer has that of its question
    std::uint64_t position = 0;  // of the body in the sender's ring
    std::uint32_t bytes = 0;     // of the body
    std::uint16_t queue = 0;
    std::uint16_t answer = 0;
    std::uint64_t reserved[4] = {};  // so that the body begins on a line
};
static_assert(sizeof(Head) == head_bytes);

/// The notice of a message: its slot within its pair, and whether it is an answer.
inline constexpr std::uint16_t answer_bit = 0x8000;

enum class ControlKind : std::uint16_t {
    hello,    // the key of the region, then its bytes; both sides begin with it
    credits,  // entries: messages of a queue that were polled, in all
    end,      // entries: messages of a queue that were sent, in all; nothing follows
};

struct ControlHeader {
    std::uint64_t run = 0;
    std::uint32_t magic = 0;
    std::uint16_t kind = 0;
    std::uint16_t count = 0;  // entries, one for each queue; hello: bytes of the key, at most max_key_bytes
};

inline constexpr std::uint32_t control_magic = 0x54454e49;  // "INET"

/// Builds a control message in place; what is added beyond its end aborts nothing, as counts are limited by the config.
class ControlMessage {
public:
    ControlMessage(std::uint64_t run, ControlKind kind)
        : header_{run, control_magic, static_cast<std::uint16_t>(kind), 0} {}

    void add(std::uint64_t value) {
        std::memcpy(bytes_ + size_, &value, sizeof value);
        size_ += sizeof value;
        ++header_.count;
    }
    void add_key(Bytes key) {
        std::ranges::copy(key, bytes_ + size_);  // of an endpoint without regions: none
        size_ += key.size();
        header_.count = static_cast<std::uint16_t>(key.size());
    }
    [[nodiscard]] Bytes bytes() {
        std::memcpy(bytes_, &header_, sizeof header_);
        return {bytes_, size_};
    }

private:
    static constexpr std::size_t capacity =
        sizeof(ControlHeader) + std::max(sizeof(std::uint64_t) * (max_queues + 1), max_key_bytes);
    static_assert(capacity <= max_message_bytes);
    ControlHeader header_;
    std::byte bytes_[capacity];
    std::size_t size_ = sizeof(ControlHeader);
};

/// A control message of this run; every length is checked here.
struct ControlView {
    ControlKind kind{};
    Bytes rest;  // the key, or one u64 per queue

    [[nodiscard]] std::uint64_t value(std::size_t index) const {
        std::uint64_t value = 0;
        std::memcpy(&value, rest.data() + index * sizeof value, sizeof value);
        return value;
    }
};

inline std::optional<ControlView> read_control(Bytes message, std::uint64_t run, std::uint32_t queues) {
    ControlHeader header;
    if (message.size() < sizeof header) {
        return std::nullopt;
    }
    std::memcpy(&header, message.data(), sizeof header);
    if (header.magic != control_magic || header.run != run ||
        header.kind > static_cast<std::uint16_t>(ControlKind::end)) {
        return std::nullopt;
    }
    const auto kind = static_cast<ControlKind>(header.kind);
    const Bytes rest = message.subspan(sizeof header);
    const bool fits = kind == ControlKind::hello
                          ? header.count == rest.size() && rest.size() <= max_key_bytes
                          : header.count == queues && rest.size() == queues * sizeof(std::uint64_t);
    return fits ? std::optional(ControlView{kind, rest}) : std::nullopt;
}

}  // namespace incast::net

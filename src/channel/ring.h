// What lies in the memory of a channel, as its two sides write it into each other's (docs/channel.md): numbers are
// little-endian. One direction has a ring of buffers at the receiver and one credit cell at the sender.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>

#include <incast/transport.h>

#include "base/crc.h"
#include "base/prng.h"

namespace incast::channel {

static_assert(std::endian::native == std::endian::little, "headers are copied as they lie");

/// How one side learns what the other one wrote. The papers compare them.
enum class Way : std::uint8_t {
    memory,    // it looks at the place
    doorbell,  // the write carries a notice
    message,   // a message follows the write
};

/// A ring of `buffers` places of `buffer_bytes` each, headers included. The receiver writes a credit back for every
/// `batch` buffers that it has emptied.
struct Shape {
    std::uint32_t buffers = 16;
    std::uint32_t buffer_bytes = 16U << 10U;
    std::uint32_t batch = 4;
    [[nodiscard]] constexpr std::uint64_t bytes() const { return std::uint64_t{buffers} * buffer_bytes; }
    /// Credits that may be under way at once: each has a place of its own.
    [[nodiscard]] constexpr std::uint32_t cells() const { return buffers / batch; }
    bool operator==(const Shape&) const = default;
};

inline constexpr std::uint32_t buffer_align = 64;
inline constexpr std::uint32_t max_buffers = 1U << 16U;
inline constexpr std::uint32_t max_buffer_bytes = 1U << 30U;  // max_write_bytes
inline constexpr std::uint64_t max_ring_bytes = std::uint64_t{1} << 36U;

constexpr bool is_valid(const Shape& shape) {
    return shape.buffers >= 1 && shape.buffers <= max_buffers && shape.buffer_bytes >= buffer_align &&
           shape.buffer_bytes <= max_buffer_bytes && shape.buffer_bytes % buffer_align == 0 &&
           shape.bytes() <= max_ring_bytes && shape.batch >= 1 && shape.batch <= shape.buffers;
}

/// In front of the bytes of each buffer; written together with them.
struct BufferHeader {
    static constexpr std::uint32_t last_flag = 1U << 31U;
    std::uint64_t number = 0;  // of this buffer in its direction, from 1
    std::uint32_t length = 0;  // of the bytes behind; last_flag: nothing follows
    std::uint32_t check = 0;   // where the ring is polled: CRC-32C of the bytes, then of the fields above; else 0

    [[nodiscard]] std::uint32_t bytes() const { return length & ~last_flag; }
    [[nodiscard]] bool is_last() const { return (length & last_flag) != 0; }
};
static_assert(sizeof(BufferHeader) == 16);

inline constexpr std::uint32_t header_bytes = sizeof(BufferHeader);
/// As much travels in the head of a write, and so also where bodies are phantom.
inline constexpr std::uint32_t inline_bytes = static_cast<std::uint32_t>(max_head_bytes) - header_bytes;

constexpr std::uint32_t capacity(const Shape& shape) {
    return shape.buffer_bytes - header_bytes;
}

inline BufferHeader load_header(Bytes at) {
    BufferHeader header;
    std::memcpy(&header, at.data(), sizeof header);
    return header;
}

/// `of_bytes`: the CRC-32C of the bytes of the buffer.
inline std::uint32_t check_of(const BufferHeader& header, std::uint32_t of_bytes) {
    return base::crc32c(std::as_bytes(std::span(&header, 1)).first(offsetof(BufferHeader, check)), of_bytes);
}

/// Buffers that the receiver has emptied, counted as their numbers are. The n-th credit lies in cell n modulo cells():
/// writes may overtake each other, and none may cover a newer one.
struct CreditCell {
    std::uint64_t number = 0;
    std::uint64_t mixed = 0;  // base::mix64(number): of what is there in part it is not
};
static_assert(sizeof(CreditCell) == 16);

inline CreditCell make_credit(std::uint64_t number) {
    return {number, base::mix64(number)};
}

/// `at`: a cell, aligned. What the other side did before it wrote the credit has happened.
inline std::optional<std::uint64_t> load_credit(Bytes at) {
    const auto* words = reinterpret_cast<const std::uint64_t*>(at.data());
    const CreditCell cell{__atomic_load_n(words, __ATOMIC_ACQUIRE), __atomic_load_n(words + 1, __ATOMIC_ACQUIRE)};
    return cell.mixed == base::mix64(cell.number) ? std::optional(cell.number) : std::nullopt;
}

}  // namespace incast::channel

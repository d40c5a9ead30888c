// What endpoints with one-sided writes say to each other by sends.
#pragma once

#include <cstddef>
#include <cstdint>

#include <incast/transport.h>

namespace incast::transport::rma {

/// Of every send.
struct Header {
    enum class Kind : std::uint8_t {
        message = 1,
        notice,    // all writes before it are there
        credits,   // nothing but what every header says
        welcome,   // the first of a connection: Welcome and `value` uses
        released,  // `value` changes
        heard,     // the same: nothing that was posted from here on goes there
    };
    Kind kind{};
    std::uint8_t zero = 0;
    std::uint16_t from = 0;     // the sender, where the connection does not say it
    std::uint16_t value = 0;    // the notice, or how many follow
    std::uint16_t credits = 0;  // receives given back on this connection, as a number that goes round
};
static_assert(sizeof(Header) == 8);

/// Whether what follows a header of that kind, on a connection that was welcomed, cannot be `bytes` long.
bool is_nonsense(const Header& header, std::size_t bytes);

/// Regions of that number were released so often: what older keys name is gone.
struct Welcome {
    std::uint32_t receives = 0;  // that the peer may use up
    std::uint32_t zero = 0;
};
/// A region that was released.
struct Change {
    std::uint16_t region = 0;
    std::uint16_t use = 0;
    bool operator==(const Change&) const = default;
};

inline constexpr std::size_t buffer_bytes = 4096;  // of a send, all of it
inline constexpr std::uint16_t max_regions = 1024;
inline constexpr std::uint32_t max_receives = 16384;  // numbers that go round tell them apart
inline constexpr std::size_t max_changes = 900;       // of one send
inline constexpr std::size_t largest_header = 16;     // with what a transport adds to it
static_assert(largest_header + max_message_bytes <= buffer_bytes);
static_assert(largest_header + sizeof(Welcome) + std::size_t{2} * max_regions <= buffer_bytes);
static_assert(largest_header + sizeof(Change) * max_changes <= buffer_bytes);

}  // namespace incast::transport::rma

// What ofi endpoints say to each other, as bytes: addresses, keys, the call of a connection, what sends carry.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

#include "transport/blob.h"
#include "transport/calls/hello.h"
#include "transport/calls/socket_address.h"

namespace incast::transport::ofi {

inline constexpr std::size_t max_name_bytes = 256;  // shm names its endpoints with up to this
inline constexpr std::size_t max_provider_bytes = 64;

/// Where an endpoint is called, and its address on the fabric.
struct Address {
    static constexpr std::uint32_t expected_magic = 0x4149464F;  // "OFIA"
    std::uint32_t magic = expected_magic;
    std::uint32_t node = 0;
    SocketAddress calls;
    std::array<char, max_provider_bytes> provider{};  // ends with a zero
    std::uint8_t is_connected = 0;                    // FI_EP_MSG
    std::uint8_t is_ordered = 0;                      // writes carry their notices
    std::uint16_t name_bytes = 0;
    std::uint32_t zero = 0;
    std::array<std::byte, max_name_bytes> name{};
};

std::optional<Address> address_in(const Blob& blob);

struct Key : RegionKey<0x4B49464F> {  // "OFIK"
    std::uint64_t address = 0;        // of its first byte, as writes have to name it
    std::uint64_t key = 0;
};

/// The first bytes of a call. `attempt`: of this connection alone.
using Hello = BasicHello<0x4849464F>;  // "OFIH"
struct Call {
    Hello hello;
    std::uint64_t attempt = 0;
};
static_assert(sizeof(Call) == 48);

struct Answer {
    static constexpr std::uint32_t expected_magic = 0x4E49464F;  // "OFIN"
    std::uint32_t magic = expected_magic;
    Verdict verdict = Verdict::malformed;
};
static_assert(sizeof(Answer) == 8);
/// False: what answers is no node.
bool read_answer(Bytes bytes, Answer& answer);

/// What a connected endpoint says with its request.
struct Request {
    static constexpr std::uint32_t expected_magic = 0x5249464F;  // "OFIR"
    std::uint32_t magic = expected_magic;
    std::uint32_t from = 0;
    std::uint64_t attempt = 0;
};

/// The first bytes of every send.
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
    std::uint16_t from = 0;
    std::uint16_t value = 0;    // the notice, or how many follow
    std::uint16_t credits = 0;  // receives given back on this connection, as a number that goes round
    std::uint64_t attempt = 0;  // of this connection
};
static_assert(sizeof(Header) == 16);

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

inline constexpr std::size_t buffer_bytes = 4096;
inline constexpr std::uint16_t max_regions = 1024;
inline constexpr std::uint32_t max_receives = 16384;  // numbers that go round tell them apart
inline constexpr std::size_t max_changes = 900;       // of one send
static_assert(sizeof(Header) + max_message_bytes <= buffer_bytes);
static_assert(sizeof(Header) + sizeof(Welcome) + std::size_t{2} * max_regions <= buffer_bytes);
static_assert(sizeof(Header) + sizeof(Change) * max_changes <= buffer_bytes);

/// Completion data of a write: its notice, who wrote it, and where the provider has 64 bits, half of the attempt.
constexpr std::uint64_t to_data(std::uint16_t notice, std::uint16_t from, std::uint64_t attempt) {
    return attempt << 32 | static_cast<std::uint32_t>(from) << 16 | notice;
}
constexpr std::uint16_t notice_of(std::uint64_t data) {
    return static_cast<std::uint16_t>(data);
}
constexpr std::uint16_t from_of(std::uint64_t data) {
    return static_cast<std::uint16_t>(data >> 16);
}
/// Data of an earlier connection is none of this one.
constexpr bool is_of(std::uint64_t data, std::uint64_t attempt) {
    return data >> 32 == (attempt & 0xFFFFFFFF);
}

}  // namespace incast::transport::ofi

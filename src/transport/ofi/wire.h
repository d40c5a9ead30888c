// What ofi endpoints say to each other, as bytes: addresses, keys, the call of a connection, what sends
// carry.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

#include "transport/blob.h"
#include "transport/calls/socket_address.h"
#include "transport/rma/calling.h"
#include "transport/rma/wire.h"

namespace incast::transport::ofi {

using rma::buffer_bytes;

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

using Call = rma::BasicCall<0x4849464F>;      // "OFIH"
using Answer = rma::BasicAnswer<0x4E49464F>;  // "OFIN"

/// What a connected endpoint says with its request.
struct Request {
    static constexpr std::uint32_t expected_magic = 0x5249464F;  // "OFIR"
    std::uint32_t magic = expected_magic;
    std::uint32_t from = 0;
    std::uint64_t attempt = 0;
};

/// The first bytes of every send.
struct Frame {
    rma::Header header;
    std::uint64_t attempt = 0;  // of this connection
};
static_assert(sizeof(Frame) <= rma::largest_header);

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

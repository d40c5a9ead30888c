// What ucx endpoints say to each other, as bytes: addresses, keys, the call of a connection, active messages.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>

#include "transport/blob.h"
#include "transport/calls/socket_address.h"
#include "transport/rma/calling.h"
#include "transport/rma/wire.h"

namespace incast::transport::ucx {

/// Where an endpoint is called. The address of its worker follows, of any size.
struct AddressHead {
    static constexpr std::uint32_t expected_magic = 0x41584355;  // "UCXA"
    std::uint32_t magic = expected_magic;
    std::uint32_t node = 0;
    SocketAddress calls;
};
inline constexpr std::size_t max_worker_bytes = max_address_bytes - sizeof(AddressHead);

struct Address {
    std::uint32_t node = 0;
    SocketAddress calls;
    std::vector<std::byte> worker;
};
Blob to_blob(const Address& address);
/// Nothing: no address of this transport.
std::optional<Address> address_in(const Blob& blob);

inline constexpr std::size_t max_rkey_bytes = 896;
struct Key : RegionKey<0x4B584355> {  // "UCXK"
    std::uint64_t address = 0;        // of its first byte
    std::uint32_t rkey_bytes = 0;
    std::uint32_t more = 0;
    std::array<std::byte, max_rkey_bytes> rkey{};
};
static_assert(sizeof(Key) <= max_key_bytes);
/// As much of it as there is.
Blob to_blob(const Key& key);
/// False: not the bytes of a key.
bool from_blob(const Blob& blob, Key& key);

using Call = rma::BasicCall<0x48584355>;      // "UCXH"
using Answer = rma::BasicAnswer<0x4E584355>;  // "UCXN"

/// The header of every active message.
struct Frame {
    rma::Header header;
    std::uint32_t attempt = 0;  // of this connection; the lower half
    std::uint32_t number = 0;   // from 0 on: UCX promises no order between them
};
static_assert(sizeof(Frame) <= rma::largest_header);

}  // namespace incast::transport::ucx

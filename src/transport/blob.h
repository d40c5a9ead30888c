// What endpoints hand to each other as bytes: addresses and region keys.
#pragma once

#include <cstdint>
#include <cstring>
#include <span>
#include <string>

#include <incast/result.h>
#include <incast/transport.h>

namespace incast::transport {

/// T begins with `magic`, which is T::expected_magic unless somebody else made the bytes.
template <class T>
Blob to_blob(const T& value) {
    static_assert(sizeof(T) <= max_key_bytes);
    const Bytes bytes = std::as_bytes(std::span(&value, 1));
    return {{bytes.begin(), bytes.end()}};
}

/// False: not the bytes of a T.
template <class T>
bool from_blob(const Blob& blob, T& value) {
    if (blob.bytes.size() != sizeof(T)) return false;
    std::memcpy(&value, blob.bytes.data(), sizeof(T));
    return value.magic == T::expected_magic;
}

/// A region key of a transport between processes; `number` tells the transports apart.
template <std::uint32_t number>
struct RegionKey {
    static constexpr std::uint32_t expected_magic = number;
    std::uint32_t magic = expected_magic;
    std::uint32_t owner = 0;       // the exposing node
    std::uint32_t generation = 0;  // its incarnation
    std::uint32_t region = 0;
    std::uint32_t use = 0;  // of that number: it names another region once this one is released
    std::uint32_t peer = static_cast<std::uint32_t>(any_peer);  // which it was granted to
    std::uint64_t bytes = 0;  // of the region: lets the writer find its own mistakes at once
    std::uint64_t run = 0;
    std::uint32_t write = 1;  // it was granted for writing
    std::uint32_t zero = 0;
};

/// A key in a Blob, if it is one of `peer` in this run for `self`, and of one of `max_regions` regions.
template <class Key>
Result<Key> read_key(const Blob& blob, Peer peer, Peer self, std::uint64_t run, std::uint32_t max_regions,
                     std::string_view transport) {
    Key key;
    if (!from_blob(blob, key) || key.region >= max_regions) {
        return Error{"import_key: not a key of the " + std::string(transport) + " transport"};
    }
    if (key.owner != static_cast<std::uint32_t>(peer) || key.run != run) {
        return Error{"import_key: key of node " + std::to_string(key.owner) + " in run " + std::to_string(key.run) +
                     ", expected one of node " + std::to_string(static_cast<std::uint32_t>(peer)) + " in run " +
                     std::to_string(run)};
    }
    if (key.peer != static_cast<std::uint32_t>(any_peer) && key.peer != static_cast<std::uint32_t>(self)) {
        return Error{"import_key: a key for node " + std::to_string(key.peer) + ", and this is node " +
                     std::to_string(static_cast<std::uint32_t>(self))};
    }
    return key;
}

}  // namespace incast::transport

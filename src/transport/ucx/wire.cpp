#include "transport/ucx/wire.h"

#include <algorithm>
#include <cstring>
#include <span>

namespace incast::transport::ucx {

namespace {

constexpr std::size_t head_bytes = sizeof(Key) - max_rkey_bytes;  // of a key, before that of UCX

}  // namespace

Blob to_blob(const Address& address) {
    AddressHead head;
    head.node = address.node;
    head.calls = address.calls;
    Blob made{std::vector<std::byte>(sizeof head + address.worker.size())};
    std::memcpy(made.bytes.data(), &head, sizeof head);
    std::ranges::copy(address.worker, made.bytes.begin() + sizeof head);
    return made;
}

std::optional<Address> address_in(const Blob& blob) {
    AddressHead head;
    if (blob.bytes.size() <= sizeof head || blob.bytes.size() > max_address_bytes) return std::nullopt;
    std::memcpy(&head, blob.bytes.data(), sizeof head);
    const int family = head.calls.storage.ss_family;
    if (head.magic != AddressHead::expected_magic || (family != AF_INET && family != AF_INET6)) return std::nullopt;
    return Address{head.node, head.calls, {blob.bytes.begin() + sizeof head, blob.bytes.end()}};
}

Blob to_blob(const Key& key) {
    const Bytes bytes = std::as_bytes(std::span(&key, 1)).first(head_bytes + key.rkey_bytes);
    return {{bytes.begin(), bytes.end()}};
}

bool from_blob(const Blob& blob, Key& key) {
    if (blob.bytes.size() < head_bytes || blob.bytes.size() > sizeof key) return false;
    std::memcpy(&key, blob.bytes.data(), blob.bytes.size());
    return key.magic == Key::expected_magic && blob.bytes.size() == head_bytes + key.rkey_bytes;
}

}  // namespace incast::transport::ucx

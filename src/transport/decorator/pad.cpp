#include "transport/decorator/pad.h"

#include <algorithm>
#include <cstring>
#include <optional>

#include "transport/decorator/forward.h"

namespace incast::transport::decorator {

namespace {

constexpr std::size_t short_key_bytes = 215;

std::byte filler(std::size_t at) {
    return static_cast<std::byte>(at * 7 + 1);
}

/// The blob, filler, and in the last two bytes how long the blob is.
Blob padded(Blob blob, std::size_t bytes) {
    const auto size = static_cast<std::uint16_t>(blob.bytes.size());
    blob.bytes.resize(bytes);
    for (std::size_t at = size; at < bytes; ++at)
        blob.bytes[at] = filler(at);
    std::memcpy(blob.bytes.data() + bytes - sizeof size, &size, sizeof size);
    return blob;
}

/// Nothing: it was not padded here, or did not arrive as it was.
std::optional<Blob> unpadded(Blob blob) {
    std::uint16_t size = 0;
    if (blob.bytes.size() < sizeof size) return std::nullopt;
    const std::size_t end = blob.bytes.size() - sizeof size;
    std::memcpy(&size, blob.bytes.data() + end, sizeof size);
    for (std::size_t at = size; at < end; ++at)
        if (blob.bytes[at] != filler(at)) return std::nullopt;
    if (size == 0 || size > end) return std::nullopt;
    blob.bytes.resize(size);
    return blob;
}

class Pad final : public Forward {
public:
    using Forward::Forward;

    [[nodiscard]] Blob address() const override { return padded(inner().address(), max_address_bytes); }
    Post connect(Peer peer, const Blob& address, std::uint32_t incarnation) override {
        const std::optional<Blob> there = unpadded(address);
        return there ? inner().connect(peer, *there, incarnation) : Post::refused;
    }
    Result<Peer> dial(const Blob& address, Bytes greeting) override {
        const std::optional<Blob> there = unpadded(address);
        return there ? inner().dial(*there, greeting) : Error{"dial: not an address that was padded"};
    }
    Result<Blob> expose(Local region, const Grant& grant) override {
        auto key = inner().expose(region, grant);
        if (!key) return key;
        return padded(std::move(*key), static_cast<std::uint16_t>(region) % 2 == 0 ? short_key_bytes : max_key_bytes);
    }
    Result<Remote> import_key(Peer peer, const Blob& key) override {
        const std::optional<Blob> there = unpadded(key);
        if (!there) return Error{"import_key: not a key that was padded"};
        return inner().import_key(peer, *there);
    }
};

}  // namespace

std::unique_ptr<Transport> make_pad(std::unique_ptr<Transport> inner) {
    return std::make_unique<Pad>(std::move(inner));
}

}  // namespace incast::transport::decorator

// Addresses of listeners as people write them (include/incast/channel.h).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "channel/api/failure.h"

namespace incast::channel::api {

enum class Scheme : std::uint8_t { shm, tcp, udp, verbs, rio };
std::string_view to_string(Scheme scheme);

struct Address {
    Scheme scheme{};
    std::string host;        // shm: the name; rio: empty
    std::uint16_t port = 0;  // rio: the channel; 0: any
    std::uint16_t destid = 0;
    bool is_any_host = false;  // to listen: every interface, any name, or whatever destination id this is

    [[nodiscard]] bool is_path() const { return scheme == Scheme::shm && host.starts_with('/'); }
    /// As it was written.
    [[nodiscard]] std::string text() const;
    bool operator==(const Address&) const = default;
};

enum class Use : std::uint8_t { listen, connect };

/// Throws EINVAL, and EPROTONOSUPPORT, also for another scheme than `expected`.
Address parse_address(std::string_view text, Use use, Scheme expected);
/// `shm` as well as `shm://...`. Throws EPROTONOSUPPORT.
Scheme parse_scheme(std::string_view text);

}  // namespace incast::channel::api

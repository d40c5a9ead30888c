// What connect() does where there is a connection already, and what dial() refuses: one rule for all transports
// (docs/transport-contract.md, clauses TC-K2, TC-K6, TC-K7, TC-D3).
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include <incast/transport.h>

namespace incast::transport {

/// How far the connection with a peer is.
enum class Connection : std::uint8_t { none, opening, up, ending };

/// The answer; nothing: there is no connection, make one. `drop` ends one with an older incarnation of the peer.
template <typename Drop>
std::optional<Post> answer_to_connect(Connection connection, std::uint32_t connected, std::uint32_t wanted, Drop drop) {
    if (connection == Connection::none) return std::nullopt;
    if (connection == Connection::ending) return Post::again;
    if (wanted > connected) {
        drop();
        return Post::again;
    }
    return wanted == connected && connection == Connection::opening ? Post::pending : Post::refused;
}

/// What dial() says to what cannot be.
inline Error no_greeting(std::size_t bytes) {
    return Error{"dial: a greeting of " + std::to_string(bytes) + " bytes: at most " +
                 std::to_string(max_greeting_bytes) + " are possible"};
}
inline Error no_number_left(std::uint32_t max_dialled) {
    return Error{"dial: all " + std::to_string(max_dialled) + " places for peers that dial or are dialled are taken"};
}

}  // namespace incast::transport

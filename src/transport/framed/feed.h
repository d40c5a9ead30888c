// Hands bytes of a stream to its session that lie somewhere else: they are copied to where the session wants them.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "transport/framed/session.h"

namespace incast::transport::framed {

/// Payload that lies behind a header goes to its place itself, if the header is looked at first.
inline constexpr std::size_t staged_at_once = 512;

enum class Fed : std::uint8_t {
    all,
    stuck,  // the rest waits for the next poll
    violated,
};

/// Takes what it used off the front of `rest`, and counts it in `copied_bytes`.
inline Fed feed(Session& session, std::size_t stream, Bytes& rest, std::uint64_t& copied_bytes, EventWriter& events,
                std::uint64_t poll_number) {
    while (!rest.empty()) {
        const Receiver::Space space = session.space(stream, poll_number);
        if (space.bytes() == 0) return Fed::stuck;
        std::size_t taken = 0;
        for (const std::span<std::byte> part :
             {space.payload, space.staging.first(std::min(space.staging.size(), staged_at_once))}) {
            const std::size_t now = std::min(part.size(), rest.size());
            if (now > 0) std::memcpy(part.data(), rest.data(), now);
            rest = rest.subspan(now);
            taken += now;
        }
        copied_bytes += taken;
        session.filled(stream, taken);
        if (session.parse(stream, events, poll_number) == Parse::violation) return Fed::violated;
    }
    return Fed::all;
}

}  // namespace incast::transport::framed

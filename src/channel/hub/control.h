// What hubs say to each other in messages (docs/channel.md). Numbers are little-endian; a channel is named by the
// number that it has at the receiver of the message.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>

#include <incast/transport.h>

#include "channel/ring.h"

namespace incast::channel {

/// Why there is no channel, or none any more.
enum class Fault : std::uint8_t {
    none,
    nobody,   // the peer listens at no such port, or is not connected
    refused,  // it listens for channels of another kind, or smaller ones
    full,     // it has no room for more, or no memory
    lost,     // its process or its connection is gone
    reset,    // it gave the channel up before it was finished
    broken,   // it broke the rules
    forked,   // the channel belongs to the process that forked this one
};
const char* to_string(Fault fault);

/// Both sides must mean the same.
enum class Kind : std::uint8_t { bytes, messages };

struct Control {
    static constexpr std::uint32_t expected_magic = 0x324E4843;  // "CHN2"
    enum class What : std::uint8_t {
        open,     // all fields, a key behind it
        opened,   // to, from; a key behind it
        refused,  // to, fault
        closed,   // to; is_finished: what was written is all on its way
        wrote,    // to, number: of the newest buffer
        emptied,  // to, number: of a credit
        wants,    // to, number: there is no room, and no credit newer than this one is known: ring when there is
    };
    std::uint32_t magic = expected_magic;
    What what{};
    Fault fault = Fault::none;
    Kind kind{};
    Way announce{};     // both directions
    Way acknowledge{};  // both directions
    std::uint8_t is_finished = 0;
    std::uint16_t to = 0;
    std::uint16_t from = 0;
    std::uint16_t key_bytes = 0;
    std::uint32_t port = 0;
    std::uint32_t buffers = 0;  // shape of both rings
    std::uint32_t buffer_bytes = 0;
    std::uint32_t batch = 0;
    std::uint64_t number = 0;
};
static_assert(sizeof(Control) == 40);

struct Received {
    Control control;
    Bytes key;
};
/// Nothing: no hub says that.
std::optional<Received> parse(Bytes message);

/// A message of a hub, put together where it can be sent from.
class Written {
public:
    Written(Control control, Bytes key);
    [[nodiscard]] Bytes bytes() const { return Bytes(bytes_).first(length_); }

private:
    std::array<std::byte, sizeof(Control) + max_key_bytes> bytes_;
    std::size_t length_;
};

}  // namespace incast::channel

// What endpoints of rds say to each other: calls, by which connections are made, and the heads of the messages of a
// connection. Little-endian, packed by construction.
#pragma once

#include <array>
#include <cstdint>

#include "transport/calls/hello.h"

namespace incast::transport::rds {

/// Bounds what a peer can make this side reserve for answering its reads.
inline constexpr std::uint32_t max_posted_limit = 65536;

/// Where an endpoint hears calls, as it travels.
struct Address {
    static constexpr std::uint32_t expected_magic = 0x41534452;  // "RDSA"
    std::uint32_t magic = expected_magic;
    std::uint32_t node = 0;
    std::uint16_t family = 0;  // 4 or 6
    std::uint16_t port = 0;
    std::array<std::byte, 16> ip{};
    std::uint32_t zero = 0;
};
static_assert(sizeof(Address) == 32);

enum class CallKind : std::uint32_t {
    hello = 1,  // from the node with the lower number, again and again until there is an answer: let me in
    accept,     // the answer
    refuse,     // the answer, with a verdict
    give_up,    // the one that said hello does not wait any longer
};

/// From the socket of one endpoint to that of another.
struct Call {
    BasicHello<0x43534452> who;  // "RDSC"
    CallKind kind{};
    Verdict verdict{};
    std::uint64_t token = 0;          // that messages to the caller carry
    std::uint32_t dial = 0;           // greater with each connection that the lower node asks for; answers repeat it
    std::uint32_t port = 0;           // of the caller's socket for this connection
    std::uint32_t max_posted = 0;     // reads that the caller may have pending
    std::uint32_t message_bytes = 0;  // of a message that the caller takes, at most
};
static_assert(sizeof(Call) == 72);

/// The first bytes of each message of a connection. Of `data`, bytes of the stream follow.
struct MessageHead {
    enum class Kind : std::uint32_t {
        data = 1,
        word,  // nothing but what every head says: a sign of life
        end,   // nothing follows
    };
    std::uint64_t token = 0;  // the receiver's: whoever else finds its port does not know it
    Kind kind{};
    std::uint32_t number = 0;  // messages of data that were sent before, modulo 2^32
    std::uint32_t taken = 0;   // messages of data of the other direction that were taken in, modulo 2^32
    std::uint32_t zero = 0;
};
static_assert(sizeof(MessageHead) == 24);

}  // namespace incast::transport::rds

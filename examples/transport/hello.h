// What is said before a connection is one: where a node listens, who dials, and the answer.
#pragma once

#include <array>

#include "transport/framed/frame.h"
#include "transport/medium.h"

namespace unix_sockets {

/// Bounds what a peer can make this side keep for answering its reads.
inline constexpr std::uint32_t max_posted_limit = 65536;

/// An abstract name, which the kernel chose and which leaves nothing in a file system.
struct Address {
    static constexpr std::uint32_t expected_magic = 0x414E5558;  // "XUNA"
    std::uint32_t magic = expected_magic;
    std::uint32_t node = 0;
    std::uint32_t name_bytes = 0;
    std::array<char, 20> name{};
    [[nodiscard]] bool is_proper() const { return name_bytes >= 2 && name_bytes <= name.size() && name[0] == '\0'; }
};

/// The first bytes of the side that dials: the lower index.
struct Hello {
    static constexpr std::uint64_t expected_magic = 0x3158494E55434E49;  // "INCUNIX1"
    std::uint64_t magic = expected_magic;
    std::uint64_t run = 0;
    std::uint64_t token = 0;
    std::uint32_t from = 0;
    std::uint32_t from_incarnation = 0;
    std::uint32_t to = 0;
    std::uint32_t to_incarnation = 0;
    std::uint32_t max_posted = 0;  // reads that it may have pending
    std::uint32_t version = incast::transport::framed::frame_versions.newest;
};

/// Of the other side, once its owner has called connect too. Whoever is refused is told nothing.
struct Answer {
    static constexpr std::uint32_t expected_magic = 0x4E555841;  // "AXUN"
    std::uint32_t magic = expected_magic;
    std::uint32_t max_posted = 0;
    [[nodiscard]] bool is_proper() const {
        return magic == expected_magic && max_posted > 0 && max_posted <= max_posted_limit;
    }
};

/// nullptr: it may come in. Else why not.
inline const char* fault_of(const Hello& hello, const incast::transport::EndpointOptions& own) {
    const auto self = static_cast<std::uint32_t>(own.self);
    if (hello.magic != Hello::expected_magic || hello.version != incast::transport::framed::frame_versions.newest)
        return "not an Incast connection, or one of another version";
    // The token first, and without an early exit: the time must not tell how much of it was right.
    volatile std::uint64_t difference = hello.token ^ own.token;
    if (difference != 0) return "wrong token";
    if (hello.run != own.run) return "another run";
    if (hello.from >= self || hello.max_posted == 0 || hello.max_posted > max_posted_limit) return "malformed hello";
    if (hello.to != self || hello.to_incarnation != own.incarnation)
        return "meant for another node, or an earlier incarnation of this one";
    return nullptr;
}

}  // namespace unix_sockets

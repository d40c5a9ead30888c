// What endpoints of mpi say to each other: calls, by which connections are made, and the heads of chunks, in which the
// frames of a stream travel.
#pragma once

#include <cstdint>

#include <incast/transport.h>

#include "transport/blob.h"

namespace incast::transport::mpi {

/// Where an endpoint is: a process of the launcher's, and a number in it, which no other endpoint of it ever has.
struct Address {
    static constexpr std::uint32_t expected_magic = 0x4441504D;  // "MPAD"
    std::uint32_t magic = expected_magic;
    std::uint32_t node = 0;
    std::uint32_t rank = 0;
    std::uint32_t endpoint = 0;
};

enum class CallKind : std::uint32_t {
    hello = 1,  // from the node with the lower number: let me in
    accept,     // the answer
    refuse,     // the answer, with a verdict
    give_up,    // the one that said hello does not wait any longer
};

enum class Verdict : std::uint32_t { gone = 1, wrong_version, wrong_run, wrong_token, wrong_node, stale, unfit };
inline const char* to_string(Verdict verdict) {
    switch (verdict) {
        case Verdict::gone:
            return "it is no more";
        case Verdict::wrong_version:
            return "another version of Incast";
        case Verdict::wrong_run:
            return "another run";
        case Verdict::wrong_token:
            return "another token";
        case Verdict::wrong_node:
            return "it is another node, or another incarnation of it";
        case Verdict::stale:
            return "a later incarnation of this node is known there";
        case Verdict::unfit:
            return "other settings: streams, chunk and chunks must be the same on all nodes";
    }
    return "no reason that is known";
}

/// With tag 0. Little-endian, packed by construction.
struct Call {
    static constexpr std::uint32_t expected_magic = 0x4C43504D;  // "MPCL"
    static constexpr std::uint32_t present_version = 1;
    std::uint32_t magic = expected_magic;
    std::uint32_t version = present_version;
    CallKind kind{};
    Verdict verdict{};
    std::uint64_t run = 0;
    std::uint64_t token = 0;
    std::uint32_t from = 0;  // node
    std::uint32_t from_rank = 0;
    std::uint32_t from_endpoint = 0;
    std::uint32_t from_incarnation = 0;
    std::uint32_t to = 0;
    std::uint32_t to_endpoint = 0;
    std::uint32_t to_incarnation = 0;
    std::uint32_t dial = 0;        // the caller's number of this attempt, which answers repeat
    std::uint32_t first_tag = 0;   // at which its sender receives
    std::uint32_t max_posted = 0;  // reads that its sender may have pending
    std::uint32_t streams = 0;
    std::uint32_t chunks = 0;
    std::uint32_t chunk_bytes = 0;
    std::uint32_t zero = 0;
};
static_assert(sizeof(Call) == 88);
inline constexpr std::uint32_t call_tag = 0;

/// The first bytes of a chunk; bytes of the stream follow.
struct ChunkHead {
    enum class Kind : std::uint32_t { data = 1, credit, end };
    Kind kind{};
    std::uint32_t taken = 0;       // chunks of data of the other direction that were taken in so far, modulo 2^32
    std::uint32_t body_bytes = 0;  // the next bytes of the stream come by themselves, in one message of that length
    std::uint32_t zero = 0;
};
static_assert(sizeof(ChunkHead) == 16);

/// The count whose low half is `low`, and which is not below `known`.
constexpr std::uint64_t count_of(std::uint32_t low, std::uint64_t known) {
    return known + (low - static_cast<std::uint32_t>(known));
}
static_assert(count_of(7, 5) == 7 && count_of(5, 5) == 5);
static_assert(count_of(1, 0xFFFFFFFF) == 0x100000001, "beyond 32 bits");

}  // namespace incast::transport::mpi

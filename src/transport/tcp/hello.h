// The first bytes of a tcp connection: who dials, for what, and the answer. Nothing else is accepted before them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include <incast/transport.h>

#include "base/versions.h"
#include "transport/framed/frame.h"

namespace incast::transport::tcp {

inline constexpr std::uint32_t max_streams = 64;
/// Bounds what a peer can make this side reserve for answering its reads.
inline constexpr std::uint32_t max_posted_limit = 65536;

/// The dialling side's first bytes, once per stream. Little-endian, packed by construction.
struct Hello {
    static constexpr std::uint64_t expected_magic = 0x3150435453414349;  // "ICASTCP1"
    std::uint64_t magic = expected_magic;
    std::uint16_t versions = framed::frame_versions.packed();  // that the dialling side speaks
    std::uint16_t stream = 0;
    std::uint16_t streams = 0;
    std::uint16_t knocks = 0;  // 1: from outside the rendezvous, with a greeting behind this
    std::uint64_t run = 0;
    std::uint64_t token = 0;
    std::uint32_t group = 0;    // the same for all streams of one connection, greater than that of the one before
    std::uint32_t program = 0;  // of the dialling side: base::program_number(); 0 in 0.1.0
    std::uint32_t from = 0;     // the dialling node
    std::uint32_t from_incarnation = 0;
    std::uint32_t to = 0;  // the node it means
    std::uint32_t to_incarnation = 0;
    std::uint32_t max_posted = 0;  // reads the dialling node may have pending
    std::uint32_t greeting_bytes = 0;
};
static_assert(sizeof(Hello) == 64);

enum class Verdict : std::uint16_t {
    accepted = 0,
    not_incast,
    wrong_version,
    wrong_run,
    wrong_token,
    malformed,  // or other settings: the number of streams must agree, the node's index be below max_peers
    wrong_node,
    stale_incarnation,  // a later incarnation of the dialling node is known here
    no_room,            // for another one that knocks
};
const char* to_string(Verdict verdict);

/// The accepting side's answer, once its owner has called connect too. Who does not say its program is told no more
/// than 0.1.0 says: whether it is let in, and `value`.
struct Answer {
    static constexpr std::uint64_t expected_magic = 0x3141435453414349;  // "ICASTCA1"
    std::uint64_t magic = expected_magic;
    Verdict verdict = Verdict::accepted;
    std::uint16_t versions = 0;  // accepted: the one that is chosen; wrong_version: those that this side speaks
    std::uint32_t value = 0;     // accepted: reads that it may have pending; wrong_version: its program
};
static_assert(sizeof(Answer) == 16);

/// What a hello must name to be let in.
struct Expected {
    std::uint64_t run = 0;
    std::uint64_t token = 0;
    std::uint32_t self = 0;
    std::uint32_t self_incarnation = 0;
    std::uint32_t max_peers = 0;
    std::uint16_t streams = 0;
    base::Versions versions = framed::frame_versions;
};

/// True as soon as the first bytes cannot be a hello's. `bytes` may be any prefix.
bool cannot_be_hello(Bytes bytes);
/// Checks a whole hello. The token is compared in constant time.
Verdict judge(const Hello& hello, const Expected& expected);
Answer answer_of(const Hello& hello, Verdict verdict, base::Versions ours, std::uint32_t max_posted);
/// Why a hello was refused, for the side that refuses it, and for the one that is refused.
std::string reason(const Hello& hello, Verdict verdict, base::Versions ours);
std::string reason(const Answer& answer, base::Versions ours);
/// It is an answer, and one that may be given to a hello with these versions.
bool makes_sense(const Answer& answer, base::Versions ours);

}  // namespace incast::transport::tcp

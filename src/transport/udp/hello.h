// What is said before a connection is one: who dials, for what, and the answer. Nothing is kept of anybody before he
// has shown that he reads what is sent to his address, and no answer is longer than what it answers.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include <incast/transport.h>

#include "base/versions.h"
#include "datagram/address.h"

namespace incast::transport::udp {

/// Bounds what a peer can make this side reserve for answering its reads.
inline constexpr std::uint32_t max_posted_limit = 65536;
inline constexpr std::uint32_t least_datagram_bytes = 508;        // what every network carries whole
inline constexpr std::uint64_t hello_magic = 0x3150445553414349;  // "ICASUDP1"
/// Of the hello and its answer, and of the frames behind them.
inline constexpr base::Versions hello_versions{1, 1};

enum class Said : std::uint16_t {
    hello = 1,  // asks for a connection, again and again
    withdraw,   // does not want it any more
    cookie,     // the answer to a hello without one: say it again, with this
    accepted,
    refused,
};

/// What the dialling side says. Little-endian, packed by construction. A greeting may follow.
struct Hello {
    std::uint64_t magic = hello_magic;
    std::uint16_t versions = hello_versions.packed();  // that the dialling side speaks
    Said said = Said::hello;
    std::uint16_t knocks = 0;  // 1: from outside the rendezvous, with a greeting behind this
    std::uint16_t greeting_bytes = 0;
    std::uint64_t run = 0;
    std::uint64_t token = 0;
    std::uint64_t cookie = 0;   // that the other side has answered
    std::uint32_t group = 0;    // greater with each connection that this node dials
    std::uint32_t program = 0;  // of the dialling side: base::program_number()
    std::uint64_t session = 0;  // the token that packets to this side carry
    std::uint32_t from = 0;     // the dialling node
    std::uint32_t from_incarnation = 0;
    std::uint32_t to = 0;  // the node it means
    std::uint32_t to_incarnation = 0;
    std::uint32_t max_posted = 0;  // reads the dialling node may have pending
    std::uint32_t datagram_bytes = 0;
    std::uint32_t window_packets = 0;
    std::uint32_t once = 0;  // 1: bodies are sent once
};
static_assert(sizeof(Hello) == 88);

enum class Verdict : std::uint32_t {
    accepted = 0,
    wrong_version,
    wrong_run,
    wrong_token,
    malformed,
    wrong_node,
    stale,        // a later incarnation or connection of the dialling node is known here
    no_room,      // for another one that knocks
    turned_away,  // or given up, by the owner
    other_repair,
};
const char* to_string(Verdict verdict);

struct Answer {
    std::uint64_t magic = hello_magic;
    std::uint16_t versions = hello_versions.packed();  // accepted: the one that is chosen; else those of this side
    Said said = Said::accepted;
    Verdict verdict = Verdict::accepted;
    std::uint32_t group = 0;    // of the hello
    std::uint32_t program = 0;  // of the answering side
    std::uint64_t session = 0;  // of the hello
    std::uint64_t value = 0;    // cookie, or the token that packets to the answering side carry
    std::uint32_t max_posted = 0;
    std::uint32_t datagram_bytes = 0;
    std::uint32_t window_packets = 0;
    std::uint32_t zero_32 = 0;
};
static_assert(sizeof(Answer) == 56 && sizeof(Answer) < sizeof(Hello));

/// What a hello must name to be let in.
struct Expected {
    std::uint64_t run = 0;
    std::uint64_t token = 0;
    std::uint32_t self = 0;
    std::uint32_t self_incarnation = 0;
    std::uint32_t max_peers = 0;
    std::uint32_t once = 0;
    base::Versions versions = hello_versions;
};

/// A hello, or a withdrawal, whole with its greeting; nothing: it is none.
std::optional<Hello> read_hello(Bytes datagram, base::Versions ours);
std::optional<Answer> read_answer(Bytes datagram);
/// The version that both sides then speak; nothing: they have none in common.
std::optional<std::uint16_t> chosen(const Hello& hello, base::Versions ours);
/// Checks a whole hello. The token is compared in constant time.
Verdict judge(const Hello& hello, const Expected& expected);
/// Why a hello was refused, for the side that refuses it, and for the one that is refused.
std::string reason(const Hello& hello, Verdict verdict, base::Versions ours);
std::string reason(const Answer& answer, base::Versions ours);

/// Cookies by which an address proves itself: nothing is kept of those who ask for one.
class Cookies {
public:
    explicit Cookies(const std::array<std::uint64_t, 2>& secret) : secret_(secret) {}
    [[nodiscard]] std::uint64_t of(const datagram::Address& from, const Hello& hello) const;

private:
    std::array<std::uint64_t, 2> secret_;
};

/// SipHash-2-4 (Aumasson and Bernstein, 2012) of some words.
std::uint64_t siphash(const std::array<std::uint64_t, 2>& key, std::span<const std::uint64_t> words);

}  // namespace incast::transport::udp

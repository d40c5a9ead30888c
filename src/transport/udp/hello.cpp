#include "transport/udp/hello.h"

#include <bit>
#include <cstring>

#include "transport/udp/udp.h"

namespace incast::transport::udp {

namespace {

/// No early exit: the time must not tell how much of the token was right.
bool same_secret(std::uint64_t a, std::uint64_t b) {
    volatile std::uint64_t difference = a ^ b;
    return difference == 0;
}

struct SipState {
    std::uint64_t a, b, c, d;
    void round() {
        a += b;
        b = std::rotl(b, 13) ^ a;
        a = std::rotl(a, 32);
        c += d;
        d = std::rotl(d, 16) ^ c;
        a += d;
        d = std::rotl(d, 21) ^ a;
        c += b;
        b = std::rotl(b, 17) ^ c;
        c = std::rotl(c, 32);
    }
    void take(std::uint64_t word) {
        d ^= word;
        round();
        round();
        a ^= word;
    }
};

}  // namespace

std::uint64_t siphash(const std::array<std::uint64_t, 2>& key, std::span<const std::uint64_t> words) {
    SipState state{key[0] ^ 0x736f6d6570736575, key[1] ^ 0x646f72616e646f6d, key[0] ^ 0x6c7967656e657261,
                   key[1] ^ 0x7465646279746573};
    for (const std::uint64_t word : words)
        state.take(word);
    state.take(std::uint64_t{words.size() * sizeof(std::uint64_t)} << 56);
    state.c ^= 0xFF;
    for (int i = 0; i < 4; ++i)
        state.round();
    return state.a ^ state.b ^ state.c ^ state.d;
}

const char* to_string(Verdict verdict) {
    switch (verdict) {
        case Verdict::accepted:
            return "accepted";
        case Verdict::wrong_version:
            return "another version of this transport";
        case Verdict::wrong_run:
            return "another run";
        case Verdict::wrong_token:
            return "wrong token";
        case Verdict::malformed:
            return "malformed hello, or another number of nodes";
        case Verdict::wrong_node:
            return "meant for another node, or an earlier incarnation of this one";
        case Verdict::stale:
            return "a later incarnation or connection of that node is known";
        case Verdict::no_room:
            return "no room for another peer that dials";
        case Verdict::turned_away:
            return "turned away";
        case Verdict::other_repair:
            return "another transport.udp.repair, which all nodes have to share";
    }
    return "unknown verdict";
}

std::optional<Hello> read_hello(Bytes datagram, base::Versions ours) {
    Hello hello;
    if (datagram.size() < sizeof hello) return std::nullopt;
    std::memcpy(&hello, datagram.data(), sizeof hello);
    const bool asks = hello.said == Said::hello || hello.said == Said::withdraw;
    if (hello.magic != hello_magic || !asks) return std::nullopt;
    // Of another version nothing else is understood.
    if (chosen(hello, ours) && datagram.size() != sizeof hello + hello.greeting_bytes) return std::nullopt;
    return hello;
}

std::optional<Answer> read_answer(Bytes datagram) {
    Answer answer;
    if (datagram.size() != sizeof answer) return std::nullopt;
    std::memcpy(&answer, datagram.data(), sizeof answer);
    if (answer.magic != hello_magic || answer.said < Said::cookie || answer.said > Said::refused) return std::nullopt;
    return answer;
}

Verdict judge(const Hello& hello, const Expected& expected) {
    if (!chosen(hello, expected.versions)) return Verdict::wrong_version;
    // The token first: without it nothing is said about the run.
    if (!same_secret(hello.token, expected.token)) return Verdict::wrong_token;
    if (hello.run != expected.run) return Verdict::wrong_run;
    const bool knocks = hello.knocks != 0;
    if (hello.knocks > 1 || hello.greeting_bytes > (knocks ? max_greeting_bytes : 0) || hello.max_posted == 0 ||
        hello.max_posted > max_posted_limit || hello.datagram_bytes < least_datagram_bytes ||
        hello.window_packets == 0 || hello.session == 0 || hello.once > 1) {
        return Verdict::malformed;
    }
    // Of two nodes the one with the lower index dials.
    if (!knocks && (hello.from >= expected.max_peers || hello.from >= expected.self)) return Verdict::malformed;
    if (hello.to != expected.self || hello.to_incarnation != expected.self_incarnation) return Verdict::wrong_node;
    if (hello.once != expected.once) return Verdict::other_repair;
    return Verdict::accepted;
}

std::optional<std::uint16_t> chosen(const Hello& hello, base::Versions ours) {
    const std::optional<base::Versions> theirs = base::Versions::unpack(hello.versions);
    const std::optional<base::Versions> both = theirs ? base::common(*theirs, ours) : std::nullopt;
    if (!both) return std::nullopt;
    return static_cast<std::uint16_t>(both->newest);
}

std::string reason(const Hello& hello, Verdict verdict, base::Versions ours) {
    if (verdict != Verdict::wrong_version) return to_string(verdict);
    return base::no_common_version(transport_name, base::Versions::unpack(hello.versions),
                                   base::program_text(hello.program), ours);
}

std::string reason(const Answer& answer, base::Versions ours) {
    if (answer.verdict != Verdict::wrong_version) return to_string(answer.verdict);
    return base::no_common_version(transport_name, base::Versions::unpack(answer.versions),
                                   base::program_text(answer.program), ours);
}

std::uint64_t Cookies::of(const datagram::Address& from, const Hello& hello) const {
    std::array<std::uint64_t, 5> words{};
    std::memcpy(words.data(), from.ip.data(), from.ip.size());
    words[2] = from.port | std::uint64_t{from.is_v6} << 16;
    words[3] = hello.group;
    words[4] = hello.session;
    const std::uint64_t cookie = siphash(secret_, words);
    return cookie == 0 ? 1 : cookie;
}

}  // namespace incast::transport::udp

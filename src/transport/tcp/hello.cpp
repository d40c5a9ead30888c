#include "transport/tcp/hello.h"

#include <algorithm>
#include <array>
#include <bit>

#include "transport/tcp/tcp.h"

namespace incast::transport::tcp {

namespace {

/// No early exit: the time must not tell how much of the token was right.
bool same_secret(std::uint64_t a, std::uint64_t b) {
    volatile std::uint64_t difference = a ^ b;
    return difference == 0;
}

}  // namespace

const char* to_string(Verdict verdict) {
    switch (verdict) {
        case Verdict::accepted:
            return "accepted";
        case Verdict::not_incast:
            return "not an Incast connection";
        case Verdict::wrong_version:
            return "another version of this transport";
        case Verdict::wrong_run:
            return "another run";
        case Verdict::wrong_token:
            return "wrong token";
        case Verdict::malformed:
            return "malformed hello, or other settings (streams, number of nodes)";
        case Verdict::wrong_node:
            return "meant for another node, or an earlier incarnation of this one";
        case Verdict::stale_incarnation:
            return "a later incarnation of that node is known";
        case Verdict::no_room:
            return "no room for another peer that dials";
    }
    return "unknown verdict";
}

bool cannot_be_hello(Bytes bytes) {
    const auto magic = std::bit_cast<std::array<std::byte, sizeof(Hello::magic)>>(Hello::expected_magic);
    const std::size_t common = std::min(bytes.size(), magic.size());
    return !std::equal(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(common), magic.begin());
}

Verdict judge(const Hello& hello, const Expected& expected) {
    if (hello.magic != Hello::expected_magic) return Verdict::not_incast;
    const std::optional<base::Versions> theirs = base::Versions::unpack(hello.versions);
    if (!theirs || !base::common(*theirs, expected.versions)) return Verdict::wrong_version;
    // The token first: without it nothing is said about the run.
    if (!same_secret(hello.token, expected.token)) return Verdict::wrong_token;
    if (hello.run != expected.run) return Verdict::wrong_run;
    const bool knocks = hello.knocks != 0;
    if (hello.knocks > 1 || hello.greeting_bytes > (knocks ? max_greeting_bytes : 0) ||
        hello.streams != (knocks ? 1 : expected.streams) || hello.stream >= hello.streams || hello.max_posted == 0 ||
        hello.max_posted > max_posted_limit) {
        return Verdict::malformed;
    }
    if (!knocks && (hello.from >= expected.max_peers || hello.from == expected.self)) return Verdict::malformed;
    if (hello.to != expected.self || hello.to_incarnation != expected.self_incarnation) return Verdict::wrong_node;
    return Verdict::accepted;
}

Answer answer_of(const Hello& hello, Verdict verdict, base::Versions ours, std::uint32_t max_posted) {
    Answer answer{.verdict = verdict, .value = verdict == Verdict::accepted ? max_posted : 0};
    if (hello.program == 0) return answer;
    if (verdict == Verdict::wrong_version) {
        answer.versions = ours.packed();
        answer.value = base::program_number();
    } else if (const auto theirs = base::Versions::unpack(hello.versions); theirs && verdict == Verdict::accepted) {
        answer.versions = static_cast<std::uint16_t>(base::common(*theirs, ours).value_or(ours).newest);
    }
    return answer;
}

std::string reason(const Hello& hello, Verdict verdict, base::Versions ours) {
    if (verdict != Verdict::wrong_version) return to_string(verdict);
    return base::no_common_version(transport_name, base::Versions::unpack(hello.versions),
                                   base::program_text(hello.program), ours);
}

std::string reason(const Answer& answer, base::Versions ours) {
    if (answer.verdict != Verdict::wrong_version) return to_string(answer.verdict);
    return base::no_common_version(transport_name,
                                   answer.versions == 0 ? std::nullopt : base::Versions::unpack(answer.versions),
                                   base::program_text(answer.value), ours);
}

bool makes_sense(const Answer& answer, base::Versions ours) {
    if (answer.magic != Answer::expected_magic) return false;
    if (answer.verdict != Verdict::accepted) return true;
    const bool knows_all = answer.versions == 0 ? ours.is_one() : ours.contains(answer.versions);
    return knows_all && answer.value > 0 && answer.value <= max_posted_limit;
}

}  // namespace incast::transport::tcp

// The first words of a connection between two endpoints: who dials whom, for which run; and why somebody is not let in.
#pragma once

#include <cstdint>
#include <cstring>

#include <incast/transport.h>

namespace incast::transport {

enum class Verdict : std::uint32_t {
    accepted = 0,
    malformed,
    wrong_version,
    wrong_run,
    wrong_token,
    wrong_node,
    stale_incarnation,
    unfit,
};
const char* to_string(Verdict verdict);

/// It comes from the endpoint with the lower number. `number` tells the transports apart.
template <std::uint32_t number>
struct BasicHello {
    static constexpr std::uint32_t expected_magic = number;
    static constexpr std::uint32_t present_version = 1;
    std::uint32_t magic = expected_magic;
    std::uint32_t version = present_version;
    std::uint64_t run = 0;
    std::uint64_t token = 0;
    std::uint32_t from = 0;
    std::uint32_t from_incarnation = 0;
    std::uint32_t to = 0;
    std::uint32_t to_incarnation = 0;
};

/// What a hello has to say.
struct Expected {
    std::uint64_t run = 0;
    std::uint64_t token = 0;
    std::uint32_t self = 0;
    std::uint32_t self_incarnation = 0;
};

/// `bytes` may be followed by any padding. The token is compared in constant time.
template <class Hello>
Verdict judge(Bytes bytes, const Expected& expected, Hello& hello) {
    if (bytes.size() < sizeof hello) return Verdict::malformed;
    std::memcpy(&hello, bytes.data(), sizeof hello);
    if (hello.magic != Hello::expected_magic) return Verdict::malformed;
    if (hello.version != Hello::present_version) return Verdict::wrong_version;
    volatile std::uint64_t difference = hello.token ^ expected.token;  // no early exit tells how much of it was right
    if (difference != 0) return Verdict::wrong_token;
    if (hello.run != expected.run) return Verdict::wrong_run;
    if (hello.from >= expected.self) return Verdict::malformed;
    if (hello.to != expected.self || hello.to_incarnation != expected.self_incarnation) return Verdict::wrong_node;
    return Verdict::accepted;
}

}  // namespace incast::transport

// Whoever connects to a node of the transport verbs without rdma_cm, or answers there: arbitrary bytes as a call and as
// an answer. What is let in names a queue pair that there can be.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "transport/calls/calls.h"
#include "transport/verbs/wire.h"

using namespace incast;
using namespace incast::transport;
using namespace incast::transport::verbs;

namespace {

void require(bool holds) {
    if (!holds) std::abort();
}

void require_sane(const PairAddress& address) {
    require(address.pair > 0 && address.pair < 1U << 24 && address.psn < 1U << 24);
    require(address.mtu >= 1 && address.mtu <= 5 && (address.link == 1 || address.link == 2));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    const Bytes input(reinterpret_cast<const std::byte*>(data), size);
    const Expected expected{.run = 3, .token = 5, .self = 1, .self_incarnation = 1};
    Call call;
    const bool is_in = judge_call(input, expected, call) == Verdict::accepted;
    if (is_in) {
        require(call.hello.token == expected.token && call.hello.run == expected.run);
        require(call.hello.from < expected.self && call.hello.to == expected.self);
        require_sane(call.from);
    }
    // As it comes in, byte by byte.
    for (std::size_t many = 0; many <= std::min(size, sizeof(Call)); ++many)
        require(!is_in || !cannot_be_call(input.first(many), Hello::expected_magic));
    Answer answer;
    if (read_answer(input, answer) && answer.verdict == Verdict::accepted) require_sane(answer.from);
    return to_string(answer.verdict)[0] == '\0' ? 1 : 0;
}

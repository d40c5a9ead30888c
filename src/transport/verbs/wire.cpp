#include "transport/verbs/wire.h"

#include <algorithm>
#include <cstring>
#include <span>

namespace incast::transport::verbs {

Address::Address(std::uint32_t node_index, const SocketAddress& address)
    : node(node_index), is_v6(address.storage.ss_family == AF_INET6 ? 1 : 0), port(address.port()) {
    if (is_v6 != 0) {
        std::memcpy(ip.data(), &reinterpret_cast<const sockaddr_in6&>(address.storage).sin6_addr, sizeof(in6_addr));
    } else {
        std::memcpy(ip.data(), &reinterpret_cast<const sockaddr_in&>(address.storage).sin_addr, sizeof(in_addr));
    }
}

SocketAddress Address::socket() const {
    SocketAddress made;
    made.storage.ss_family = is_v6 != 0 ? AF_INET6 : AF_INET;
    if (is_v6 != 0) {
        std::memcpy(&reinterpret_cast<sockaddr_in6&>(made.storage).sin6_addr, ip.data(), sizeof(in6_addr));
    } else {
        std::memcpy(&reinterpret_cast<sockaddr_in&>(made.storage).sin_addr, ip.data(), sizeof(in_addr));
    }
    made.set_port(port);
    return made;
}

std::optional<Address> address_in(const Blob& blob, std::uint32_t rail) {
    const std::size_t rails = blob.bytes.size() / sizeof(Address);
    if (rails == 0 || rails > max_rails || blob.bytes.size() % sizeof(Address) != 0) return std::nullopt;
    std::array<Address, max_rails> all;
    std::memcpy(all.data(), blob.bytes.data(), blob.bytes.size());
    const auto is_one = [&](const Address& each) {
        return each.magic == Address::expected_magic && each.rails == rails && each.node == all[0].node;
    };
    if (!std::ranges::all_of(std::span(all).first(rails), is_one)) return std::nullopt;
    return all[rail < rails ? rail : 0];
}

bool is_sane(const PairAddress& address) {
    constexpr std::uint32_t most = (1U << 24) - 1;
    constexpr std::uint8_t smallest_mtu = 1;  // 256 bytes
    constexpr std::uint8_t largest_mtu = 5;   // 4096
    constexpr std::uint8_t ethernet = 2;
    const bool has_gid = std::ranges::any_of(address.gid, [](std::byte each) { return each != std::byte{0}; });
    return address.pair != 0 && address.pair <= most && address.psn <= most && address.mtu >= smallest_mtu &&
           address.mtu <= largest_mtu && (address.link == 1 || (address.link == ethernet && has_gid));
}

Verdict judge_call(Bytes bytes, const Expected& expected, Call& call) {
    if (bytes.size() < sizeof call) return Verdict::malformed;
    std::memcpy(&call, bytes.data(), sizeof call);
    const Verdict verdict = judge(bytes, expected, call.hello);
    return verdict == Verdict::accepted && !is_sane(call.from) ? Verdict::malformed : verdict;
}

bool read_answer(Bytes bytes, Answer& answer) {
    if (bytes.size() != sizeof answer) return false;
    std::memcpy(&answer, bytes.data(), sizeof answer);
    if (answer.magic != Answer::expected_magic || answer.verdict > Verdict::unfit) return false;
    return answer.verdict != Verdict::accepted || is_sane(answer.from);
}

}  // namespace incast::transport::verbs

#include "transport/verbs/wire.h"

#include <algorithm>
#include <cstring>
#include <span>

#include <arpa/inet.h>

namespace incast::transport::verbs {

std::optional<SocketAddress> SocketAddress::parse(const std::string& text, std::uint16_t port) {
    SocketAddress made;
    auto& v4 = reinterpret_cast<sockaddr_in&>(made.storage);
    auto& v6 = reinterpret_cast<sockaddr_in6&>(made.storage);
    if (::inet_pton(AF_INET, text.c_str(), &v4.sin_addr) == 1) {
        v4.sin_family = AF_INET;
    } else if (::inet_pton(AF_INET6, text.c_str(), &v6.sin6_addr) == 1) {
        v6.sin6_family = AF_INET6;
    } else {
        return std::nullopt;
    }
    made.set_port(port);
    return made;
}

std::string SocketAddress::to_string() const {
    std::array<char, INET6_ADDRSTRLEN> text{};
    const bool is_v6 = storage.ss_family == AF_INET6;
    const void* const ip = is_v6 ? static_cast<const void*>(&reinterpret_cast<const sockaddr_in6&>(storage).sin6_addr)
                                 : &reinterpret_cast<const sockaddr_in&>(storage).sin_addr;
    (void)::inet_ntop(storage.ss_family, ip, text.data(), text.size());
    const std::string name(text.data());
    return (is_v6 ? "[" + name + "]" : name) + ":" + std::to_string(port());
}

std::uint16_t SocketAddress::port() const {
    const bool is_v6 = storage.ss_family == AF_INET6;
    return ntohs(is_v6 ? reinterpret_cast<const sockaddr_in6&>(storage).sin6_port
                       : reinterpret_cast<const sockaddr_in&>(storage).sin_port);
}

void SocketAddress::set_port(std::uint16_t port) {
    if (storage.ss_family == AF_INET6) {
        reinterpret_cast<sockaddr_in6&>(storage).sin6_port = htons(port);
    } else {
        reinterpret_cast<sockaddr_in&>(storage).sin_port = htons(port);
    }
}

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

const char* to_string(Verdict verdict) {
    switch (verdict) {
        case Verdict::accepted:
            return "accepted";
        case Verdict::malformed:
            return "not an Incast hello";
        case Verdict::wrong_version:
            return "another version of this transport";
        case Verdict::wrong_run:
            return "another run";
        case Verdict::wrong_token:
            return "wrong token";
        case Verdict::wrong_node:
            return "meant for another node, or an earlier incarnation of this one";
        case Verdict::stale_incarnation:
            return "a later incarnation of that node is known";
        case Verdict::unfit:
            return "no path leads from its port to the one there: other kinds of link or of GID";
    }
    return "unknown verdict";
}

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

bool is_sane(const PairAddress& address) {
    constexpr std::uint32_t most = (1U << 24) - 1;
    constexpr std::uint8_t smallest_mtu = 1;  // 256 bytes
    constexpr std::uint8_t largest_mtu = 5;   // 4096
    constexpr std::uint8_t ethernet = 2;
    const bool has_gid = std::ranges::any_of(address.gid, [](std::byte each) { return each != std::byte{0}; });
    return address.pair != 0 && address.pair <= most && address.psn <= most && address.mtu >= smallest_mtu &&
           address.mtu <= largest_mtu && (address.link == 1 || (address.link == ethernet && has_gid));
}

bool cannot_be_call(Bytes bytes) {
    const std::uint32_t magic = Hello::expected_magic;
    return std::memcmp(bytes.data(), &magic, std::min(bytes.size(), sizeof magic)) != 0;
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

bool is_nonsense(const Header& header, std::size_t bytes) {
    switch (header.kind) {
        case Header::Kind::message:
            return bytes == 0 || bytes > max_message_bytes;
        case Header::Kind::notice:
        case Header::Kind::credits:
            return bytes != 0;
        case Header::Kind::released:
        case Header::Kind::heard:
            return header.count == 0 || header.count > max_changes || bytes != header.count * sizeof(Change);
        case Header::Kind::welcome:
            break;
    }
    return true;
}

}  // namespace incast::transport::verbs

// What verbs endpoints say to each other, as bytes: addresses, keys, the hello of a connection, what sends carry.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>

#include "transport/blob.h"
#include "transport/calls/hello.h"
#include "transport/calls/socket_address.h"
#include "transport/rma/wire.h"

namespace incast::transport::verbs {

using rma::buffer_bytes;
using rma::Header;  // the first bytes of every send
using rma::max_receives;
using rma::max_regions;

inline constexpr std::uint32_t max_rails = 4;

/// Where an endpoint listens; of several rails one follows the other.
struct Address {
    static constexpr std::uint32_t expected_magic = 0x41425256;  // "VRBA"
    std::uint32_t magic = expected_magic;
    std::uint32_t node = 0;
    std::uint8_t is_v6 = 0;
    std::uint8_t by_exchange = 0;  // no rdma_cm: a TCP port, for addresses of queue pairs
    std::uint16_t port = 0;
    std::array<std::byte, 16> ip{};
    std::uint32_t rails = 1;
    /// Not 0: for one that is no node of this run. `node` is the number it has there, and it says this one when it
    /// calls, in place of a node's number, of which none is as large.
    std::uint32_t invitation = 0;

    Address() = default;
    Address(std::uint32_t node, const SocketAddress& address);
    [[nodiscard]] SocketAddress socket() const;
};

/// The address of that rail, or of the first where the endpoint has fewer. Nothing: no address of this transport.
std::optional<Address> address_in(const Blob& blob, std::uint32_t rail);

struct Key : RegionKey<0x4B425256> {  // "VRBK"
    std::uint64_t address = 0;
    std::array<std::uint32_t, max_rails> rkeys{};  // each for whoever comes by that rail
};

/// The private data of who connects: rdma_cm leaves 56 bytes for it.
using Hello = BasicHello<0x48425256>;  // "VRBH"
static_assert(sizeof(Hello) <= 56);

/// The private data of who turns it away.
struct Refusal {
    static constexpr std::uint32_t expected_magic = 0x52425256;  // "VRBR"
    std::uint32_t magic = expected_magic;
    Verdict verdict = Verdict::malformed;
};

// --- without rdma_cm: what goes through a TCP connection, a call one way and an answer the other

/// Enhanced connection establishment: what devices of one vendor agree on for a connection. Zeros: nothing.
struct Ece {
    std::uint32_t vendor = 0;
    std::uint32_t options = 0;
    bool operator==(const Ece&) const = default;
};

/// One end of a reliable connection between two queue pairs.
struct PairAddress {
    std::array<std::byte, 16> gid{};
    std::uint32_t pair = 0;  // its number, of 24 bits
    std::uint32_t psn = 0;   // of its first packet, of 24 bits
    std::uint16_t lid = 0;
    std::uint8_t mtu = 0;       // the path's, an ibv_mtu
    std::uint8_t link = 0;      // IBV_LINK_LAYER_...
    std::uint8_t gid_type = 0;  // an ibv_gid_type
    std::uint8_t responder_reads = 0;
    std::uint8_t initiator_reads = 0;
    std::uint8_t zero = 0;
    Ece ece{};  // of a call: what is offered; of an answer: what was accepted of it
};
static_assert(sizeof(PairAddress) == 40);
/// Whether a queue pair can be at such an address at all.
bool is_sane(const PairAddress& address);

struct Call {
    Hello hello;
    PairAddress from;
};
static_assert(sizeof(Call) == 80);

struct Answer {
    static constexpr std::uint32_t expected_magic = 0x4E425256;  // "VRBN"
    std::uint32_t magic = expected_magic;
    Verdict verdict = Verdict::malformed;
    PairAddress from;  // if it was accepted
};
static_assert(sizeof(Answer) == 48);

/// Of a whole call, with anything behind it.
Verdict judge_call(Bytes bytes, const Expected& expected, Call& call);
/// False: what answers is no node.
bool read_answer(Bytes bytes, Answer& answer);

/// An immediate: the notice, and the receives given back.
constexpr std::uint32_t to_immediate(std::uint16_t notice, std::uint16_t credits) {
    return static_cast<std::uint32_t>(notice) << 16 | credits;
}
constexpr std::uint16_t notice_of(std::uint32_t immediate) {
    return static_cast<std::uint16_t>(immediate >> 16);
}
constexpr std::uint16_t credits_of(std::uint32_t immediate) {
    return static_cast<std::uint16_t>(immediate);
}

}  // namespace incast::transport::verbs

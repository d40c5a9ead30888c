// What two hubs say to each other before they are peers, over the socket of a listener: who they are, and how their
// endpoints are reached. Numbers are little-endian.
//
//   listener -> caller   offer     the hub, the port of the listener, its endpoint's address
//   caller -> listener   answer    only where both sides have to connect: its own address
//   listener -> caller   reply     and then the listener's address for this caller, or that it has to come again
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include <incast/transport.h>

#include "os/descriptor.h"

namespace incast::channel::api {

/// Random: no two hubs have the same.
using HubId = std::array<std::byte, 16>;
HubId random_id();

struct Card {
    static constexpr std::uint32_t expected_magic = 0x32434843;  // "CHC2": the last one is the version of all of it
    enum class What : std::uint8_t {
        offer = 1,
        answer,
        reply,
        again,   // come again, in a moment
        failed,  // within this process, by who calls for the hub: `port` is an errno value
    };
    std::uint32_t magic = expected_magic;
    What what{};
    std::uint8_t scheme = 0;
    std::uint16_t address_bytes = 0;  // behind this
    std::uint32_t incarnation = 0;
    std::uint32_t port = 0;  // offer
    HubId hub{};
};
static_assert(sizeof(Card) == 32);

struct WholeCard {
    Card card;
    Blob address;
    os::Descriptor way = {};  // an offer of shm: by which the endpoint is reached, if that is open
};
std::vector<std::byte> to_bytes(const Card& card, const Blob& address);
/// The card at the beginning of `bytes`. `is_wrong`: no card begins so; of another version, if it has one.
struct Read {
    std::optional<WholeCard> whole;
    bool is_wrong = false;
    std::optional<char> other_version = {};
};
Read read_card(Bytes bytes);
/// The version of this library.
char card_version();

/// The greeting of who dials.
struct Greeting {
    static constexpr std::uint64_t expected_magic = 0x31474843;  // "CHG1"
    std::uint64_t magic = expected_magic;
    HubId hub{};
};
std::optional<Greeting> read_greeting(Bytes bytes);

}  // namespace incast::channel::api

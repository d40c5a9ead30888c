#include "channel/api/card.h"

#include <algorithm>
#include <cstring>

#include <sys/random.h>

#include "channel/api/address.h"

namespace incast::channel::api {

HubId random_id() {
    HubId made{};
    if (::getrandom(made.data(), made.size(), 0) != static_cast<ssize_t>(made.size()))
        throw system_failure(errno, "random numbers");
    return made;
}

std::vector<std::byte> to_bytes(const Card& card, const Blob& address) {
    Card whole = card;
    whole.address_bytes = static_cast<std::uint16_t>(address.bytes.size());
    std::vector<std::byte> bytes(sizeof whole + address.bytes.size());
    std::memcpy(bytes.data(), &whole, sizeof whole);
    std::ranges::copy(address.bytes, bytes.begin() + sizeof whole);
    return bytes;
}

char card_version() {
    return static_cast<char>(Card::expected_magic >> 24U);
}

Read read_card(Bytes bytes) {
    if (bytes.empty()) return {};
    Card card;
    const std::uint32_t magic = Card::expected_magic;
    if (std::memcmp(bytes.data(), &magic, std::min(bytes.size(), sizeof magic)) != 0) {
        const bool is_card = bytes.size() >= sizeof magic && std::memcmp(bytes.data(), &magic, sizeof magic - 1) == 0;
        const char version = is_card ? static_cast<char>(bytes[sizeof magic - 1]) : '\0';
        const bool is_version = version > ' ' && version <= '~';  // it is printed
        return {{}, true, is_version ? std::optional(version) : std::nullopt};
    }
    if (bytes.size() < sizeof card) return {};
    std::memcpy(&card, bytes.data(), sizeof card);
    const bool has_address = card.what < Card::What::again;
    if (card.what < Card::What::offer || card.what > Card::What::failed ||
        card.scheme > static_cast<std::uint8_t>(Scheme::rio) || card.address_bytes > max_address_bytes ||
        has_address != (card.address_bytes > 0))
        return {{}, true};
    const Bytes rest = bytes.subspan(sizeof card);
    if (rest.size() < card.address_bytes) return {};
    return {WholeCard{card, Blob{{rest.begin(), rest.begin() + card.address_bytes}}}, false};
}

std::optional<Greeting> read_greeting(Bytes bytes) {
    Greeting greeting;
    if (bytes.size() != sizeof greeting) return std::nullopt;
    std::memcpy(&greeting, bytes.data(), sizeof greeting);
    if (greeting.magic != Greeting::expected_magic) return std::nullopt;
    return greeting;
}

}  // namespace incast::channel::api

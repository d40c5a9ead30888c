// What hubs of channels hear from strangers (EB-T8), by the first byte: a message of another hub, or what is said at
// the socket of a listener, and an address that somebody wrote. What is taken for one is written again as it was.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <span>
#include <string_view>

#include "channel/api/address.h"
#include "channel/api/card.h"
#include "channel/hub/control.h"

namespace {

using namespace incast;
using namespace incast::channel;

void require(bool fact) {
    if (!fact) std::abort();
}

void hear_message(Bytes message) {
    const auto received = parse(message);
    if (!received) return;
    const Written again(received->control, received->key);
    require(std::ranges::equal(again.bytes(), message));
}

void hear_card(Bytes said) {
    const api::Read read = api::read_card(said);
    require(!(read.whole && read.is_wrong));
    if (read.whole) {
        const auto again = api::to_bytes(read.whole->card, read.whole->address);
        require(again.size() <= said.size() && std::ranges::equal(again, said.first(again.size())));
    }
    (void)api::read_greeting(said);
}

void read_address(std::string_view text) {
    try {
        const api::Scheme scheme = api::parse_scheme(text);
        for (const api::Use use : {api::Use::listen, api::Use::connect}) {
            const api::Address address = api::parse_address(text, use, scheme);
            require(api::parse_address(address.text(), use, scheme) == address);
        }
    } catch (const api::Failure& failure) {
        require(failure.error > 0 && !failure.line.empty());
    }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    if (size == 0) return 0;
    const Bytes rest = std::as_bytes(std::span(data, size)).subspan(1);
    switch (data[0] % 3) {
        case 0:
            hear_message(rest);
            break;
        case 1:
            hear_card(rest);
            break;
        default:
            read_address({reinterpret_cast<const char*>(rest.data()), rest.size()});
    }
    return 0;
}

#include "settings.h"

#include <algorithm>
#include <charconv>
#include <optional>

#include "failure.h"

namespace incast::netdev {

namespace {

constexpr unsigned least_id = 1;
constexpr unsigned most_id = 65534;
constexpr unsigned longest_range = 255;

std::optional<unsigned> number(std::string_view text) {
    unsigned value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
    return value;
}

std::string filled(std::string pattern, unsigned id) {
    constexpr std::string_view place = "{id}";
    for (std::size_t at = pattern.find(place); at != std::string::npos; at = pattern.find(place, at))
        pattern.replace(at, place.size(), std::to_string(id));
    return pattern;
}

}  // namespace

std::vector<Member> parse_members(std::string_view text, const std::string& pattern) {
    std::vector<Member> made;
    while (!text.empty()) {
        const std::string_view item = text.substr(0, text.find(','));
        text.remove_prefix(std::min(text.size(), item.size() + 1));
        const std::size_t equals = item.find('=');
        const std::string_view ids = item.substr(0, equals);
        const std::size_t dash = ids.find('-');
        const auto first = number(ids.substr(0, dash));
        const auto last = dash == std::string_view::npos ? first : number(ids.substr(dash + 1));
        if (!first || !last || *first < least_id || *last > most_id || *last < *first ||
            *last - *first >= longest_range || (equals != std::string_view::npos && *first != *last))
            throw Failure("--peers: '" + std::string(item) +
                          "'; allowed: ids from 1 to 65534 as 3, 1-16 or 3=ADDRESS, with commas between");
        for (unsigned id = *first; id <= *last; ++id) {
            std::string address =
                equals == std::string_view::npos ? filled(pattern, id) : std::string(item.substr(equals + 1));
            if (address.empty())
                throw Failure("--peers: " + std::to_string(id) +
                              " has no address; allowed: --at ADDRESS with {id} in it, or " + std::to_string(id) +
                              "=ADDRESS");
            made.push_back({.id = static_cast<std::uint16_t>(id), .address = std::move(address)});
        }
    }
    std::sort(made.begin(), made.end(), [](const Member& one, const Member& other) { return one.id < other.id; });
    const auto twice = std::adjacent_find(made.begin(), made.end(),
                                          [](const Member& one, const Member& other) { return one.id == other.id; });
    if (twice != made.end()) throw Failure("--peers: " + std::to_string(twice->id) + " is named twice");
    return made;
}

std::string address_of_queue(const std::string& address, std::uint32_t queue) {
    if (queue == 0) return address;
    const std::size_t colon = address.rfind(':');
    const auto port = colon == std::string::npos ? std::nullopt : number(std::string_view(address).substr(colon + 1));
    if (!port) return address + "." + std::to_string(queue);
    return address.substr(0, colon + 1) + std::to_string(*port + queue);
}

}  // namespace incast::netdev

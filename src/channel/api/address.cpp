#include "channel/api/address.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <optional>

namespace incast::channel::api {

namespace {

constexpr std::array<std::string_view, 5> schemes{"shm", "tcp", "udp", "verbs", "rio"};
constexpr std::string_view behind_scheme = "://";
constexpr std::size_t longest_name = 90;   // in 108 bytes of a Unix address
constexpr std::size_t longest_host = 253;  // RFC 1035

std::optional<std::uint16_t> number(std::string_view text) {
    std::uint16_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
    return value;
}

[[noreturn]] void refuse_form(std::string_view text, const std::string& allowed) {
    throw Failure{EINVAL, "'" + std::string(text) + "' is no address; allowed: " + allowed};
}

/// Port or channel: 0 for any.
std::uint16_t port_of(std::string_view text, std::string_view whole, Use use, const std::string& allowed) {
    if (text == "*" && use == Use::listen) return 0;
    const auto value = number(text);
    if (!value || (*value == 0 && use == Use::connect)) refuse_form(whole, allowed);
    return *value;
}

}  // namespace

std::string_view to_string(Scheme scheme) {
    return schemes[static_cast<std::size_t>(scheme)];
}

Scheme parse_scheme(std::string_view text) {
    const std::string_view name = text.substr(0, text.find(behind_scheme));
    const auto found = std::ranges::find(schemes, name);
    if (found == schemes.end())
        throw Failure{EPROTONOSUPPORT, "'" + std::string(text) + "': allowed: shm, tcp, udp, verbs, rio"};
    return static_cast<Scheme>(found - schemes.begin());
}

Address parse_address(std::string_view text, Use use, Scheme expected) {
    const std::size_t split = text.find(behind_scheme);
    if (split == std::string_view::npos) refuse_form(text, "shm://NAME, tcp://HOST:PORT, rio://DESTID:CHANNEL");
    Address address{.scheme = parse_scheme(text), .host = {}};
    if (address.scheme != expected)
        throw Failure{EPROTONOSUPPORT,
                      "'" + std::string(text) + "': this hub is one of " + std::string(to_string(expected))};
    const std::string_view rest = text.substr(split + behind_scheme.size());
    if (address.scheme == Scheme::shm) {
        if (rest.empty() || rest.size() > longest_name || rest.find('\0') != std::string_view::npos)
            refuse_form(text, "shm://NAME, of 1 to 90 bytes");
        address.host = rest;
        address.is_any_host = rest == "*";
        if (address.is_any_host && use == Use::connect) refuse_form(text, "shm://NAME; `*` is for listening");
        return address;
    }
    const bool is_rio = address.scheme == Scheme::rio;
    const std::string allowed = std::string(to_string(address.scheme)) +
                                (is_rio ? "://DESTID:CHANNEL" : "://HOST:PORT") +
                                (use == Use::listen ? ", `*` for any" : "");
    const std::size_t colon = rest.rfind(':');
    if (colon == std::string_view::npos) refuse_form(text, allowed);
    std::string_view host = rest.substr(0, colon);
    address.port = port_of(rest.substr(colon + 1), text, use, allowed);
    if (host == "*" && use == Use::listen && address.scheme != Scheme::verbs) {
        address.is_any_host = true;
    } else if (is_rio) {
        const auto destid = number(host);
        if (!destid) refuse_form(text, allowed);
        address.destid = *destid;
    } else {
        const bool is_bracketed = host.starts_with('[') && host.ends_with(']');
        if (is_bracketed) host = host.substr(1, host.size() - 2);
        const bool has_colon = host.find(':') != std::string_view::npos;
        if (host.empty() || host.size() > longest_host || has_colon != is_bracketed || host == "*" ||
            host.find('\0') != std::string_view::npos)
            refuse_form(text, allowed);
        address.host = host;
    }
    return address;
}

std::string Address::text() const {
    std::string made(to_string(scheme));
    made += behind_scheme;
    if (scheme == Scheme::shm) return made + host;
    if (is_any_host)
        made += '*';
    else if (scheme == Scheme::rio)
        made += std::to_string(destid);
    else
        made += host.find(':') == std::string::npos ? host : '[' + host + ']';
    return made + ':' + std::to_string(port);
}

}  // namespace incast::channel::api

#include "softrio/udp/address.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <memory>

#include <arpa/inet.h>
#include <netdb.h>
#include <toml++/toml.h>

#include "softrio/options.h"

namespace incast::softrio::udp {

namespace {

constexpr std::string_view forms =
    "must be loopback:PORT, NETWORK/BITS:PORT, host:ADDRESS:PORT, ID=ADDRESS:PORT,... or a TOML file with a table "
    "[endpoints]";
/// Who lists the endpoints of a network asks each of these.
constexpr std::uint32_t max_hosts = 1023;

std::optional<std::uint32_t> number(std::string_view text, std::uint32_t low, std::uint32_t high) {
    std::uint32_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc{} || end != text.data() + text.size() || value < low || value > high) return std::nullopt;
    return value;
}

std::optional<std::uint32_t> ipv4(std::string_view text) {
    in_addr address{};
    if (::inet_pton(AF_INET, std::string(text).c_str(), &address) != 1) return std::nullopt;
    return ntohl(address.s_addr);
}

}  // namespace

Result<Address> parse_address(std::string_view text, Ports ports) {
    const std::size_t colon = text.rfind(':');
    std::string_view host = text.substr(0, std::min(colon, text.size()));
    const auto port = colon == std::string_view::npos
                          ? std::nullopt
                          : number(text.substr(colon + 1), ports == Ports::any_too ? 0 : 1, UINT16_MAX);
    if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
    addrinfo wanted{};
    wanted.ai_socktype = SOCK_DGRAM;
    addrinfo* found = nullptr;
    if (host.empty() || !port || ::getaddrinfo(std::string(host).c_str(), nullptr, &wanted, &found) != 0)
        return Error{"'" + std::string(text) + "' is no address: must be as 10.0.0.1:7000 or [::1]:7000"};
    const std::unique_ptr<addrinfo, void (*)(addrinfo*)> owner(found, ::freeaddrinfo);
    Address address;
    address.port = static_cast<std::uint16_t>(*port);
    address.is_v6 = found->ai_family == AF_INET6;
    if (address.is_v6) {
        std::memcpy(address.ip.data(), &reinterpret_cast<sockaddr_in6*>(found->ai_addr)->sin6_addr, 16);
    } else {
        std::memcpy(address.ip.data(), &reinterpret_cast<sockaddr_in*>(found->ai_addr)->sin_addr, 4);
    }
    return address;
}

Result<Ok> Directory::add(std::string_view destid, std::string_view address) {
    const auto id = number(destid, 1, max_destid);
    if (!id || !is_destid(*id)) {
        return Error{"'" + std::string(destid) + "' must be a destination id, 1..65534 and not 255"};
    }
    const auto where = parse_address(address);
    if (!where) return where.error();
    if (std::ranges::any_of(list_, [&](const auto& each) { return each.second == *where; }))
        return Error{std::string(address) + " is there twice"};
    if (!list_.emplace(*id, *where).second) return Error{"destination id " + std::string(destid) + " is there twice"};
    return Ok{};
}

Result<Ok> Directory::parse_list(std::string_view text) {
    while (!text.empty()) {
        const std::string_view one = text.substr(0, text.find(','));
        text.remove_prefix(std::min(text.size(), one.size() + 1));
        const std::size_t equals = std::min(one.find('='), one.size());
        const auto done = add(one.substr(0, equals), one.substr(std::min(one.size(), equals + 1)));
        if (!done) return done.error();
    }
    return Ok{};
}

Result<Ok> Directory::parse_network(std::string_view text, std::size_t slash) {
    const std::size_t colon = std::min(text.find(':', slash), text.size());
    const auto base = ipv4(text.substr(0, slash));
    const auto bits = number(text.substr(slash + 1, colon - slash - 1), 8, 30);
    const auto port = number(text.substr(std::min(text.size(), colon + 1)), 1, UINT16_MAX);
    if (!base || !bits || !port || (*base & (UINT32_MAX >> *bits)) != 0)
        return Error{"must be as 10.0.0.0/24:7000: a network of 8..30 bits and a port"};
    network_ = *base;
    hosts_ = std::min((UINT32_MAX >> *bits) - 1, max_hosts);
    port_ = static_cast<std::uint16_t>(*port);
    return Ok{};
}

Result<Ok> Directory::read_file(const std::string& path) {
    try {
        const toml::table file = toml::parse_file(path);
        const toml::table* endpoints = file["endpoints"].as_table();
        if (endpoints == nullptr || file.size() != 1)
            return Error{path + " must hold a table [endpoints] and nothing else"};
        for (const auto& [destid, address] : *endpoints) {
            const auto text = address.value<std::string>();
            if (!text) return Error{path + ": endpoint " + std::string(destid.str()) + ": must be a text ADDRESS:PORT"};
            const auto done = add(destid.str(), *text);
            if (!done) return Error{path + ": " + done.error().message};
        }
    } catch (const toml::parse_error& error) {
        return Error{path + ": " + std::string(error.description())};
    }
    return Ok{};
}

Result<Directory> Directory::parse(std::string_view text) {
    constexpr std::string_view loopback = "loopback:";
    constexpr std::string_view host = "host:";
    Directory directory;
    const auto done = [&]() -> Result<Ok> {
        if (text.starts_with(loopback)) {
            return directory.parse_network("127.64.0.0/16:" + std::string(text.substr(loopback.size())), 10);
        }
        if (text.starts_with(host)) {
            const auto at = parse_address(text.substr(host.size()));
            if (!at) return at.error();
            directory.host_ = *at;
            return Ok{};
        }
        if (text.find('=') != std::string_view::npos) return directory.parse_list(text);
        const std::size_t slash = text.find('/');
        if (slash != std::string_view::npos && ipv4(text.substr(0, slash))) return directory.parse_network(text, slash);
        return directory.read_file(std::string(text));
    }();
    if (!done) return Error{"RIO_FABRIC=udp:" + std::string(text) + ": " + done.error().message};
    if (directory.all().empty() && !directory.host())
        return Error{"RIO_FABRIC=udp:" + std::string(text) + ": " + std::string(forms)};
    return directory;
}

std::optional<Address> Directory::find(std::uint32_t destid) const {
    if (hosts_ == 0) {
        const auto found = list_.find(destid);
        return found == list_.end() ? std::nullopt : std::optional(found->second);
    }
    if (destid == 0 || destid > hosts_ || !is_destid(destid)) return std::nullopt;
    const std::uint32_t ip = htonl(network_ + destid);
    Address address;
    address.port = port_;
    std::memcpy(address.ip.data(), &ip, sizeof ip);
    return address;
}

std::vector<std::uint32_t> Directory::all() const {
    std::vector<std::uint32_t> ids;
    ids.reserve(list_.size() + hosts_);
    for (const auto& [destid, address] : list_)
        ids.push_back(destid);
    for (std::uint32_t destid = 1; destid <= hosts_; ++destid) {
        if (is_destid(destid)) ids.push_back(destid);
    }
    return ids;
}

void Directory::set(std::uint32_t destid, const std::optional<Address>& at) {
    if (at) {
        list_.insert_or_assign(destid, *at);
    } else {
        list_.erase(destid);
    }
}

bool Directory::has_v6() const {
    return (host_ && host_->is_v6) || std::ranges::any_of(list_, [](const auto& each) { return each.second.is_v6; });
}

}  // namespace incast::softrio::udp

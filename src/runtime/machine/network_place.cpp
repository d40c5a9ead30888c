#include "runtime/machine/network_place.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <fstream>
#include <memory>

#include <arpa/inet.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "os/descriptor.h"

namespace incast::runtime {
namespace {

struct Bits {
    int family = AF_UNSPEC;
    std::array<std::uint8_t, 16> bytes{};
    [[nodiscard]] unsigned size() const { return family == AF_INET ? 32 : 128; }
};

std::optional<Bits> parse(const std::string& text) {
    Bits bits;
    for (const int family : {AF_INET, AF_INET6}) {
        if (inet_pton(family, text.c_str(), bits.bytes.data()) == 1) {
            bits.family = family;
            return bits;
        }
    }
    return std::nullopt;
}

struct HostAddress {
    std::string interface;
    std::string text;
};

/// Of interfaces that are up, IPv4 first, but for those that only mean something on one link.
std::vector<HostAddress> addresses_of_host() {
    ifaddrs* first = nullptr;
    if (getifaddrs(&first) != 0) {
        return {};
    }
    const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> owner(first, &freeifaddrs);
    std::vector<HostAddress> found;
    for (const int family : {AF_INET, AF_INET6}) {
        for (const ifaddrs* at = first; at != nullptr; at = at->ifa_next) {
            if (at->ifa_addr == nullptr || at->ifa_addr->sa_family != family || (at->ifa_flags & IFF_UP) == 0) {
                continue;
            }
            std::array<char, INET6_ADDRSTRLEN> text{};
            const void* bytes = &reinterpret_cast<const sockaddr_in*>(at->ifa_addr)->sin_addr;
            if (family == AF_INET6) {
                const in6_addr& address = reinterpret_cast<const sockaddr_in6*>(at->ifa_addr)->sin6_addr;
                bytes = IN6_IS_ADDR_LINKLOCAL(&address) ? nullptr : &address;
            }
            if (bytes != nullptr && inet_ntop(family, bytes, text.data(), text.size()) != nullptr) {
                found.push_back({at->ifa_name, text.data()});
            }
        }
    }
    return found;
}

/// Nothing where it is not there, or says -1.
std::optional<std::uint64_t> number_of(const std::string& interface, std::string_view what) {
    std::ifstream file(fmt::format("/sys/class/net/{}/{}", interface, what));
    std::int64_t number = -1;
    return file >> number && number >= 0 ? std::optional(static_cast<std::uint64_t>(number)) : std::nullopt;
}

std::uint32_t mtu_of(const std::string& interface) {
    const os::Descriptor socket_fd(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    ifreq request{};
    interface.copy(request.ifr_name, IFNAMSIZ - 1);
    return socket_fd.is_open() && ioctl(socket_fd.fd(), SIOCGIFMTU, &request) == 0
               ? static_cast<std::uint32_t>(request.ifr_mtu)
               : 0;
}

}  // namespace

Result<bool> lies_in(std::string_view address, const std::string& subnet) {
    const std::size_t slash = subnet.find('/');
    const std::optional<Bits> network = parse(subnet.substr(0, slash));
    const std::string length = slash == std::string::npos ? "" : subnet.substr(slash + 1);
    const bool digits = !length.empty() && length.size() <= 3 &&
                        std::ranges::all_of(length, [](char letter) { return letter >= '0' && letter <= '9'; });
    const unsigned wanted = digits ? static_cast<unsigned>(std::strtoul(length.c_str(), nullptr, 10)) : 0;
    if (!network || !digits || wanted > network->size()) {
        return Error{"no subnet; allowed: one such as 10.1.0.0/16"};
    }
    const std::optional<Bits> bits = parse(std::string(address));
    if (!bits || bits->family != network->family) {
        return false;
    }
    for (unsigned bit = 0; bit < wanted; ++bit) {
        const unsigned mask = 0x80U >> (bit % 8);
        if (((bits->bytes.at(bit / 8) ^ network->bytes.at(bit / 8)) & mask) != 0) {
            return false;
        }
    }
    return true;
}

Result<std::string> address_on(const std::string& network) {
    const bool is_subnet = network.find('/') != std::string::npos;
    std::vector<std::string> all;
    for (const HostAddress& each : addresses_of_host()) {
        bool fits = each.interface == network;
        if (is_subnet) {
            const Result<bool> inside = lies_in(each.text, network);
            if (!inside) {
                return inside.error();
            }
            fits = *inside;
        }
        if (fits) {
            return each.text;
        }
        all.push_back(fmt::format("{} ({})", each.interface, each.text));
    }
    return Error{fmt::format("{}; it has {}",
                             is_subnet                              ? "no address of this host lies in it"
                             : if_nametoindex(network.c_str()) != 0 ? "that interface has no address, or is down"
                                                                    : "this host has no such interface",
                             all.empty() ? "none" : fmt::format("{}", fmt::join(all, ", ")))};
}

NetworkPlace place_of(const std::string& address) {
    NetworkPlace place;
    place.address = address;
    for (const HostAddress& each : addresses_of_host()) {
        if (each.text == address) {
            place.interface = each.interface;
            place.mtu = mtu_of(each.interface);
            if (const auto megabits = number_of(each.interface, "speed")) {
                place.link_bits_per_s = *megabits * 1'000'000;
            }
            if (const auto numa = number_of(each.interface, "device/numa_node")) {
                place.numa_node = static_cast<std::uint32_t>(*numa);
            }
        }
    }
    return place;
}

}  // namespace incast::runtime

#include "places.h"

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>

#include <ifaddrs.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/stat.h>
#include <unistd.h>

namespace incast_root {

namespace {

bool is_own(const sockaddr* address) {
    if (address->sa_family == AF_INET) {
        const in_addr here = reinterpret_cast<const sockaddr_in*>(address)->sin_addr;
        if ((ntohl(here.s_addr) >> 24U) == 127) return true;
    } else if (address->sa_family != AF_INET6) {
        return false;
    }
    ifaddrs* all = nullptr;
    if (::getifaddrs(&all) != 0) return false;
    bool is_found = false;
    for (const ifaddrs* one = all; one != nullptr && !is_found; one = one->ifa_next) {
        if (one->ifa_addr == nullptr || one->ifa_addr->sa_family != address->sa_family) continue;
        is_found =
            address->sa_family == AF_INET
                ? reinterpret_cast<const sockaddr_in*>(address)->sin_addr.s_addr ==
                      reinterpret_cast<const sockaddr_in*>(one->ifa_addr)->sin_addr.s_addr
                : std::memcmp(&reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr,
                              &reinterpret_cast<const sockaddr_in6*>(one->ifa_addr)->sin6_addr, sizeof(in6_addr)) == 0;
    }
    ::freeifaddrs(all);
    return is_found;
}

/// Empty, with errno: there is none, or it is another user's.
std::string folder_of_cards() {
    const std::string folder = std::string(P_tmpdir) + "/incast-root-" + std::to_string(::geteuid());
    if (::mkdir(folder.c_str(), S_IRWXU) != 0 && errno != EEXIST) return "";
    struct stat is{};
    if (::lstat(folder.c_str(), &is) != 0) return "";
    if (!S_ISDIR(is.st_mode) || is.st_uid != ::geteuid() || (is.st_mode & (S_IWGRP | S_IWOTH)) != 0)
        return errno = EACCES, "";
    return folder;
}

std::string read_card(const std::string& card) {
    std::array<char, 256> target{};
    const auto length = card.empty() ? -1 : ::readlink(card.c_str(), target.data(), target.size());
    if (length <= 0 || static_cast<std::size_t>(length) == target.size()) return "";
    const std::string address(target.data(), static_cast<std::size_t>(length));
    return is_channel_address(address) ? address : "";
}

}  // namespace

bool is_channel_address(const std::string& text) {
    const std::size_t colon = text.find("://");
    return colon != std::string::npos && is_channel_transport(text.substr(0, colon));
}

bool is_this_host(const std::string& host) {
    if (host == "localhost") return true;
    addrinfo hints{};
    hints.ai_socktype = SOCK_STREAM;
    addrinfo* found = nullptr;
    if (::getaddrinfo(host.c_str(), nullptr, &hints, &found) != 0) return false;
    bool is_here = false;
    for (const addrinfo* one = found; one != nullptr && !is_here; one = one->ai_next)
        is_here = is_own(one->ai_addr);
    ::freeaddrinfo(found);
    return is_here;
}

std::string place_of_port(const Settings& settings, const std::string& host, int port) {
    const auto found = settings.hosts.find(host);
    if (found != settings.hosts.end()) return settings.transport + "://" + found->second + ":" + std::to_string(port);
    return is_this_host(host) ? read_card(card_of_port(port)) : "";
}

std::string place_of_path(const std::string& path) {
    return read_card(card_of_path(path));
}

std::string card_of_port(int port) {
    const std::string folder = folder_of_cards();
    struct stat space{};
    if (folder.empty() || ::stat("/proc/self/ns/net", &space) != 0) return "";
    return folder + "/" + std::to_string(space.st_ino) + "-" + std::to_string(port);
}

std::string card_of_path(const std::string& path) {
    return path + ".incast";
}

bool write_card(const std::string& card, const std::string& address) {
    if (card.empty() || (::unlink(card.c_str()) != 0 && errno != ENOENT)) return false;
    return ::symlink(address.c_str(), card.c_str()) == 0;
}

}  // namespace incast_root

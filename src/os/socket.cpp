#include "os/socket.h"

#include <cerrno>
#include <memory>
#include <system_error>

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

namespace incast::os {
namespace {

using Addresses = std::unique_ptr<addrinfo, decltype(&freeaddrinfo)>;

Error system_error(const std::string& what) {
    return {fmt::format("{}: {}", what, std::generic_category().message(errno))};
}

Result<Addresses> look_up(const std::string& text, bool passive) {
    const Result<HostPort> parts = parse_host_port(text);
    if (!parts) {
        return parts.error();
    }
    addrinfo hints{};
    hints.ai_family = AF_UNSPEC;
    hints.ai_socktype = SOCK_STREAM;
    hints.ai_flags = passive ? AI_PASSIVE : 0;
    addrinfo* found = nullptr;
    if (const int code = getaddrinfo(parts->host.c_str(), parts->port.c_str(), &hints, &found); code != 0) {
        return Error{fmt::format("'{}': {}; allowed: HOST:PORT", text, gai_strerror(code))};
    }
    return Addresses(found, &freeaddrinfo);
}

std::string name_of(const sockaddr_storage& address, socklen_t size, bool with_port) {
    char host[NI_MAXHOST] = "";
    char port[NI_MAXSERV] = "";
    if (getnameinfo(reinterpret_cast<const sockaddr*>(&address), size, host, sizeof host, port, sizeof port,
                    NI_NUMERICHOST | NI_NUMERICSERV) != 0) {
        return "unknown";
    }
    if (!with_port) {
        return host;
    }
    return address.ss_family == AF_INET6 ? fmt::format("[{}]:{}", host, port) : fmt::format("{}:{}", host, port);
}

std::string own_name(int fd, bool with_port) {
    sockaddr_storage address{};
    socklen_t size = sizeof address;
    return getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size) == 0 ? name_of(address, size, with_port)
                                                                              : "unknown";
}

/// What is said goes out at once; a host that is gone is noticed within 9 s where nothing is said.
void tune(int fd) {
    const int on = 1;
    const int seconds = 3;
    const int tries = 2;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &seconds, sizeof seconds);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &seconds, sizeof seconds);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &tries, sizeof tries);
}

}  // namespace

Result<HostPort> parse_host_port(const std::string& text) {
    const Error wrong{fmt::format("'{}' is not an address; allowed: HOST:PORT", text)};
    HostPort parts{text, "0"};
    if (text.starts_with('[')) {
        const std::size_t end = text.find(']');
        if (end == std::string::npos || (end + 1 < text.size() && text[end + 1] != ':')) {
            return wrong;
        }
        parts.host = text.substr(1, end - 1);
        if (end + 1 < text.size()) {
            parts.port = text.substr(end + 2);
        }
    } else if (const std::size_t colon = text.find(':'); colon != std::string::npos) {
        parts = {text.substr(0, colon), text.substr(colon + 1)};
    }
    if (parts.host.empty() || parts.port.empty() || parts.port.size() > 5 ||
        parts.port.find_first_not_of("0123456789") != std::string::npos || std::stoul(parts.port) > 65535) {
        return wrong;
    }
    return parts;
}

Result<Descriptor> listen_on(const std::string& host_port) {
    Result<Addresses> addresses = look_up(host_port, true);
    if (!addresses) {
        return addresses.error();
    }
    for (const addrinfo* at = addresses->get(); at != nullptr; at = at->ai_next) {
        Descriptor socket_fd(socket(at->ai_family, at->ai_socktype | SOCK_NONBLOCK | SOCK_CLOEXEC, at->ai_protocol));
        if (!socket_fd.is_open()) {
            continue;
        }
        const int on = 1;
        setsockopt(socket_fd.fd(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
        if (bind(socket_fd.fd(), at->ai_addr, at->ai_addrlen) == 0 && listen(socket_fd.fd(), 128) == 0) {
            return socket_fd;
        }
    }
    return system_error("cannot listen on " + host_port);
}

Descriptor accept_one(int listener, std::string& peer) {
    sockaddr_storage address{};
    socklen_t size = sizeof address;
    Descriptor accepted(accept4(listener, reinterpret_cast<sockaddr*>(&address), &size, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (accepted.is_open()) {
        tune(accepted.fd());
        peer = name_of(address, size, true);
    }
    return accepted;
}

Result<Descriptor> connect_to(const std::string& host_port, int timeout_ms) {
    Result<Addresses> addresses = look_up(host_port, false);
    if (!addresses) {
        return addresses.error();
    }
    errno = ECONNREFUSED;
    for (const addrinfo* at = addresses->get(); at != nullptr; at = at->ai_next) {
        Descriptor socket_fd(socket(at->ai_family, at->ai_socktype | SOCK_NONBLOCK | SOCK_CLOEXEC, at->ai_protocol));
        if (!socket_fd.is_open()) {
            continue;
        }
        int error = connect(socket_fd.fd(), at->ai_addr, at->ai_addrlen) == 0 ? 0 : errno;
        if (error == EINPROGRESS) {
            pollfd waiting{socket_fd.fd(), POLLOUT, 0};
            error = ETIMEDOUT;
            if (poll(&waiting, 1, timeout_ms) == 1) {
                socklen_t size = sizeof error;
                getsockopt(socket_fd.fd(), SOL_SOCKET, SO_ERROR, &error, &size);
            }
        }
        if (error == 0) {
            tune(socket_fd.fd());
            return socket_fd;
        }
        errno = error;
    }
    return system_error("cannot connect to " + host_port);
}

Result<Ok> find_way_to(const std::string& host_port) {
    Result<Addresses> addresses = look_up(host_port, false);
    if (!addresses) {
        return addresses.error();
    }
    const addrinfo* to = addresses->get();
    const Descriptor socket_fd(socket(to->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    if (!socket_fd.is_open() || connect(socket_fd.fd(), to->ai_addr, to->ai_addrlen) != 0) {
        return system_error("no way to " + host_port);
    }
    return Ok{};
}

std::string local_address(int fd) {
    return own_name(fd, true);
}
std::string local_host(int fd) {
    return own_name(fd, false);
}

std::string peer_host(int fd) {
    sockaddr_storage address{};
    socklen_t size = sizeof address;
    return getpeername(fd, reinterpret_cast<sockaddr*>(&address), &size) == 0 ? name_of(address, size, false)
                                                                              : "unknown";
}

bool is_unanswered(int fd) {
    constexpr unsigned most_repeats = 5;  // 0.2, 0.4, 0.8, 1.6 and 3.2 s apart, at the least
    tcp_info info{};
    socklen_t size = sizeof info;
    return getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size) == 0 && info.tcpi_retransmits >= most_repeats;
}

bool is_of_this_host(const std::string& address) {
    addrinfo hints{};
    hints.ai_socktype = SOCK_DGRAM;
    hints.ai_flags = AI_NUMERICHOST;
    addrinfo* found = nullptr;
    if (getaddrinfo(address.c_str(), nullptr, &hints, &found) != 0) {
        return false;
    }
    const Addresses addresses(found, &freeaddrinfo);
    // Only an address of its own can be bound to.
    const Descriptor socket_fd(socket(found->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    return socket_fd.is_open() && bind(socket_fd.fd(), found->ai_addr, found->ai_addrlen) == 0;
}

bool is_numeric(const std::string& host) {
    in6_addr any{};
    return inet_pton(AF_INET, host.c_str(), &any) == 1 || inet_pton(AF_INET6, host.c_str(), &any) == 1;
}

bool is_loopback(const std::string& address) {
    in_addr v4{};
    return inet_pton(AF_INET, address.c_str(), &v4) == 1 ? (ntohl(v4.s_addr) >> 24U) == IN_LOOPBACKNET
                                                         : address == "::1";
}

}  // namespace incast::os

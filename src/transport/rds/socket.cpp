#include "transport/rds/socket.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string_view>
#include <system_error>
#include <vector>

#include <linux/rds.h>
#include <sys/socket.h>

#include "transport/rds/rds.h"

namespace incast::transport::rds {

namespace {

constexpr const char* no_rds = "this host's kernel has no AF_RDS: load its module: modprobe rds_tcp, or rds_rdma";

os::Descriptor open(const Family& family) {
    const int domain = family.domain == 0 ? AF_RDS : family.domain;
    const int type = family.domain == 0 ? SOCK_SEQPACKET : family.type;
    return os::Descriptor(::socket(domain, type | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
}

bool is_no_family(int error) {
    return error == EAFNOSUPPORT || error == EPROTONOSUPPORT || error == ESOCKTNOSUPPORT;
}

std::string text(int error) {
    return std::generic_category().message(error);
}

/// IPv4 addresses as ::ffff:a.b.c.d
in6_addr ip_of(const SocketAddress& address) {
    if (address.storage.ss_family == AF_INET6) return reinterpret_cast<const sockaddr_in6&>(address.storage).sin6_addr;
    in6_addr mapped{};
    mapped.s6_addr[10] = mapped.s6_addr[11] = 0xFF;
    std::memcpy(mapped.s6_addr + 12, &reinterpret_cast<const sockaddr_in&>(address.storage).sin_addr, sizeof(in_addr));
    return mapped;
}

const char* module_of(Carrier carrier) {
    if (carrier == Carrier::any) return "rds_tcp, or rds_rdma";
    return carrier == Carrier::tcp ? "rds_tcp" : "rds_rdma";
}

}  // namespace

Result<os::Descriptor> open_at(SocketAddress& address, const SocketOptions& options) {
    os::Descriptor socket = open(options.family);
    if (!socket.is_open()) return Error{is_no_family(errno) ? no_rds : "socket: " + text(errno)};
    const bool is_rds = options.family.domain == 0;
    if (is_rds && options.carrier != Carrier::any) {
        const int carrier = options.carrier == Carrier::tcp ? RDS_TRANS_TCP : RDS_TRANS_IB;
        if (::setsockopt(socket.fd(), SOL_RDS, SO_RDS_TRANSPORT, &carrier, sizeof carrier) != 0) {
            return Error{std::string("this host's kernel has no such carrier: load its module: modprobe ") +
                         module_of(options.carrier)};
        }
    }
    // As far as anybody may, and then as far as this process may. Failure costs speed alone.
    for (const int option : {SO_SNDBUF, SO_RCVBUF, SO_SNDBUFFORCE, SO_RCVBUFFORCE})
        (void)::setsockopt(socket.fd(), SOL_SOCKET, option, &options.buffer_bytes, sizeof options.buffer_bytes);
    // The end of a peer's congestion wakes whoever sleeps on the socket.
    const int on = 1;
    if (is_rds) (void)::setsockopt(socket.fd(), SOL_RDS, RDS_CONG_MONITOR, &on, sizeof on);
    address.set_port(0);
    if (::bind(socket.fd(), address.get(), address.size()) != 0) {
        const int error = errno;
        const std::string at = address.to_string();
        const std::string ip = at.substr(0, at.rfind(':'));
        if (error != EADDRNOTAVAIL && error != ENOPROTOOPT) return Error{"bind to " + ip + ": " + text(error)};
        return Error{ip + " is no address of this host that RDS has a carrier for; is the module loaded? modprobe " +
                     module_of(options.carrier)};
    }
    socklen_t size = sizeof address.storage;
    if (::getsockname(socket.fd(), address.get(), &size) != 0) return Error{"getsockname: " + text(errno)};
    return socket;
}

std::uint32_t largest_message(const os::Descriptor& socket) {
    int bytes = 0;
    socklen_t size = sizeof bytes;
    if (::getsockopt(socket.fd(), SOL_SOCKET, SO_SNDBUF, &bytes, &size) != 0) return 0;
    return static_cast<std::uint32_t>(std::max(bytes, 0)) / 2;
}

std::string carrier_between(const os::Descriptor& socket, SocketAddress here, SocketAddress there) {
    std::vector<std::byte> list(std::size_t{64} << 10);
    for (int tries = 0; tries < 8; ++tries) {
        auto size = static_cast<socklen_t>(list.size());
        const int each = ::getsockopt(socket.fd(), SOL_RDS, RDS6_INFO_CONNECTIONS, list.data(), &size);
        if (each < 0 && errno == ENOSPC) {
            list.resize(std::size_t{2} * size);
            continue;
        }
        if (each < static_cast<int>(sizeof(rds6_info_connection))) return {};
        const in6_addr from = ip_of(here);
        const in6_addr to = ip_of(there);
        for (std::size_t at = 0; at + sizeof(rds6_info_connection) <= size; at += static_cast<std::size_t>(each)) {
            rds6_info_connection one;
            std::memcpy(&one, list.data() + at, sizeof one);
            if (std::memcmp(&one.laddr, &from, sizeof from) != 0 || std::memcmp(&one.faddr, &to, sizeof to) != 0)
                continue;
            const std::string_view name(reinterpret_cast<const char*>(one.transport),
                                        ::strnlen(reinterpret_cast<const char*>(one.transport), TRANSNAMSIZ));
            return std::string(name == "infiniband" ? "rdma" : name);
        }
        return {};
    }
    return {};
}

std::string missing_here() {
    const os::Descriptor socket = open({});
    if (socket.is_open() || !is_no_family(errno)) return {};
    return no_rds;
}

}  // namespace incast::transport::rds

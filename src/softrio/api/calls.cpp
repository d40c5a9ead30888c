#include "softrio/api/calls.h"

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <functional>

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "os/handing.h"

namespace incast::softrio::api {

namespace {

constexpr int waiting_calls = 128;

socklen_t address_of(const std::string& name, sockaddr_un& address) {
    address = {};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path + 1, name.data(), name.size());
    return static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
}

}  // namespace

bool send_all(int socket, std::span<const std::byte> bytes, int file) {
    while (!bytes.empty()) {
        const std::array parts{iovec{const_cast<std::byte*>(bytes.data()), bytes.size()}};
        const ssize_t sent = os::send_handing(socket, parts, std::span(&file, file >= 0 ? 1U : 0U), 0);
        if (sent < 0 && errno == EINTR) continue;
        if (sent <= 0) return false;
        bytes = bytes.subspan(static_cast<std::size_t>(sent));
        file = -1;
    }
    return true;
}

bool receive_all(int socket, std::span<std::byte> bytes, os::Descriptor* file) {
    while (!bytes.empty()) {
        const std::array parts{iovec{bytes.data(), bytes.size()}};
        const ssize_t got = os::receive_handed(socket, parts, std::span(file, file != nullptr ? 1U : 0U), 0);
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) return false;
        bytes = bytes.subspan(static_cast<std::size_t>(got));
    }
    return true;
}

std::string share_name(const std::string& fabric, std::uint32_t destid) {
    constexpr std::size_t longest = 60;
    const bool is_short = fabric.size() <= longest;
    return "softrio/" + (is_short ? fabric : std::to_string(std::hash<std::string>{}(fabric))) + "/" +
           std::to_string(destid) + "/calls";
}

os::Descriptor listen_at(const std::string& name) {
    os::Descriptor socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    sockaddr_un address;
    const socklen_t size = address_of(name, address);
    if (!socket.is_open() || ::bind(socket.fd(), reinterpret_cast<const sockaddr*>(&address), size) != 0 ||
        ::listen(socket.fd(), waiting_calls) != 0) {
        return {};
    }
    return socket;
}

os::Descriptor connect_to(const std::string& name) {
    os::Descriptor socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_un address;
    const socklen_t size = address_of(name, address);
    if (!socket.is_open() || ::connect(socket.fd(), reinterpret_cast<const sockaddr*>(&address), size) != 0 ||
        !is_same_user(socket.fd())) {
        return {};
    }
    return socket;
}

bool is_same_user(int socket) {
    ucred other{};
    socklen_t size = sizeof other;
    return ::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &other, &size) == 0 && other.uid == ::geteuid();
}

}  // namespace incast::softrio::api

#include "softrio/api/calls.h"

#include <cerrno>
#include <cstddef>
#include <cstring>
#include <functional>

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

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
        iovec part{const_cast<std::byte*>(bytes.data()), bytes.size()};
        alignas(cmsghdr) std::array<std::byte, CMSG_SPACE(sizeof(int))> control{};
        msghdr message{};
        message.msg_iov = &part;
        message.msg_iovlen = 1;
        if (file >= 0) {
            message.msg_control = control.data();
            message.msg_controllen = control.size();
            cmsghdr* const header = CMSG_FIRSTHDR(&message);
            header->cmsg_level = SOL_SOCKET;
            header->cmsg_type = SCM_RIGHTS;
            header->cmsg_len = CMSG_LEN(sizeof(int));
            std::memcpy(CMSG_DATA(header), &file, sizeof file);
        }
        const ssize_t sent = ::sendmsg(socket, &message, MSG_NOSIGNAL);
        if (sent < 0 && errno == EINTR) continue;
        if (sent <= 0) return false;
        bytes = bytes.subspan(static_cast<std::size_t>(sent));
        file = -1;
    }
    return true;
}

bool receive_all(int socket, std::span<std::byte> bytes, os::Descriptor* file) {
    while (!bytes.empty()) {
        iovec part{bytes.data(), bytes.size()};
        alignas(cmsghdr) std::array<std::byte, CMSG_SPACE(sizeof(int))> control{};
        msghdr message{};
        message.msg_iov = &part;
        message.msg_iovlen = 1;
        message.msg_control = control.data();
        message.msg_controllen = CMSG_LEN(sizeof(int));  // with the padding there would be room for two
        const ssize_t got = ::recvmsg(socket, &message, MSG_CMSG_CLOEXEC);
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) return false;
        const cmsghdr* const header = CMSG_FIRSTHDR(&message);
        if (header != nullptr && header->cmsg_level == SOL_SOCKET && header->cmsg_type == SCM_RIGHTS &&
            header->cmsg_len == CMSG_LEN(sizeof(int))) {
            int fd = -1;
            std::memcpy(&fd, CMSG_DATA(header), sizeof fd);
            os::Descriptor taken(fd);
            if (file != nullptr) *file = std::move(taken);
        }
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

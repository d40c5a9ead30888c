#include "transport/shm/channel.h"

#include <cerrno>
#include <cstring>
#include <system_error>

#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "os/handing.h"

namespace incast::transport::shm {

namespace {

constexpr int backlog = 128;

struct SocketAddress {
    sockaddr_un address{};
    socklen_t size = 0;
};

/// A name that begins with a zero byte is abstract.
SocketAddress address_of(const SocketName& name) {
    constexpr char prefix[] = "incast-";
    SocketAddress made;
    made.address.sun_family = AF_UNIX;
    std::memcpy(made.address.sun_path + 1, prefix, sizeof prefix - 1);
    std::memcpy(made.address.sun_path + sizeof prefix, name.word, sizeof name.word);
    made.size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + sizeof prefix + sizeof name.word);
    return made;
}

os::Descriptor make_socket() {
    return os::Descriptor(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
}

}  // namespace

const char* to_string(Verdict verdict) {
    switch (verdict) {
        case Verdict::accepted:
            return "accepted";
        case Verdict::wrong_version:
            return "another version of Incast";
        case Verdict::wrong_run:
            return "another run";
        case Verdict::wrong_token:
            return "wrong token";
        case Verdict::malformed:
            return "malformed hello";
        case Verdict::wrong_node:
            return "meant for another node or incarnation";
        case Verdict::stale_incarnation:
            return "an incarnation that is over";
        case Verdict::no_room:
            return "no room for another peer that dials";
    }
    return "unknown verdict";
}

SocketName random_name() {
    SocketName name;
    // 16 bytes are never cut short, and fail only before the kernel has any randomness.
    (void)::getrandom(name.word, sizeof name.word, 0);
    return name;
}

Result<os::Descriptor> listen_at(const SocketName& name) {
    os::Descriptor socket = make_socket();
    const SocketAddress at = address_of(name);
    if (!socket.is_open() || ::bind(socket.fd(), reinterpret_cast<const sockaddr*>(&at.address), at.size) != 0 ||
        ::listen(socket.fd(), backlog) != 0) {
        return Error{"Unix socket: " + std::generic_category().message(errno)};
    }
    return socket;
}

Dialled dial(const SocketName& name) {
    Dialled dialled{make_socket(), false};
    const SocketAddress at = address_of(name);
    if (!dialled.socket.is_open()) return dialled;
    if (::connect(dialled.socket.fd(), reinterpret_cast<const sockaddr*>(&at.address), at.size) != 0) {
        dialled.again = errno == EAGAIN || errno == EINTR;
        dialled.socket.close();
    }
    return dialled;
}

os::Descriptor accept_one(const os::Descriptor& listener) {
    return os::Descriptor(::accept4(listener.fd(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
}

bool send_packet(const os::Descriptor& socket, const Packet& packet, std::array<int, 2> fds, Bytes greeting) {
    Packet bytes = packet;
    const std::array parts{iovec{&bytes, sizeof bytes},
                           iovec{const_cast<std::byte*>(greeting.data()), greeting.size()}};
    const std::size_t count = fds[0] < 0 ? 0 : fds[1] < 0 ? 1 : 2;
    return os::send_handing(socket.fd(), parts, std::span(fds).first(count), MSG_DONTWAIT) ==
           static_cast<ssize_t>(sizeof bytes + greeting.size());
}

Received receive_packet(const os::Descriptor& socket) {
    Received received;
    std::array<std::byte, max_greeting_bytes> greeting;
    const std::array parts{iovec{&received.packet, sizeof received.packet}, iovec{greeting.data(), greeting.size()}};
    int flags = 0;
    const ssize_t count = os::receive_handed(socket.fd(), parts, received.fds, MSG_DONTWAIT, &flags);
    if (count < 0) {
        const bool later = errno == EAGAIN || errno == EINTR;
        received.what = later ? Received::What::nothing : Received::What::end;
        return received;
    }
    if (count == 0) {
        received.what = Received::What::end;
    } else if (count < static_cast<ssize_t>(sizeof received.packet) ||
               (count > static_cast<ssize_t>(sizeof received.packet) && received.packet.kind != Packet::Kind::knock) ||
               (flags & (MSG_TRUNC | MSG_CTRUNC)) != 0 || received.packet.magic != Packet::expected_magic) {
        received.what = Received::What::nonsense;
    } else {
        received.what = Received::What::packet;
        received.greeting.assign(greeting.begin(),
                                 greeting.begin() + (count - static_cast<ssize_t>(sizeof received.packet)));
    }
    return received;
}

}  // namespace incast::transport::shm

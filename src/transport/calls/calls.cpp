#include "transport/calls/calls.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <span>
#include <system_error>
#include <utility>

#include <netinet/tcp.h>

namespace incast::transport {

namespace {

constexpr std::size_t most_begun = 256;

void send_at_once(const os::Descriptor& socket) {
    const int on = 1;
    (void)::setsockopt(socket.fd(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

}  // namespace

Result<os::Descriptor> listen_at(SocketAddress& address, PortRange ports) {
    os::Descriptor socket;
    const Result<Ok> bound = bind_in(ports, address.to_string(), [&](std::uint16_t port) {
        address.set_port(port);
        socket = os::Descriptor(::socket(address.storage.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
        if (!socket.is_open()) return errno;
        const int on = 1;
        if (port != 0) (void)::setsockopt(socket.fd(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
        const bool listens =
            ::bind(socket.fd(), address.get(), address.size()) == 0 && ::listen(socket.fd(), SOMAXCONN) == 0;
        return listens ? 0 : errno;
    });
    if (!bound) return bound.error();
    socklen_t size = sizeof address.storage;
    if (::getsockname(socket.fd(), address.get(), &size) != 0)
        return Error{"getsockname: " + std::generic_category().message(errno)};
    return socket;
}

Result<os::Descriptor> dial(SocketAddress address) {
    os::Descriptor socket(::socket(address.storage.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    if (!socket.is_open()) return Error{"socket: " + std::generic_category().message(errno)};
    send_at_once(socket);
    if (::connect(socket.fd(), address.get(), address.size()) != 0 && errno != EINPROGRESS)
        return Error{std::generic_category().message(errno)};
    return socket;
}

int connect_error(const os::Descriptor& socket) {
    int error = 0;
    socklen_t size = sizeof error;
    return ::getsockopt(socket.fd(), SOL_SOCKET, SO_ERROR, &error, &size) == 0 ? error : errno;
}

bool say(const os::Descriptor& socket, Bytes bytes) {
    return ::send(socket.fd(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT) ==
           static_cast<ssize_t>(bytes.size());
}

bool has_ended(const os::Descriptor& socket) {
    std::byte any{};
    const ssize_t count = ::recv(socket.fd(), &any, 1, MSG_DONTWAIT);
    return count >= 0 || (errno != EAGAIN && errno != EINTR);
}

void keep_alive(const os::Descriptor& socket, Time deadline) {
    const auto set = [&](int level, int option, int value) {
        (void)::setsockopt(socket.fd(), level, option, &value, sizeof value);
    };
    constexpr int probes = 3;
    const int seconds = static_cast<int>(std::max<Time>(deadline / (probes + 1) / ps_per_s, 1));
    set(SOL_SOCKET, SO_KEEPALIVE, 1);
    set(IPPROTO_TCP, TCP_KEEPIDLE, seconds);
    set(IPPROTO_TCP, TCP_KEEPINTVL, seconds);
    set(IPPROTO_TCP, TCP_KEEPCNT, probes);
    set(IPPROTO_TCP, TCP_USER_TIMEOUT, static_cast<int>(deadline / ps_per_ms));
}

Answered hear_answer(const os::Descriptor& socket, std::span<std::byte> answer, std::size_t& bytes) {
    while (bytes < answer.size()) {
        const std::span<std::byte> room = answer.subspan(bytes);
        const ssize_t count = ::recv(socket.fd(), room.data(), room.size(), MSG_DONTWAIT);
        if (count < 0 && (errno == EAGAIN || errno == EINTR || errno == ENOTCONN)) return Answered::not_yet;
        if (count <= 0) return Answered::ended;
        bytes += static_cast<std::size_t>(count);
    }
    return Answered::whole;
}

bool cannot_be_call(Bytes bytes, std::uint32_t magic) {
    return std::memcmp(bytes.data(), &magic, std::min(bytes.size(), sizeof magic)) != 0;
}

Calls::Calls(const CallFormat& format, os::Descriptor listener, Time timeout, LogSink log)
    : format_(format), listener_(std::move(listener)), timeout_(timeout), log_(std::move(log)) {
    if (!listener_.is_open()) return;
    begun_.resize(most_begun);
}

bool Calls::watch(os::Poller& poller, std::uint64_t listener_id, std::uint64_t call_id) {
    call_id_ = call_id;
    return poller.add(listener_, EPOLLIN, listener_id);
}

void Calls::accept_all(os::Poller& poller, Time now) {
    // Bounded per call: a flood of connections must not keep the endpoint from its peers.
    for (std::size_t left = most_begun; left > 0; --left) {
        SocketAddress from;
        socklen_t size = sizeof from.storage;
        os::Descriptor socket(::accept4(listener_.fd(), from.get(), &size, SOCK_NONBLOCK | SOCK_CLOEXEC));
        if (!socket.is_open()) {
            if (!os::Spare::is_needed_for(errno)) return;
            spare_.turn_away(listener_);
            if (log_) log_(std::string(format_.transport) + ": a connection was refused: out of file descriptors");
            return;
        }
        send_at_once(socket);
        Begun& begun = free_place();
        begun.socket = std::move(socket);
        begun.deadline = now + timeout_;
        begun.received = 0;
        begun.bytes.resize(format_.bytes);
        begun.from = from.to_string();
        next_deadline_ = std::min(next_deadline_, begun.deadline);
        const auto place = static_cast<std::uint64_t>(&begun - begun_.data());
        if (!poller.add(begun.socket, EPOLLIN | EPOLLRDHUP, call_id_ + place)) drop(begun, "it cannot be watched");
    }
}

std::optional<Calls::Whole> Calls::advance(os::Poller& poller, std::uint64_t place) {
    if (place >= begun_.size() || !begun_[place].socket.is_open()) return {};
    Begun& begun = begun_[place];
    const std::span<std::byte> room = std::span(begun.bytes).subspan(begun.received);
    const ssize_t count = ::recv(begun.socket.fd(), room.data(), room.size(), MSG_DONTWAIT);
    if (count <= 0) {
        if (count == 0 || (errno != EAGAIN && errno != EINTR)) drop(begun, "closed before it had said who calls");
        return {};
    }
    begun.received += static_cast<std::size_t>(count);
    if (cannot_be_call(Bytes(begun.bytes).first(begun.received), format_.magic)) {
        drop(begun, to_string(Verdict::malformed));
        return {};
    }
    if (begun.received < begun.bytes.size()) return {};
    poller.remove(begun.socket);
    return Whole{std::move(begun.socket), begun.bytes, std::move(begun.from)};
}

void Calls::expire(Time now) {
    if (now < next_deadline_) return;
    next_deadline_ = time_never;
    for (Begun& begun : begun_) {
        if (!begun.socket.is_open()) continue;
        if (now >= begun.deadline) {
            drop(begun, "it did not say in time who calls");
        } else {
            next_deadline_ = std::min(next_deadline_, begun.deadline);
        }
    }
}

void Calls::drop(Begun& begun, const char* why) {
    if (log_) log_(std::string(format_.transport) + ": a connection from " + begun.from + " was refused: " + why);
    begun.socket.close();
}

Calls::Begun& Calls::free_place() {
    Begun* oldest = &begun_.front();
    for (Begun& begun : begun_) {
        if (!begun.socket.is_open()) return begun;
        if (begun.deadline < oldest->deadline) oldest = &begun;
    }
    // A node of the run calls at once, so the one that has been silent longest is the least likely to be one.
    drop(*oldest, "too many connections that say nothing");
    return *oldest;
}

}  // namespace incast::transport

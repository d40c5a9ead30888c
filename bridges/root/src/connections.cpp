#include "connections.h"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <utility>
#include <vector>

#include <TSystem.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

namespace incast_root {

namespace {

constexpr int longest_end_ms = 10'000;
constexpr std::uint32_t most_channels = 4096;
constexpr std::uint32_t most_peers = 255;                 // that rio allows
constexpr std::uint64_t least_longest_ring = 64U << 20U;  // that a peer may ask for: as channels have it by themselves
constexpr pid_t nobody = -1;

thread_local std::string last_message;  // of CM; else the channels have it

int fail(int error) {
    errno = error;
    return -1;
}

std::string transport_of(const std::string& address) {
    return address.substr(0, address.find("://"));
}

int outcome_of(std::int64_t error) {
    switch (-error) {
        case EAGAIN:
            return would_block;
        case ECONNRESET:
        case EPIPE:
        case ECHILD:
            return broken;
        default:
            return failed;
    }
}

int watch(int epoll, int fd) {
    epoll_event event{};
    event.events = EPOLLIN;
    return ::epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event) == 0 ? 0 : errno;
}

}  // namespace

Descriptor::~Descriptor() {
    if (fd_ >= 0) ::close(fd_);
}

Connection::~Connection() {
    if (is_of_this_process())
        incast_channel_close(channel_);
    else if (fd_ >= 0)
        ::close(fd_);  // the parent goes on with its own
}

bool Connection::is_of_this_process() const {
    return owner_ == ::getpid();
}

int Connection::make_descriptor() {
    fd_ = incast_channel_data_fd(channel_);
    return fd_ >= 0 ? 0 : -fd_;
}

Listener::~Listener() {
    if (owner_ != ::getpid()) {
        (void)messages_.release();  // its thread is the parent's
        return;
    }
    if (!card.empty()) ::unlink(card.c_str());
    incast_channel_listener_close(channels_);
}

std::string Listener::address() const {
    return messages_ != nullptr ? messages_->address() : incast_channel_listener_address(channels_);
}

int Listener::make_descriptor() {
    Descriptor made(::epoll_create1(EPOLL_CLOEXEC));
    if (made.fd() < 0) return errno;
    const int channels = messages_ != nullptr ? messages_->fd() : incast_channel_listener_fd(channels_);
    if (channels < 0) return -channels;
    if (const int error = watch(made.fd(), channels)) return error;
    if (socket_.fd() >= 0) {
        if (const int error = watch(made.fd(), socket_.fd())) return error;
        ::fcntl(socket_.fd(), F_SETFL, ::fcntl(socket_.fd(), F_GETFL) | O_NONBLOCK);
    }
    either_ = std::move(made);
    return 0;
}

/// A child of a fork has none of the parent's channels; what it asks for anew is its own.
void Connections::forget_parent() {
    if (owner_ == ::getpid()) return;
    if (owner_ != 0)
        for (const auto& [transport, hub] : hubs_)
            incast_channel_hub_free(hub);
    hubs_.clear();
    owner_ = ::getpid();
}

incast_channel_hub* Connections::hub_for(const std::string& address) {
    const std::string transport = transport_of(address);
    const std::lock_guard lock(mutex_);
    if (has_ended_) return errno = ESHUTDOWN, nullptr;
    forget_parent();
    incast_channel_hub*& hub = hubs_[transport];
    if (hub != nullptr) return hub;
    incast_channel_hub_options options = INCAST_CHANNEL_HUB_OPTIONS;
    options.max_channels = most_channels;
    options.max_peers = most_peers;
    const std::uint64_t own_ring = std::uint64_t(settings_.ring.buffers) * settings_.ring.buffer_bytes;
    options.longest_ring_bytes =
        static_cast<std::uint32_t>(std::clamp<std::uint64_t>(own_ring, least_longest_ring, UINT32_MAX));
    if (const int error = incast_channel_hub_make(transport.c_str(), &options, &hub)) errno = -error;
    return hub;
}

int Connections::keep(incast_channel* channel, const std::string& transport) {
    auto made = std::make_shared<Connection>(channel, ::getpid(), transport);
    if (const int error = made->make_descriptor()) return fail(error);
    const std::lock_guard lock(mutex_);
    if (has_ended_) return fail(ESHUTDOWN);
    const int fd = made->fd();
    connections_[fd] = std::move(made);
    ++count_;
    return fd;
}

bool Connections::is_of_messages(const std::string& address) {
    return transport_of(address) == "cm";
}

const char* Connections::message() {
    return last_message.empty() ? incast_channel_message() : last_message.c_str();
}

int Connections::keep(std::shared_ptr<MessageConnection> messages) {
    const int fd = messages->fd();
    const std::lock_guard lock(mutex_);
    if (has_ended_) return ::close(fd), fail(ESHUTDOWN);
    forget_parent();
    messages_[fd] = std::move(messages);
    ++count_;
    return fd;
}

int Connections::open(const std::string& address) {
    last_message.clear();
    if (is_of_messages(address)) {
        auto made = connect_messages(address, last_message);
        return made == nullptr ? fail(ECONNREFUSED) : keep(std::move(made));
    }
    incast_channel_hub* const hub = hub_for(address);
    if (hub == nullptr) return -1;
    incast_channel* channel = nullptr;
    if (const int error = incast_channel_connect(hub, address.c_str(), &settings_.ring, &channel)) return fail(-error);
    if (const int state = incast_channel_wait_open(channel, -1); state < 0) {
        incast_channel_abort(channel);
        return fail(-state);
    }
    return keep(channel, transport_of(address));
}

int Connections::listen(int socket, const std::string& address) {
    Descriptor kernel(socket);
    last_message.clear();
    std::shared_ptr<Listener> made;
    if (is_of_messages(address)) {
        auto messages = listen_for_messages(address, last_message);
        if (messages == nullptr) return fail(EADDRNOTAVAIL);
        made = std::make_shared<Listener>(std::move(kernel), std::move(messages), ::getpid());
    } else {
        incast_channel_hub* const hub = hub_for(address);
        if (hub == nullptr) return -1;
        incast_channel_listener* channels = nullptr;
        incast_channel_options kind = INCAST_CHANNEL_OPTIONS;
        if (const int error = incast_channel_listen(hub, address.c_str(), &kind, &channels)) return fail(-error);
        made = std::make_shared<Listener>(std::move(kernel), channels, ::getpid(), transport_of(address));
    }
    if (const int error = made->make_descriptor()) return fail(error);
    const std::lock_guard lock(mutex_);
    const int fd = made->fd();
    listeners_[fd] = std::move(made);
    return fd;
}

int Connections::accept(Listener& listener) {
    while (true) {
        if (listener.messages() != nullptr) {
            if (auto arrived = listener.messages()->take()) return keep(std::move(arrived));
        } else {
            incast_channel* channel = nullptr;
            const int error = incast_channel_accept(listener.channels(), 0, &channel);
            if (error == 0) return keep(channel, listener.transport);
            if (error != -EAGAIN) return fail(-error);
        }
        if (listener.socket() >= 0) {
            const int fd = ::accept4(listener.socket(), nullptr, nullptr, SOCK_CLOEXEC);
            if (fd >= 0) return fd;
            if (errno != EAGAIN && errno != EINTR && errno != ECONNABORTED) return -1;
        }
        if (listener.is_non_blocking) return errno = EWOULDBLOCK, -2;
        pollfd wait{listener.fd(), POLLIN, 0};
        if (::poll(&wait, 1, -1) < 0 && errno != EINTR) return -1;
    }
}

std::shared_ptr<Connection> Connections::connection(int fd) const {
    const std::lock_guard lock(mutex_);
    const auto found = connections_.find(fd);
    return found == connections_.end() ? nullptr : found->second;
}

std::shared_ptr<Listener> Connections::listener(int fd) const {
    const std::lock_guard lock(mutex_);
    const auto found = listeners_.find(fd);
    return found == listeners_.end() ? nullptr : found->second;
}

std::shared_ptr<MessageConnection> Connections::messages(int fd) const {
    const std::lock_guard lock(mutex_);
    const auto found = messages_.find(fd);
    return found == messages_.end() ? nullptr : found->second;
}

bool Connections::close(int fd) {
    std::shared_ptr<Connection> connection;
    std::shared_ptr<Listener> listener;  // both are let go without the mutex: closing may wait
    const std::lock_guard lock(mutex_);
    if (const auto found = connections_.find(fd); found != connections_.end()) {
        connection = std::move(found->second);
        connections_.erase(found);
        return true;
    }
    if (const auto found = messages_.find(fd); found != messages_.end()) {
        messages_.erase(found);
        ::close(fd);
        return true;
    }
    if (const auto found = listeners_.find(fd); found != listeners_.end()) {
        listener = std::move(found->second);
        listeners_.erase(found);
        return true;
    }
    return false;
}

void Connections::end() {
    std::vector<std::shared_ptr<Connection>> connections;
    std::vector<std::shared_ptr<Listener>> listeners;
    std::map<std::string, incast_channel_hub*> hubs;
    {
        const std::lock_guard lock(mutex_);
        has_ended_ = true;
        if (owner_ != ::getpid()) return;
        // The numbers stay, so that ROOT, which closes its sockets later, closes nobody else's descriptor.
        for (auto& [fd, connection] : connections_)
            connections.push_back(std::exchange(connection, std::make_shared<Connection>(nullptr, nobody, "")));
        for (auto& [fd, listener] : listeners_)
            listeners.push_back(std::exchange(listener, nullptr));
        hubs.swap(hubs_);
        for (const auto& [fd, messages] : messages_)
            ::shutdown(fd, SHUT_WR);
    }
    listeners.clear();
    connections.clear();
    drain_messages(longest_end_ms);
    for (const auto& [transport, hub] : hubs) {
        incast_channel_hub_drain(hub, longest_end_ms);
        incast_channel_hub_free(hub);
    }
}

int send(Connection& connection, const void* data, int bytes, int options) {
    if (!connection.is_of_this_process()) return broken;
    if (options == kOob) return fail(EOPNOTSUPP);
    incast_channel* const channel = connection.channel();
    const auto wanted = static_cast<std::size_t>(std::max(bytes, 0));
    if (wanted == 0) return 0;
    const auto* from = static_cast<const std::byte*>(data);
    std::int64_t sent = incast_channel_write(channel, from, wanted, 0);
    if (sent == -EAGAIN && !connection.is_non_blocking) {
        incast_channel_flush(channel);
        sent = incast_channel_write(channel, from, options == kDontBlock ? 1 : wanted, -1);
    }
    if (sent < 0) return errno = static_cast<int>(-sent), outcome_of(sent);
    if (options != kDontBlock) {
        while (static_cast<std::size_t>(sent) < wanted) {
            const std::int64_t more = incast_channel_write(channel, from + sent, wanted - sent, -1);
            if (more < 0) return errno = static_cast<int>(-more), outcome_of(more);
            sent += more;
        }
    }
    if (const int error = incast_channel_flush(channel); error < 0) return errno = -error, outcome_of(error);
    return static_cast<int>(sent);
}

int send(const MessageConnection& connection, const void* data, int bytes, int options) {
    if (options == kOob) return fail(EOPNOTSUPP);
    const auto* from = static_cast<const char*>(data);
    int sent = 0;
    while (sent < bytes) {
        const int flags = MSG_NOSIGNAL | (options == kDontBlock ? MSG_DONTWAIT : 0);
        const ssize_t count = ::send(connection.fd(), from + sent, static_cast<std::size_t>(bytes - sent), flags);
        if (count >= 0) {
            sent += static_cast<int>(count);
            if (options == kDontBlock) break;
        } else if (errno == EAGAIN) {
            if (sent == 0 || options == kDontBlock) return would_block;
            pollfd room{connection.fd(), POLLOUT, 0};
            ::poll(&room, 1, -1);
        } else if (errno != EINTR) {
            return errno == EPIPE || errno == ECONNRESET ? broken : failed;
        }
    }
    return sent;
}

int receive(Connection& connection, void* into, int bytes, int options) {
    if (!connection.is_of_this_process()) return broken;
    if (options == kOob) return errno = EINVAL, no_out_of_band;
    incast_channel* const channel = connection.channel();
    const auto wanted = static_cast<std::size_t>(std::max(bytes, 0));
    if (wanted == 0) return 0;
    auto* to = static_cast<std::byte*>(into);
    int timeout_ms = connection.is_non_blocking ? 0 : -1;
    if (options == kPeek) {
        const void* there = nullptr;
        const std::int64_t count = incast_channel_peek(channel, &there, timeout_ms);
        if (count < 0) return errno = static_cast<int>(-count), outcome_of(count);
        const std::size_t given = std::min(wanted, static_cast<std::size_t>(count));
        std::memcpy(to, there, given);
        return static_cast<int>(given);
    }
    std::size_t got = 0;
    while (got < wanted) {
        const std::int64_t count = incast_channel_read(channel, to + got, wanted - got, timeout_ms);
        if (count < 0) return errno = static_cast<int>(-count), outcome_of(count);
        // The end within a message would pass for the rest of it, as TSocket::Recv() asks for more than nothing only.
        if (count == 0 && got > 0) {
            errno = ECONNRESET;
            return broken;
        }
        if (count == 0) break;
        got += static_cast<std::size_t>(count);
        if (options == kDontBlock) break;
        timeout_ms = -1;
    }
    return static_cast<int>(got);
}

}  // namespace incast_root

#include "runtime/sinks/consumer/consumer_door.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <system_error>
#include <utility>

#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "os/handing.h"
#include "os/memory_file.h"

namespace incast::sinks {

using os::Descriptor;

namespace {

constexpr int backlog = 16;
constexpr std::uint64_t listener_id = 0;
constexpr int most_accepted_at_once = 8;
constexpr int most_rings_at_once = 8;  // one is usual: a sleep of this side ends with the first

std::string errno_text() {
    return std::generic_category().message(errno);
}

/// Of nobody if the kernel does not tell.
ucred peer_of(const os::Descriptor& socket) {
    ucred peer{.pid = 0, .uid = static_cast<uid_t>(-1), .gid = 0};
    socklen_t size = sizeof peer;
    (void)::getsockopt(socket.fd(), SOL_SOCKET, SO_PEERCRED, &peer, &size);
    return peer;
}

bool is_own_user(const os::Descriptor& socket) {
    const uid_t user = peer_of(socket).uid;
    return user == ::geteuid() || user == 0;
}

/// A consumer says nothing before it is welcomed, so there is nothing else to read.
bool has_hung_up(const os::Descriptor& socket) {
    std::byte byte{};
    return ::recv(socket.fd(), &byte, 1, MSG_PEEK | MSG_DONTWAIT) == 0;
}

/// A fresh connection has room for it.
bool send_welcome(const os::Descriptor& socket, const consumer::Welcome& welcome, std::span<const int> fds) {
    consumer::Welcome bytes = welcome;
    const std::array parts{iovec{&bytes, sizeof bytes}};
    return os::send_handing(socket.fd(), parts, fds, MSG_DONTWAIT) == static_cast<ssize_t>(sizeof bytes);
}

}  // namespace

Result<SharedPages> SharedPages::make(std::size_t bytes) {
    auto file = os::make_memory_file(bytes);
    if (!file) {
        return file.error();
    }
    void* memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file->fd(), 0);
    if (memory == MAP_FAILED) {
        return os::memory_error("mmap");
    }
    return SharedPages(std::move(*file), {static_cast<std::byte*>(memory), bytes});
}

SharedPages::SharedPages(SharedPages&& other) noexcept
    : file_(std::move(other.file_)), bytes_(std::exchange(other.bytes_, {})) {}

SharedPages& SharedPages::operator=(SharedPages&& other) noexcept {
    std::swap(file_, other.file_);
    std::swap(bytes_, other.bytes_);
    return *this;
}

SharedPages::~SharedPages() {
    if (!bytes_.empty()) {
        ::munmap(bytes_.data(), bytes_.size());
    }
}

Attached::Attached(std::uint64_t number, os::Descriptor connection, SharedPages for_queue, SharedPages for_control,
                   std::uint32_t window)
    : id(number),
      socket(std::move(connection)),
      queue_pages(std::move(for_queue)),
      control_pages(std::move(for_control)),
      queue(queue_pages.bytes(), control_pages.bytes(), window) {}

void Attached::wake_if_asleep() {
    if (queue.wake()) {
        const char ring = 0;
        // No room: it was rung often enough.
        (void)::send(socket.fd(), &ring, sizeof ring, MSG_DONTWAIT | MSG_NOSIGNAL);
    }
}

Result<ConsumerDoor> ConsumerDoor::open(const std::string& name, std::uint32_t node) {
    const std::string path = fmt::format("{}{}/{}", consumer::address_prefix, name, node);
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path + 1, path.data(), path.size());  // abstract: nothing is left in a file system
    const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + path.size());
    os::Descriptor listener(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    if (!listener.is_open()) {
        return Error{fmt::format("sink consumer: {}", errno_text())};
    }
    if (::bind(listener.fd(), reinterpret_cast<const sockaddr*>(&address), size) != 0) {
        if (errno == EADDRINUSE) {
            return Error{
                fmt::format("sink.name = {}: another run on this host takes consumers for node {} under that name; "
                            "allowed: a name of its own",
                            name, node)};
        }
        return Error{fmt::format("sink consumer: {}: {}", path, errno_text())};
    }
    if (::listen(listener.fd(), backlog) != 0) {
        return Error{fmt::format("sink consumer: {}: {}", path, errno_text())};
    }
    return ConsumerDoor(std::move(listener));
}

ConsumerDoor::ConsumerDoor(os::Descriptor listener) : listener_(std::move(listener)) {
    (void)poller_.add(listener_, EPOLLIN, listener_id);
}

void ConsumerDoor::furnish(const consumer::Welcome& welcome, os::Descriptor payload, os::Descriptor directory) {
    welcome_ = welcome;
    payload_ = std::move(payload);
    directory_ = std::move(directory);
}

void ConsumerDoor::look(std::size_t room, News& news) {
    std::array<epoll_event, 32> events;
    const std::size_t count = poller_.ready(events);
    for (std::size_t index = 0; index < count; ++index) {
        const std::uint64_t id = events[index].data.u64;
        if (id == listener_id) {
            accept_all(room, news);
        } else {
            hear(id, news);
        }
    }
}

/// What rings are about is in the control pages.
void ConsumerDoor::hear(std::uint64_t id, News& news) {
    const auto found = std::ranges::find(sockets_, id, &std::pair<std::uint64_t, int>::first);
    for (int rings = 0; found != sockets_.end(); ++rings) {
        char ring = 0;
        const ssize_t got = ::recv(found->second, &ring, sizeof ring, MSG_DONTWAIT);
        if (got < 0 && (errno == EAGAIN || errno == EINTR)) {
            return;
        }
        if (got <= 0) {
            news.gone.push_back(id);
            return;
        }
        if (rings == most_rings_at_once) {
            news.noisy.push_back(id);
            return;
        }
    }
}

void ConsumerDoor::forget(const Attached& process) {
    poller_.remove(process.socket);
    std::erase_if(sockets_, [&](const auto& each) { return each.first == process.id; });
}

/// Who may not come asks again many times a second.
bool ConsumerDoor::is_first_refusal_of(const os::Descriptor& socket) {
    const pid_t process = peer_of(socket).pid;
    if (std::ranges::find(refused_, process) != refused_.end()) {
        return false;
    }
    refused_[next_refused_++ % refused_.size()] = process;
    return true;
}

void ConsumerDoor::accept_all(std::size_t room, News& news) {
    for (int accepted = 0; accepted < most_accepted_at_once; ++accepted) {
        os::Descriptor socket(::accept4(listener_.fd(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
        if (!socket.is_open()) {
            if (os::Spare::is_needed_for(errno)) {
                spare_.turn_away(listener_);
                ++news.refused;
            }
            return;
        }
        if (has_hung_up(socket)) {
            continue;  // it waited for an answer as long as it wanted to, and may be behind this one again
        }
        if (!is_own_user(socket)) {
            news.refused += is_first_refusal_of(socket) ? 1 : 0;
            continue;
        }
        const bool is_too_early = !payload_.is_open();
        if (news.come.size() >= room || is_too_early) {
            consumer::Welcome refusal = welcome_;
            refusal.answer = consumer::Answer::full;
            (void)send_welcome(socket, refusal, {});
            news.refused += !is_too_early && is_first_refusal_of(socket) ? 1 : 0;
            continue;
        }
        auto process = let_in(std::move(socket));
        if (process) {
            news.come.push_back(std::move(*process));
        } else {
            ++news.refused;  // out of descriptors or memory: it sees the end of the connection, and may try again
        }
    }
}

Result<std::unique_ptr<Attached>> ConsumerDoor::let_in(os::Descriptor socket) {
    auto queue = SharedPages::make(consumer::queue_bytes(welcome_.window));
    auto control = SharedPages::make(consumer::control_bytes(welcome_.window));
    if (!queue || !control) {
        return queue ? control.error() : queue.error();
    }
    auto to_read = os::open_for_reading(queue->file());
    if (!to_read) {
        return to_read.error();
    }
    auto process = std::make_unique<Attached>(next_id_++, std::move(socket), std::move(*queue), std::move(*control),
                                              welcome_.window);
    const std::array<int, consumer::handed_descriptors> handed{payload_.fd(), directory_.fd(), to_read->fd(),
                                                               process->control_pages.file().fd()};
    if (!send_welcome(process->socket, welcome_, handed) ||
        !poller_.add(process->socket, EPOLLIN | EPOLLRDHUP, process->id)) {
        return Error{errno_text()};
    }
    sockets_.emplace_back(process->id, process->socket.fd());
    process->queue_pages.close_file();
    process->control_pages.close_file();
    return process;
}

}  // namespace incast::sinks

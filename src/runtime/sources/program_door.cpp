#include "runtime/sources/program_door.h"

#include <array>
#include <cerrno>
#include <cstring>
#include <span>
#include <system_error>
#include <utility>

#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "os/handing.h"
#include "os/memory_file.h"

namespace incast::sources {
namespace {

constexpr int backlog = 16;
constexpr int most_accepted_at_once = 4;

std::string errno_text() {
    return std::generic_category().message(errno);
}

/// The process at the other end; 0: it is of another user.
pid_t process_of(const os::Descriptor& socket) {
    ucred peer{};
    socklen_t size = sizeof peer;
    const bool own = ::getsockopt(socket.fd(), SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 &&
                     (peer.uid == ::geteuid() || peer.uid == 0);
    return own ? peer.pid : 0;
}

/// A fresh connection has room for it.
bool send_welcome(const os::Descriptor& socket, const source::Welcome& welcome, std::span<const int> fds) {
    source::Welcome bytes = welcome;
    const std::array parts{iovec{&bytes, sizeof bytes}};
    return os::send_handing(socket.fd(), parts, fds, MSG_DONTWAIT) == static_cast<ssize_t>(sizeof bytes);
}

constexpr std::uint64_t listener_id(std::size_t index) {
    return 2 * index;
}
constexpr std::uint64_t socket_id(std::size_t index) {
    return 2 * index + 1;
}

}  // namespace

Result<Ok> ProgramDoor::open(const std::string& name, const source::Welcome& welcome) {
    const std::string path = fmt::format("{}{}/{}", source::address_prefix, name, welcome.source);
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path + 1, path.data(), path.size());  // abstract: nothing is left in a file system
    const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + path.size());
    os::Descriptor listener(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    if (!listener.is_open()) return Error{fmt::format("programs of source {}: {}", welcome.source, errno_text())};
    if (::bind(listener.fd(), reinterpret_cast<const sockaddr*>(&address), size) != 0) {
        if (errno == EADDRINUSE) {
            return Error{fmt::format(
                "source.name = {}: another run on this host takes a program for source {} under that name; allowed: a "
                "name of its own, or other ids (source.first_id)",
                name, welcome.source)};
        }
        return Error{fmt::format("programs of source {}: {}", welcome.source, errno_text())};
    }
    if (::listen(listener.fd(), backlog) != 0 || !poller_.add(listener, EPOLLIN, listener_id(desks_.size()))) {
        return Error{fmt::format("programs of source {}: {}", welcome.source, errno_text())};
    }
    desks_.push_back({std::move(listener), welcome, nullptr});
    return Ok{};
}

void ProgramDoor::look() {
    std::array<epoll_event, 32> events;
    const std::size_t count = poller_.ready(events);
    for (std::size_t at = 0; at < count; ++at) {
        const std::uint64_t id = events[at].data.u64;
        Desk& desk = desks_[id / 2];
        if (id % 2 == 0) {
            accept(id / 2);
        } else if (desk.program && !desk.program->has_gone) {
            // Nobody says anything here: whoever does is done, as is whoever has gone.
            desk.program->has_gone = true;
            poller_.remove(desk.program->socket);
        }
    }
}

void ProgramDoor::accept(std::size_t index) {
    Desk& desk = desks_[index];
    for (int accepted = 0; accepted < most_accepted_at_once; ++accepted) {
        os::Descriptor socket(::accept4(desk.listener.fd(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
        if (!socket.is_open()) {
            if (os::Spare::is_needed_for(errno)) spare_.turn_away(desk.listener);
            return;
        }
        const pid_t process = process_of(socket);
        if (process == 0) continue;
        if (desk.program) {
            source::Welcome refusal = desk.welcome;
            refusal.answer = source::Answer::taken;
            (void)send_welcome(socket, refusal, {});
            continue;
        }
        // Out of descriptors or memory: it sees the end of the connection, and may try again.
        desk.program = let_in(std::move(socket), desk.welcome, process);
        if (desk.program && !poller_.add(desk.program->socket, EPOLLIN | EPOLLRDHUP, socket_id(index))) {
            desk.program.reset();
        }
    }
}

std::unique_ptr<Program> ProgramDoor::let_in(os::Descriptor socket, const source::Welcome& welcome, pid_t process) {
    const std::uint64_t bytes = source::file_bytes(welcome.ring_bytes);
    auto file = os::make_memory_file(bytes);
    if (!file) return nullptr;
    void* memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file->fd(), 0);
    if (memory == MAP_FAILED) return nullptr;
    auto mapping = std::make_unique<os::Mapping>(std::span(static_cast<std::byte*>(memory), bytes));
    ProgramRing ring(mapping->bytes(), welcome.ring_bytes);
    const std::array<int, 1> handed{file->fd()};
    if (!send_welcome(socket, welcome, handed)) return nullptr;
    return std::make_unique<Program>(std::move(socket), std::move(mapping), ring, process);
}

void ProgramDoor::dismiss(std::size_t index) {
    std::unique_ptr<Program>& program = desks_[index].program;
    if (program && !program->has_gone) poller_.remove(program->socket);
    program.reset();
}

}  // namespace incast::sources

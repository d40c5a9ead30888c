// How a process becomes a source of a readout unit, and leaves it: the socket, and the memory that comes over it.
// Allocates here alone, and believes what comes no more than it must.
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>
#include <string_view>

#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <incast/source.h>

#include "consumer/limit.h"
#include "source/handle.h"
#include "source/layout.h"

namespace layout = incast::source;
using incast::consumer::Limit;

namespace {

constexpr int retry_ms = 10;  // while no readout unit is there: an abstract address cannot be waited for

void close_fd(int& fd) {
    if (fd >= 0) {
        const int kept = errno;
        ::close(fd);
        errno = kept;
        fd = -1;
    }
}

/// A connection to whoever has that source, or -1 with errno.
int dial(std::string_view name, std::uint16_t number) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    const int length = std::snprintf(address.sun_path + 1, sizeof address.sun_path - 1, "%.*s%.*s/%u",
                                     static_cast<int>(layout::address_prefix.size()), layout::address_prefix.data(),
                                     static_cast<int>(name.size()), name.data(), unsigned{number});
    const auto size =
        static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + static_cast<std::size_t>(length));  // abstract
    int socket = ::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    if (socket >= 0 && ::connect(socket, reinterpret_cast<const sockaddr*>(&address), size) != 0) {
        close_fd(socket);
    }
    return socket;
}

/// Somebody else could listen at that address: only the own user (or root) is believed.
bool is_trusted(int socket) {
    ucred peer{};
    socklen_t size = sizeof peer;
    return ::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 &&
           (peer.uid == ::geteuid() || peer.uid == 0);
}

/// The answer; `fd` is the caller's, also when it is refused.
int receive_welcome(int socket, const Limit& limit, std::uint16_t number, layout::Welcome& welcome, int& fd) {
    pollfd waiting{socket, POLLIN, 0};
    const int ready = ::poll(&waiting, 1, limit.left());
    if (ready <= 0) return ready == 0 || errno == EINTR ? INCAST_SOURCE_NOBODY : INCAST_SOURCE_SYSTEM;
    iovec part{&welcome, sizeof welcome};
    alignas(cmsghdr) char space[CMSG_SPACE(sizeof fd)];
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = space;
    message.msg_controllen = sizeof space;
    const ssize_t got = ::recvmsg(socket, &message, MSG_CMSG_CLOEXEC);
    if (got >= 0) {
        for (cmsghdr* header = CMSG_FIRSTHDR(&message); header != nullptr; header = CMSG_NXTHDR(&message, header)) {
            if (header->cmsg_level == SOL_SOCKET && header->cmsg_type == SCM_RIGHTS) {
                std::memcpy(&fd, CMSG_DATA(header), sizeof fd);
            }
        }
    }
    if (got == 0) return INCAST_SOURCE_NOBODY;  // it ended just now
    if (got != static_cast<ssize_t>(sizeof welcome) || welcome.magic != layout::layout_magic ||
        welcome.version != layout::layout_version) {
        return INCAST_SOURCE_REFUSED;
    }
    if (welcome.answer == layout::Answer::taken) return INCAST_SOURCE_TAKEN;
    const bool sane = welcome.answer == layout::Answer::accepted && fd >= 0 && welcome.source == number &&
                      welcome.packing >= 1 && welcome.ring_bytes >= 4 * layout::line_bytes &&
                      welcome.ring_bytes <= layout::most_ring_bytes && welcome.ring_bytes % layout::line_bytes == 0;
    return sane ? INCAST_SOURCE_OK : INCAST_SOURCE_REFUSED;
}

/// False: errno, or the memory is not what was announced.
bool map(incast_source& source, int fd) {
    const std::uint64_t bytes = layout::file_bytes(source.welcome.ring_bytes);
    struct stat status{};
    if (::fstat(fd, &status) != 0 || static_cast<std::uint64_t>(status.st_size) < bytes) return false;
    void* memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (memory == MAP_FAILED) return false;
    source.memory = static_cast<std::byte*>(memory);
    source.memory_bytes = bytes;
    return true;
}

/// One try. NOBODY: nobody is there now.
int try_attach(std::string_view name, std::uint16_t number, const Limit& limit, incast_source& source) {
    source.socket = dial(name, number);
    if (source.socket < 0) {
        return errno == ECONNREFUSED || errno == EAGAIN || errno == EINTR ? INCAST_SOURCE_NOBODY : INCAST_SOURCE_SYSTEM;
    }
    if (!is_trusted(source.socket)) return INCAST_SOURCE_REFUSED;
    int fd = -1;
    int status = receive_welcome(source.socket, limit, number, source.welcome, fd);
    if (status == INCAST_SOURCE_OK && !map(source, fd)) status = INCAST_SOURCE_SYSTEM;
    close_fd(fd);  // the mapping stays
    return status;
}

void dissolve(incast_source& source) {
    close_fd(source.socket);
    if (source.memory != nullptr) ::munmap(source.memory, source.memory_bytes);
    source.memory = nullptr;
}

}  // namespace

int incast_source_attach(const char* name, std::uint16_t number, int timeout_ms, incast_source** source) {
    if (source == nullptr) return INCAST_SOURCE_ARGUMENT;
    *source = nullptr;
    if (name == nullptr || !layout::is_name(name)) return INCAST_SOURCE_ARGUMENT;
    void* memory = std::calloc(1, sizeof(incast_source));
    if (memory == nullptr) return INCAST_SOURCE_SYSTEM;
    auto* made = new (memory) incast_source;
    const Limit limit(timeout_ms);
    int status = INCAST_SOURCE_NOBODY;
    bool taken = false;
    while ((status = try_attach(name, number, limit, *made)) != INCAST_SOURCE_OK) {
        const int kept = errno;
        dissolve(*made);
        errno = kept;
        // A program that was killed and started again may be back before the readout unit saw its end.
        taken = status == INCAST_SOURCE_TAKEN || (taken && status == INCAST_SOURCE_NOBODY);
        const bool may_change = status == INCAST_SOURCE_NOBODY || status == INCAST_SOURCE_TAKEN;
        if (!may_change || limit.left() == 0) {
            std::free(memory);
            return taken ? INCAST_SOURCE_TAKEN : status;
        }
        ::poll(nullptr, 0, retry_ms);
    }
    *source = made;
    return INCAST_SOURCE_OK;
}

void incast_source_leave(incast_source* source) {
    if (source == nullptr || source->left) return;
    source->left = true;
    source->has_space = false;
    // Before the connection ends: whoever sees its end sees this.
    source->header().closed.store(1, std::memory_order_release);
    close_fd(source->socket);
}

void incast_source_free(incast_source* source) {
    if (source == nullptr) return;
    incast_source_leave(source);
    dissolve(*source);
    source->~incast_source();
    std::free(source);
}

// How a process attaches to a builder unit, and detaches: the socket, and the memory that comes over it. Allocates here
// alone, and believes what comes no more than it must: sizes and bounds are checked before they are used.
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>
#include <string_view>

#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <incast/consumer.h>

#include "consumer/handle.h"
#include "consumer/layout.h"
#include "consumer/limit.h"

namespace layout = incast::consumer;
using layout::Area;
using layout::Limit;

namespace {

constexpr int retry_ms = 10;  // while no builder unit is there: an abstract address cannot be waited for
constexpr std::uint32_t most_sources = 65535;
constexpr std::uint32_t most_slots = 65536;
constexpr unsigned long most_nodes = 65535;

void close_fd(int& fd) {
    if (fd >= 0) {
        const int kept = errno;
        ::close(fd);
        errno = kept;
        fd = -1;
    }
}

struct Address {
    sockaddr_un address{};
    socklen_t size = 0;
};

Address address_of(std::string_view name, unsigned node) {
    Address made;
    made.address.sun_family = AF_UNIX;
    char* text = made.address.sun_path + 1;  // abstract
    const std::size_t room = sizeof made.address.sun_path - 1;
    const int length = std::snprintf(text, room, "%.*s%.*s/%u", static_cast<int>(layout::address_prefix.size()),
                                     layout::address_prefix.data(), static_cast<int>(name.size()), name.data(), node);
    made.size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + static_cast<std::size_t>(length));
    return made;
}

/// The listening sockets of that name: their nodes, ascending.
int find_builders(std::string_view name, std::uint32_t* nodes, int most) {
    std::FILE* file = std::fopen("/proc/net/unix", "re");
    if (file == nullptr) {
        return INCAST_CONSUMER_SYSTEM;
    }
    int count = 0;
    char line[512];
    while (std::fgets(line, sizeof line, file) != nullptr) {
        // address: refs protocol flags type state inode path; flag 10000: it listens
        char path[256];
        unsigned flags = 0;
        if (std::sscanf(line, "%*s %*x %*x %x %*x %*x %*u @%255s", &flags, path) != 2 || (flags & 0x10000U) == 0) {
            continue;
        }
        const std::size_t prefix = layout::address_prefix.size();
        const std::size_t before = prefix + name.size();
        if (std::strlen(path) < before + 2 || std::memcmp(path, layout::address_prefix.data(), prefix) != 0 ||
            std::memcmp(path + prefix, name.data(), name.size()) != 0 || path[before] != '/') {
            continue;
        }
        char* end = nullptr;
        const unsigned long node = std::strtoul(path + before + 1, &end, 10);
        if (*end != '\0' || node > most_nodes) {
            continue;
        }
        // Insertion: there are few.
        int at = count < most ? count : most;
        for (; at > 0 && nodes[at - 1] > node; --at) {
            if (at < most) {
                nodes[at] = nodes[at - 1];
            }
        }
        if (at < most) {
            nodes[at] = static_cast<std::uint32_t>(node);
        }
        ++count;
    }
    std::fclose(file);
    return count;
}

/// A connection, or -1 with errno.
int dial(const Address& address) {
    int socket = ::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    if (socket >= 0 && ::connect(socket, reinterpret_cast<const sockaddr*>(&address.address), address.size) != 0) {
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

/// The answer; its descriptors are the caller's, also when it is refused.
int receive_welcome(int socket, const Limit& limit, layout::Welcome& welcome,
                    int (&handed)[layout::handed_descriptors]) {
    for (int& fd : handed) {
        fd = -1;
    }
    pollfd waiting{socket, POLLIN, 0};
    const int ready = ::poll(&waiting, 1, limit.left());
    if (ready <= 0) {
        return ready == 0 || errno == EINTR ? INCAST_CONSUMER_NOBODY : INCAST_CONSUMER_SYSTEM;
    }
    iovec part{&welcome, sizeof welcome};
    alignas(cmsghdr) char space[CMSG_SPACE(sizeof handed)];
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = space;
    message.msg_controllen = sizeof space;
    const ssize_t got = ::recvmsg(socket, &message, MSG_CMSG_CLOEXEC);
    std::size_t count = 0;
    if (got >= 0) {
        for (cmsghdr* header = CMSG_FIRSTHDR(&message); header != nullptr; header = CMSG_NXTHDR(&message, header)) {
            if (header->cmsg_level == SOL_SOCKET && header->cmsg_type == SCM_RIGHTS) {
                count = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
                std::memcpy(handed, CMSG_DATA(header), count * sizeof(int));
            }
        }
    }
    if (got == 0) {
        return INCAST_CONSUMER_NOBODY;  // it ended just now
    }
    if (got != static_cast<ssize_t>(sizeof welcome) || welcome.magic != layout::layout_magic ||
        welcome.version != layout::layout_version) {
        return INCAST_CONSUMER_REFUSED;
    }
    if (welcome.answer == layout::Answer::full) {
        return INCAST_CONSUMER_FULL;
    }
    const bool sane = welcome.answer == layout::Answer::accepted && count == layout::handed_descriptors &&
                      (message.msg_flags & MSG_CTRUNC) == 0 && welcome.n_sources >= 1 &&
                      welcome.n_sources <= most_sources && welcome.slots >= 1 && welcome.slots <= most_slots &&
                      welcome.window >= 1 && welcome.window <= layout::max_window &&
                      welcome.directory_bytes == layout::directory_bytes(welcome.slots, welcome.n_sources) &&
                      welcome.queue_bytes == layout::queue_bytes(welcome.window) &&
                      welcome.control_bytes == layout::control_bytes(welcome.window);
    return sane ? INCAST_CONSUMER_OK : INCAST_CONSUMER_REFUSED;
}

/// False: errno, or the memory is not what was announced.
bool map(int fd, std::uint64_t bytes, int protection, Area& area) {
    struct stat status{};
    if (::fstat(fd, &status) != 0 || static_cast<std::uint64_t>(status.st_size) < bytes || bytes == 0) {
        return false;
    }
    void* memory = ::mmap(nullptr, bytes, protection, MAP_SHARED, fd, 0);
    if (memory == MAP_FAILED) {
        return false;
    }
    area = {static_cast<std::byte*>(memory), bytes};
    return true;
}

bool map_all(incast_consumer& consumer, const int (&handed)[layout::handed_descriptors]) {
    const auto fd_of = [&](layout::Handed which) { return handed[static_cast<std::size_t>(which)]; };
    const layout::Welcome& welcome = consumer.welcome;
    return map(fd_of(layout::Handed::payload), welcome.payload_bytes, PROT_READ, consumer.payload) &&
           map(fd_of(layout::Handed::directory), welcome.directory_bytes, PROT_READ, consumer.directory) &&
           map(fd_of(layout::Handed::queue), welcome.queue_bytes, PROT_READ, consumer.queue) &&
           map(fd_of(layout::Handed::control), welcome.control_bytes, PROT_READ | PROT_WRITE, consumer.control);
}

/// One try. NOBODY: nobody is there now.
int try_attach(std::string_view name, int node, const Limit& limit, incast_consumer& consumer) {
    std::uint32_t lowest = static_cast<std::uint32_t>(node);
    if (node < 0) {
        const int found = find_builders(name, &lowest, 1);
        if (found <= 0) {
            return found == 0 ? INCAST_CONSUMER_NOBODY : found;
        }
    }
    consumer.socket = dial(address_of(name, lowest));
    if (consumer.socket < 0) {
        return errno == ECONNREFUSED || errno == EAGAIN || errno == EINTR ? INCAST_CONSUMER_NOBODY
                                                                          : INCAST_CONSUMER_SYSTEM;
    }
    if (!is_trusted(consumer.socket)) {
        return INCAST_CONSUMER_REFUSED;
    }
    int handed[layout::handed_descriptors];
    int status = receive_welcome(consumer.socket, limit, consumer.welcome, handed);
    if (status == INCAST_CONSUMER_OK && !map_all(consumer, handed)) {
        status = INCAST_CONSUMER_SYSTEM;
    }
    for (int& fd : handed) {
        close_fd(fd);  // mappings stay
    }
    return status;
}

void unmap(Area& area) {
    if (area.bytes != nullptr) {
        ::munmap(area.bytes, area.size);
        area = {};
    }
}

void dissolve(incast_consumer& consumer) {
    close_fd(consumer.socket);
    for (Area* area : {&consumer.payload, &consumer.directory, &consumer.queue, &consumer.control}) {
        unmap(*area);
    }
}

}  // namespace

int incast_consumer_builders(const char* name, std::uint32_t* nodes, int most) {
    if (name == nullptr || !layout::is_name(name) || most < 0 || (nodes == nullptr && most > 0)) {
        return INCAST_CONSUMER_ARGUMENT;
    }
    return find_builders(name, nodes, most);
}

int incast_consumer_attach(const char* name, int node, int timeout_ms, incast_consumer** consumer) {
    if (consumer == nullptr) {
        return INCAST_CONSUMER_ARGUMENT;
    }
    *consumer = nullptr;
    if (name == nullptr || !layout::is_name(name)) {
        return INCAST_CONSUMER_ARGUMENT;
    }
    void* memory = std::calloc(1, sizeof(incast_consumer));
    if (memory == nullptr) {
        return INCAST_CONSUMER_SYSTEM;
    }
    auto* made = new (memory) incast_consumer;
    const Limit limit(timeout_ms);
    int status = INCAST_CONSUMER_NOBODY;
    bool full = false;
    while ((status = try_attach(name, node, limit, *made)) != INCAST_CONSUMER_OK) {
        const int kept = errno;
        dissolve(*made);
        errno = kept;
        // A process that was killed and started again may be back before the builder unit saw its end.
        full = status == INCAST_CONSUMER_FULL || (full && status == INCAST_CONSUMER_NOBODY);
        const bool may_change = status == INCAST_CONSUMER_NOBODY || status == INCAST_CONSUMER_FULL;
        if (!may_change || limit.left() == 0) {
            std::free(memory);
            return full ? INCAST_CONSUMER_FULL : status;
        }
        ::poll(nullptr, 0, retry_ms);
    }
    *consumer = made;
    return INCAST_CONSUMER_OK;
}

void incast_consumer_leave(incast_consumer* consumer) {
    if (consumer != nullptr) {
        close_fd(consumer->socket);
        consumer->gone = true;
    }
}

void incast_consumer_free(incast_consumer* consumer) {
    if (consumer != nullptr) {
        dissolve(*consumer);
        consumer->~incast_consumer();
        std::free(consumer);
    }
}

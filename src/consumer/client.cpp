// The library that consumers link (include/incast/consumer.h). It uses the kernel and the C library only, allocates in
// attach alone, and believes the builder unit no more than it must: what it reads of it is checked before it is used.
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>
#include <string_view>
#include <utility>

#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <incast/consumer.h>

#include "consumer/layout.h"
#include "consumer/limit.h"

namespace layout = incast::consumer;
using layout::Limit;

static_assert(sizeof(incast_consumer_source) == sizeof(layout::SourceEntry) &&
              offsetof(incast_consumer_source, flag) == offsetof(layout::SourceEntry, flag));

namespace {

constexpr int retry_ms = 10;  // while no builder unit is there: an abstract address cannot be waited for
constexpr std::uint32_t most_sources = 65535;
constexpr std::uint32_t most_slots = 65536;
constexpr unsigned long most_nodes = 65535;

struct Area {
    std::byte* bytes = nullptr;
    std::size_t size = 0;
};

void close_fd(int& fd) {
    if (fd >= 0) {
        const int kept = errno;
        ::close(fd);
        errno = kept;
        fd = -1;
    }
}

}  // namespace

struct incast_consumer {
    layout::Welcome welcome;
    Area payload;
    Area directory;
    Area queue;
    Area control;
    int socket = -1;
    bool armed = false;
    bool gone = false;           // the socket has ended
    bool quiet = true;           // nothing came since the queue was last found empty
    std::uint64_t position = 0;  // entries of the queue taken
    std::uint64_t ticket = 0;
    std::atomic<std::uint64_t> rung = 0;  // the builder unit's sleep that it was last woken from here

    [[nodiscard]] const layout::DirectoryHeader& directory_header() const {
        return *reinterpret_cast<const layout::DirectoryHeader*>(directory.bytes);
    }
    [[nodiscard]] const layout::QueueHeader& queue_header() const {
        return *reinterpret_cast<const layout::QueueHeader*>(queue.bytes);
    }
    [[nodiscard]] const layout::QueueEntry& entry(std::uint64_t number) const {
        return reinterpret_cast<const layout::QueueEntry*>(queue.bytes +
                                                           sizeof(layout::QueueHeader))[number % welcome.window];
    }
    [[nodiscard]] layout::Control& control_page() const { return *reinterpret_cast<layout::Control*>(control.bytes); }
    [[nodiscard]] layout::Cell& cell(std::uint32_t number) const {
        return reinterpret_cast<layout::Cell*>(control.bytes + sizeof(layout::Control))[number];
    }
    [[nodiscard]] const layout::Record& record(std::uint32_t slot) const {
        return *reinterpret_cast<const layout::Record*>(directory.bytes + sizeof(layout::DirectoryHeader) +
                                                        slot * layout::record_bytes(welcome.n_sources));
    }
};

namespace {

// --- finding and attaching
// -------------------------------------------------------------------------------------------------------------------

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
    if (welcome.verdict == layout::Verdict::full) {
        return INCAST_CONSUMER_FULL;
    }
    const bool sane = welcome.verdict == layout::Verdict::accepted && count == layout::handed_descriptors &&
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

// --- events
// -------------------------------------------------------------------------------------------------------------------

/// Takes a ring off the socket, of which there is one per sleep, or sees its end.
bool has_ended(incast_consumer& consumer) {
    if (!consumer.gone) {
        char ring = 0;
        const ssize_t got = ::recv(consumer.socket, &ring, sizeof ring, MSG_DONTWAIT);
        consumer.gone = got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR);
    }
    return consumer.gone;
}

bool belongs(const incast_consumer& consumer, const incast_consumer_event& event) {
    return event.serial != 0 && event.internal[0] < consumer.welcome.slots &&
           event.internal[1] < consumer.welcome.window && event.n_sources == consumer.welcome.n_sources;
}

/// 1: taken; 0: none; or why there will be none.
int take(incast_consumer& consumer, incast_consumer_event& event) {
    const layout::QueueHeader& header = consumer.queue_header();
    for (bool looked_for_end = false;; looked_for_end = true) {
        // In this order: after its last event the builder unit writes that it ended.
        const layout::State state = header.state.load(std::memory_order_acquire);
        if (state == layout::State::ejected) {
            return INCAST_CONSUMER_EJECTED;
        }
        if (header.delivered.load(std::memory_order_acquire) != consumer.position) {
            break;
        }
        if (state == layout::State::ended) {
            return INCAST_CONSUMER_ENDED;
        }
        if (looked_for_end) {
            return INCAST_CONSUMER_LOST;
        }
        // An event came since the last time: that the socket has ended can wait, looking at it is a system call.
        if (!std::exchange(consumer.quiet, true) || !has_ended(consumer)) {
            return 0;
        }
        // Closed between the two looks: once more, it may have said why.
    }
    const layout::QueueEntry entry = consumer.entry(consumer.position);
    if (entry.serial == 0 || entry.slot >= consumer.welcome.slots || entry.cell >= consumer.welcome.window) {
        return INCAST_CONSUMER_LOST;  // no builder unit writes that
    }
    ++consumer.position;
    consumer.quiet = false;
    const layout::Record& record = consumer.record(entry.slot);
    event = {};
    event.serial = entry.serial;
    event.mep = record.mep;
    event.first_event = record.first_event;
    event.goodput_bytes = record.goodput_bytes;
    event.missed = entry.missed;
    event.n_events = record.n_events;
    event.n_sources = consumer.welcome.n_sources;
    event.missing_sources = record.missing_sources;
    event.attempt = record.attempt;
    if (record.redelivered != 0) {
        event.flags |= INCAST_CONSUMER_REDELIVERED;
    }
    if (entry.repeated != 0) {
        event.flags |= INCAST_CONSUMER_REPEATED;
    }
    event.internal[0] = entry.slot;
    event.internal[1] = entry.cell;
    return 1;
}

void disarm(incast_consumer& consumer) {
    if (consumer.armed) {
        consumer.armed = false;
        consumer.control_page().waiting.store(0, std::memory_order_relaxed);
        (void)has_ended(consumer);
    }
}

}  // namespace

// --- the public functions
// -------------------------------------------------------------------------------------------------------------------

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

int incast_consumer_get_info(const incast_consumer* consumer, incast_consumer_info* info) {
    if (consumer == nullptr || info == nullptr) {
        return INCAST_CONSUMER_ARGUMENT;
    }
    const layout::Welcome& welcome = consumer->welcome;
    *info = {welcome.run, welcome.payload_bytes, welcome.node, welcome.incarnation, welcome.n_sources, welcome.window};
    return INCAST_CONSUMER_OK;
}

int incast_consumer_next(incast_consumer* consumer, int timeout_ms, incast_consumer_event* event) {
    if (consumer == nullptr || event == nullptr) {
        return INCAST_CONSUMER_ARGUMENT;
    }
    disarm(*consumer);
    int status = take(*consumer, *event);
    if (status != 0 || timeout_ms == 0) {
        return status;
    }
    for (const Limit limit(timeout_ms);;) {
        if (incast_consumer_arm(consumer) == 0) {
            pollfd waiting{consumer->socket, POLLIN, 0};
            const int ready = ::poll(&waiting, 1, limit.left());
            if (ready < 0) {
                const bool signal = errno == EINTR;
                disarm(*consumer);
                return signal ? 0 : INCAST_CONSUMER_SYSTEM;
            }
        }
        disarm(*consumer);
        status = take(*consumer, *event);
        if (status != 0 || limit.left() == 0) {
            return status;
        }
    }
}

int incast_consumer_get_mfp(const incast_consumer* consumer, const incast_consumer_event* event, std::uint32_t index,
                            incast_consumer_mfp* mfp) {
    const incast_consumer_source* sources = incast_consumer_sources(consumer, event);
    if (sources == nullptr || mfp == nullptr || index >= event->n_sources) {
        return INCAST_CONSUMER_ARGUMENT;
    }
    const incast_consumer_source source = sources[index];
    const std::uint64_t size = consumer->welcome.payload_bytes;
    if (source.bytes > size || source.offset > size - source.bytes) {
        return INCAST_CONSUMER_OVERTAKEN;
    }
    const auto* data = reinterpret_cast<const std::uint8_t*>(consumer->payload.bytes + source.offset);
    *mfp = {source.bytes > 0 ? data : nullptr, source.bytes, source.source, source.flag, 0};
    return INCAST_CONSUMER_OK;
}

const incast_consumer_source* incast_consumer_sources(const incast_consumer* consumer,
                                                      const incast_consumer_event* event) {
    if (consumer == nullptr || event == nullptr || !belongs(*consumer, *event)) {
        return nullptr;
    }
    return reinterpret_cast<const incast_consumer_source*>(&consumer->record(event->internal[0]) + 1);
}

const std::uint8_t* incast_consumer_payload(const incast_consumer* consumer) {
    return consumer == nullptr ? nullptr : reinterpret_cast<const std::uint8_t*>(consumer->payload.bytes);
}

int incast_consumer_intact(const incast_consumer* consumer, const incast_consumer_event* event) {
    if (consumer == nullptr || event == nullptr || !belongs(*consumer, *event)) {
        return INCAST_CONSUMER_ARGUMENT;
    }
    // What was read of the event was read before the serial is.
    std::atomic_thread_fence(std::memory_order_acquire);
    const std::uint64_t serial = consumer->record(event->internal[0]).serial.load(std::memory_order_relaxed);
    return serial == event->serial ? INCAST_CONSUMER_OK : INCAST_CONSUMER_OVERTAKEN;
}

int incast_consumer_release(incast_consumer* consumer, const incast_consumer_event* event) {
    if (consumer == nullptr || event == nullptr || !belongs(*consumer, *event)) {
        return INCAST_CONSUMER_ARGUMENT;
    }
    layout::Cell& cell = consumer->cell(event->internal[1]);
    if (cell.load(std::memory_order_relaxed) == event->serial) {
        return INCAST_CONSUMER_ARGUMENT;  // given back before
    }
    if (consumer->queue_header().state.load(std::memory_order_acquire) == layout::State::ejected ||
        incast_consumer_intact(consumer, event) != INCAST_CONSUMER_OK) {
        return INCAST_CONSUMER_OVERTAKEN;
    }
    // Everything that was read of the event was read before this is seen.
    cell.store(event->serial, std::memory_order_release);
    consumer->control_page().releases.fetch_add(1, std::memory_order_release);
    // The builder unit says that it sleeps, then looks at `releases` once more: one of the two sees the other.
    std::atomic_thread_fence(std::memory_order_seq_cst);
    const std::uint64_t asleep = consumer->directory_header().asleep.load(std::memory_order_relaxed);
    if (asleep != 0 && consumer->rung.exchange(asleep, std::memory_order_relaxed) != asleep) {
        const char ring = 0;
        (void)::send(consumer->socket, &ring, sizeof ring, MSG_DONTWAIT | MSG_NOSIGNAL);
    }
    return INCAST_CONSUMER_OK;
}

int incast_consumer_fd(const incast_consumer* consumer) {
    return consumer == nullptr ? INCAST_CONSUMER_ARGUMENT : consumer->socket;
}

int incast_consumer_arm(incast_consumer* consumer) {
    if (consumer == nullptr) {
        return INCAST_CONSUMER_ARGUMENT;
    }
    consumer->armed = true;
    consumer->control_page().waiting.store(++consumer->ticket, std::memory_order_relaxed);
    // The builder unit delivers, then looks whether somebody waits: one of the two sees the other.
    std::atomic_thread_fence(std::memory_order_seq_cst);
    const layout::QueueHeader& header = consumer->queue_header();
    return header.delivered.load(std::memory_order_acquire) != consumer->position ||
                   header.state.load(std::memory_order_acquire) != layout::State::attached || consumer->gone
               ? 1
               : 0;
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

const char* incast_consumer_text(int status) {
    switch (status) {
        case INCAST_CONSUMER_OK:
            return "success";
        case INCAST_CONSUMER_ENDED:
            return "the builder unit ended";
        case INCAST_CONSUMER_LOST:
            return "the builder unit was lost";
        case INCAST_CONSUMER_EJECTED:
            return "the builder unit ejected this consumer";
        case INCAST_CONSUMER_OVERTAKEN:
            return "the builder unit took the event back";
        case INCAST_CONSUMER_NOBODY:
            return "no builder unit takes consumers under that name";
        case INCAST_CONSUMER_FULL:
            return "the builder unit has all the consumers it may have";
        case INCAST_CONSUMER_REFUSED:
            return "the builder unit is of another user or another version of Incast";
        case INCAST_CONSUMER_SYSTEM:
            return "a system call failed";
        case INCAST_CONSUMER_ARGUMENT:
            return "bad argument";
        default:
            return status > 0 ? "success" : "unknown status";
    }
}

// Ways to move bytes between processes over TCP on loopback, without any protocol: what the tcp transport could reach
// if it used the kernel in another way. Every node (a process of one thread, as a node of a run is) sends pieces, each
// with a header gathered before it, to all others at once, from a source set it cycles through, and receives into
// slots.
//
//   epoll     non-blocking sendmsg and recv, edge-triggered epoll: what the tcp transport does
//   zerocopy  the same with MSG_ZEROCOPY: the kernel takes pages instead of bytes, and says when it is done with them
//   uring     io_uring, a sendmsg and a recv in flight per connection
//
// Prints "measuring" when the measured time begins, and one line of JSON at the end.
#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include <CLI/CLI.hpp>
#include <arpa/inet.h>
#include <fcntl.h>
#include <linux/errqueue.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#if INCAST_BENCH_URING
#include <liburing.h>
#endif

namespace {

constexpr std::size_t header_bytes = 96;  // a frame's header and the head of a write
constexpr std::size_t most_pieces_per_call = 16;
constexpr std::size_t received_per_turn = std::size_t{2} << 20;
constexpr std::uint32_t yields_before_sleep = 1000;

struct Options {
    std::size_t nodes = 4;
    std::size_t piece = 65536;
    std::size_t batch = 4;  // pieces per sendmsg
    std::size_t streams = 1;
    std::size_t source = std::size_t{16} << 20;  // of a node
    std::size_t slots = std::size_t{1} << 20;    // of a connection
    int socket_buffer = 0;
    double seconds = 5;
    double warm_up = 1;
    std::string way = "epoll";
};

struct Shared {
    std::atomic<bool> stop;
    std::array<std::atomic<std::uint64_t>, 64> received;
    std::atomic<std::uint64_t> kernel_copied;  // zerocopy: sends of which the kernel said that it copied after all
    std::atomic<std::uint64_t> zerocopy_sends;
};

[[noreturn]] void fail(const char* what) {
    std::fprintf(stderr, "tcp_ways: %s: %s\n", what, std::strerror(errno));
    std::exit(1);
}

std::byte* make_memory(std::size_t bytes) {
    void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) fail("memory");
    madvise(memory, bytes, MADV_HUGEPAGE);
    std::memset(memory, 0x5A, bytes);
    return static_cast<std::byte*>(memory);
}

struct Connection {
    int fd = -1;
    bool readable = true;
    bool writable = true;
    std::byte* slots = nullptr;
    std::size_t slot_at = 0;
    std::size_t sent_of_batch = 0;
    std::size_t source_at = 0;  // of the batch being sent
    std::array<iovec, 2 * most_pieces_per_call> vectors{};
    msghdr message{};
};

class Node {
public:
    Node(const Options& options, Shared& shared, std::size_t self, const std::vector<int>& sockets)
        : options_(options), shared_(shared), self_(self), source_(make_memory(options.source)) {
        for (const int fd : sockets) {
            connections_.emplace_back();
            connections_.back().fd = fd;
            connections_.back().slots = make_memory(options.slots);
            next_batch(connections_.back());
        }
    }

    void run() {
        if (options_.way == "uring") {
            run_uring();
        } else {
            run_epoll();
        }
    }

private:
    std::size_t batch_bytes() const { return options_.batch * (header_bytes + options_.piece); }

    void next_batch(Connection& it) {
        it.sent_of_batch = 0;
        it.source_at = source_at_;
        source_at_ += options_.batch * options_.piece;
        if (source_at_ + options_.batch * options_.piece > options_.source) source_at_ = 0;
    }

    /// The rest of the batch.
    std::size_t gather(Connection& it) {
        std::size_t skip = it.sent_of_batch;
        std::size_t count = 0;
        for (std::size_t i = 0; i < options_.batch; ++i) {
            for (const iovec part : {iovec{header_.data(), header_bytes},
                                     iovec{source_ + it.source_at + i * options_.piece, options_.piece}}) {
                const std::size_t skipped = std::min(skip, part.iov_len);
                skip -= skipped;
                if (skipped < part.iov_len) {
                    it.vectors[count++] = {static_cast<std::byte*>(part.iov_base) + skipped, part.iov_len - skipped};
                }
            }
        }
        it.message = {};
        it.message.msg_iov = it.vectors.data();
        it.message.msg_iovlen = count;
        return batch_bytes() - it.sent_of_batch;
    }

    void sent(Connection& it, std::size_t bytes) {
        it.sent_of_batch += bytes;
        if (it.sent_of_batch == batch_bytes()) next_batch(it);
    }

    void received(Connection& it, std::size_t bytes) {
        it.slot_at = (it.slot_at + bytes) % options_.slots;
        shared_.received[self_].fetch_add(bytes, std::memory_order_relaxed);
    }

    bool send_some(Connection& it, int flags) {
        bool moved = false;
        while (it.writable) {
            const std::size_t wanted = gather(it);
            const ssize_t bytes = sendmsg(it.fd, &it.message, MSG_DONTWAIT | MSG_NOSIGNAL | flags);
            if (bytes < 0 && errno == ENOBUFS) return moved;  // as many notifications as may be are outstanding
            if (bytes < 0 && errno != EAGAIN) return moved;
            if (flags != 0 && bytes > 0) shared_.zerocopy_sends.fetch_add(1, std::memory_order_relaxed);
            if (bytes > 0) sent(it, static_cast<std::size_t>(bytes));
            it.writable = bytes >= 0 && static_cast<std::size_t>(bytes) == wanted;
            moved = moved || bytes > 0;
        }
        return moved;
    }

    bool receive_some(Connection& it) {
        bool moved = false;
        for (std::size_t turn = 0; it.readable && turn < received_per_turn;) {
            const std::size_t room = std::min(options_.slots - it.slot_at, options_.piece + header_bytes);
            const ssize_t bytes = recv(it.fd, it.slots + it.slot_at, room, MSG_DONTWAIT);
            if (bytes <= 0) {
                it.readable = false;
                return moved;
            }
            received(it, static_cast<std::size_t>(bytes));
            turn += static_cast<std::size_t>(bytes);
            it.readable = static_cast<std::size_t>(bytes) == room;
            moved = true;
        }
        return moved;
    }

    /// What the kernel says of finished zero-copy sends.
    void take_notifications(Connection& it) {
        std::array<char, 128> control;
        while (true) {
            msghdr message{};
            message.msg_control = control.data();
            message.msg_controllen = control.size();
            if (recvmsg(it.fd, &message, MSG_ERRQUEUE | MSG_DONTWAIT) < 0) return;
            for (cmsghdr* one = CMSG_FIRSTHDR(&message); one != nullptr; one = CMSG_NXTHDR(&message, one)) {
                sock_extended_err said{};
                std::memcpy(&said, CMSG_DATA(one), sizeof said);
                if (said.ee_origin != SO_EE_ORIGIN_ZEROCOPY) continue;
                if ((said.ee_code & SO_EE_CODE_ZEROCOPY_COPIED) != 0)
                    shared_.kernel_copied.fetch_add(said.ee_data - said.ee_info + 1, std::memory_order_relaxed);
            }
        }
    }

    void run_epoll() {
        const bool zerocopy = options_.way == "zerocopy";
        const int poller = epoll_create1(0);
        for (std::size_t i = 0; i < connections_.size(); ++i) {
            const int on = 1;
            if (zerocopy && setsockopt(connections_[i].fd, SOL_SOCKET, SO_ZEROCOPY, &on, sizeof on) != 0)
                fail("SO_ZEROCOPY");
            epoll_event event{};
            event.events = EPOLLIN | EPOLLOUT | EPOLLET;
            event.data.u64 = i;
            epoll_ctl(poller, EPOLL_CTL_ADD, connections_[i].fd, &event);
        }
        std::array<epoll_event, 64> events;
        for (std::uint32_t idle = 0; !shared_.stop.load(std::memory_order_relaxed);) {
            const int timeout = idle > yields_before_sleep ? 1 : 0;
            const int count = epoll_wait(poller, events.data(), static_cast<int>(events.size()), timeout);
            for (int i = 0; i < count; ++i) {
                Connection& it = connections_[events[static_cast<std::size_t>(i)].data.u64];
                const std::uint32_t happened = events[static_cast<std::size_t>(i)].events;
                it.readable = it.readable || (happened & EPOLLIN) != 0;
                it.writable = it.writable || (happened & EPOLLOUT) != 0;
                if (zerocopy && (happened & EPOLLERR) != 0) take_notifications(it);
            }
            bool moved = false;
            for (Connection& it : connections_) {
                moved = send_some(it, zerocopy ? MSG_ZEROCOPY : 0) || moved;
                moved = receive_some(it) || moved;
            }
            idle = moved ? 0 : idle + 1;
            if (!moved) sched_yield();
        }
    }

#if INCAST_BENCH_URING
    void submit_send(io_uring& ring, std::size_t i) {
        gather(connections_[i]);
        io_uring_sqe* entry = io_uring_get_sqe(&ring);
        io_uring_prep_sendmsg(entry, connections_[i].fd, &connections_[i].message, MSG_NOSIGNAL | MSG_WAITALL);
        io_uring_sqe_set_data64(entry, 2 * i);
    }
    void submit_receive(io_uring& ring, std::size_t i) {
        Connection& it = connections_[i];
        io_uring_sqe* entry = io_uring_get_sqe(&ring);
        const std::size_t room = std::min(options_.slots - it.slot_at, options_.piece + header_bytes);
        io_uring_prep_recv(entry, it.fd, it.slots + it.slot_at, room, 0);
        io_uring_sqe_set_data64(entry, 2 * i + 1);
    }
    void run_uring() {
        io_uring ring{};
        io_uring_params parameters{};
        parameters.flags = IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_COOP_TASKRUN;
        if (const int error = io_uring_queue_init_params(256, &ring, &parameters); error < 0) {
            errno = -error;
            fail("io_uring");
        }
        for (std::size_t i = 0; i < connections_.size(); ++i) {
            submit_send(ring, i);
            submit_receive(ring, i);
        }
        for (std::uint32_t idle = 0; !shared_.stop.load(std::memory_order_relaxed);) {
            if (idle > yields_before_sleep) {
                __kernel_timespec millisecond{0, 1'000'000};
                io_uring_cqe* first = nullptr;
                io_uring_submit_and_wait_timeout(&ring, &first, 1, &millisecond, nullptr);
            } else {
                io_uring_submit_and_get_events(&ring);
            }
            std::array<io_uring_cqe*, 64> done;
            const unsigned count = io_uring_peek_batch_cqe(&ring, done.data(), done.size());
            for (unsigned k = 0; k < count; ++k) {
                const std::uint64_t what = io_uring_cqe_get_data64(done[k]);
                const std::size_t i = what / 2;
                if (done[k]->res <= 0) continue;  // the other side has stopped
                const auto bytes = static_cast<std::size_t>(done[k]->res);
                if (what % 2 == 0) {
                    sent(connections_[i], bytes);
                    submit_send(ring, i);
                } else {
                    received(connections_[i], bytes);
                    submit_receive(ring, i);
                }
            }
            io_uring_cq_advance(&ring, count);
            idle = count > 0 ? 0 : idle + 1;
            if (count == 0) sched_yield();
        }
    }
#else
    void run_uring() {
        errno = ENOSYS;
        fail("built without liburing");
    }
#endif

    const Options& options_;
    Shared& shared_;
    std::size_t self_;
    std::byte* source_;
    std::size_t source_at_ = 0;
    std::array<std::byte, header_bytes> header_{};
    std::vector<Connection> connections_;
};

void tune(int fd, const Options& options) {
    const int on = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, "reno", 4);
    if (options.socket_buffer > 0) {
        setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &options.socket_buffer, sizeof(int));
        setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &options.socket_buffer, sizeof(int));
    }
}

/// Sockets by node: `streams` connections between every two.
std::vector<std::vector<int>> connect_all(const Options& options) {
    std::vector<std::vector<int>> sockets(options.nodes);
    const int listener = socket(AF_INET, SOCK_STREAM, 0);
    tune(listener, options);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    if (bind(listener, reinterpret_cast<sockaddr*>(&address), size) != 0 || listen(listener, 16) != 0 ||
        getsockname(listener, reinterpret_cast<sockaddr*>(&address), &size) != 0)
        fail("listen");
    for (std::size_t a = 0; a < options.nodes; ++a) {
        for (std::size_t b = a + 1; b < options.nodes; ++b) {
            for (std::size_t stream = 0; stream < options.streams; ++stream) {
                const int one = socket(AF_INET, SOCK_STREAM, 0);
                tune(one, options);
                if (connect(one, reinterpret_cast<sockaddr*>(&address), size) != 0) fail("connect");
                const int other = accept(listener, nullptr, nullptr);
                if (other < 0) fail("accept");
                tune(other, options);
                sockets[a].push_back(one);
                sockets[b].push_back(other);
            }
        }
    }
    close(listener);
    return sockets;
}

Options read_options(int argc, char** argv) {
    Options options;
    CLI::App app{"Ways to move bytes between processes over TCP on loopback, without any protocol.", "tcp_ways"};
    app.option_defaults()->always_capture_default();
    app.add_option("--way", options.way)->check(CLI::IsMember({"epoll", "zerocopy", "uring"}));
    app.add_option("--nodes", options.nodes)->check(CLI::Range(2, 16));
    app.add_option("--piece", options.piece, "bytes")->check(CLI::PositiveNumber);
    app.add_option("--batch", options.batch, "pieces per call")
        ->check(CLI::Range(std::size_t{1}, most_pieces_per_call));
    app.add_option("--streams", options.streams, "connections of a pair")->check(CLI::PositiveNumber);
    app.add_option("--source", options.source, "bytes of a node");
    app.add_option("--slots", options.slots, "bytes of a connection");
    app.add_option("--socket-buffer", options.socket_buffer, "bytes; 0: the kernel's choice");
    app.add_option("--seconds", options.seconds)->check(CLI::PositiveNumber);
    app.add_option("--warm-up", options.warm_up)->check(CLI::PositiveNumber);
    app.callback([&options] {
        if (options.streams * options.nodes > 64) throw CLI::ValidationError("--streams", "at most 64 of a node");
        if (options.source < options.batch * options.piece) throw CLI::ValidationError("--source", "at least a batch");
        if (options.slots < options.piece + header_bytes)
            throw CLI::ValidationError("--slots", "at least a piece and its header");
    });
    try {
        app.parse(argc, argv);
    } catch (const CLI::ParseError& error) {
        std::exit(app.exit(error));
    }
    return options;
}

std::uint64_t received_by_all(const Shared& shared) {
    std::uint64_t sum = 0;
    for (const auto& each : shared.received)
        sum += each.load(std::memory_order_relaxed);
    return sum;
}

void sleep_for(double seconds) {
    std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
}

double wall_seconds() {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace

int main(int argc, char** argv) {
    const Options options = read_options(argc, argv);
    void* memory = mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) fail("memory");
    auto* shared = new (memory) Shared{};
    const std::vector<std::vector<int>> sockets = connect_all(options);
    std::vector<pid_t> children;
    for (std::size_t node = 0; node < options.nodes; ++node) {
        const pid_t child = fork();
        if (child < 0) fail("fork");
        if (child == 0) {
            for (std::size_t other = 0; other < options.nodes; ++other) {
                if (other == node) continue;
                for (const int fd : sockets[other])
                    close(fd);
            }
            Node(options, *shared, node, sockets[node]).run();
            std::_Exit(0);
        }
        children.push_back(child);
    }
    for (const std::vector<int>& own : sockets) {
        for (const int fd : own)
            close(fd);
    }
    sleep_for(options.warm_up);
    std::printf("measuring\n");
    std::fflush(stdout);
    const std::uint64_t before = received_by_all(*shared);
    const double start = wall_seconds();
    sleep_for(options.seconds);
    const std::uint64_t bytes = received_by_all(*shared) - before;
    const double elapsed = wall_seconds() - start;
    shared->stop = true;
    bool failed = false;
    for (const pid_t child : children) {
        int status = 0;
        waitpid(child, &status, 0);
        failed = failed || status != 0;
    }
    if (failed) return 1;
    const double per_piece = static_cast<double>(options.piece) / static_cast<double>(options.piece + header_bytes);
    std::printf("{\"way\": \"%s\", \"bytes_per_s\": %.0f, \"zerocopy_sends\": %llu, \"of_these_copied\": %llu}\n",
                std::string(options.way).c_str(), static_cast<double>(bytes) / elapsed * per_piece,
                static_cast<unsigned long long>(shared->zerocopy_sends.load()),
                static_cast<unsigned long long>(shared->kernel_copied.load()));
    return 0;
}

// The reference of udp_vs_plain.py: datagrams over UDP on loopback, many per system call in both directions
// (UDP_SEGMENT and sendmmsg, UDP_GRO and recvmmsg), and nothing else: no order, no acknowledgement, no repetition, no
// place that a datagram belongs to. Every node (a process of one thread) sends to all others at once, from a source set
// that it cycles through, or the first one sends to the others. What counts is what was received, less a header in
// each.
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
#include <thread>
#include <vector>

#include <CLI/CLI.hpp>
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/udp.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

namespace {

constexpr std::size_t header_bytes = 64;   // a packet's and a frame's
constexpr std::size_t headers_of_ip = 28;  // and of UDP
constexpr std::size_t most_segments = 64;  // that the kernel takes
constexpr std::size_t most_of_a_call = 65'000;
constexpr std::size_t buffer_bytes = 65'536;
constexpr std::size_t batch = 4;
constexpr int socket_buffer = 8 << 20;
constexpr int wait_ms = 1;

struct Options {
    std::size_t nodes = 2;
    std::size_t mtu = 9000;
    std::size_t source = std::size_t{16} << 20;  // bytes of a node
    bool one_way = false;
    double seconds = 5;
    double warm_up = 1;
};

struct Shared {
    std::atomic<bool> stop;
    std::array<std::atomic<std::uint64_t>, 64> received;  // datagrams
    std::array<std::atomic<std::uint64_t>, 64> sent;
};

[[noreturn]] void fail(const char* what) {
    std::fprintf(stderr, "udp_pair: %s: %s\n", what, std::strerror(errno));
    std::exit(1);
}

std::byte* make_memory(std::size_t bytes) {
    void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) fail("memory");
    std::memset(memory, 0x5A, bytes);
    return static_cast<std::byte*>(memory);
}

struct Control {
    alignas(cmsghdr) std::array<char, 64> bytes;
};

class Node {
public:
    Node(const Options& options, Shared& shared, std::size_t self, int fd, const std::vector<sockaddr_in>& addresses)
        : shared_(shared),
          self_(self),
          fd_(fd),
          datagram_(options.mtu - headers_of_ip),
          per_call_(std::clamp<std::size_t>(most_of_a_call / datagram_, 1, most_segments)),
          source_bytes_(options.source),
          source_(make_memory(options.source)),
          buffers_(make_memory(batch * buffer_bytes)) {
        for (std::size_t other = 0; other < addresses.size(); ++other)
            if (other != self && (!options.one_way || self == 0)) peers_.push_back(addresses[other]);
    }

    void run() {
        while (!shared_.stop.load(std::memory_order_relaxed)) {
            for (const sockaddr_in& peer : peers_)
                send(peer);
            const bool any = receive();
            if (any || !peers_.empty()) continue;
            pollfd wait{fd_, POLLIN, 0};
            (void)poll(&wait, 1, wait_ms);
        }
    }

private:
    void send(const sockaddr_in& peer) {
        std::array<mmsghdr, batch> headers{};
        std::array<iovec, batch> vectors;
        std::array<Control, batch> controls{};
        const std::size_t bytes = per_call_ * datagram_;
        for (std::size_t i = 0; i < batch; ++i) {
            if (source_at_ + bytes > source_bytes_) source_at_ = 0;
            vectors[i] = {source_ + source_at_, bytes};
            source_at_ += bytes;
            msghdr& header = headers[i].msg_hdr;
            header.msg_name = const_cast<sockaddr_in*>(&peer);
            header.msg_namelen = sizeof peer;
            header.msg_iov = &vectors[i];
            header.msg_iovlen = 1;
            header.msg_control = controls[i].bytes.data();
            header.msg_controllen = CMSG_SPACE(sizeof(std::uint16_t));
            cmsghdr* control = CMSG_FIRSTHDR(&header);
            control->cmsg_level = SOL_UDP;
            control->cmsg_type = UDP_SEGMENT;
            control->cmsg_len = CMSG_LEN(sizeof(std::uint16_t));
            const auto segment = static_cast<std::uint16_t>(datagram_);
            std::memcpy(CMSG_DATA(control), &segment, sizeof segment);
        }
        const int sent = sendmmsg(fd_, headers.data(), batch, 0);
        if (sent < 0 && errno != EINTR && errno != EAGAIN && errno != ECONNREFUSED) fail("sendmmsg");
        count(shared_.sent, static_cast<std::uint64_t>(std::max(sent, 0)) * per_call_);
    }

    bool receive() {
        std::array<mmsghdr, batch> headers{};
        std::array<iovec, batch> vectors;
        std::array<Control, batch> controls;
        bool any = false;
        while (!shared_.stop.load(std::memory_order_relaxed)) {
            for (std::size_t i = 0; i < batch; ++i) {
                vectors[i] = {buffers_ + i * buffer_bytes, buffer_bytes};
                headers[i].msg_hdr.msg_iov = &vectors[i];
                headers[i].msg_hdr.msg_iovlen = 1;
                headers[i].msg_hdr.msg_control = controls[i].bytes.data();
                headers[i].msg_hdr.msg_controllen = controls[i].bytes.size();
            }
            const int got = recvmmsg(fd_, headers.data(), batch, MSG_DONTWAIT, nullptr);
            if (got <= 0) break;
            any = true;
            std::uint64_t datagrams = 0;
            for (int i = 0; i < got; ++i)
                datagrams += headers[static_cast<std::size_t>(i)].msg_len / datagram_;
            count(shared_.received, datagrams);
            if (got < static_cast<int>(batch)) break;
        }
        return any;
    }

    void count(std::array<std::atomic<std::uint64_t>, 64>& of, std::uint64_t more) {
        of[self_].store(of[self_].load(std::memory_order_relaxed) + more, std::memory_order_relaxed);
    }

    Shared& shared_;
    std::size_t self_;
    int fd_;
    std::size_t datagram_;
    std::size_t per_call_;  // datagrams that the kernel takes as one piece
    std::size_t source_bytes_;
    std::byte* source_;
    std::byte* buffers_;
    std::size_t source_at_ = 0;
    std::vector<sockaddr_in> peers_;
};

int make_socket(sockaddr_in& address) {
    const int fd = socket(AF_INET, SOCK_DGRAM, 0);
    const int on = 1;
    setsockopt(fd, SOL_UDP, UDP_GRO, &on, sizeof on);
    // As far as anybody may, and then as far as this process may.
    for (const int option : {SO_SNDBUF, SO_RCVBUF, SO_SNDBUFFORCE, SO_RCVBUFFORCE})
        setsockopt(fd, SOL_SOCKET, option, &socket_buffer, sizeof socket_buffer);
    address = {};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    if (bind(fd, reinterpret_cast<sockaddr*>(&address), size) != 0 ||
        getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size) != 0)
        fail("bind");
    return fd;
}

Options read_options(int argc, char** argv) {
    Options options;
    CLI::App app{"Plain datagrams over UDP on loopback, many per system call.", "udp_pair"};
    app.option_defaults()->always_capture_default();
    app.add_option("--nodes", options.nodes)->check(CLI::Range(2, 16));
    app.add_option("--mtu", options.mtu, "bytes of an IP packet")->check(CLI::Range(576, 65'000));
    app.add_option("--source", options.source, "bytes of a node")->check(CLI::Range(1 << 17, 1 << 30));
    app.add_flag("--one-way", options.one_way, "only the first node sends");
    app.add_option("--seconds", options.seconds)->check(CLI::PositiveNumber);
    app.add_option("--warm-up", options.warm_up)->check(CLI::PositiveNumber);
    try {
        app.parse(argc, argv);
    } catch (const CLI::ParseError& error) {
        std::exit(app.exit(error));
    }
    return options;
}

std::uint64_t sum(const std::array<std::atomic<std::uint64_t>, 64>& of) {
    std::uint64_t all = 0;
    for (const auto& each : of)
        all += each.load(std::memory_order_relaxed);
    return all;
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
    std::vector<sockaddr_in> addresses(options.nodes);
    std::vector<int> sockets;
    for (sockaddr_in& address : addresses)
        sockets.push_back(make_socket(address));
    std::vector<pid_t> children;
    for (std::size_t node = 0; node < options.nodes; ++node) {
        const pid_t child = fork();
        if (child < 0) fail("fork");
        if (child == 0) {
            Node(options, *shared, node, sockets[node], addresses).run();
            std::_Exit(0);
        }
        children.push_back(child);
    }
    sleep_for(options.warm_up);
    std::printf("measuring\n");
    std::fflush(stdout);
    const std::uint64_t received_before = sum(shared->received);
    const std::uint64_t sent_before = sum(shared->sent);
    const double start = wall_seconds();
    sleep_for(options.seconds);
    const auto received = static_cast<double>(sum(shared->received) - received_before);
    const auto sent = static_cast<double>(sum(shared->sent) - sent_before);
    const double elapsed = wall_seconds() - start;
    shared->stop = true;
    bool failed = false;
    for (const pid_t child : children) {
        int status = 0;
        waitpid(child, &status, 0);
        failed = failed || status != 0;
    }
    if (failed) return 1;
    const auto payload = static_cast<double>(options.mtu - headers_of_ip - header_bytes);
    std::printf("{\"bytes_per_s\": %.0f, \"datagrams_per_s\": %.0f, \"lost_share\": %.4f}\n",
                received * payload / elapsed, received / elapsed, sent > 0 ? std::max(0.0, 1 - received / sent) : 0.0);
    return 0;
}

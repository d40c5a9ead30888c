// Two ways to fill a link with the same UDP datagrams, one end per process (softrio_udp.py starts both ends):
//   softrio_udp rdma-target | rdma-write ID SECONDS BYTES    rDMA over RIO_FABRIC=udp:...
//   softrio_udp plain-target ADDRESS PORT SECONDS | plain-send ADDRESS PORT SECONDS DATAGRAM_BYTES
// plain: one thread that sends pieces of up to 64 datagrams (UDP_SEGMENT), one that receives such pieces (UDP_GRO) and
// looks at none. Both kinds read from and write to memory of the same size. Each program prints in its last line the
// payload bytes (of writes that were answered, of what was sent, of what came), the seconds that this took and the CPU
// seconds of its process; rdma-target knows but the last of them.
#include <array>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/udp.h>
#include <rapidio_mport_dma.h>
#include <rapidio_mport_mgmt.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

namespace {

using Clock = std::chrono::steady_clock;

constexpr std::uint64_t window_at = 0x1000'0000;
constexpr std::uint32_t window_bytes = 16 << 20;
constexpr std::size_t max_piece = 65'000;
constexpr std::size_t buffer_room = 1 << 16;  // for a received piece
constexpr int buffer_bytes = 8 << 20;
constexpr int batch = 8;

void check(bool good, const char* what) {
    if (good) return;
    std::perror(what);
    std::exit(1);  // NOLINT(concurrency-mt-unsafe): one thread
}

double seconds_since(Clock::time_point begin) {
    return std::chrono::duration<double>(Clock::now() - begin).count();
}

double cpu_seconds() {
    rusage usage{};
    (void)::getrusage(RUSAGE_SELF, &usage);
    const auto seconds = [](const timeval& time) {
        return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) * 1e-6;
    };
    return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

/// What is measured begins now.
class Meter {
public:
    void print(std::uint64_t bytes) const {
        std::printf("%llu %.6f %.6f\n", static_cast<unsigned long long>(bytes), seconds_since(begin_),
                    cpu_seconds() - cpu_);
    }
    [[nodiscard]] double seconds() const { return seconds_since(begin_); }

private:
    Clock::time_point begin_ = Clock::now();
    double cpu_ = cpu_seconds();
};

riomp_mport_t open_mport() {
    riomp_mport_t mport = nullptr;
    check(riomp_mgmt_mport_create_handle(0, 0, &mport) == 0, "master port");
    return mport;
}

int rdma_target() {
    riomp_mport_t mport = open_mport();
    std::uint64_t base = window_at;
    std::uint64_t handle = RIOMP_MAP_ANY_ADDR;
    check(riomp_dma_ibwin_map(mport, &base, window_bytes, &handle) == 0, "window");
    check(riomp_mgmt_dbrange_enable(mport, 0xFFFF, 1, 1) == 0, "doorbell");
    check(riomp_mgmt_set_event_mask(mport, RIO_EVENT_DOORBELL) == 0, "event mask");
    std::puts("ready");
    std::fflush(stdout);
    const Meter meter;
    riomp_mgmt_event event{};
    check(riomp_mgmt_get_event(mport, &event) == 0, "waiting for the end");
    meter.print(0);
    return riomp_mgmt_mport_destroy_handle(&mport);
}

int rdma_write(std::uint32_t target, double seconds, std::uint32_t bytes) {
    riomp_mport_t mport = open_mport();
    std::vector<char> data(window_bytes, 'x');
    std::uint64_t written = 0;
    std::uint32_t at = 0;
    const auto write = [&] {
        if (at + bytes > window_bytes) at = 0;
        check(riomp_dma_write(mport, target, window_at + at, data.data() + at, bytes, RIO_DIRECTIO_TYPE_NWRITE_R,
                              RIO_DIRECTIO_TRANSFER_SYNC, nullptr) == 0,
              "write");
        at += bytes;
        written += bytes;
    };
    write();
    written = 0;
    const Meter meter;
    while (meter.seconds() < seconds)
        write();
    meter.print(written);
    riomp_mgmt_event event{};
    event.header = RIO_EVENT_DOORBELL;
    event.u.doorbell = {target, 1};
    check(riomp_mgmt_send_event(mport, &event) == 0, "the end");
    return riomp_mgmt_mport_destroy_handle(&mport);
}

int open_socket() {
    const int fd = ::socket(AF_INET, SOCK_DGRAM, 0);
    check(fd >= 0, "socket");
    (void)::setsockopt(fd, SOL_SOCKET, SO_SNDBUFFORCE, &buffer_bytes, sizeof buffer_bytes);
    (void)::setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &buffer_bytes, sizeof buffer_bytes);
    return fd;
}

sockaddr_in address_of(const char* ip, const char* port) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<std::uint16_t>(std::atoi(port)));
    check(::inet_pton(AF_INET, ip, &address.sin_addr) == 1, "address");
    return address;
}

int plain_target(const sockaddr_in& address, double seconds) {
    const int fd = open_socket();
    const int on = 1;
    check(::setsockopt(fd, SOL_UDP, UDP_GRO, &on, sizeof on) == 0, "UDP_GRO");
    const timeval patience{0, 100'000};
    check(::setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience) == 0, "time-out");
    check(::bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0, "bind");
    std::puts("ready");
    std::fflush(stdout);
    std::vector<char> data(window_bytes);
    std::array<iovec, batch> vectors{};
    std::array<mmsghdr, batch> headers{};
    for (std::size_t index = 0; index < batch; ++index) {
        headers[index].msg_hdr.msg_iov = &vectors[index];
        headers[index].msg_hdr.msg_iovlen = 1;
    }
    std::size_t at = 0;
    // How many pieces came; they fill the memory one by one, from its begin again behind its end.
    const auto receive = [&] {
        for (std::size_t index = 0; index < batch; ++index)
            vectors[index] = {data.data() + (at + index * buffer_room) % window_bytes, buffer_room};
        const int count = ::recvmmsg(fd, headers.data(), batch, MSG_WAITFORONE, nullptr);
        if (count > 0) at += static_cast<std::size_t>(count) * buffer_room;
        return count;
    };
    while (receive() <= 0) {
    }
    std::uint64_t received = 0;
    const Meter meter;
    while (meter.seconds() < seconds) {
        const int count = receive();
        for (int index = 0; index < count; ++index)
            received += headers[static_cast<std::size_t>(index)].msg_len;
    }
    meter.print(received);
    return 0;
}

int plain_send(const sockaddr_in& address, double seconds, std::size_t datagram_bytes) {
    const int fd = open_socket();
    check(::connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0, "connect");
    const auto segment = static_cast<int>(datagram_bytes);
    check(::setsockopt(fd, SOL_UDP, UDP_SEGMENT, &segment, sizeof segment) == 0, "UDP_SEGMENT");
    // From as much memory as the writes come from.
    const std::vector<char> data(window_bytes, 'x');
    const std::size_t piece = std::min<std::size_t>(64, max_piece / datagram_bytes) * datagram_bytes;
    std::size_t at = 0;
    std::uint64_t sent = 0;
    const Meter meter;
    while (meter.seconds() < seconds) {
        if (at + piece > data.size()) at = 0;
        (void)!::send(fd, data.data() + at, piece, 0);  // what the receiver has no room for is lost
        at += piece;
        sent += piece;
    }
    meter.print(sent);
    return 0;
}

}  // namespace

int main(int count, char** words) {
    const std::string_view what = count > 1 ? words[1] : "";
    if (what == "rdma-target" && count == 2) return rdma_target();
    if (what == "rdma-write" && count == 5) {
        return rdma_write(static_cast<std::uint32_t>(std::atoi(words[2])), std::atof(words[3]),
                          static_cast<std::uint32_t>(std::atoi(words[4])));
    }
    if (what == "plain-target" && count == 5) return plain_target(address_of(words[2], words[3]), std::atof(words[4]));
    if (what == "plain-send" && count == 6) {
        return plain_send(address_of(words[2], words[3]), std::atof(words[4]),
                          static_cast<std::size_t>(std::atoi(words[5])));
    }
    std::fputs("usage: see the first lines of softrio_udp.cpp\n", stderr);
    return 2;
}

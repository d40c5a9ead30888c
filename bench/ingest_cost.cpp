// What receiving boards costs (docs/measuring.md): CPU seconds per GB of a readout unit's source, beside a program that
// receives the same datagrams with recvmmsg and UDP_GRO and drops them. Alternating, each for some time, from boards
// that are a process of their own and send at a given rate.
//
// Prints a line per pair and the median of the ratios; with --json FILE all of it as JSON.
#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <string>
#include <thread>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/udp.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "datagram/address.h"
#include "ingest/emit/emit.h"
#include "runtime/sources/board_source.h"
#include "support/fake_transport.h"

namespace {

namespace sources = incast::sources;
using incast::ps_per_ns;
using incast::Time;

constexpr double bytes_per_gb = 1e9;
volatile std::sig_atomic_t stop = 0;

struct Options {
    std::uint32_t boards = 4;
    std::uint32_t packing = 8;
    std::uint32_t fragment = 1000;
    std::uint32_t window = 64;     // MEPs
    std::uint32_t retention = 64;  // MEPs
    double seconds = 2;
    double rate = 0.4;  // GB/s of fragments
    int pairs = 9;
    std::string json;
};

struct Cost {
    double bytes = 0;
    double cpu_s = 0;
    std::uint64_t lost = 0;
    [[nodiscard]] double per_gb() const { return cpu_s / (bytes / bytes_per_gb); }
};

[[noreturn]] void fail(const std::string& what) {
    std::fprintf(stderr, "ingest_cost: %s\n", what.c_str());
    std::exit(1);
}

double thread_cpu_s() {
    timespec now{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

Time now_ps() {
    timespec now{};
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (Time{now.tv_sec} * 1'000'000'000 + now.tv_nsec) * ps_per_ns;
}

/// A process with all boards, which sends until it is told to end.
pid_t start_boards(const Options& options, const incast::datagram::Address& to) {
    const pid_t child = fork();
    if (child != 0) return child;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    incast::ingest::EmitSettings settings;
    settings.n_boards = options.boards;
    settings.boards.packet_events = options.packing;
    settings.boards.fragment_bytes = options.fragment;
    settings.rate_hz = options.rate * bytes_per_gb / options.boards / options.fragment;
    settings.to = {to};
    struct sigaction action{};
    action.sa_handler = [](int) { stop = 1; };
    sigaction(SIGTERM, &action, nullptr);
    const auto sent = incast::ingest::emit(settings, stop);
    _exit(sent ? 0 : 1);
}

void end_boards(pid_t child) {
    kill(child, SIGTERM);
    waitpid(child, nullptr, 0);
}

incast::datagram::Address address_of(const std::string& text) {
    const std::size_t colon = text.rfind(':');
    incast::datagram::Address at = *incast::datagram::parse_ip(text.substr(0, colon));
    at.port = static_cast<std::uint16_t>(std::stoi(text.substr(colon + 1)));
    return at;
}

std::uint32_t packet_bytes(const Options& options) {
    return static_cast<std::uint32_t>(incast::wire::mfp_bytes(options.packing, options.fragment, 3).packet_bytes);
}

Cost source_cost(const Options& options) {
    sources::BoardSource source({.packing = options.packing, .window_meps = options.window});
    sources::FakeTransport transport;
    incast::protocol::Config config;
    for (std::uint32_t board = 0; board < options.boards; ++board) {
        config.sources.push_back({static_cast<std::uint16_t>(board), incast::Peer{0}, packet_bytes(options)});
    }
    config.retention_meps = options.retention;
    if (const auto attached = source.attach(transport, config, 0, options.boards); !attached) {
        fail(attached.error().message);
    }
    source.start(now_ps(), 0, 0);
    const pid_t boards = start_boards(options, address_of(source.address()));
    const Time begin = now_ps();
    const Time end = begin + static_cast<Time>(options.seconds * 1e12);
    const double cpu = thread_cpu_s();
    std::uint64_t mep = 0;
    for (Time now = begin; now < end; now = now_ps()) {
        while (source.produce(now, mep)) {
            source.release(++mep);
        }
        const Time until = std::min(source.next_ready(), end);
        if (until > now) std::this_thread::sleep_for(std::chrono::nanoseconds((until - now) / ps_per_ns));
    }
    Cost cost;
    cost.cpu_s = thread_cpu_s() - cpu;
    const sources::SourceStats stats = source.stats(now_ps());
    cost.bytes = static_cast<double>(stats.boards.taken_events) * options.fragment;
    cost.lost = stats.boards.lost_events + stats.overflow_datagrams;
    end_boards(boards);
    return cost;
}

Cost plain_cost(const Options& options) {
    constexpr std::size_t batch = 4;
    constexpr std::size_t buffer_bytes = 65536;
    const int fd = socket(AF_INET, SOCK_DGRAM, 0);
    const int on = 1;
    const int wanted = 8 << 20;
    sockaddr_in at{};
    at.sin_family = AF_INET;
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t at_bytes = sizeof at;
    if (fd < 0 || setsockopt(fd, SOL_UDP, UDP_GRO, &on, sizeof on) != 0 ||
        bind(fd, reinterpret_cast<const sockaddr*>(&at), at_bytes) != 0 ||
        getsockname(fd, reinterpret_cast<sockaddr*>(&at), &at_bytes) != 0) {
        fail(std::strerror(errno));
    }
    (void)setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &wanted, sizeof wanted);
    (void)setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &wanted, sizeof wanted);
    incast::datagram::Address to = *incast::datagram::parse_ip("127.0.0.1");
    to.port = ntohs(at.sin_port);
    std::vector<std::byte> memory(batch * buffer_bytes);
    std::array<mmsghdr, batch> headers{};
    std::array<iovec, batch> vectors;
    struct Control {
        alignas(cmsghdr) std::array<char, 64> bytes;
    };
    std::array<Control, batch> controls{};
    const pid_t boards = start_boards(options, to);
    const Time end = now_ps() + static_cast<Time>(options.seconds * 1e12);
    const double cpu = thread_cpu_s();
    double bytes = 0;
    while (now_ps() < end) {
        for (std::size_t index = 0; index < batch; ++index) {
            vectors[index] = {memory.data() + index * buffer_bytes, buffer_bytes};
            headers[index].msg_hdr.msg_iov = &vectors[index];
            headers[index].msg_hdr.msg_iovlen = 1;
            headers[index].msg_hdr.msg_control = controls[index].bytes.data();
            headers[index].msg_hdr.msg_controllen = controls[index].bytes.size();
        }
        const int got = recvmmsg(fd, headers.data(), batch, MSG_DONTWAIT, nullptr);
        for (int index = 0; index < got; ++index) {
            bytes += headers[static_cast<std::size_t>(index)].msg_len;
        }
        if (got <= 0) std::this_thread::sleep_for(std::chrono::microseconds(200));  // as often as the source looks
    }
    Cost cost;
    cost.cpu_s = thread_cpu_s() - cpu;
    const double packet = packet_bytes(options);
    cost.bytes = bytes / packet * options.packing * options.fragment;
    end_boards(boards);
    close(fd);
    return cost;
}

}  // namespace

int main(int argc, char** argv) {
    Options options;
    CLI::App app("CPU time of receiving boards, beside receiving and dropping the same datagrams", "ingest_cost");
    app.add_option("--boards", options.boards, "of the readout unit")->check(CLI::Range(1, 1000));
    app.add_option("--packing", options.packing, "events in a datagram, and in a MEP")->check(CLI::Range(1, 10000));
    app.add_option("--fragment-size", options.fragment, "bytes of a fragment")->check(CLI::Range(1, 65000));
    app.add_option("--window", options.window, "MEPs that are filled at once")->check(CLI::Range(2, 65536));
    app.add_option("--retention", options.retention, "MEPs that are kept")->check(CLI::Range(1, 65536));
    app.add_option("--seconds", options.seconds, "of each run")->check(CLI::Range(0.1, 600.0));
    app.add_option("--rate", options.rate, "GB/s of fragments that boards send")->check(CLI::Range(0.001, 100.0));
    app.add_option("--pairs", options.pairs, "that are measured")->check(CLI::Range(1, 1000));
    app.add_option("--json", options.json, "file for the results")->type_name("FILE");
    CLI11_PARSE(app, argc, argv);
    std::vector<double> ratios;
    std::string rows;
    for (int pair = 0; pair < options.pairs; ++pair) {
        const bool source_first = pair % 2 == 0;
        Cost source;
        Cost plain;
        if (source_first) source = source_cost(options);
        plain = plain_cost(options);
        if (!source_first) source = source_cost(options);
        if (source.bytes == 0 || plain.bytes == 0) fail("nothing was received");
        ratios.push_back(source.per_gb() / plain.per_gb());
        fmt::print("source {:.3f} CPU s/GB at {:.2f} GB/s ({} lost), dropped {:.3f} CPU s/GB at {:.2f} GB/s: {:.2f}\n",
                   source.per_gb(), source.bytes / bytes_per_gb / options.seconds, source.lost, plain.per_gb(),
                   plain.bytes / bytes_per_gb / options.seconds, ratios.back());
        rows += fmt::format("{}{{\"source\": {:.6f}, \"dropped\": {:.6f}}}", rows.empty() ? "" : ", ", source.per_gb(),
                            plain.per_gb());
    }
    std::ranges::sort(ratios);
    const double median = ratios[ratios.size() / 2];
    fmt::print("{} boards, {} events of {} B in a datagram: median ratio {:.3f} ({:.3f} to {:.3f})\n", options.boards,
               options.packing, options.fragment, median, ratios.front(), ratios.back());
    if (!options.json.empty()) {
        std::FILE* const file = std::fopen(options.json.c_str(), "we");
        if (file == nullptr) fail(options.json + ": " + std::strerror(errno));
        fmt::print(file,
                   "{{\"boards\": {}, \"packing\": {}, \"fragment_bytes\": {}, \"median\": {:.4f}, \"pairs\": [{}]}}\n",
                   options.boards, options.packing, options.fragment, median, rows);
        if (std::fclose(file) != 0) fail(options.json + ": " + std::strerror(errno));
    }
    return 0;
}

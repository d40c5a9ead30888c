// A ring channel beside a socket of TCP on loopback, in turn, between two processes of this host (docs/channel.md).
//
// Both are used as a program uses a blocking socket: a message is its length, in 4 bytes, and its body, which leave in
// one call; the receiver waits for the length, then for the body. `one way` counts from the first message until the
// other side says that it has all of them. In `round trip` each message comes back before the next one goes. Of each
// size there are --pairs pairs of readings, behind one that warms up; which way goes first alternates.
#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <CLI/CLI.hpp>
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <incast/channel.h>

namespace {

constexpr std::size_t length_bytes = 4;

[[noreturn]] void fail(const std::string& what, const std::string& why) {
    throw std::runtime_error(what + ": " + why);
}
[[noreturn]] void fail(const std::string& what) {
    fail(what, std::strerror(errno));  // NOLINT(concurrency-mt-unsafe): one thread prints
}

/// What both sides of a connection do, by blocking calls.
class Connection {
public:
    Connection() = default;
    Connection(const Connection&) = delete;
    Connection& operator=(const Connection&) = delete;
    virtual ~Connection() = default;
    virtual void send(const void* data, std::size_t bytes) = 0;
    virtual void receive(void* into, std::size_t bytes) = 0;
};

class Socket final : public Connection {
public:
    explicit Socket(int fd) : fd_(fd) {}
    ~Socket() override { ::close(fd_); }
    void send(const void* data, std::size_t bytes) override {
        for (std::size_t done = 0; done < bytes;) {
            const ssize_t sent = ::send(fd_, static_cast<const char*>(data) + done, bytes - done, 0);
            if (sent < 0) fail("send");
            done += static_cast<std::size_t>(sent);
        }
    }
    void receive(void* into, std::size_t bytes) override {
        for (std::size_t done = 0; done < bytes;) {
            const ssize_t got = ::recv(fd_, static_cast<char*>(into) + done, bytes - done, 0);
            if (got < 0) fail("recv");
            if (got == 0) fail("recv", "the other side has ended");
            done += static_cast<std::size_t>(got);
        }
    }

private:
    int fd_;
};

class Channel final : public Connection {
public:
    explicit Channel(incast_channel* channel) : channel_(channel) {}
    ~Channel() override { incast_channel_close(channel_); }
    void send(const void* data, std::size_t bytes) override {
        for (std::size_t done = 0; done < bytes;) {
            const auto sent = incast_channel_write(channel_, static_cast<const char*>(data) + done, bytes - done, -1);
            if (sent < 0) fail("write", incast_channel_message());
            done += static_cast<std::size_t>(sent);
        }
        if (incast_channel_flush(channel_) != 0) fail("flush", incast_channel_message());
    }
    void receive(void* into, std::size_t bytes) override {
        for (std::size_t done = 0; done < bytes;) {
            const auto got = incast_channel_read(channel_, static_cast<char*>(into) + done, bytes - done, -1);
            if (got < 0) fail("read", incast_channel_message());
            if (got == 0) fail("read", "the other side has ended");
            done += static_cast<std::size_t>(got);
        }
    }

private:
    incast_channel* channel_;
};

/// A reading: so many messages of so many bytes, by one of the two connections.
struct Order {
    std::uint32_t way = 0;
    std::uint32_t bytes = 0;
    std::uint32_t count = 0;  // 0: the last one was read
    std::uint32_t comes_back = 0;
};

double processor_s() {
    rusage used{};
    ::getrusage(RUSAGE_SELF, &used);
    const auto seconds = [](const timeval& time) {
        return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) / 1e6;
    };
    return seconds(used.ru_utime) + seconds(used.ru_stime);
}

std::vector<std::byte> message_of(std::uint32_t bytes) {
    std::vector<std::byte> message(length_bytes + bytes, std::byte{1});
    std::memcpy(message.data(), &bytes, length_bytes);
    return message;
}

void receive_message(Connection& connection, std::vector<std::byte>& room) {
    std::uint32_t length = 0;
    connection.receive(&length, length_bytes);
    if (length_bytes + length > room.size()) fail("message", std::to_string(length) + " bytes were not asked for");
    std::memcpy(room.data(), &length, length_bytes);
    connection.receive(room.data() + length_bytes, length);
}

constexpr std::array<const char*, 2> way_names{"channel", "tcp"};

struct Ways {
    incast_channel_hub* hub = nullptr;
    std::array<std::unique_ptr<Connection>, 2> connections;
    ~Ways() {
        connections = {};
        incast_channel_hub_free(hub);
    }
};

struct Choices {
    std::string transport = "shm";
    bool is_watched = false;
    int spin_us = 0;
    std::string settings;
    incast_channel_options ring = INCAST_CHANNEL_OPTIONS;
};

incast_channel_hub* make_hub(const Choices& choices) {
    incast_channel_hub_options options = INCAST_CHANNEL_HUB_OPTIONS;
    options.longest_spin_us = choices.spin_us;
    options.settings = choices.settings.empty() ? nullptr : choices.settings.c_str();
    incast_channel_hub* hub = nullptr;
    if (incast_channel_hub_make(choices.transport.c_str(), &options, &hub) != 0) fail("hub", incast_channel_message());
    return hub;
}

std::unique_ptr<Connection> taken(const Choices& choices, incast_channel* channel) {
    if (choices.is_watched && incast_channel_data_fd(channel) < 0) fail("descriptor", incast_channel_message());
    return std::make_unique<Channel>(channel);
}

struct Door {
    std::array<char, 160> channel{};
    sockaddr_in tcp{};
};

template <class Value>
void put(int fd, const Value& value) {
    if (::write(fd, &value, sizeof value) != sizeof value) fail("pipe");
}
template <class Value>
Value get(int fd) {
    Value value{};
    if (::recv(fd, &value, sizeof value, MSG_WAITALL) != sizeof value) fail("pipe", "the other process has ended");
    return value;
}

/// The other side: until an order of no messages comes.
void serve(const Choices& choices, std::size_t longest, int control) {
    Ways ways;
    ways.hub = make_hub(choices);
    incast_channel_listener* listener = nullptr;
    const std::string any = choices.transport + (choices.transport == "shm" ? "://*" : "://*:*");
    if (incast_channel_listen(ways.hub, any.c_str(), nullptr, &listener) != 0) fail("listen", incast_channel_message());
    Door door;
    const std::string address = incast_channel_listener_address(listener);
    if (address.size() >= door.channel.size()) fail("address", address);
    std::ranges::copy(address, door.channel.begin());
    const int socket = ::socket(AF_INET, SOCK_STREAM, 0);
    door.tcp.sin_family = AF_INET;
    door.tcp.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof door.tcp;
    auto* const name = reinterpret_cast<sockaddr*>(&door.tcp);
    if (socket < 0 || ::bind(socket, name, size) != 0 || ::listen(socket, 1) != 0 ||
        ::getsockname(socket, name, &size) != 0)
        fail("listen");
    put(control, door);
    incast_channel* channel = nullptr;
    if (incast_channel_accept(listener, -1, &channel) != 0) fail("accept", incast_channel_message());
    ways.connections[0] = taken(choices, channel);
    const int accepted = ::accept(socket, nullptr, nullptr);
    if (accepted < 0) fail("accept");
    ::close(socket);
    ways.connections[1] = std::make_unique<Socket>(accepted);

    std::vector<std::byte> room(length_bytes + longest, std::byte{1});
    for (auto order = get<Order>(control); order.count > 0; order = get<Order>(control)) {
        Connection& connection = *ways.connections.at(order.way);
        const double before_s = processor_s();
        put(control, order);  // both have begun
        for (std::uint32_t number = 0; number < order.count; ++number) {
            receive_message(connection, room);
            if (order.comes_back != 0) connection.send(room.data(), length_bytes + order.bytes);
        }
        const double used_s = processor_s() - before_s;
        connection.send(&used_s, sizeof used_s);
    }
}

struct Reading {
    double seconds = 0;
    double processor_s = 0;  // of both processes
};

Reading read_one(Connection& connection, const Order& order, std::vector<std::byte>& room, int control) {
    const std::vector<std::byte> message = message_of(order.bytes);
    put(control, order);
    (void)get<Order>(control);
    const double before_s = processor_s();
    const auto begin = std::chrono::steady_clock::now();
    for (std::uint32_t number = 0; number < order.count; ++number) {
        connection.send(message.data(), message.size());
        if (order.comes_back != 0) receive_message(connection, room);
    }
    double there_s = 0;
    connection.receive(&there_s, sizeof there_s);
    const auto end = std::chrono::steady_clock::now();
    return {std::chrono::duration<double>(end - begin).count(), processor_s() - before_s + there_s};
}

double median(std::vector<double> values) {
    std::ranges::sort(values);
    return values[values.size() / 2];
}

struct Plan {
    std::vector<std::uint32_t> sizes{4U << 10, 16U << 10, 64U << 10, 256U << 10,
                                     1U << 20, 4U << 20,  16U << 20, 128U << 20};
    int pairs = 7;
    std::uint64_t reading_bytes = 0;
    std::uint32_t most_messages = 0;
    std::vector<int> ways;  // one alone, to look at it with other tools
};

void compare(Ways& ways, const Plan& plan, bool comes_back, std::vector<std::byte>& room, int control) {
    std::printf("\n%-10s %10s %9s %9s %-22s %s\n", comes_back ? "round trip" : "one way", comes_back ? "us" : "GB/s",
                way_names[0], way_names[1], "ratio", "CPU s/GB");
    for (const std::uint32_t bytes : plan.sizes) {
        Order order{.bytes = bytes, .comes_back = comes_back ? 1U : 0U};
        const std::uint64_t fitting = plan.reading_bytes / bytes / (comes_back ? 2 : 1);
        order.count = static_cast<std::uint32_t>(std::clamp<std::uint64_t>(fitting, 2, plan.most_messages));
        const double gigabytes = 1e-9 * bytes * order.count * (comes_back ? 2 : 1);
        std::array<std::vector<double>, 2> figures;
        std::array<std::vector<double>, 2> processor;
        for (int pair = -1; pair < plan.pairs; ++pair) {
            for (std::size_t turn = 0; turn < plan.ways.size(); ++turn) {
                order.way = static_cast<std::uint32_t>(
                    plan.ways[(turn + static_cast<std::size_t>(pair + 1)) % plan.ways.size()]);
                const Reading reading = read_one(*ways.connections.at(order.way), order, room, control);
                if (pair < 0) continue;
                figures.at(order.way).push_back(comes_back ? 1e6 * reading.seconds / order.count
                                                           : gigabytes / reading.seconds);
                processor.at(order.way).push_back(reading.processor_s / gigabytes);
            }
        }
        const auto text = [](const std::vector<double>& values) {
            std::array<char, 32> line{};
            if (!values.empty()) std::snprintf(line.data(), line.size(), "%.2f", median(values));
            return std::string(line.data());
        };
        std::string ratio;
        if (plan.ways.size() == 2) {
            std::vector<double> ratios;
            for (std::size_t at = 0; at < figures[0].size(); ++at) {
                const double quotient = figures[0][at] / figures[1][at];
                ratios.push_back(comes_back ? 1 / quotient : quotient);
            }
            const auto [lowest, highest] = std::ranges::minmax(ratios);
            std::array<char, 64> line{};
            std::snprintf(line.data(), line.size(), "%.2f x (%.2f-%.2f)", median(ratios), lowest, highest);
            ratio = line.data();
        }
        std::printf("%10s %10u %9s %9s %-22s %s, %s\n", "", bytes, text(figures[0]).c_str(), text(figures[1]).c_str(),
                    ratio.c_str(), text(processor[0]).c_str(), text(processor[1]).c_str());
        std::fflush(stdout);
    }
}

/// This side: connects both ways, and compares.
void ask(const Choices& choices, const Plan& plan, bool one_way, bool round_trip, int control) {
    const auto door = get<Door>(control);
    Ways ways;
    ways.hub = make_hub(choices);
    incast_channel* channel = nullptr;
    if (incast_channel_connect(ways.hub, door.channel.data(), &choices.ring, &channel) != 0 ||
        incast_channel_wait_open(channel, -1) < 0)
        fail("connect", incast_channel_message());
    ways.connections[0] = taken(choices, channel);
    const int socket = ::socket(AF_INET, SOCK_STREAM, 0);
    if (socket < 0 || ::connect(socket, reinterpret_cast<const sockaddr*>(&door.tcp), sizeof door.tcp) != 0)
        fail("connect");
    ways.connections[1] = std::make_unique<Socket>(socket);

    incast_channel_options ring = INCAST_CHANNEL_OPTIONS;
    incast_channel_get_options(channel, &ring);
    double load = 0;
    (void)::getloadavg(&load, 1);
    std::printf("%s, %u buffers of %u bytes, credits for %u; %d pairs; %u cores, load %.1f\n",
                choices.transport.c_str(), ring.buffers, ring.buffer_bytes, ring.batch, plan.pairs,
                std::thread::hardware_concurrency(), load);
    std::vector<std::byte> room(length_bytes + std::ranges::max(plan.sizes), std::byte{1});
    if (one_way) compare(ways, plan, false, room, control);
    if (round_trip) compare(ways, plan, true, room, control);
    put(control, Order{});
}

int run(const Choices& choices, const Plan& plan, bool one_way, bool round_trip) {
    std::array<int, 2> control{};
    if (::socketpair(AF_UNIX, SOCK_STREAM, 0, control.data()) != 0) fail("socketpair");
    const pid_t other = ::fork();  // each process makes its own hub
    if (other < 0) fail("fork");
    ::close(control[other == 0 ? 0 : 1]);
    if (other == 0) {
        try {
            serve(choices, std::ranges::max(plan.sizes), control[1]);
        } catch (const std::exception& error) {
            std::fprintf(stderr, "channel_vs_tcp, the other side: %s\n", error.what());
            std::_Exit(1);
        }
        std::_Exit(0);
    }
    int status = 0;
    try {
        ask(choices, plan, one_way, round_trip, control[0]);
    } catch (const std::exception& error) {
        std::fprintf(stderr, "channel_vs_tcp: %s\n", error.what());
        status = 1;
    }
    ::close(control[0]);
    int ended = 0;
    if (::waitpid(other, &ended, 0) != other || ended != 0) status = 1;
    return status;
}

}  // namespace

int main(int count, char** words) {
    CLI::App app("A ring channel beside a socket of TCP on loopback, in turn, between two processes.",
                 "channel_vs_tcp");
    Choices choices;
    Plan plan;
    std::uint64_t reading_mib = 256;
    std::string what = "both";
    std::string only;
    app.add_option("--transport", choices.transport, "of the channel")->capture_default_str();
    app.add_option("--sizes", plan.sizes, "of a message (default: 4 KiB to 128 MiB)")
        ->delimiter(',')
        ->transform(CLI::AsSizeValue(false));
    app.add_option("--pairs", plan.pairs)->capture_default_str();
    app.add_option("--mib", reading_mib, "of a reading, at most")->capture_default_str();
    app.add_option("--messages", plan.most_messages, "of a reading, at most; there are 2 at least")
        ->default_val(20'000);
    app.add_option("--what", what)->check(CLI::IsMember({"one-way", "round-trip", "both"}))->capture_default_str();
    app.add_option("--only", only, "one of the two, to look at it")->check(CLI::IsMember({"channel", "tcp"}));
    app.add_option("--buffers", choices.ring.buffers, "of the ring (default: the channel's own)");
    app.add_option("--buffer-bytes", choices.ring.buffer_bytes)->transform(CLI::AsSizeValue(false));
    app.add_option("--batch", choices.ring.batch, "emptied buffers that are told at once");
    app.add_option("--spin-us", choices.spin_us, "longest_spin_us of both hubs");
    app.add_option("--settings", choices.settings, "of the transport: NAME=VALUE,...");
    app.add_flag("--watched", choices.is_watched,
                 "the channel's data descriptor is open, as for a program that polls it");
    CLI11_PARSE(app, count, words);
    plan.reading_bytes = reading_mib << 20U;
    for (int way = 0; way < 2; ++way)
        if (only.empty() || only == way_names.at(static_cast<std::size_t>(way))) plan.ways.push_back(way);
    try {
        return run(choices, plan, what != "round-trip", what != "one-way");
    } catch (const std::exception& error) {
        std::fprintf(stderr, "channel_vs_tcp: %s\n", error.what());
        return 1;
    }
}

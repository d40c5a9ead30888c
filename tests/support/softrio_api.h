// What the tests of the C API share: a fabric of their own, handles that close themselves, processes.
#pragma once

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <librsvdmem.h>
#include <netinet/in.h>
#include <poll.h>
#include <rapidio_mport_dma.h>
#include <rapidio_mport_mgmt.h>
#include <rapidio_mport_sock.h>
#include <softrio.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

namespace incast::softrio {

inline constexpr int deadline_ms = 20'000;

/// As a stop request: one attempt of the whole time-out. It is only read.
inline volatile int once = 1;

inline std::int64_t now_ms() {
    return std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::steady_clock::now().time_since_epoch())
        .count();
}

inline bool eventually(const std::function<bool()>& condition) {
    for (const std::int64_t until = now_ms() + deadline_ms; now_ms() < until;) {
        if (condition()) return true;
        ::poll(nullptr, 0, 1);
    }
    return false;
}

// Before anything else in this process looks at its environment at the same time.
inline void set_variable(const char* name, const std::string& value) {
    ::setenv(name, value.c_str(), 1);  // NOLINT(concurrency-mt-unsafe)
}
inline void clear_variable(const char* name) {
    ::unsetenv(name);  // NOLINT(concurrency-mt-unsafe)
}

/// The tests run once for each fabric: SOFTRIO_TEST_FABRIC=udp or linux, else shm.
inline bool is_fabric(std::string_view wanted) {
    const char* kind = std::getenv("SOFTRIO_TEST_FABRIC");  // NOLINT(concurrency-mt-unsafe)
    return wanted == (kind == nullptr ? "shm" : kind);
}
inline bool is_shm() {
    static const bool wanted = is_fabric("shm");
    return wanted;
}
inline bool is_udp() {
    static const bool wanted = is_fabric("udp");
    return wanted;
}
inline bool is_linux() {
    static const bool wanted = is_fabric("linux");
    return wanted;
}
/// What needs no response is in place at once on shm, and soon on the others.
inline bool arrives(const std::function<bool()>& condition) {
    return is_shm() ? condition() : eventually(condition);
}
// Where a fabric does otherwise, the table of differences in docs/rapidio.md says why.
#define SKIP_ON_UDP(reason) \
    if (is_udp()) GTEST_SKIP() << reason
#define SKIP_ON_LINUX(reason) \
    if (is_linux()) GTEST_SKIP() << reason

/// This process joins a fabric that nobody else knows; its master ports are endpoints of it, as separate processes are.
/// udp: addresses of loopback, all with a port that this keeps for the test. linux: four ports of one kernel behind a
/// switch, with ids of 16 bits, which are the same for all tests.
class Fabric {
public:
    explicit Fabric(std::string_view options = "", int mports = 4) {
        if (is_linux()) {
            name_ = "linux:0";
            url_ = name_ + "?mports=" + std::to_string(mports);
        } else if (is_udp()) {
            name_ = "udp:loopback:" + std::to_string(take_port());
            url_ = name_ + "?deadline_ms=1000&mports=" + std::to_string(mports);
        } else {
            std::random_device random;  // a name, which decides nothing
            name_ = "test-" + std::to_string(random()) + "-" + std::to_string(random());
            url_ = "shm:" + name_ + "?mports=" + std::to_string(mports);
        }
        if (!options.empty()) url_.append("&").append(options);
        set_variable("RIO_FABRIC", url_);
        clear_variable("RIO_DESTID");
        clear_variable("RIO_RSVDMEM");
    }
    Fabric(const Fabric&) = delete;
    Fabric& operator=(const Fabric&) = delete;
    ~Fabric() {
        clear_variable("RIO_FABRIC");
        if (keeps_port_ >= 0) ::close(keeps_port_);
    }
    [[nodiscard]] const std::string& name() const { return name_; }

private:
    std::uint16_t take_port() {
        keeps_port_ = ::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
        sockaddr_in address{};
        address.sin_family = AF_INET;
        address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        socklen_t bytes = sizeof address;
        EXPECT_EQ(::bind(keeps_port_, reinterpret_cast<sockaddr*>(&address), bytes), 0);
        EXPECT_EQ(::getsockname(keeps_port_, reinterpret_cast<sockaddr*>(&address), &bytes), 0);
        return ntohs(address.sin_port);
    }

    std::string name_;
    std::string url_;
    int keeps_port_ = -1;
};

class Mport {
public:
    explicit Mport(std::uint32_t mport = 0, int flags = O_NONBLOCK) {
        EXPECT_EQ(riomp_mgmt_mport_create_handle(mport, flags, &handle_), 0);
        riomp_mgmt_mport_properties properties{};
        EXPECT_EQ(riomp_mgmt_query(handle_, &properties), 0);
        destid = properties.did_val;
    }
    Mport(const Mport&) = delete;
    Mport& operator=(const Mport&) = delete;
    ~Mport() { close(); }
    void close() {
        if (handle_ == nullptr) return;
        EXPECT_EQ(riomp_mgmt_mport_destroy_handle(&handle_), 0);
    }
    operator riomp_mport_t() const { return handle_; }

    /// Takes doorbells of that range from anybody.
    void listen(std::uint16_t first, std::uint16_t last) {
        ASSERT_EQ(riomp_mgmt_dbrange_enable(handle_, 0xFFFF, first, last), 0);
        ASSERT_EQ(riomp_mgmt_set_event_mask(handle_, RIO_EVENT_DOORBELL), 0);
    }
    int ring(std::uint32_t target, std::uint16_t payload) {
        riomp_mgmt_event event{};
        event.header = RIO_EVENT_DOORBELL;
        event.u.doorbell = {target, payload};
        return riomp_mgmt_send_event(handle_, &event);
    }
    /// The payload, or a negative error.
    int hear(std::uint32_t* source = nullptr) {
        riomp_mgmt_event event{};
        const int error = riomp_mgmt_get_event(handle_, &event);
        if (error != 0) return error;
        EXPECT_EQ(event.header, static_cast<unsigned>(RIO_EVENT_DOORBELL));
        if (source != nullptr) *source = event.u.doorbell.did_val;
        return event.u.doorbell.payload;
    }
    /// The same, of one that was sent: it is there, or on linux soon.
    int hear_sent(std::uint32_t* source = nullptr) {
        int heard = hear(source);
        if (is_linux() && heard == -EAGAIN) (void)eventually([&] { return (heard = hear(source)) != -EAGAIN; });
        return heard;
    }
    [[nodiscard]] bool polls(int timeout_ms = 0) const {
        pollfd one{handle_->fd, POLLIN, 0};
        return ::poll(&one, 1, timeout_ms) == 1;
    }

    std::uint32_t destid = 0;

private:
    riomp_mport_t handle_ = nullptr;
};

/// An inbound window, mapped.
struct OpenWindow {
    OpenWindow(riomp_mport_t mport, std::uint32_t size, std::uint64_t at = RIOMP_MAP_ANY_ADDR,
               std::uint64_t memory = RIOMP_MAP_ANY_ADDR)
        : base(at), handle(memory), bytes(size) {
        EXPECT_EQ(riomp_dma_ibwin_map(mport, &base, size, &handle), 0);
        void* mapped = nullptr;
        EXPECT_EQ(riomp_dma_map_memory(mport, size, static_cast<off_t>(handle), &mapped), 0);
        data = static_cast<std::uint8_t*>(mapped);
    }
    OpenWindow(const OpenWindow&) = delete;
    OpenWindow& operator=(const OpenWindow&) = delete;
    ~OpenWindow() { EXPECT_EQ(riomp_dma_unmap_memory(bytes, data), 0); }

    std::uint64_t base;
    std::uint64_t handle;
    std::uint32_t bytes;
    std::uint8_t* data = nullptr;
};

inline int write_to(riomp_mport_t from, std::uint32_t target, std::uint64_t address, std::vector<std::uint8_t> bytes,
                    riomp_dma_directio_type type = RIO_DIRECTIO_TYPE_NWRITE_R) {
    return riomp_dma_write(from, target, address, bytes.data(), static_cast<std::uint32_t>(bytes.size()), type,
                           RIO_DIRECTIO_TRANSFER_SYNC, nullptr);
}

/// A forked process with a line to its parent. Its expectations count: a failed one makes finish() fail.
class Child {
public:
    class Line {
    public:
        explicit Line(int fd) : fd_(fd) {}
        void say(std::uint64_t value) const { ASSERT_EQ(::write(fd_, &value, sizeof value), ssize_t{sizeof value}); }
        [[nodiscard]] bool is_heard() const {
            pollfd one{fd_, POLLIN, 0};
            return ::poll(&one, 1, 0) == 1;
        }
        /// All ones at the deadline, or if the other end is gone.
        [[nodiscard]] std::uint64_t hear() const {
            std::uint64_t value = 0;
            pollfd one{fd_, POLLIN, 0};
            if (::poll(&one, 1, deadline_ms) == 1 && ::read(fd_, &value, sizeof value) == ssize_t{sizeof value})
                return value;
            return ~std::uint64_t{0};
        }

    private:
        int fd_;
    };

    explicit Child(const std::function<void(const Line&)>& body) {
        int ends[2] = {-1, -1};
        EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
        process_ = ::fork();
        if (process_ == 0) {
            ::close(ends[0]);
            set_variable("RIO_DESTID", "new");  // as if on a host of its own
            if (is_linux()) set_variable("RIO_FABRIC", "linux:any");
            body(Line(ends[1]));
            ::_exit(::testing::Test::HasFailure() ? 1 : 0);
        }
        ::close(ends[1]);
        fd_ = ends[0];
    }
    Child(const Child&) = delete;
    Child& operator=(const Child&) = delete;
    ~Child() {
        if (process_ > 0) kill();
        ::close(fd_);
    }

    [[nodiscard]] Line line() const { return Line(fd_); }
    void say(std::uint64_t value) const { line().say(value); }
    [[nodiscard]] std::uint64_t hear() const { return line().hear(); }
    void kill() {
        ::kill(process_, SIGKILL);
        ::waitpid(process_, nullptr, 0);
        process_ = -1;
    }
    void stop() const {
        ::kill(process_, SIGSTOP);
        int status = 0;
        ::waitpid(process_, &status, WUNTRACED);
    }
    void resume() const { ::kill(process_, SIGCONT); }
    /// It ended by itself, within the deadline, and all its expectations held.
    [[nodiscard]] bool finish() {
        int status = -1;
        const bool ended = eventually([&] { return ::waitpid(process_, &status, WNOHANG) == process_; });
        if (ended) process_ = -1;
        return ended && WIFEXITED(status) && WEXITSTATUS(status) == 0;
    }

private:
    pid_t process_ = -1;
    int fd_ = -1;
};

}  // namespace incast::softrio

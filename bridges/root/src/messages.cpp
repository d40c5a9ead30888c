#include "messages.h"

#ifdef INCAST_ROOT_HAS_MESSAGES

#include <array>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <csignal>
#include <cstring>
#include <deque>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <poll.h>
#include <rapidio_mport_mgmt.h>
#include <rapidio_mport_sock.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

namespace incast_root {

namespace {

constexpr int look_ms = 100;  // how long a thread waits at most before it looks whether it should end
constexpr std::uint16_t first_channel = 4096, last_channel = 65000;

enum class What : std::uint16_t { data, acknowledged, end };

struct Frame {
    std::array<std::uint8_t, RIO_SOCKET_RSVD_SIZE> reserved;
    What what;
    std::uint16_t bytes;
    std::array<std::uint8_t, RIO_SOCKET_PAYLOAD_SIZE - 4> contents;
};
static_assert(sizeof(Frame) == RIO_SOCKET_MSG_SIZE);
constexpr std::size_t frame_header = sizeof(Frame) - sizeof(Frame::contents);

/// Threads of a library take no signals.
template <class Run>
std::thread quiet_thread(Run run) {
    sigset_t all, before;
    ::sigfillset(&all);
    ::pthread_sigmask(SIG_SETMASK, &all, &before);
    std::thread made(std::move(run));
    ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
    return made;
}

/// The endpoint of this process, opened when it is first asked for.
struct Port {
    riomp_mailbox_t mailbox = nullptr;
    did_val_t destid = 0;
    int error = 0;
};

const Port& port() {
    static const Port made = [] {
        Port port;
        riomp_mport_t handle = nullptr;
        riomp_mgmt_mport_properties is{};
        port.error = riomp_sock_mbox_create_handle(0, 0, &port.mailbox);
        if (port.error == 0) port.error = riomp_mgmt_mport_create_handle(0, 0, &handle);
        if (port.error == 0) port.error = riomp_mgmt_query(handle, &is);
        port.destid = is.did_val;
        return port;
    }();
    return made;
}

/// How many connections still have threads, in the process that started them: a child of a fork has none.
struct Living {
    std::mutex mutex;
    std::condition_variable fewer;
    int count = 0;
    pid_t process = 0;
};

Living& living() {
    static Living& all = *new Living;  // it is asked when the program ends
    return all;
}

class Carrier : public MessageConnection {
public:
    Carrier(riomp_sock_t socket, int inner, int outer) : socket_(socket), inner_(inner), outer_(outer) {}
    Carrier(const Carrier&) = delete;
    Carrier& operator=(const Carrier&) = delete;
    ~Carrier() override {
        ::close(inner_);
        riomp_sock_close(&socket_);
    }

    [[nodiscard]] int fd() const override { return outer_; }
    [[nodiscard]] bool is_lost() const override { return is_lost_; }

    static void start(const std::shared_ptr<Carrier>& self) {
        {
            const std::lock_guard lock(living().mutex);
            if (std::exchange(living().process, ::getpid()) != ::getpid()) living().count = 0;
            ++living().count;
        }
        quiet_thread([self = std::shared_ptr<Carrier>(self)]() mutable {
            std::thread incoming = quiet_thread([&self] { self->take_messages(); });
            self->send_messages();
            incoming.join();
            self.reset();
            const std::lock_guard lock(living().mutex);
            --living().count;
            living().fewer.notify_all();
        }).detach();
    }

private:
    int send(What what, Frame& frame, std::size_t bytes) {
        frame.what = what;
        frame.bytes = static_cast<std::uint16_t>(bytes);
        return riomp_sock_send(socket_, reinterpret_cast<rapidio_mport_socket_msg*>(&frame),
                               static_cast<std::uint32_t>(frame_header + bytes), nullptr);
    }

    void send_messages() {
        Frame frame{};
        while (!is_gone_) {
            const ssize_t bytes = ::read(inner_, frame.contents.data(), frame.contents.size());
            if (bytes < 0 && errno == EINTR) continue;
            if (bytes <= 0) break;  // ROOT has closed it
            if (send(What::data, frame, static_cast<std::size_t>(bytes)) != 0) return lose();
            std::unique_lock lock(mutex_);
            news_.wait(lock, [this] { return is_acknowledged_ || is_gone_; });
            is_acknowledged_ = false;
        }
        if (!is_gone_) send(What::end, frame, 0);
        is_closed_ = true;
    }

    void lose(bool has_ended = false) {
        const std::lock_guard lock(mutex_);
        if (!has_ended) is_lost_ = true;
        is_gone_ = true;
        news_.notify_all();
        ::shutdown(inner_, SHUT_RDWR);
    }

    /// Never waits for ROOT with an acknowledgement of the other direction behind it.
    void take_messages() {
        Frame frame{}, answer{};
        std::size_t given = 0, there = 0;  // of the bytes that came last
        bool has_ended = false;
        while (!is_closed_) {
            if (given < there) {
                const ssize_t bytes =
                    ::send(inner_, frame.contents.data() + given, there - given, MSG_DONTWAIT | MSG_NOSIGNAL);
                if (bytes < 0 && errno != EAGAIN && errno != EINTR) return;  // ROOT has closed it: the peer is reset
                if (bytes > 0) given += static_cast<std::size_t>(bytes);
                if (given == there && send(What::acknowledged, answer, 0) != 0) return lose();
            }
            Frame next{};
            auto* into = reinterpret_cast<rapidio_mport_socket_msg*>(&next);
            volatile int once = 1;
            const bool waits_for_root = given < there;
            if (waits_for_root) {
                pollfd room{inner_, POLLOUT, 0};
                ::poll(&room, 1, 1);
            }
            const int error = riomp_sock_receive(socket_, &into, waits_for_root ? 1 : look_ms, &once);
            if (error == -ETIME) continue;
            if (error != 0 || next.bytes > next.contents.size()) return lose(has_ended);
            if (next.what == What::acknowledged) {
                const std::lock_guard lock(mutex_);
                is_acknowledged_ = true;
                news_.notify_all();
            } else if (next.what == What::end) {
                has_ended = true;
                ::shutdown(inner_, SHUT_WR);
            } else if (waits_for_root) {
                return lose();  // it may send one at a time
            } else {
                frame = next;
                given = 0;
                there = next.bytes;
            }
        }
    }

    riomp_sock_t socket_;
    int inner_, outer_;
    std::mutex mutex_;
    std::condition_variable news_;
    bool is_acknowledged_ = false;
    std::atomic<bool> is_lost_ = false;    // the peer is gone without having ended
    std::atomic<bool> is_gone_ = false;    // the peer is gone
    std::atomic<bool> is_closed_ = false;  // ROOT's end is
};

std::shared_ptr<MessageConnection> carry(riomp_sock_t socket) {
    int ends[2];
    if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) {
        riomp_sock_close(&socket);
        return nullptr;
    }
    auto made = std::make_shared<Carrier>(socket, ends[0], ends[1]);
    Carrier::start(made);
    return made;
}

/// `cm://5:256`; -1: `*`.
bool read_address(const std::string& address, long& destid, long& channel) {
    const std::string scheme = "cm://";
    if (address.compare(0, scheme.size(), scheme) != 0) return false;
    const std::string rest = address.substr(scheme.size());
    const std::size_t colon = rest.find(':');
    const auto number = [](const std::string& text, long& into) {
        char* end = nullptr;
        into = text == "*" ? -1 : std::strtol(text.c_str(), &end, 10);
        return text == "*" || (!text.empty() && *end == 0 && into > 0 && into <= 65535);
    };
    return colon != std::string::npos && number(rest.substr(0, colon), destid) &&
           number(rest.substr(colon + 1), channel);
}

std::string said(const std::string& address, int error) {
    return address + ": " + std::strerror(-error);
}

class Arrivals : public MessageListener {
public:
    Arrivals(riomp_sock_t socket, std::string address) : socket_(socket), address_(std::move(address)) {
        event_ = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK | EFD_SEMAPHORE);
        accepting_ = quiet_thread([this] { accept(); });
    }
    Arrivals(const Arrivals&) = delete;
    Arrivals& operator=(const Arrivals&) = delete;
    ~Arrivals() override {
        is_closing_ = true;
        accepting_.join();
        for (const auto& one : waiting_)
            ::close(one->fd());
        ::close(event_);
        riomp_sock_close(&socket_);
    }

    [[nodiscard]] int fd() const override { return event_; }
    [[nodiscard]] std::string address() const override { return address_; }
    std::shared_ptr<MessageConnection> take() override {
        const std::lock_guard lock(mutex_);
        std::uint64_t one = 0;
        if (waiting_.empty() || ::read(event_, &one, sizeof one) != sizeof one) return nullptr;
        auto found = std::move(waiting_.front());
        waiting_.pop_front();
        return found;
    }

private:
    void accept() {
        while (!is_closing_) {
            riomp_sock_t arrived = nullptr;
            volatile int once = 1;
            const int error = riomp_sock_accept(socket_, &arrived, look_ms, &once);
            if (error != 0 || arrived == nullptr) {
                if (error != -ETIME && error != 0) std::this_thread::sleep_for(std::chrono::milliseconds(look_ms));
                continue;
            }
            auto made = carry(arrived);
            if (made == nullptr) continue;
            const std::lock_guard lock(mutex_);
            waiting_.push_back(std::move(made));
            const std::uint64_t one = 1;
            (void)!::write(event_, &one, sizeof one);
        }
    }

    riomp_sock_t socket_;
    std::string address_;
    int event_ = -1;
    std::mutex mutex_;
    std::deque<std::shared_ptr<MessageConnection>> waiting_;
    std::atomic<bool> is_closing_ = false;
    std::thread accepting_;
};

/// Null: why not.
riomp_sock_t make_socket(const std::string& address, std::string& why) {
    if (port().error != 0) return why = said(address, port().error), nullptr;
    riomp_sock_t made = nullptr;
    if (const int error = riomp_sock_socket(port().mailbox, &made)) return why = said(address, error), nullptr;
    return made;
}

}  // namespace

std::shared_ptr<MessageConnection> connect_messages(const std::string& address, std::string& why) {
    long destid = 0, channel = 0;
    if (!read_address(address, destid, channel) || destid < 0 || channel < 0)
        return why = address + ": allowed: cm://DESTID:CHANNEL", nullptr;
    riomp_sock_t made = make_socket(address, why);
    if (made == nullptr) return nullptr;
    const int error =
        riomp_sock_connect(made, static_cast<did_val_t>(destid), static_cast<std::uint16_t>(channel), nullptr);
    if (error != 0) {
        riomp_sock_close(&made);
        return why = error == -ETIME ? address + ": nobody has accepted within 3 s" : said(address, error), nullptr;
    }
    auto carried = carry(made);
    if (carried == nullptr) why = said(address, -errno);
    return carried;
}

std::unique_ptr<MessageListener> listen_for_messages(const std::string& address, std::string& why) {
    long destid = 0, channel = 0;
    if (!read_address(address, destid, channel)) return why = address + ": allowed: cm://DESTID:CHANNEL", nullptr;
    riomp_sock_t made = make_socket(address, why);
    if (made == nullptr) return nullptr;
    int error = destid < 0 || destid == static_cast<long>(port().destid) ? 0 : -EADDRNOTAVAIL;
    if (error == 0 && channel >= 0) error = riomp_sock_bind(made, static_cast<std::uint16_t>(channel));
    if (error == 0 && channel < 0) {
        channel = first_channel;
        while ((error = riomp_sock_bind(made, static_cast<std::uint16_t>(channel))) == -EBUSY && channel < last_channel)
            ++channel;
    }
    if (error == 0) error = riomp_sock_listen(made);
    if (error != 0) {
        riomp_sock_close(&made);
        return why = said(address, error == -EBUSY ? -EADDRINUSE : error), nullptr;
    }
    return std::make_unique<Arrivals>(made, "cm://" + std::to_string(port().destid) + ":" + std::to_string(channel));
}

void drain_messages(int timeout_ms) {
    std::unique_lock lock(living().mutex);
    if (living().process != ::getpid()) return;
    living().fewer.wait_for(lock, std::chrono::milliseconds(timeout_ms), [] { return living().count == 0; });
}

}  // namespace incast_root

#else

namespace incast_root {

namespace {
const char* const missing = ": this library was built without CM: SoftRIO's libmport was not there";
}

std::shared_ptr<MessageConnection> connect_messages(const std::string& address, std::string& why) {
    return why = address + missing, nullptr;
}

std::unique_ptr<MessageListener> listen_for_messages(const std::string& address, std::string& why) {
    return why = address + missing, nullptr;
}

void drain_messages(int) {}

}  // namespace incast_root

#endif

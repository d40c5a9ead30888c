#include "channel/api/cm.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sys/socket.h>

#include "channel/api/card.h"
#include "softrio/cpp/channel.h"
#include "softrio/cpp/port.h"

namespace incast::channel::api {

namespace {

namespace rio = incast::rio;

constexpr std::uint32_t moment_ms = 5;
constexpr std::uint32_t look_at_stop_ms = 50;  // whoever closes a listener waits for so long at most
constexpr int longest_exchange_ms = 5000;
constexpr std::uint16_t first_free_channel = 4096;
constexpr std::size_t most_bytes = rio::max_payload_bytes - 2;

/// Threads take no signals of the program.
template <class Run>
std::thread quiet_thread(Run&& run) {
    sigset_t all;
    sigset_t before;
    ::sigfillset(&all);
    ::pthread_sigmask(SIG_SETMASK, &all, &before);
    std::thread made(std::forward<Run>(run));
    ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
    return made;
}

/// Passes bytes both ways until either side ends, or nobody wants them any more.
void pass(rio::Socket& connection, const os::Descriptor& local, const std::atomic<bool>& stop) {
    rio::Letter letter;
    std::array<std::byte, 2> length{};
    for (int waited = 0; waited < longest_exchange_ms && !stop; waited += static_cast<int>(moment_ms)) {
        const std::span<std::byte> payload = letter.payload();
        const ssize_t count = ::recv(local.fd(), payload.data() + length.size(), most_bytes, MSG_DONTWAIT);
        if (count == 0) return;
        if (count > 0) {
            const auto bytes = static_cast<std::uint16_t>(count);
            std::memcpy(payload.data(), &bytes, sizeof bytes);
            if (connection.send(letter, length.size() + static_cast<std::size_t>(count))) return;
            continue;
        }
        const std::error_code error = connection.receive(letter, moment_ms);
        if (error == std::errc::timed_out) continue;
        std::uint16_t bytes = 0;
        std::memcpy(&bytes, letter.payload().data(), sizeof bytes);
        if (error || bytes > most_bytes) return;
        if (::send(local.fd(), letter.payload().data() + length.size(), bytes, MSG_NOSIGNAL) != bytes) return;
        waited = 0;
    }
}

}  // namespace

class CmPort {
public:
    CmPort(rio::MasterPort port, rio::Mailbox mailbox) : port_(std::move(port)), mailbox_(std::move(mailbox)) {}
    [[nodiscard]] std::uint16_t destid() const { return static_cast<std::uint16_t>(port_.destid()); }
    [[nodiscard]] rio::Socket socket() const { return mailbox_.socket(); }

private:
    rio::MasterPort port_;
    rio::Mailbox mailbox_;
};

namespace {

/// A thread that accepts, and one for each connection while it lasts.
class CmListener {
public:
    CmListener(std::shared_ptr<CmPort> port, rio::Socket socket, SocketName name)
        : port_(std::move(port)), socket_(std::move(socket)), name_(name) {
        thread_ = quiet_thread([this] { accept_all(); });
    }
    CmListener(const CmListener&) = delete;
    CmListener& operator=(const CmListener&) = delete;
    ~CmListener() {
        stop_ = true;
        thread_.join();
    }

private:
    void accept_all() {
        std::vector<std::pair<std::thread, std::shared_ptr<std::atomic<bool>>>> threads;
        while (!stop_) {
            rio::Socket made;
            const std::error_code error = socket_.accept(made, look_at_stop_ms);
            std::erase_if(threads, [](auto& each) {
                if (!*each.second) return false;
                each.first.join();
                return true;
            });
            if (error && error != std::errc::timed_out) break;
            if (error) continue;
            os::Descriptor local(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
            if (!local.is_open() || ::connect(local.fd(), name_.get(), name_.size) != 0) continue;
            auto is_done = std::make_shared<std::atomic<bool>>(false);
            threads.emplace_back(
                quiet_thread([this, connection = std::move(made), local = std::move(local), is_done]() mutable {
                    pass(connection, local, stop_);
                    *is_done = true;
                }),
                is_done);
        }
        for (auto& each : threads)
            each.first.join();
    }

    std::shared_ptr<CmPort> port_;
    rio::Socket socket_;
    SocketName name_;
    std::atomic<bool> stop_ = false;
    std::thread thread_;
};

/// With the id that RIO_DESTID asks for, which counts for those alone that join by RIO_FABRIC. The endpoint for data,
/// which joins later, has any free one.
std::string with_destid(const std::string& fabric) {
    const char* const text = std::getenv("RIO_DESTID");  // NOLINT(concurrency-mt-unsafe)
    const std::string_view destid = text == nullptr ? "" : text;
    if (destid.empty() || destid == "new" || fabric.find("destid=") != std::string::npos) return fabric;
    return fabric + (fabric.find('?') == std::string::npos ? '?' : '&') + "destid=" + std::string(destid);
}

}  // namespace

std::shared_ptr<CmPort> cm_port(const std::string& fabric) {
    static std::mutex mutex;
    static std::map<std::string, std::weak_ptr<CmPort>> known;
    const std::lock_guard guard(mutex);
    if (auto port = known[fabric].lock()) return port;
    errno = 0;
    auto port = rio::MasterPort::join(with_destid(fabric), O_NONBLOCK);
    if (!port) throw lack_failure(errno, port.error().message);
    auto mailbox = rio::Mailbox::open(*port);
    if (!mailbox) throw lack_failure(errno, mailbox.error().message);
    auto made = std::make_shared<CmPort>(std::move(*port), std::move(*mailbox));
    known[fabric] = made;
    return made;
}

std::uint16_t destid_of(const CmPort& port) {
    return port.destid();
}

Door open_door_of_cm(const std::shared_ptr<CmPort>& port, const Address& address) {
    if (!address.is_any_host && address.destid != port->destid()) {
        throw Failure{EADDRNOTAVAIL, address.text() + ": the destination id of this process is " +
                                         std::to_string(port->destid()) + " (RIO_DESTID)"};
    }
    Door door = open_door({.scheme = Scheme::shm, .host = {}, .is_any_host = true});
    const SocketName local = look_up(door.address, false).front();
    door.address = address;
    door.address.is_any_host = false;
    door.address.destid = port->destid();
    rio::Socket socket = port->socket();
    if (!socket.is_open()) throw system_failure(ENOMEM, address.text());
    if (address.port != 0) {
        if (const std::error_code error = socket.listen(address.port))
            throw system_failure(error == std::errc::device_or_resource_busy ? EADDRINUSE : error.value(),
                                 address.text());
    } else {
        std::uint32_t channel = first_free_channel;
        std::error_code error = std::make_error_code(std::errc::device_or_resource_busy);
        for (; error == std::errc::device_or_resource_busy && channel <= 65535; ++channel) {
            socket = port->socket();
            error = socket.listen(static_cast<std::uint16_t>(channel));
        }
        if (error) throw system_failure(error.value(), address.text());
        door.address.port = static_cast<std::uint16_t>(channel - 1);
    }
    door.keep = std::make_shared<CmListener>(port, std::move(socket), local);
    return door;
}

os::Descriptor call_by_cm(const std::shared_ptr<CmPort>& port, const Address& address) {
    std::array<int, 2> ends{};
    if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) != 0)
        throw system_failure(errno, address.text());
    os::Descriptor near(ends[0]);
    (void)::fcntl(near.fd(), F_SETFL, O_NONBLOCK);
    quiet_thread([port, address, far = os::Descriptor(ends[1])] {
        rio::Socket connection = port->socket();
        std::error_code error = std::make_error_code(std::errc::not_enough_memory);
        if (connection.is_open()) error = connection.connect(address.destid, address.port);
        const std::atomic<bool> never = false;
        if (!error) return pass(connection, far, never);
        // While nobody listens a connect goes on asking, to the end of its time.
        const int why = error == std::errc::timed_out        ? ECONNREFUSED
                        : error == std::errc::no_such_device ? EHOSTUNREACH
                                                             : error.value();
        const std::vector<std::byte> said =
            to_bytes({.what = Card::What::failed, .port = static_cast<std::uint32_t>(why)}, Blob{});
        (void)::send(far.fd(), said.data(), said.size(), MSG_NOSIGNAL);
    }).detach();
    return near;
}

}  // namespace incast::channel::api

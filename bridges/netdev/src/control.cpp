#include "control.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <fstream>

#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>

#include "failure.h"

namespace incast::netdev {

namespace {

constexpr std::string_view prefix = "incast-netdev/";
constexpr std::size_t longest_question = 16;
constexpr timeval patience{.tv_sec = 1, .tv_usec = 0};
constexpr timeval patience_for_answer{.tv_sec = 5, .tv_usec = 0};

struct Name {
    sockaddr_un address{};
    socklen_t size = 0;

    explicit Name(const std::string& device) {
        const std::string name = std::string(prefix) + device;
        address.sun_family = AF_UNIX;
        name.copy(address.sun_path + 1, sizeof address.sun_path - 1);
        size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
    }
    [[nodiscard]] const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&address); }
};

Descriptor make_socket() {
    Descriptor made(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (!made.is_open()) throw system_failure("a socket", errno);
    return made;
}

}  // namespace

Descriptor listen_for_questions(const std::string& device) {
    Descriptor made = make_socket();
    const Name name(device);
    if (::bind(made.fd(), name.get(), name.size) != 0 || ::listen(made.fd(), 8) != 0) {
        if (errno == EADDRINUSE) throw Failure(device + ": a program has a device of that name already");
        throw system_failure(device, errno);
    }
    return made;
}

void answer_one(const Descriptor& listener, const std::function<std::string(const std::string&)>& answer) {
    const Descriptor caller(::accept4(listener.fd(), nullptr, nullptr, SOCK_CLOEXEC));
    ucred who{};
    socklen_t size = sizeof who;
    if (!caller.is_open() || ::getsockopt(caller.fd(), SOL_SOCKET, SO_PEERCRED, &who, &size) != 0) return;
    if (who.uid != 0 && who.uid != ::geteuid()) return;
    ::setsockopt(caller.fd(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    ::setsockopt(caller.fd(), SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
    std::array<char, longest_question> text{};
    const ssize_t bytes = ::recv(caller.fd(), text.data(), text.size(), 0);
    if (bytes <= 0) return;
    const std::string said = answer(std::string(text.data(), static_cast<std::size_t>(bytes)));
    std::size_t sent = 0;
    while (sent < said.size()) {
        const ssize_t more = ::send(caller.fd(), said.data() + sent, said.size() - sent, MSG_NOSIGNAL);
        if (more <= 0) return;
        sent += static_cast<std::size_t>(more);
    }
}

std::string ask(const std::string& device, const std::string& question) {
    const Descriptor socket = make_socket();
    const Name name(device);
    if (::connect(socket.fd(), name.get(), name.size) != 0)
        throw Failure(device + ": no such device here; `incast netdev status` lists those of this network namespace");
    ::setsockopt(socket.fd(), SOL_SOCKET, SO_RCVTIMEO, &patience_for_answer, sizeof patience_for_answer);
    std::string said;
    std::array<char, 4096> text{};
    ssize_t bytes = ::send(socket.fd(), question.data(), question.size(), MSG_NOSIGNAL);
    while (bytes > 0) {
        bytes = ::recv(socket.fd(), text.data(), text.size(), 0);
        if (bytes > 0) said.append(text.data(), static_cast<std::size_t>(bytes));
    }
    if (bytes < 0 || said.empty())
        throw Failure(device + ": its program does not answer; it is of another user, or stopped");
    return said;
}

std::vector<std::string> devices_here() {
    std::vector<std::string> found;
    std::ifstream sockets("/proc/net/unix");
    const std::string mark = " @" + std::string(prefix);
    for (std::string line; std::getline(sockets, line);)
        if (const std::size_t at = line.find(mark); at != std::string::npos)
            found.push_back(line.substr(at + mark.size()));
    std::sort(found.begin(), found.end());
    found.erase(std::unique(found.begin(), found.end()), found.end());
    return found;
}

}  // namespace incast::netdev

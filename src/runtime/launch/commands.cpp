#include "runtime/launch/commands.h"

#include <array>
#include <cerrno>
#include <cstdio>
#include <optional>
#include <system_error>
#include <utility>

#include <fcntl.h>
#include <nlohmann/json.hpp>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

namespace incast::runtime {

CommandSocket::~CommandSocket() {
    if (listener_.is_open() && directory_.is_open()) {
        (void)::unlinkat(directory_.fd(), file_name, 0);
    }
}

Result<CommandSocket> CommandSocket::open(const std::filesystem::path& directory) {
    const auto failed = [](const char* what) {
        return Error{std::string(what) + ": " + std::generic_category().message(errno)};
    };
    CommandSocket made;
    made.directory_ = os::Descriptor(::open(directory.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
    os::Descriptor listener(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!made.directory_.is_open() || !listener.is_open()) {
        return failed("socket");
    }
    (void)::unlinkat(made.directory_.fd(), file_name, 0);  // of a run that was killed
    sockaddr_un at{};
    at.sun_family = AF_UNIX;
    // By the descriptor, as a path to the directory may be longer than the address has room for.
    (void)std::snprintf(at.sun_path, sizeof at.sun_path, "/proc/self/fd/%d/%s", made.directory_.fd(), file_name);
    // No name before nobody else may use it: the mode of a socket that is not bound is that of its file.
    if (::fchmod(listener.fd(), S_IRUSR | S_IWUSR) != 0 ||
        ::bind(listener.fd(), reinterpret_cast<const sockaddr*>(&at), sizeof at) != 0 ||
        ::listen(listener.fd(), static_cast<int>(max_waiting)) != 0) {
        return failed(file_name);
    }
    made.listener_ = std::move(listener);
    return made;
}

void CommandSocket::watch(std::vector<pollfd>& waiting) const {
    if (listener_.is_open()) {
        waiting.push_back({listener_.fd(), POLLIN, 0});
    }
    for (const os::Descriptor& one : waiting_) {
        waiting.push_back({one.fd(), POLLIN, 0});
    }
}

std::vector<CommandSocket::Request> CommandSocket::receive() {
    while (listener_.is_open()) {
        os::Descriptor one(::accept4(listener_.fd(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
        if (!one.is_open()) {
            break;
        }
        ucred who{};
        socklen_t size = sizeof who;
        const bool is_known = ::getsockopt(one.fd(), SOL_SOCKET, SO_PEERCRED, &who, &size) == 0;
        if (!is_known || (who.uid != ::geteuid() && who.uid != 0)) {
            continue;
        }
        if (waiting_.size() == max_waiting) {
            waiting_.erase(waiting_.begin());
        }
        waiting_.push_back(std::move(one));
    }
    std::vector<Request> asked;
    std::array<char, max_bytes> text{};
    for (std::size_t index = 0; index < waiting_.size();) {
        const ssize_t size = ::recv(waiting_[index].fd(), text.data(), text.size(), 0);
        if (size < 0 && (errno == EAGAIN || errno == EINTR)) {
            ++index;
            continue;
        }
        if (size > 0) {
            Json message = Json::parse(text.data(), text.data() + size, nullptr, false);
            asked.push_back({std::move(waiting_[index]), message.is_object() ? std::move(message) : Json(nullptr)});
        }
        waiting_.erase(waiting_.begin() + static_cast<std::ptrdiff_t>(index));
    }
    return asked;
}

void CommandSocket::answer(os::Descriptor& to, bool ok, const std::string& text) {
    if (to.is_open()) {
        const std::string packet =
            Json{{"ok", ok}, {"text", text}}.dump(-1, ' ', false, Json::error_handler_t::replace);
        (void)::send(to.fd(), packet.data(), packet.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    }
    to.close();
}

}  // namespace incast::runtime

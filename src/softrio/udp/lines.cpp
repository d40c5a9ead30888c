#include "softrio/udp/lines.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <utility>

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

namespace incast::softrio::udp {

namespace {

constexpr std::size_t read_bytes = 4096;
constexpr int buffer_bytes = 1 << 20;  // all endpoints of a fabric, to one that has just joined
constexpr int patience_ms = 10'000;    // a host that has vanished is noticed so late

void set(int fd, int level, int option, int value) {
    (void)::setsockopt(fd, level, option, &value, sizeof value);
}

Address end_of(int fd, int (*end)(int, sockaddr*, socklen_t*)) {
    sockaddr_storage at{};
    socklen_t bytes = sizeof at;
    return end(fd, reinterpret_cast<sockaddr*>(&at), &bytes) == 0 ? address_of(at) : Address{};
}

}  // namespace

Lines::Lines(os::Descriptor socket) : socket_(std::move(socket)) {
    set(fd(), SOL_SOCKET, SO_SNDBUF, buffer_bytes);
    set(fd(), SOL_SOCKET, SO_KEEPALIVE, 1);
    set(fd(), IPPROTO_TCP, TCP_KEEPIDLE, 2);
    set(fd(), IPPROTO_TCP, TCP_KEEPINTVL, 2);
    set(fd(), IPPROTO_TCP, TCP_USER_TIMEOUT, patience_ms);
    set(fd(), IPPROTO_TCP, TCP_NODELAY, 1);
}

Address Lines::local() const {
    return end_of(fd(), ::getsockname);
}

Address Lines::remote() const {
    return end_of(fd(), ::getpeername);
}

void Lines::say(std::string_view lines) {
    if (!is_open()) return;
    const ssize_t sent = ::send(fd(), lines.data(), lines.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent != static_cast<ssize_t>(lines.size())) close();
}

void Lines::receive() {
    if (!is_open()) return;
    std::array<char, read_bytes> bytes{};
    const ssize_t got = ::recv(fd(), bytes.data(), bytes.size(), MSG_DONTWAIT);
    if (got > 0) text_.append(bytes.data(), static_cast<std::size_t>(got));
    has_ended_ = got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR);
}

std::string_view take_word(std::string_view& line) {
    const std::string_view word = line.substr(0, line.find(' '));
    line.remove_prefix(std::min(line.size(), word.size() + 1));
    return word;
}

std::optional<std::uint32_t> number_of(std::string_view word, std::uint32_t low, std::uint32_t high) {
    std::uint32_t value = 0;
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
    if (error != std::errc{} || end != word.data() + word.size() || value < low || value > high) return std::nullopt;
    return value;
}

}  // namespace incast::softrio::udp

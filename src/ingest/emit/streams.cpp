#include "ingest/emit/streams.h"

#include <algorithm>
#include <cerrno>
#include <utility>

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>

#include "ingest/emit/sender.h"
#include "os/socket.h"

namespace incast::ingest {

namespace {

constexpr std::int64_t connect_within_ns = 10 * ns_per_s;
constexpr std::int64_t between_tries_ns = ns_per_s / 50;
constexpr std::size_t most_waiting_bytes = std::size_t{256} << 10U;
constexpr int look_again_ms = 200;  // whether it is to stop

}  // namespace

Result<Ok> Streams::connect(const datagram::Address& to) {
    const std::string name = datagram::to_string(to);
    const std::int64_t until = now_ns() + connect_within_ns;
    for (;;) {
        Result<os::Descriptor> socket = os::connect_to(name, static_cast<int>(connect_within_ns / 1'000'000));
        if (socket) {
            lines_.push_back({std::move(socket).value(), name, {}, 0});
            return Ok{};
        }
        if (now_ns() >= until || stop_ != 0) return socket.error();
        sleep_until(now_ns() + between_tries_ns);
    }
}

Result<Ok> Streams::add(std::size_t connection, std::span<const std::byte> bytes) {
    Line& line = lines_[connection];
    line.bytes.insert(line.bytes.end(), bytes.begin(), bytes.end());
    return line.waiting() < most_waiting_bytes ? Result<Ok>(Ok{}) : push(most_waiting_bytes);
}

std::uint64_t Streams::unsent_bytes() const {
    std::uint64_t bytes = 0;
    for (const Line& line : lines_) {
        bytes += line.waiting();
    }
    return bytes;
}

/// As much as there is room for.
Result<Ok> Streams::push(Line& line) {
    while (line.waiting() > 0) {
        const ssize_t sent =
            ::send(line.socket.fd(), line.bytes.data() + line.sent, line.waiting(), MSG_NOSIGNAL | MSG_DONTWAIT);
        if (sent >= 0) {
            line.sent += static_cast<std::size_t>(sent);
        } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
            break;
        } else if (errno != EINTR) {
            return Error{reason(("sending to " + line.to).c_str())};
        }
    }
    line.bytes.erase(line.bytes.begin(), line.bytes.begin() + static_cast<std::ptrdiff_t>(line.sent));
    line.sent = 0;
    return Ok{};
}

/// Until no connection has more to send than that.
Result<Ok> Streams::push(std::size_t most_waiting) {
    std::vector<pollfd> blocked;
    for (;;) {
        blocked.clear();
        bool is_done = true;
        for (Line& line : lines_) {
            if (Result<Ok> pushed = push(line); !pushed) return pushed;
            if (line.waiting() > 0) blocked.push_back({line.socket.fd(), POLLOUT, 0});
            is_done = is_done && line.waiting() <= most_waiting;
        }
        if (is_done) return Ok{};
        if (stop_ != 0) return Ok{};
        (void)::poll(blocked.data(), blocked.size(), look_again_ms);
    }
}

}  // namespace incast::ingest

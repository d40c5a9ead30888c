#include "softrio/udp/data_plane.h"

#include <array>
#include <cerrno>
#include <span>
#include <system_error>
#include <utility>

#include <sys/epoll.h>

namespace incast::softrio::udp {

namespace {

constexpr int most_rounds = 16;  // then others have their turn

Error system_error(const std::string& what, int error) {
    return Error{"SoftRIO: " + what + ": " + std::generic_category().message(error)};
}

}  // namespace

Result<std::unique_ptr<DataPlane>> DataPlane::open(const Address& at) {
    os::Descriptor poll(::epoll_create1(EPOLL_CLOEXEC));
    if (!poll.is_open()) return system_error("a switch", errno);
    return std::unique_ptr<DataPlane>(new DataPlane(at, std::move(poll)));
}

DataPlane::DataPlane(const Address& at, os::Descriptor poll) : at_(at), poll_(std::move(poll)) {
    at_.port = 0;
}

Result<std::uint16_t> DataPlane::open_socket(std::uint32_t destid) {
    auto made = std::make_unique<datagram::Socket>();
    epoll_event wanted{.events = EPOLLIN, .data = {.u32 = destid}};
    int error = made->bind(at_);
    if (error == 0 && ::epoll_ctl(poll_.fd(), EPOLL_CTL_ADD, made->fd(), &wanted) != 0) error = errno;
    if (error != 0) return system_error("a UDP port of the switch", error);
    const std::uint16_t port = made->local_port();
    sockets_.emplace(destid, std::move(made));
    return port;
}

Result<std::uint16_t> DataPlane::plug(std::uint32_t destid, const Address& at) {
    if (switch_.knows(at)) return Error{to_string(at) + " is another endpoint"};
    auto port = open_socket(destid);
    if (port) switch_.plug(destid, at);
    return port;
}

Result<std::uint16_t> DataPlane::rename(std::uint32_t before, std::uint32_t destid) {
    auto port = open_socket(destid);
    if (!port) return port;
    sockets_.erase(before);
    switch_.rename(before, destid);
    return port;
}

void DataPlane::unplug(std::uint32_t destid) {
    sockets_.erase(destid);
    switch_.unplug(destid);
}

void DataPlane::forward() {
    std::array<epoll_event, 64> events;
    for (int round = 0; round < most_rounds; ++round) {
        const int count = ::epoll_wait(poll_.fd(), events.data(), events.size(), 0);
        if (count <= 0) return;
        for (const epoll_event& each : std::span(events).first(static_cast<std::size_t>(count)))
            relay(each.data.u32, (each.events & EPOLLERR) != 0);
    }
}

void DataPlane::relay(std::uint32_t destid, bool has_errors) {
    datagram::Socket& socket = *sockets_.at(destid);
    // An endpoint that has ended: its connection says so, too, and that is what the others are told.
    if (has_errors) socket.take_refused([](const Address&, std::span<const std::byte>) {});
    (void)socket.receive([&](const Address& from, std::span<const std::byte> bytes) {
        const auto onward = switch_.forward(from, destid, bytes.size());
        if (!onward) return;
        datagram::Socket* source = sockets_.at(onward->source).get();
        source->add(onward->to, bytes, true);
        if (filled_.empty() || filled_.back() != source) filled_.push_back(source);
    });
    // Before the bytes, which lie where they were received, are overwritten.
    for (datagram::Socket* each : filled_)
        each->send();
    filled_.clear();
}

}  // namespace incast::softrio::udp

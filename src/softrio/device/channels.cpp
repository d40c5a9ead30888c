#include "softrio/device/channels.h"

#include <algorithm>
#include <cerrno>

#include <linux/rio_cm_cdev.h>
#include <poll.h>
#include <sys/ioctl.h>

#include "softrio/limits.h"
#include "softrio/shm/system.h"

namespace incast::softrio::device {

namespace {

using shm::now_ms;

constexpr std::int64_t slice_ms = 50;  // how often a wait looks whether the caller still wants it

bool is_set(const volatile int* stop) {
    return stop != nullptr && __atomic_load_n(stop, __ATOMIC_RELAXED) != 0;
}

/// `attempt` is given milliseconds and returns -ETIME after them. A stop that is set from the start allows one attempt.
template <class Attempt>
int in_slices(std::uint32_t timeout_ms, const volatile int* stop, Attempt&& attempt) {
    if (is_set(stop)) stop = nullptr;
    const bool ends = timeout_ms != 0 && stop == nullptr;
    const std::int64_t until = now_ms() + timeout_ms;
    while (true) {
        const std::int64_t left = ends ? std::max<std::int64_t>(until - now_ms(), 1) : slice_ms;
        const int error = attempt(static_cast<std::uint32_t>(std::min(left, slice_ms)));
        if (error == -EINTR) continue;
        if (error != -ETIME || is_set(stop) || (ends && now_ms() >= until)) return error;
    }
}

}  // namespace

int Socket::create(std::uint16_t channel) {
    give_up_channel();
    if (::ioctl(file_->fd(), RIO_CM_CHAN_CREATE, &channel) != 0) return -errno;
    channel_ = channel;
    return 0;
}

void Socket::give_up_channel() {
    if (channel_ != 0) (void)::ioctl(file_->fd(), RIO_CM_CHAN_CLOSE, &channel_);
    channel_ = 0;
    is_connected_ = false;
}

int Socket::told(int error) {
    const bool is_gone = error == -ENODEV || error == -EINVAL || error == -EAGAIN || error == -ECONNRESET;
    return is_gone ? -ECONNRESET : error;
}

int Socket::bind(std::uint16_t channel) {
    if (channel_ != 0) return -EINVAL;
    if (const int error = create(channel)) return error;
    rio_cm_channel bound{};
    bound.id = channel_;
    bound.mport_id = static_cast<std::uint8_t>(mport_);
    if (::ioctl(file_->fd(), RIO_CM_CHAN_BIND, &bound) == 0) return 0;
    const int error = errno;
    give_up_channel();
    return -error;
}

int Socket::listen() {
    return ::ioctl(file_->fd(), RIO_CM_CHAN_LISTEN, &channel_) == 0 ? 0 : -errno;
}

int Socket::accept(softrio::Socket& into, std::uint32_t timeout_ms, const volatile int* stop) {
    auto& connection = static_cast<Socket&>(into);
    if (connection.channel_ != 0) return -EINVAL;
    rio_cm_accept accepted{};
    const int error = in_slices(timeout_ms, stop, [&](std::uint32_t wait_ms) {
        accepted = {};
        accepted.ch_num = channel_;
        accepted.wait_to = wait_ms;
        return ::ioctl(file_->fd(), RIO_CM_CHAN_ACCEPT, &accepted) == 0 ? 0 : -errno;
    });
    if (error != 0) return error;
    connection.file_ = file_;
    connection.channel_ = accepted.ch_num;
    connection.is_connected_ = true;
    return 0;
}

int Socket::connect(std::uint32_t destid, std::uint16_t channel, const volatile int* stop) {
    if (is_connected_) return -EISCONN;
    while (true) {
        // One that was not answered stays in between, and can be used for no other attempt.
        if (const int error = create(0)) return error;
        rio_cm_channel remote{};
        remote.id = channel_;
        remote.remote_channel = channel;
        remote.remote_destid = static_cast<std::uint16_t>(destid);
        remote.mport_id = static_cast<std::uint8_t>(mport_);
        const int error = ::ioctl(file_->fd(), RIO_CM_CHAN_CONNECT, &remote) == 0 ? 0 : -errno;
        is_connected_ = error == 0;
        if (error == 0) return 0;
        give_up_channel();
        if (error == -EINTR) continue;
        if (error != -ETIME || stop == nullptr || is_set(stop)) return error;
    }
}

int Socket::send(std::span<const std::byte> message, const volatile int* stop) {
    if (message.size() < min_message || message.size() > max_message) return -EINVAL;
    if (!is_connected_) return -ENOTCONN;
    std::int64_t until = now_ms() + send_ms;
    while (true) {
        rio_cm_msg request{};
        request.ch_num = channel_;
        request.size = static_cast<std::uint16_t>(message.size());
        request.msg = reinterpret_cast<std::uintptr_t>(message.data());
        if (::ioctl(file_->fd(), RIO_CM_CHAN_SEND, &request) == 0) return 0;
        if (errno != EBUSY && errno != EINTR) return told(-errno);
        // 128 messages are on their way, and nothing tells when there is room.
        (void)::poll(nullptr, 0, 1);
        if (now_ms() < until) continue;
        if (is_set(stop)) return -ETIME;
        until = now_ms() + send_ms;
    }
}

int Socket::receive(std::span<std::byte> into, std::uint32_t timeout_ms, const volatile int* stop) {
    if (!is_connected_) return -ENOTCONN;
    return in_slices(timeout_ms, stop, [&](std::uint32_t wait_ms) {
        rio_cm_msg request{};
        request.ch_num = channel_;
        request.size = static_cast<std::uint16_t>(into.size());
        request.rxto = wait_ms;
        request.msg = reinterpret_cast<std::uintptr_t>(into.data());
        return ::ioctl(file_->fd(), RIO_CM_CHAN_RECEIVE, &request) == 0 ? 0 : told(-errno);
    });
}

}  // namespace incast::softrio::device

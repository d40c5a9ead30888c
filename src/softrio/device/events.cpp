#include "softrio/device/events.h"

#include <array>
#include <cerrno>
#include <span>

#include <fcntl.h>
#include <linux/rio_mport_cdev.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "softrio/limits.h"
#include "softrio/options.h"

namespace incast::softrio::device {

namespace {

constexpr std::uint32_t stop_mark = UINT32_MAX;

void ring(const os::Descriptor& bell) {
    const std::uint64_t one = 1;
    (void)!::write(bell.fd(), &one, sizeof one);
}

void silence(const os::Descriptor& bell) {
    std::uint64_t rings = 0;
    // NOLINTNEXTLINE(clang-analyzer-unix.BlockInCriticalSection): an eventfd with EFD_NONBLOCK
    (void)!::read(bell.fd(), &rings, sizeof rings);
}

}  // namespace

Events::~Events() {
    if (!thread_.joinable()) return;
    ring(stop_);
    thread_.join();
}

void Events::abandon() {
    if (thread_.joinable()) thread_.detach();
}

int Events::start() {
    if (thread_.joinable()) return 0;
    poll_ = os::Descriptor(::epoll_create1(EPOLL_CLOEXEC));
    stop_ = os::Descriptor(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    if (!poll_.is_open() || !stop_.is_open()) return errno;
    watch(EPOLL_CTL_ADD, stop_.fd(), stop_mark, true);
    thread_ = std::thread([this] { run(); });
    return 0;
}

void Events::watch(int operation, int fd, std::uint32_t sink, bool wanted) {
    epoll_event event{.events = wanted ? static_cast<std::uint32_t>(EPOLLIN) : 0, .data = {.u32 = sink}};
    (void)::epoll_ctl(poll_.fd(), operation, fd, &event);
}

void Events::run() {
    while (true) {
        std::array<epoll_event, 16> ready;
        const int count = ::epoll_wait(poll_.fd(), ready.data(), ready.size(), -1);
        if (count < 0 && errno != EINTR) return;
        const std::lock_guard lock(mutex_);
        for (const epoll_event& each : std::span(ready).first(count < 0 ? 0 : static_cast<std::size_t>(count))) {
            if (each.data.u32 == stop_mark) return;
            if (Sink* sink = find(each.data.u32)) take_in(each.data.u32, *sink);
        }
    }
}

/// One at a time: asked for more than there are, the driver does not return.
void Events::take_in(std::uint32_t number, Sink& sink) {
    while (sink.queue.size() < doorbell_depth) {
        rio_event event{};
        // NOLINTNEXTLINE(clang-analyzer-unix.BlockInCriticalSection): opened with O_NONBLOCK
        if (::read(sink.file.fd(), &event, sizeof event) != sizeof event) return;
        if (event.header != RIO_DOORBELL) continue;
        sink.queue.push_back({event.u.doorbell.rioid, event.u.doorbell.payload});
        if (sink.is_on_demand ? sink.is_armed : sink.queue.size() == 1) ring(sink.bell);
        sink.is_armed = false;
        changed_.notify_all();
    }
    sink.is_paused = true;
    watch(EPOLL_CTL_MOD, sink.file.fd(), number, false);
}

Events::Sink* Events::find(std::uint32_t sink) {
    const auto found = sinks_.find(sink);
    return found == sinks_.end() ? nullptr : &found->second;
}

int Events::open_sink(std::uint32_t& sink, bool on_demand) {
    const std::lock_guard lock(mutex_);
    if (const int error = start()) return -error;
    for (sink = 0; sink < max_sinks && sinks_.contains(sink); ++sink) {
    }
    if (sink == max_sinks) return -EBUSY;
    Sink made;
    made.file = os::Descriptor(::open(path_.c_str(), O_RDWR | O_CLOEXEC | O_NONBLOCK));
    if (!made.file.is_open()) return -errno;
    made.bell = os::Descriptor(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    if (!made.bell.is_open()) return -errno;
    made.is_on_demand = on_demand;
    watch(EPOLL_CTL_ADD, made.file.fd(), sink, true);
    sinks_.emplace(sink, std::move(made));
    return 0;
}

void Events::close_sink(std::uint32_t sink) {
    const std::lock_guard lock(mutex_);
    sinks_.erase(sink);
    changed_.notify_all();
}

int Events::arm(std::uint32_t sink) {
    const std::lock_guard lock(mutex_);
    Sink* found = find(sink);
    if (found == nullptr) return -EBADF;
    silence(found->bell);
    if (!found->queue.empty()) return 1;
    found->is_armed = true;
    return 0;
}

int Events::bell(std::uint32_t sink) {
    const std::lock_guard lock(mutex_);
    const Sink* found = find(sink);
    return found == nullptr ? -1 : found->bell.fd();
}

void Events::set_event_mask(std::uint32_t sink, std::uint32_t mask) {
    const std::lock_guard lock(mutex_);
    if (const Sink* found = find(sink)) (void)::ioctl(found->file.fd(), RIO_SET_EVENT_MASK, mask);
}

std::uint32_t Events::event_mask(std::uint32_t sink) {
    const std::lock_guard lock(mutex_);
    std::uint32_t mask = 0;
    if (const Sink* found = find(sink)) (void)::ioctl(found->file.fd(), RIO_GET_EVENT_MASK, &mask);
    return mask;
}

int Events::change_range(unsigned long request, std::uint32_t sink, std::uint32_t destid, std::uint16_t first,
                         std::uint16_t last) {
    const std::lock_guard lock(mutex_);
    const Sink* found = find(sink);
    if (found == nullptr) return -EBADF;
    const bool is_any = destid == small_any_destid || destid > max_destid;
    rio_doorbell_filter filter{};
    filter.rioid = static_cast<std::uint16_t>(is_any ? any_destid : destid);
    filter.low = first;
    filter.high = last;
    return ::ioctl(found->file.fd(), request, &filter) == 0 ? 0 : -errno;
}

int Events::enable_range(std::uint32_t sink, std::uint32_t destid, std::uint16_t first, std::uint16_t last) {
    return change_range(RIO_ENABLE_DOORBELL_RANGE, sink, destid, first, last);
}

int Events::disable_range(std::uint32_t sink, std::uint32_t destid, std::uint16_t first, std::uint16_t last) {
    return change_range(RIO_DISABLE_DOORBELL_RANGE, sink, destid, first, last);
}

int Events::get_doorbell(std::uint32_t sink, bool wait, Doorbell& doorbell) {
    std::unique_lock lock(mutex_);
    Sink* found = find(sink);
    while (found != nullptr && found->queue.empty()) {
        // A bell may have rung for what the kernel still has.
        take_in(sink, *found);
        if (!found->queue.empty()) break;
        if (!wait) return -EAGAIN;
        changed_.wait(lock);
        found = find(sink);
    }
    if (found == nullptr) return -EBADF;
    doorbell = found->queue.front();
    found->queue.pop_front();
    if (found->is_paused) {
        found->is_paused = false;
        watch(EPOLL_CTL_MOD, found->file.fd(), sink, true);
    }
    if (found->queue.empty() && !found->is_on_demand) silence(found->bell);
    return 0;
}

}  // namespace incast::softrio::device

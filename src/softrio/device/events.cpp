#include "softrio/device/events.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <set>
#include <span>
#include <utility>

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

/// Of this process: programs may end without closing anything.
struct Used {
    std::mutex mutex;
    std::set<Events*> all;
};

Used& used() {
    static auto& instance = *new Used;
    return instance;
}

}  // namespace

Events::~Events() {
    {
        const std::lock_guard lock(used().mutex);
        used().all.erase(this);
    }
    if (!thread_.joinable()) return;
    ring(stop_);
    thread_.join();
    for (auto& [number, sink] : sinks_)
        give_up_ranges(sink);
}

void Events::abandon() {
    used().all.erase(this);  // in a child there is no other thread
    if (thread_.joinable()) thread_.detach();
}

/// Ranges that a file does not give up stay taken when it is closed, until the driver is loaded anew (Linux 6.1).
void Events::give_up_ranges(Sink& sink) {
    for (rio_doorbell_filter& each : sink.ranges)
        (void)::ioctl(sink.file.fd(), RIO_DISABLE_DOORBELL_RANGE, &each);
    sink.ranges.clear();
}

void Events::give_up_all() {
    const std::lock_guard lock(used().mutex);
    for (Events* each : used().all) {
        const std::lock_guard its_lock(each->mutex_);
        for (auto& [number, sink] : each->sinks_)
            each->give_up_ranges(sink);
    }
}

int Events::start() {
    if (thread_.joinable()) return 0;
    poll_ = os::Descriptor(::epoll_create1(EPOLL_CLOEXEC));
    stop_ = os::Descriptor(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    if (!poll_.is_open() || !stop_.is_open()) return errno;
    watch(EPOLL_CTL_ADD, stop_.fd(), stop_mark, true);
    thread_ = std::thread([this] { run(); });
    static const int hooked = std::atexit(give_up_all);
    (void)hooked;
    const std::lock_guard lock(used().mutex);
    used().all.insert(this);
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

void Events::silence(Sink& sink) {
    std::uint64_t rings = 0;
    // NOLINTNEXTLINE(clang-analyzer-unix.BlockInCriticalSection): an eventfd with EFD_NONBLOCK
    if (std::exchange(sink.has_rung, false)) (void)!::read(sink.bell.fd(), &rings, sizeof rings);
}

/// One at a time: asked for more than there are, the driver does not return.
void Events::take_in(std::uint32_t number, Sink& sink) {
    while (sink.queue.size() < doorbell_depth) {
        rio_event event{};
        // NOLINTNEXTLINE(clang-analyzer-unix.BlockInCriticalSection): opened with O_NONBLOCK
        if (::read(sink.file.fd(), &event, sizeof event) != sizeof event) return;
        Event taken;
        taken.is_portwrite = event.header == RIO_PORTWRITE;
        if (taken.is_portwrite) {
            std::ranges::copy(event.u.portwrite.payload, taken.portwrite.begin());
        } else {
            taken.doorbell = {event.u.doorbell.rioid, event.u.doorbell.payload};
        }
        sink.queue.push_back(taken);
        if (sink.is_on_demand ? sink.is_armed : sink.queue.size() == 1) {
            ring(sink.bell);
            sink.has_rung = true;
        }
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
    if (Sink* found = find(sink)) give_up_ranges(*found);
    sinks_.erase(sink);
    changed_.notify_all();
}

int Events::arm(std::uint32_t sink) {
    const std::lock_guard lock(mutex_);
    Sink* found = find(sink);
    if (found == nullptr) return -EBADF;
    if (!found->is_on_demand) return -EINVAL;
    silence(*found);
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
    Sink* found = find(sink);
    if (found == nullptr) return -EBADF;
    const bool is_any = destid == small_any_destid || destid > max_destid;
    rio_doorbell_filter filter{};
    filter.rioid = static_cast<std::uint16_t>(is_any ? any_destid : destid);
    filter.low = first;
    filter.high = last;
    if (::ioctl(found->file.fd(), request, &filter) != 0) return -errno;
    if (request == RIO_ENABLE_DOORBELL_RANGE) {
        found->ranges.push_back(filter);
    } else {
        std::erase_if(found->ranges, [&](const rio_doorbell_filter& each) {
            return each.rioid == filter.rioid && each.low == filter.low && each.high == filter.high;
        });
    }
    return 0;
}

int Events::enable_range(std::uint32_t sink, std::uint32_t destid, std::uint16_t first, std::uint16_t last) {
    return change_range(RIO_ENABLE_DOORBELL_RANGE, sink, destid, first, last);
}

int Events::disable_range(std::uint32_t sink, std::uint32_t destid, std::uint16_t first, std::uint16_t last) {
    return change_range(RIO_DISABLE_DOORBELL_RANGE, sink, destid, first, last);
}

int Events::change_portwrites(bool enables, std::uint32_t sink, std::uint32_t mask, std::uint32_t low,
                              std::uint32_t high) {
    const std::lock_guard lock(mutex_);
    const Sink* found = find(sink);
    if (found == nullptr) return -EBADF;
    rio_pw_filter filter{};
    filter.mask = mask;
    filter.low = low;
    filter.high = high;
    const unsigned long request = enables ? RIO_ENABLE_PORTWRITE_RANGE : RIO_DISABLE_PORTWRITE_RANGE;
    return ::ioctl(found->file.fd(), request, &filter) == 0 ? 0 : -errno;
}

int Events::get_event(std::uint32_t sink, bool wait, Event& event) {
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
    event = found->queue.front();
    found->queue.pop_front();
    if (found->is_paused) {
        found->is_paused = false;
        watch(EPOLL_CTL_MOD, found->file.fd(), sink, true);
    }
    if (found->queue.empty()) silence(*found);
    return 0;
}

}  // namespace incast::softrio::device

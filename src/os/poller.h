// An epoll instance.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include <sys/epoll.h>

#include "os/descriptor.h"

namespace incast::os {

class Poller {
public:
    Poller() : epoll_(::epoll_create1(EPOLL_CLOEXEC)) {}
    [[nodiscard]] int fd() const { return epoll_.fd(); }

    [[nodiscard]] bool add(const Descriptor& descriptor, std::uint32_t events, std::uint64_t id) {
        epoll_event event{.events = events, .data = {.u64 = id}};
        return ::epoll_ctl(epoll_.fd(), EPOLL_CTL_ADD, descriptor.fd(), &event) == 0;
    }
    void remove(const Descriptor& descriptor) {
        (void)::epoll_ctl(epoll_.fd(), EPOLL_CTL_DEL, descriptor.fd(), nullptr);
    }
    /// Does not wait. Returns how many events it filled in.
    [[nodiscard]] std::size_t ready(std::span<epoll_event> events) {
        const int count = ::epoll_wait(epoll_.fd(), events.data(), static_cast<int>(events.size()), 0);
        return static_cast<std::size_t>(std::max(count, 0));
    }

private:
    Descriptor epoll_;
};

}  // namespace incast::os

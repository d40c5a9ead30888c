// Which of many descriptors are ready.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <poll.h>
#include <sys/epoll.h>

#include "os/descriptor.h"

namespace incast::os {

/// By epoll; or by poll, for what stands in place of sockets and knows no epoll: what is ready is then said again and
/// again (no EPOLLET), and there is no descriptor to sleep on.
class Poller {
public:
    enum class Kind : std::uint8_t { epoll, poll };
    explicit Poller(Kind kind = Kind::epoll) : epoll_(kind == Kind::epoll ? ::epoll_create1(EPOLL_CLOEXEC) : -1) {}
    /// -1: there is none.
    [[nodiscard]] int fd() const { return epoll_.fd(); }

    [[nodiscard]] bool add(const Descriptor& descriptor, std::uint32_t events, std::uint64_t id) {
        epoll_event event{.events = events, .data = {.u64 = id}};
        if (epoll_.is_open()) return ::epoll_ctl(epoll_.fd(), EPOLL_CTL_ADD, descriptor.fd(), &event) == 0;
        remove(descriptor);  // one that had the same number, and is closed
        polled_.push_back({descriptor.fd(), static_cast<short>(events & (EPOLLIN | EPOLLOUT | EPOLLRDHUP)), 0});
        ids_.push_back(id);
        return true;
    }
    void remove(const Descriptor& descriptor) {
        if (epoll_.is_open()) {
            (void)::epoll_ctl(epoll_.fd(), EPOLL_CTL_DEL, descriptor.fd(), nullptr);
            return;
        }
        for (std::size_t at = 0; at < polled_.size(); ++at)
            if (polled_[at].fd == descriptor.fd()) return forget(at);
    }
    /// Does not wait. Returns how many events it filled in.
    [[nodiscard]] std::size_t ready(std::span<epoll_event> events) {
        if (!epoll_.is_open()) return ask(events);
        const int count = ::epoll_wait(epoll_.fd(), events.data(), static_cast<int>(events.size()), 0);
        return static_cast<std::size_t>(std::max(count, 0));
    }

private:
    static_assert(EPOLLIN == POLLIN && EPOLLOUT == POLLOUT && EPOLLERR == POLLERR && EPOLLHUP == POLLHUP &&
                  EPOLLRDHUP == POLLRDHUP);
    void forget(std::size_t at) {
        polled_[at] = polled_.back();
        ids_[at] = ids_.back();
        polled_.pop_back();
        ids_.pop_back();
    }
    std::size_t ask(std::span<epoll_event> events) {
        if (::poll(polled_.data(), polled_.size(), 0) <= 0) return 0;
        std::size_t count = 0;
        // From where the last time ended, so that each has its turn.
        for (std::size_t left = polled_.size(); left > 0 && count < events.size() && !polled_.empty(); --left) {
            if (++next_ >= polled_.size()) next_ = 0;
            const short seen = polled_[next_].revents;
            if ((seen & POLLNVAL) != 0) {
                forget(next_);  // closed
            } else if (seen != 0) {
                events[count++] = {.events = static_cast<std::uint32_t>(seen), .data = {.u64 = ids_[next_]}};
            }
        }
        return count;
    }

    Descriptor epoll_;
    std::vector<pollfd> polled_;      // instead
    std::vector<std::uint64_t> ids_;  // of these
    std::size_t next_ = 0;
};

}  // namespace incast::os

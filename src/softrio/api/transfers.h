// What becomes of one DMA request: where it goes, when it is complete, and what its issuer is told.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>

#include "softrio/port.h"

namespace incast::softrio::api {

/// Moves it, to all members if it is for a multicast group, and returns what its issuer may know: without a response
/// nobody tells that there was no window.
int deliver(Port& port, const Transfer& transfer);

/// How an asynchronous transfer ended, once it has.
class Outcome {
public:
    /// It is told from `not_before_ns` on (monotonic clock; emulated links).
    explicit Outcome(std::int64_t not_before_ns) : not_before_ns_(not_before_ns) {}
    void set(int status);
    /// Nothing: not within `timeout_ms`.
    std::optional<int> wait(std::uint32_t timeout_ms);

private:
    std::mutex mutex_;
    std::condition_variable done_;
    std::optional<int> status_;
    std::int64_t not_before_ns_;
};

/// Until that time on the monotonic clock, as exactly as the host can; at once for one that is past.
void wait_until(std::int64_t time_ns);

/// Asynchronous transfers of one handle, by cookie (above 0). Those nobody waits for are forgotten in the end, the
/// oldest first. Cookies begin anew after 2^31, and pass over those that are still waited for.
class Cookies {
public:
    int add(std::shared_ptr<Outcome> outcome);
    /// Status, -ETIMEDOUT, or -EAGAIN: no such cookie.
    int wait(std::uint32_t cookie, std::uint32_t timeout_ms);
    /// As if there had been so many more: tests begin shortly before cookies do anew.
    void pass(std::uint64_t many) { last_ += many; }

private:
    using Outcomes = std::map<std::uint64_t, std::shared_ptr<Outcome>>;  // by number: 1 is the first transfer
    Outcomes::iterator find(std::uint32_t cookie);

    std::mutex mutex_;
    Outcomes outcomes_;
    std::uint64_t last_ = 0;
};

}  // namespace incast::softrio::api

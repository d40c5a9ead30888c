#include "softrio/api/transfers.h"

#include <cerrno>
#include <chrono>
#include <thread>

#include "softrio/shm/system.h"

namespace incast::softrio::api {

namespace {

constexpr std::size_t max_outcomes = 65536;  // of a handle that never waits
constexpr std::uint64_t max_cookie = 0x7FFF'FFFF;

std::uint32_t cookie_of(std::uint64_t number) {
    return static_cast<std::uint32_t>((number - 1) % max_cookie + 1);
}

}  // namespace

int deliver(Port& port, const Transfer& transfer) {
    if (const auto group = port.group(transfer.destid)) {
        Transfer one = transfer;
        for (const std::uint32_t member : group->members) {
            one.destid = member;
            (void)port.transfer(one);
        }
        return 0;
    }
    const int status = port.transfer(transfer);
    return status == -EIO && !transfer.has_response ? 0 : status;
}

void Outcome::set(int status) {
    const std::lock_guard lock(mutex_);
    status_ = status;
    done_.notify_all();
}

std::optional<int> Outcome::wait(std::uint32_t timeout_ms) {
    std::unique_lock lock(mutex_);
    done_.wait_for(lock, std::chrono::milliseconds(timeout_ms), [&] { return status_.has_value(); });
    if (status_ && not_before_ns_ > shm::now_ns()) {
        if (not_before_ns_ > shm::now_ns() + std::int64_t{timeout_ms} * 1'000'000) return std::nullopt;
        wait_until(not_before_ns_);
    }
    return status_;
}

void wait_until(std::int64_t time_ns) {
    // Sleeping ends late by about this much; the rest is spun.
    constexpr std::int64_t late_ns = 60'000;
    if (time_ns == 0) return;  // no emulated link: the clock costs as much as a short write
    for (std::int64_t left = time_ns - shm::now_ns(); left > 0; left = time_ns - shm::now_ns()) {
        if (left > late_ns) std::this_thread::sleep_for(std::chrono::nanoseconds(left - late_ns));
    }
}

int Cookies::add(std::shared_ptr<Outcome> outcome) {
    const std::lock_guard lock(mutex_);
    do {
        ++last_;
    } while (find(cookie_of(last_)) != outcomes_.end());
    outcomes_[last_] = std::move(outcome);
    if (outcomes_.size() > max_outcomes) outcomes_.erase(outcomes_.begin());
    return static_cast<int>(cookie_of(last_));
}

/// Of the numbers with that cookie, one every max_cookie.
Cookies::Outcomes::iterator Cookies::find(std::uint32_t cookie) {
    if (outcomes_.empty() || cookie == 0 || cookie > max_cookie) return outcomes_.end();
    const std::uint64_t first = outcomes_.begin()->first;
    const std::uint64_t ahead = (cookie + max_cookie - cookie_of(first)) % max_cookie;
    for (std::uint64_t number = first + ahead; number <= last_; number += max_cookie) {
        if (const auto found = outcomes_.find(number); found != outcomes_.end()) return found;
    }
    return outcomes_.end();
}

int Cookies::wait(std::uint32_t cookie, std::uint32_t timeout_ms) {
    std::shared_ptr<Outcome> outcome;
    {
        const std::lock_guard lock(mutex_);
        const auto found = find(cookie);
        if (found == outcomes_.end()) return -EAGAIN;
        outcome = found->second;
    }
    const auto status = outcome->wait(timeout_ms);
    if (!status) return -ETIMEDOUT;
    const std::lock_guard lock(mutex_);
    if (const auto found = find(cookie); found != outcomes_.end()) outcomes_.erase(found);
    return *status;
}

}  // namespace incast::softrio::api

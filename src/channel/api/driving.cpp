// Who drives a hub, and when it sleeps.
#include <algorithm>
#include <array>
#include <chrono>
#include <utility>

#include <poll.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "channel/api/core.h"
#include "transport/shm/shm.h"

namespace incast::channel::api {

namespace {

constexpr Time look_every = ps_per_ms;            // at sockets of the directory, while there is much to do
constexpr Time look_at_memory = 100 * ps_per_us;  // asleep, where memory is polled
constexpr Time without_descriptor = ps_per_ms;
constexpr Time rest_after_lead = ps_per_ms;
constexpr int settling_polls = 4;
constexpr Time shortest_pause = 100 * ps_per_ms;

void drain(const os::Descriptor& counter) {
    std::uint64_t count = 0;
    // It does not block: eventfd and timerfd were made so. NOLINTNEXTLINE(clang-analyzer-unix.BlockInCriticalSection)
    (void)!::read(counter.fd(), &count, sizeof count);
}

std::chrono::steady_clock::time_point point(Time time) {
    return std::chrono::steady_clock::time_point(std::chrono::nanoseconds(time / ps_per_ns));
}

}  // namespace

Time Core::now() {
    const auto since = std::chrono::steady_clock::now().time_since_epoch();
    return std::chrono::duration_cast<std::chrono::nanoseconds>(since).count() * ps_per_ns;
}

bool Core::poll() {
    const Time at = now();
    forgive(at);
    bool any = hub_ != nullptr && hub_->poll(at);
    // Where the hub has news, they woke who slept. What else there is wakes again.
    if (std::exchange(has_slept_, false) && !any) look_ = true;
    if (std::exchange(look_, false) || at >= next_look_) look_around(at);
    if (hub_ == nullptr) return any;
    take_peer_events();
    if (has_answers(choices_.scheme)) connect_remotes();
    if (!opening_.empty()) any |= advance(at);
    if (hub_->took_something()) {
        took_ = true;
        accept_all();
    }
    for (std::size_t left = pushing_.size(); left > 0; --left) {
        incast_channel* const channel = pushing_[left - 1];
        if (!push_rest(*channel)) continue;
        any = true;
        if (channel->is_given_back) close(channel, false);
    }
    return any;
}

bool Core::poll_unwoken() {
    if (std::exchange(is_armed_, false) && choices_.scheme == Scheme::shm && hub_ != nullptr)
        transport::shm::cancel_wait(*endpoint_.transport);
    return poll();
}

/// Whoever was stopped, or did not drive the hub, could not hear an answer: that counts as nobody's silence. But a time
/// becomes twice as long at most, or a program that seldom drives its hub would wait for ever.
void Core::forgive(Time at) {
    const Time pause = at - std::exchange(due_, at);
    if (pause < shortest_pause) return;
    for (incast_channel* const channel : opening_) {
        const Time more = std::min(pause, channel->spare);
        channel->spare -= more;
        channel->deadline = std::max(channel->deadline, at) + more;
    }
}

void Core::look_around(Time at) {
    next_look_ = at + look_every;
    std::array<epoll_event, 64> events;
    const std::size_t count = poller_.ready(events);
    look_ = count == events.size();
    for (const epoll_event& event : std::span(events).first(count)) {
        if (event.data.u64 == wake_id) {
            drain(wake_);
            is_woken_ = false;
        } else if (event.data.u64 == timer_id) {
            drain(timer_);
            timer_at_ = time_never;
        } else if (event.data.u64 >= directory_id) {
            directory_->ready(event.data.u64, at);
        }
    }
    take_directory_events();
    if (!look_) directory_->expire(at);  // all that had come was heard
    take_directory_events();
}

bool Core::prepare_wait() {
    if (look_ || (hub_ != nullptr && !hub_->prepare_wait())) return false;
    const Time at = now();
    Time next = directory_->next_deadline();
    for (const incast_channel* const channel : opening_)
        next = std::min({next, channel->deadline, channel->call_at});
    for (const Remote& remote : remotes_)
        if (!remote.theirs.bytes.empty() && !remote.is_asked) next = std::min(next, at + ps_per_ms);  // `again`
    if (hub_ != nullptr) {
        next = std::min(next, hub_->next_deadline());
        if (hub_->must_look()) next = std::min(next, at + look_at_memory);
        if (hub_->wait_fd() < 0) next = std::min(next, at + without_descriptor);
    }
    if (next <= at) {
        look_ = true;
        return false;
    }
    due_ = next;
    if (next != timer_at_) {
        timer_at_ = next;
        const Time ns = next == time_never ? 0 : std::max<Time>(next / ps_per_ns, 1);  // 0: never
        const itimerspec when{.it_interval = {},
                              .it_value = {.tv_sec = ns / 1'000'000'000, .tv_nsec = ns % 1'000'000'000}};
        (void)::timerfd_settime(timer_.fd(), TFD_TIMER_ABSTIME, &when, nullptr);
    }
    is_armed_ = true;
    return true;
}

void Core::wake() {
    if (std::exchange(is_woken_, true)) return;
    const std::uint64_t one = 1;
    (void)!::write(wake_.fd(), &one, sizeof one);
}

void Core::settle() {
    if (!is_armed_) return;  // somebody polls before it sleeps
    took_ = false;
    for (int turn = 0; turn < settling_polls; ++turn) {
        if (prepare_wait()) {
            if (took_) wake();  // what came may be what the one that sleeps waits for
            return;
        }
        (void)poll();
    }
    wake();
}

// --- the lead

void Core::lead_or_follow(std::unique_lock<std::mutex>& lock, Time until) {
    if (!has_leader_) return lead(lock, until);
    ++followers_;
    if (thread_leads_ && is_armed_) wake();
    if (until == time_never)
        told_.wait(lock);
    else
        (void)told_.wait_until(lock, point(until));
    --followers_;
}

/// Until something happened, or the time is over.
void Core::lead(std::unique_lock<std::mutex>& lock, Time until) {
    has_leader_ = true;
    ++leads_;
    const Time began = now();
    bool has_slept = false;
    while (!poll()) {
        const Time at = now();
        if (at >= until || stops_ || (thread_leads_ && followers_ > 0)) return end_lead();
        if (at - began >= spin_.now() && prepare_wait()) {
            sleep(lock, until);
            has_slept = true;
            (void)poll();
            break;
        }
        // Also where it cannot sleep: what there is to do may be another caller's, who waits for the lock.
        lock.unlock();
        if (callers_.load(std::memory_order_relaxed) > 0) std::this_thread::yield();
        lock.lock();
    }
    spin_.learn(now() - began, has_slept);
    if (callers_.load(std::memory_order_relaxed) > 0) {
        lock.unlock();
        std::this_thread::yield();
        lock.lock();
    }
    end_lead();
}

void Core::end_lead() {
    has_leader_ = false;
    last_lead_ = now();
    if (followers_ > 0)
        told_.notify_all();
    else if (rests_deep_)
        lead_is_free_.notify_one();
}

void Core::sleep(std::unique_lock<std::mutex>& lock, Time until) {
    lock.unlock();
    pollfd entry{.fd = poller_.fd(), .events = POLLIN, .revents = 0};
    const Time rest = until == time_never ? 0 : std::max<Time>(until - now(), 0);
    const timespec limit{.tv_sec = rest / ps_per_s, .tv_nsec = rest % ps_per_s / ps_per_ns};
    (void)::ppoll(&entry, 1, until == time_never ? nullptr : &limit, nullptr);
    lock.lock();
    is_armed_ = false;
    has_slept_ = true;
}

/// The own thread.
void Core::serve() {
    std::unique_lock lock(mutex_);
    while (!stops_) {
        if (!has_leader_ && followers_ == 0 && now() - last_lead_ >= rest_after_lead) {
            thread_leads_ = true;
            lead(lock, time_never);
            thread_leads_ = false;
            if (followers_ == 0) last_lead_ = 0;  // it goes on itself
            continue;
        }
        const std::uint64_t seen = leads_;
        (void)lead_is_free_.wait_for(lock, std::chrono::nanoseconds(rest_after_lead / ps_per_ns));
        if (!has_leader_ || leads_ != seen) continue;
        rests_deep_ = true;  // that lead is a long one: its end is told
        lead_is_free_.wait(lock, [this] { return stops_ || !has_leader_; });
        rests_deep_ = false;
    }
}

}  // namespace incast::channel::api

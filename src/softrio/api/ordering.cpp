#include "softrio/api/ordering.h"

#include <utility>

namespace incast::softrio::api {

WeakOrder::WeakOrder(std::shared_ptr<Port> port)
    : port_(std::move(port)), random_(port_->options().seed), thread_([this] { run(); }) {}

WeakOrder::~WeakOrder() {
    if (!thread_.joinable()) return;
    {
        const std::lock_guard lock(mutex_);
        ending_ = true;
        changed_.notify_all();
    }
    thread_.join();
    for (std::uint32_t channel = 0; channel < channels_.size(); ++channel) {
        while (!channels_[channel].held.empty())
            deliver_first(channel);
    }
}

void WeakOrder::abandon() {
    thread_.detach();
}

void WeakOrder::hold(const Transfer& transfer, bool copy, std::shared_ptr<Outcome> outcome) {
    Held held{.transfer = transfer, .copy = {}, .outcome = std::move(outcome), .until = Clock::now()};
    if (copy) {
        held.copy.assign(transfer.bytes.begin(), transfer.bytes.end());
        held.transfer.bytes = held.copy;  // moving a vector moves no bytes
    }
    const std::lock_guard lock(mutex_);
    const std::uint64_t most = port_->options().hold_us;
    held.until += std::chrono::microseconds(most / 2 + random_() % (most - most / 2));
    channels_[transfer.channel].held.push_back(std::move(held));
    changed_.notify_all();
}

void WeakOrder::deliver_first(std::uint32_t channel) {
    const std::lock_guard delivering(channels_[channel].delivering);
    Held held;
    {
        const std::lock_guard lock(mutex_);
        if (channels_[channel].held.empty()) return;
        held = std::move(channels_[channel].held.front());
        channels_[channel].held.pop_front();
    }
    const int status = deliver(*port_, held.transfer);
    if (held.outcome != nullptr) held.outcome->set(status);
}

int WeakOrder::deliver_behind(const Transfer& transfer) {
    Channel& channel = channels_[transfer.channel];
    const std::lock_guard delivering(channel.delivering);
    std::deque<Held> before;
    {
        const std::lock_guard lock(mutex_);
        before.swap(channel.held);
    }
    for (Held& each : before) {
        const int status = deliver(*port_, each.transfer);
        if (each.outcome != nullptr) each.outcome->set(status);
    }
    return deliver(*port_, transfer);
}

void WeakOrder::run() {
    std::unique_lock lock(mutex_);
    while (!ending_) {
        const Clock::time_point now = Clock::now();
        Clock::time_point next = Clock::time_point::max();
        std::uint32_t due = dma_channels;
        for (std::uint32_t channel = 0; channel < channels_.size(); ++channel) {
            if (channels_[channel].held.empty()) continue;
            const Clock::time_point until = channels_[channel].held.front().until;
            if (until < next) {
                next = until;
                due = channel;
            }
        }
        if (due == dma_channels) {
            changed_.wait(lock);
        } else if (now < next) {
            changed_.wait_until(lock, next);
        } else {
            lock.unlock();
            deliver_first(due);
            lock.lock();
        }
    }
}

}  // namespace incast::softrio::api

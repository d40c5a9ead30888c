// order=weak: what RapidIO allows, so that programs can be tested against it. A write without response is held back for
// a while after its call has returned, as it may be in the queues of a network: doorbells and messages overtake it, and
// so do the transfers of other DMA channels. Within one channel the order stays, and a response comes after all that
// was written before it on its channel.
//
// Here the library has a thread, the only one: what is held back has to arrive although its sender makes no more calls.
#pragma once

#include <array>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <random>
#include <thread>
#include <vector>

#include "softrio/api/transfers.h"

namespace incast::softrio::api {

class WeakOrder {
public:
    explicit WeakOrder(std::shared_ptr<Port> port);
    /// Delivers what is held back.
    ~WeakOrder();
    WeakOrder(const WeakOrder&) = delete;
    WeakOrder& operator=(const WeakOrder&) = delete;

    /// Holds it back. `copy`: its bytes may change when this returns. `outcome` may be nullptr.
    void hold(const Transfer& transfer, bool copy, std::shared_ptr<Outcome> outcome);
    /// Delivers what is held back on that channel, then this.
    int deliver_behind(const Transfer& transfer);
    /// In a child process after a fork, which has no such thread.
    void abandon();

private:
    using Clock = std::chrono::steady_clock;
    struct Held {
        Transfer transfer;
        std::vector<std::byte> copy;
        std::shared_ptr<Outcome> outcome;
        Clock::time_point until;
    };
    struct Channel {
        std::mutex delivering;  // keeps the order; taken before mutex_
        std::deque<Held> held;
    };

    void run();
    void deliver_first(std::uint32_t channel);

    std::shared_ptr<Port> port_;
    std::mutex mutex_;
    std::condition_variable changed_;
    bool ending_ = false;
    std::array<Channel, dma_channels> channels_;
    std::mt19937_64 random_;
    std::thread thread_;
};

}  // namespace incast::softrio::api

// An enumerating host in a thread, for tests.
#pragma once

#include <atomic>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <utility>

#include <gtest/gtest.h>

#include "softrio/udp/enumerator.h"

namespace incast::softrio::udp {

class HostThread {
public:
    enum class Kind : std::uint8_t { enumerator, with_switch };

    explicit HostThread(Kind kind = Kind::enumerator, std::uint32_t first = 1) {
        const auto at = parse_address("127.0.0.1:0", Ports::any_too);
        Enumerator::Observer observer;
        observer.refused = [this](const std::string& line) {
            const std::lock_guard lock(mutex_);
            refused_ += line + "\n";
        };
        std::unique_ptr<DataPlane> plane;
        if (kind == Kind::with_switch) plane = DataPlane::open(*at).value();
        auto made = Enumerator::listen(*at, first, std::move(observer), std::move(plane));
        EXPECT_TRUE(made.ok());
        enumerator_ = std::move(*made);
        address_ = enumerator_->address();
        thread_ = std::thread([this] { run(); });
    }
    HostThread(const HostThread&) = delete;
    HostThread& operator=(const HostThread&) = delete;
    ~HostThread() { end(); }
    void end() {
        ending_ = true;
        if (thread_.joinable()) thread_.join();
        enumerator_.reset();
    }

    [[nodiscard]] const Address& address() const { return address_; }
    std::string refused() {
        const std::lock_guard lock(mutex_);
        return refused_;
    }
    /// In its thread.
    void ask(const std::function<void(Enumerator&)>& use) {
        std::packaged_task<void()> task([&] { use(*enumerator_); });
        auto done = task.get_future();
        {
            const std::lock_guard lock(mutex_);
            task_ = std::move(task);
        }
        done.get();
    }
    /// An empty text: it worked.
    std::string program(std::string_view text) {
        auto table = RoutingTable::parse(text);
        if (!table) return table.error().message;
        std::string why;
        ask([&](Enumerator& host) {
            const auto done = host.program(std::move(*table));
            if (!done) why = done.error().message;
        });
        return why;
    }

private:
    void run() {
        while (!ending_) {
            enumerator_->serve(1);
            std::packaged_task<void()> task;
            {
                const std::lock_guard lock(mutex_);
                std::swap(task, task_);
            }
            if (task.valid()) task();
        }
    }

    std::mutex mutex_;
    std::string refused_;
    std::packaged_task<void()> task_;
    Address address_;
    std::unique_ptr<Enumerator> enumerator_;
    std::atomic<bool> ending_ = false;
    std::thread thread_;
};

}  // namespace incast::softrio::udp

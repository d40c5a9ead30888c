// The device as a whole: its queues, each in a thread, and what can be asked about it.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "settings.h"
#include "worker.h"

namespace incast::netdev {

class Device {
public:
    /// Makes the device and listens for peers. This thread then has no capability any more. Failure: why not.
    explicit Device(Settings settings);
    Device(const Device&) = delete;
    Device& operator=(const Device&) = delete;
    ~Device();

    /// Hands on frames until SIGINT, SIGTERM or SIGHUP comes, which the caller has blocked, or somebody says `down`.
    /// False: the device was deleted meanwhile.
    [[nodiscard]] bool run();
    /// One line: what it is.
    [[nodiscard]] std::string summary() const;

private:
    [[nodiscard]] std::string status() const;
    [[nodiscard]] std::string answer(const std::string& question);

    const Settings settings_;
    Descriptor questions_;
    Descriptor stop_;
    std::vector<std::unique_ptr<Worker>> workers_;
    std::vector<std::thread> threads_;
    std::atomic<bool> is_gone_ = false;
    bool is_wanted_ = true;
};

}  // namespace incast::netdev

// Channelised messages of the kernel: /dev/rio_cm.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "os/descriptor.h"
#include "softrio/port.h"

namespace incast::softrio::device {

/// A channel belongs to the file that made it: connections that a socket accepts live in its file.
class Socket final : public softrio::Socket {
public:
    Socket(os::Descriptor file, std::uint32_t mport)
        : file_(std::make_shared<os::Descriptor>(std::move(file))), mport_(mport) {}
    Socket(const Socket&) = delete;
    Socket& operator=(const Socket&) = delete;
    ~Socket() override { give_up_channel(); }

    [[nodiscard]] bool is_usable() const override { return file_->is_open(); }
    int bind(std::uint16_t channel) override;
    int listen() override;
    int accept(softrio::Socket& into, std::uint32_t timeout_ms, const volatile int* stop) override;
    int connect(std::uint32_t destid, std::uint16_t channel, const volatile int* stop) override;
    int send(std::span<const std::byte> message, const volatile int* stop) override;
    int receive(std::span<std::byte> into, std::uint32_t timeout_ms, const volatile int* stop) override;

private:
    int create(std::uint16_t channel);
    void give_up_channel();
    /// What an error of a channel means that was connected.
    [[nodiscard]] static int told(int error);

    std::shared_ptr<os::Descriptor> file_;
    std::uint32_t mport_;
    std::uint16_t channel_ = 0;  // 0: none
    bool is_connected_ = false;
};

}  // namespace incast::softrio::device

// Channelised messages (CM): one socket, and the connection it may have.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <span>

#include "softrio/shm/port.h"

namespace incast::softrio::shm {

/// How long a call may take, and who may end it before.
class Patience {
public:
    /// `timeout_ms` 0: no limit. `stop` may be nullptr. While it points to 0 there is no limit; where it does not point
    /// to 0 from the start, the time alone counts.
    Patience(std::uint32_t timeout_ms, const volatile int* stop);
    /// False: it is over.
    bool wait(std::atomic<std::uint32_t>& word, std::uint32_t value, int at_most_ms);

private:
    std::int64_t until_ = 0;  // 0: no limit
    const volatile int* stop_ = nullptr;
};

/// Two locks: one thread may send while another receives.
class Socket final : public softrio::Socket {
public:
    explicit Socket(std::shared_ptr<Port> port) : port_(std::move(port)) {}
    ~Socket() override;
    Socket(const Socket&) = delete;
    Socket& operator=(const Socket&) = delete;

    [[nodiscard]] bool is_usable() const override { return !port_->is_abandoned(); }
    std::int64_t arrival_ns(std::uint64_t bytes) override {
        return peer_ == nullptr ? 0 : port_->arrival_ns(Direction::write, peer_->destid(), bytes);
    }

    int bind(std::uint16_t channel) override;
    int listen() override;
    int accept(softrio::Socket& into, std::uint32_t timeout_ms, const volatile int* stop) override;
    int connect(std::uint32_t destid, std::uint16_t channel, const volatile int* stop) override;
    int send(std::span<const std::byte> message, const volatile int* stop) override;
    int receive(std::span<std::byte> into, std::uint32_t timeout_ms, const volatile int* stop) override;

private:
    int take_channel(std::uint16_t id);
    void give_up_channel();
    int make_ring();
    bool find_request(std::uint64_t& request);
    /// Accepts that request; false: whoever made it has given up.
    bool answer(std::uint64_t request, Socket& into);
    int join(std::shared_ptr<Peer> peer, const Channel& theirs);
    int join_nobody();
    int wait_for_answer(std::uint32_t destid, std::uint16_t channel, std::uint64_t mine, Patience& patience);
    [[nodiscard]] bool is_lost() const;

    std::shared_ptr<Port> port_;
    Channel* channel_ = nullptr;  // in this port's block
    std::uint16_t id_ = 0;        // its number
    SharedMemory memory_;         // of the ring
    std::shared_ptr<Mapping> mapping_;
    Ring* ring_ = nullptr;  // what is sent here
    std::shared_ptr<Peer> peer_;
    std::shared_ptr<Mapping> peer_mapping_;
    Ring* peer_ring_ = nullptr;  // what is sent from here
    std::uint16_t remote_channel_ = 0;
    std::mutex sending_;
    std::mutex receiving_;
    std::uint32_t written_ = 0;
    std::uint32_t read_ = 0;
};

}  // namespace incast::softrio::shm

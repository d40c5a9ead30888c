// A hub of ring channels that the loop of this program drives: case (a) of include/incast/channel.h.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <utility>

#include <incast/channel.h>
#include <incast/result.h>
#include <incast/transport.h>

namespace incast::farm {

inline constexpr int drain_ms = 5000;  // for what was written last to leave

inline Time steady_now() {
    return std::chrono::steady_clock::now().time_since_epoch() / std::chrono::nanoseconds(1) * ps_per_ns;
}

struct WireSettings {
    std::string settings;  // of the transport: NAME=VALUE,NAME=VALUE
    std::string bind;
    std::string fabric;
    std::uint64_t secret = 0;
    std::uint32_t most_peers = 255;  // what each transport has room for
};

class Wires {
public:
    /// Of the transport of that address.
    static Result<Wires> make(const std::string& address, const WireSettings& settings);
    Wires(Wires&& other) noexcept
        : hub_(std::exchange(other.hub_, nullptr)),
          listener_(std::exchange(other.listener_, nullptr)),
          sends_in_place_(other.sends_in_place_) {}
    Wires& operator=(Wires&&) = delete;
    ~Wires();

    /// Where it really listens.
    Result<std::string> listen(const std::string& address);
    /// Null: nobody calls.
    incast_channel* accept();
    Result<incast_channel*> connect(const std::string& address);

    /// Gives up the connection that a channel goes by, and the channel; all that was written in place is the caller's
    /// again. False: it is not.
    [[nodiscard]] bool give_up(incast_channel* channel);
    [[nodiscard]] bool sends_in_place() const { return sends_in_place_; }

    [[nodiscard]] int fd() const { return incast_channel_hub_fd(hub_); }
    /// `is_woken`: the descriptor is, or may be, readable.
    void poll(bool is_woken) {
        (void)(is_woken ? incast_channel_hub_poll(hub_) : incast_channel_hub_poll_unwoken(hub_));
    }
    /// After a poll: a channel that something became of; null: there is none left.
    incast_channel* next_ready();
    /// False: there is something to do already.
    [[nodiscard]] bool prepare_wait() { return incast_channel_hub_prepare_wait(hub_) == 1; }
    /// Until what was written to channels that were closed has left, or the time is over.
    void drain(int timeout_ms) { (void)incast_channel_hub_drain(hub_, timeout_ms); }

private:
    explicit Wires(incast_channel_hub* hub) : hub_(hub) {
        incast_channel_hub_info info{};
        sends_in_place_ = incast_channel_hub_get_info(hub, &info) == 0 && info.sends_in_place == 1;
    }
    incast_channel_hub* hub_;
    incast_channel_listener* listener_ = nullptr;
    bool sends_in_place_ = false;
};

}  // namespace incast::farm

// Channelised messages between a kernel's rio_cm and endpoints of this fabric, as they pass by. The two have the same
// header, and differ in what they say with it. Here a side sends 128 messages more than it was told were read, and
// a request to connect has a number, is repeated until it is accepted, and may be withdrawn. A kernel knows of no
// credits, asks once, answers with no number, and takes a withdrawal for the end of its listener.
//
// So messages that a kernel was handed count as read; what it sends waits for credit; requests reach it once, and
// its answers get their number back. Without sockets or threads, for one lock.
#pragma once

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <vector>

#include "softrio/limits.h"
#include "softrio/udp/channels.h"

namespace incast::softrio::udp {

class KernelChannels {
public:
    using Header = std::array<std::byte, min_message>;

    /// For the kernel? What is not is done with. A note is to go back to the one that it came from.
    bool hand_in(std::uint32_t source, std::span<const std::byte> message, std::optional<Header>& note);
    enum class Way : std::uint8_t { go, wait };
    /// From the kernel; its header is made what an endpoint expects. Wait: the other side has as much as it may have;
    /// again after the next hand_in.
    Way hand_out(std::uint32_t target, std::span<std::byte> message);
    /// What the kernel is to be told when that endpoint has gone.
    std::vector<Header> lose_peer(std::uint32_t destid);

private:
    struct Ends {
        std::uint32_t peer = 0;
        std::uint16_t theirs = 0;  // channel
        std::uint16_t ours = 0;
        auto operator<=>(const Ends&) const = default;
    };
    struct Flow {
        std::uint32_t kernel = 0;    // destination id of this side
        std::uint16_t received = 0;  // numbers of messages, as they are said
        std::uint16_t told = 0;
        std::uint16_t sent = 0;
        std::uint16_t freed = 0;
    };
    static constexpr std::size_t max_flows = std::size_t{max_channels} * 64;

    void connect(const Ends& ends, std::uint32_t kernel);

    std::map<Ends, Flow> flows_;
    /// Numbers of requests, by who asked. 0: a kernel, which gives none.
    std::map<std::pair<std::uint32_t, std::uint16_t>, std::uint16_t> asked_;
};

}  // namespace incast::softrio::udp

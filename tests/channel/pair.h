// Two hubs on two endpoints of one transport, in one thread.
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <functional>
#include <iostream>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

#include "base/prng.h"
#include "channel/hub/hub.h"
#include "transport/builtin/builtin.h"
#include "transport/medium.h"

namespace incast::channel {

inline Time now() {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
               .count() *
           ps_per_ns;
}

inline constexpr std::uint32_t port = 7;

struct Recipe {
    std::string name;
    std::string transport;
    transport::Settings settings;
};

struct Side {
    std::unique_ptr<Transport> endpoint;
    std::unique_ptr<Hub> hub;
    std::vector<Event> peers;  // what the hub said of peers

    void end() {
        hub.reset();
        endpoint.reset();
    }
    bool poll() {
        if (hub == nullptr) return false;
        const bool any = hub->poll(now());
        while (const auto event = hub->next_peer_event())
            peers.push_back(event->event);
        return any;
    }
    [[nodiscard]] bool saw(Event::Kind kind) const {
        return std::ranges::any_of(peers, [&](const Event& each) { return each.kind == kind; });
    }
};

/// An endpoint and its hub.
inline Side make_side(transport::Medium& medium, std::uint32_t self, const HubSettings& settings = {}) {
    Side side;
    const auto log = [self](std::string_view line) { std::cerr << "endpoint " << self << ": " << line << "\n"; };
    auto endpoint = medium.endpoint({.self = Peer{self}, .run = 9, .token = 5, .max_peers = 4, .log = log});
    EXPECT_TRUE(endpoint) << endpoint.error().message;
    side.endpoint = std::move(*endpoint);
    side.hub = std::make_unique<Hub>(*side.endpoint, Peer{self}, settings);
    return side;
}

inline std::unique_ptr<transport::Medium> make_medium(const Recipe& recipe) {
    auto made = transport::make_medium(*transport::find_transport(recipe.transport), recipe.settings);
    EXPECT_TRUE(made) << made.error().message;
    return std::move(*made);
}

class Pair {
public:
    explicit Pair(const Recipe& recipe, const HubSettings& settings = {}) {
        medium_ = make_medium(recipe);
        for (std::uint32_t each = 0; each < 2; ++each)
            sides[each] = make_side(*medium_, each, settings);
        for (std::uint32_t each = 0; each < 2; ++each)
            (void)sides[each].endpoint->connect(Peer{1 - each}, sides[1 - each].endpoint->address(), 1);
        EXPECT_TRUE(until([&] { return sides[0].saw(Event::Kind::peer_up) && sides[1].saw(Event::Kind::peer_up); }));
    }

    void pump() {
        for (Side& side : sides)
            (void)side.poll();
    }
    /// False after 20 s.
    bool until(const std::function<bool()>& is_so) {
        for (const Time end = now() + 20 * ps_per_s; now() < end;) {
            if (is_so()) return true;
            pump();
        }
        return is_so();
    }
    /// The shapes that can be had: in simulation bodies do not move.
    [[nodiscard]] Options options(Way way = Way::doorbell, Kind kind = Kind::bytes) const {
        const bool is_phantom = sides[0].endpoint->capabilities().phantom_bodies;
        const Shape shape = is_phantom ? Shape{.buffers = 8, .buffer_bytes = 64, .batch = 2}
                                       : Shape{.buffers = 4, .buffer_bytes = 1024, .batch = 1};
        return {.shape = shape, .kind = kind, .announce = way, .acknowledge = way};
    }
    /// A channel from the first side to the second.
    std::array<Id, 2> join(const Options& options) {
        (void)sides[1].hub->listen(port, options.kind);
        const auto id = sides[0].hub->connect(Peer{1}, port, options);
        EXPECT_TRUE(id) << id.error().message;
        std::optional<Id> accepted;
        EXPECT_TRUE(until([&] {
            if (!accepted) accepted = sides[1].hub->accept(port);
            return accepted && sides[0].hub->is_open(*id);
        }));
        return {*id, accepted.value_or(Id{})};
    }
    Hub& hub(std::size_t side) { return *sides[side].hub; }

    std::array<Side, 2> sides;

private:
    std::unique_ptr<transport::Medium> medium_;
};

/// What one side writes and the other reads, cut anywhere.
class Stream {
public:
    Stream(std::uint64_t seed, std::size_t bytes) : random_(seed) {
        for (std::size_t at = 0; at < bytes; ++at)
            bytes_.push_back(static_cast<std::byte>(base::mix64(seed + at)));
    }
    void write(Hub& hub, Id id) {
        const Bytes left = Bytes(bytes_).subspan(written_);
        written_ += hub.write(id, left.first(std::min<std::size_t>(left.size(), 1 + random_.below(3000))));
        if (written_ == bytes_.size()) hub.finish(id);
    }
    void read(Hub& hub, Id id) {
        std::vector<std::byte> into(1 + random_.below(3000));
        const std::size_t count = hub.read(id, into);
        ASSERT_LE(read_ + count, bytes_.size());
        ASSERT_TRUE(std::equal(into.begin(), into.begin() + static_cast<std::ptrdiff_t>(count),
                               bytes_.begin() + static_cast<std::ptrdiff_t>(read_)))
            << "behind byte " << read_;
        read_ += count;
    }
    [[nodiscard]] bool is_read() const { return read_ == bytes_.size(); }

private:
    base::Prng random_;
    std::vector<std::byte> bytes_;
    std::size_t written_ = 0;
    std::size_t read_ = 0;
};

}  // namespace incast::channel

// What the tests of the transport rio share: its endpoints in one thread, in a fabric of their own.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "transport/rio/rio.h"

namespace incast::transport::rio {

inline Time now() {
    static const auto begin = std::chrono::steady_clock::now();
    return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now() - begin).count() *
           ps_per_ns;
}

/// A fabric that no other test is in.
inline std::string fresh_fabric() {
    std::random_device random;  // a name, which decides nothing
    return "shm:test-" + std::to_string(random()) + "-" + std::to_string(random());
}

struct Node {
    Node(std::uint32_t index, Settings settings, std::string fabric, std::uint32_t incarnation = 1) {
        settings["fabric"] = std::move(fabric);
        auto medium = make(settings);
        EXPECT_TRUE(medium) << medium.error().message;
        EndpointOptions options{.self = Peer{index}, .incarnation = incarnation, .max_peers = 8, .log = {}};
        options.log = [this](std::string_view line) { said.emplace_back(line); };
        auto made = (*medium)->endpoint(options);
        EXPECT_TRUE(made) << made.error().message;
        endpoint = std::move(*made);
    }
    std::vector<Event> poll() {
        std::array<Event, 64> events;
        const std::size_t count = endpoint->poll(now(), events);
        for (std::size_t each = 0; each < count; ++each)
            downs += events[each].kind == Event::Kind::peer_down ? 1 : 0;
        return {events.begin(), events.begin() + static_cast<std::ptrdiff_t>(count)};
    }
    std::vector<std::string> said;
    int downs = 0;  // peers lost, whoever polled
    std::unique_ptr<Transport> endpoint;
};

/// Polls the nodes until one of that kind comes to the first; false after 20 s.
inline bool comes(std::initializer_list<Node*> nodes, Event::Kind kind) {
    for (const Time until = now() + 20 * ps_per_s; now() < until;) {
        bool seen = false;
        for (Node* node : nodes) {
            for (const Event& event : node->poll())
                seen = seen || (node == *nodes.begin() && event.kind == kind);
        }
        if (seen) return true;
    }
    return false;
}

inline void join(Node& a, std::uint32_t a_index, Node& b, std::uint32_t b_index) {
    ASSERT_EQ(a.endpoint->connect(Peer{b_index}, b.endpoint->address(), 1), Post::pending);
    ASSERT_EQ(b.endpoint->connect(Peer{a_index}, a.endpoint->address(), 1), Post::pending);
    ASSERT_TRUE(comes({&a, &b}, Event::Kind::peer_up));
}

}  // namespace incast::transport::rio

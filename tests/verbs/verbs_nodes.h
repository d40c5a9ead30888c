// Nodes on the mock device, and what tests do with them.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "mock_verbs.h"
#include "transport/verbs/verbs.h"

namespace incast::transport::verbs {

namespace mock = incast::mock_verbs;
inline constexpr Time step = 10 * ps_per_ms;
inline constexpr int patience = 10'000;  // polls

struct Node {
    std::unique_ptr<Medium> medium;
    std::unique_ptr<Transport> endpoint;
    std::vector<std::string> lines;
    std::uint32_t incarnation = 1;
    Local own{};
    std::map<std::uint32_t, Remote> remote;
    std::vector<Event> events;
    std::vector<std::string> messages;
};

/// Nodes of one thread on the mock device, in a time of their own.
class Verbs : public testing::Test {
protected:
    void SetUp() override {
        mock::reset();
        mock::keep_violations(true);
    }
    void TearDown() override {
        nodes_.clear();
        EXPECT_THAT(mock::violations(), testing::IsEmpty());
        mock::reset();
        mock::keep_violations(false);
    }

    static Result<std::unique_ptr<Transport>> endpoint(const Settings& settings, const EndpointOptions& options) {
        auto medium = make(settings);
        return medium ? (*medium)->endpoint(options) : Result<std::unique_ptr<Transport>>(medium.error());
    }
    /// The line with which no endpoint is made.
    static std::string refusal(const Settings& settings = {}, std::uint32_t max_peers = 64) {
        EndpointOptions options;
        options.max_peers = max_peers;
        const auto made = endpoint(settings, options);
        return made ? "" : made.error().message;
    }

    Node& node(std::uint32_t number, Settings settings = {}, std::uint64_t token = 5) {
        settings.insert(way_.begin(), way_.end());
        Node& made = nodes_[number];
        EndpointOptions options;
        options.self = Peer{number};
        options.incarnation = made.incarnation;
        options.run = 3;
        options.token = token;
        options.max_peers = 4;
        options.log = [&made](std::string_view line) { made.lines.emplace_back(line); };
        made.medium = make(settings).value();
        made.endpoint = made.medium->endpoint(options).value();
        return made;
    }
    bool poll_once() {
        now_ += step;
        bool any = false;
        for (auto& [number, node] : nodes_) {
            if (node.endpoint == nullptr) continue;
            std::array<Event, 16> events;
            const std::size_t count = node.endpoint->poll(now_, events);
            any = any || count > 0;
            for (const Event& event : std::span(events).first(count)) {
                node.events.push_back(event);
                if (event.kind == Event::Kind::message)
                    node.messages.emplace_back(reinterpret_cast<const char*>(event.data), event.size_or_value);
            }
        }
        return any;
    }
    /// The system's sockets take real time, which here stands still meanwhile.
    template <class Done>
    bool until(Done done) {
        const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(way_.empty() ? 0 : 30);
        for (int polls = 0; polls < patience || std::chrono::steady_clock::now() < deadline; ++polls) {
            if (done()) return true;
            poll_once();
            if (polls > patience / 2) std::this_thread::yield();
        }
        return false;
    }
    /// The first event of that kind, which is forgotten.
    static bool take(Node& node, Event::Kind kind, std::uint32_t peer) {
        for (auto at = node.events.begin(); at != node.events.end(); ++at) {
            if (at->kind != kind || static_cast<std::uint32_t>(at->peer) != peer) continue;
            last = *at;
            node.events.erase(at);
            return true;
        }
        return false;
    }
    void expect(std::uint32_t number, Event::Kind kind, std::uint32_t peer) {
        EXPECT_TRUE(until([&] { return take(nodes_[number], kind, peer); }))
            << "node " << number << ", kind " << static_cast<int>(kind);
    }
    Post connect(std::uint32_t from, std::uint32_t to) {
        Post post = Post::again;
        until([&] {
            post = nodes_[from].endpoint->connect(Peer{to}, nodes_[to].endpoint->address(), nodes_[to].incarnation);
            return post != Post::again;
        });
        return post;
    }
    void join(std::uint32_t a, std::uint32_t b) {
        ASSERT_EQ(connect(a, b), Post::pending);
        ASSERT_EQ(connect(b, a), Post::pending);
        expect(a, Event::Kind::peer_up, b);
        expect(b, Event::Kind::peer_up, a);
    }
    /// Each has a region that the other may write to.
    void share(std::uint32_t a, std::uint32_t b, std::size_t bytes = 65536) {
        for (const auto& [owner, user] : {std::pair(a, b), std::pair(b, a)}) {
            nodes_[owner].own = nodes_[owner].endpoint->allocate(bytes).value();
            const Blob key = nodes_[owner].endpoint->expose(nodes_[owner].own).value();
            nodes_[user].remote[owner] = nodes_[user].endpoint->import_key(Peer{owner}, key).value();
        }
    }
    void pair(const Settings& settings = {}) {
        node(0, settings);
        node(1, settings);
        join(0, 1);
        share(0, 1);
    }
    Post write(std::uint32_t from, std::uint32_t to, std::uint32_t bytes, Notice notice = std::nullopt,
               Token token = 0) {
        Node& node = nodes_[from];
        return node.endpoint->write(Peer{to}, {}, {node.own, bytes, 0}, {node.remote[to], 0}, notice, token);
    }
    Post send(std::uint32_t from, std::uint32_t to, const std::string& text) {
        return nodes_[from].endpoint->send(Peer{to}, std::as_bytes(std::span(text)));
    }
    /// Both say that the other is down; then all of it works again.
    void expect_a_new_beginning() {
        expect(0, Event::Kind::peer_down, 1);
        expect(1, Event::Kind::peer_down, 0);
        for (Node* each : {&nodes_[0], &nodes_[1]})
            each->events.clear();
        join(0, 1);
        ASSERT_EQ(write(0, 1, 100, std::uint16_t{9}, 1), Post::pending);
        expect(1, Event::Kind::notice, 0);
        expect(0, Event::Kind::completed, 1);
        for (Node* each : {&nodes_[0], &nodes_[1]})
            each->events.clear();
    }

    Settings way_;  // to connect, of every node
    std::map<std::uint32_t, Node> nodes_;
    Time now_ = 0;
    static inline Event last{};
};

}  // namespace incast::transport::verbs

// What the tests of this folder share: actors that drive endpoints of a world by hand.
#pragma once

#include <array>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "sim/world.h"

namespace incast::sim::testing {

/// Polls its endpoint and keeps what it saw; messages are copied.
class Listener final : public Actor {
public:
    struct Seen {
        Time time = 0;
        Event event{};
        std::string message;
    };

    Listener(World& world, std::uint32_t self, std::uint32_t incarnation = 1, std::uint32_t max_posted = 1024)
        : world_(world) {
        transport::EndpointOptions options;
        options.self = Peer{self};
        options.incarnation = incarnation;
        options.max_posted = max_posted;
        options.max_peers = 256;
        endpoint = world.endpoint(options).value();
        actor_ = world.add_actor(*this);
        world.bind(*endpoint, actor_);
    }
    ~Listener() override { world_.remove_actor(actor_); }

    bool step(Time now) override {
        std::array<Event, 8> events;
        const std::size_t count = endpoint->poll(now, events);
        for (std::size_t index = 0; index < count; ++index) {
            Seen entry{now, events[index], {}};
            if (entry.event.kind == Event::Kind::message) {
                entry.message.assign(reinterpret_cast<const char*>(entry.event.data), entry.event.size_or_value);
            }
            seen.push_back(entry);
            if (on_event) on_event(entry);
        }
        return count > 0;
    }
    [[nodiscard]] Time next_deadline() const override { return time_never; }

    [[nodiscard]] std::vector<Seen> of(Event::Kind kind) const {
        std::vector<Seen> found;
        for (const Seen& entry : seen) {
            if (entry.event.kind == kind) found.push_back(entry);
        }
        return found;
    }
    [[nodiscard]] std::size_t count(Event::Kind kind) const { return of(kind).size(); }
    Post send(std::uint32_t peer, std::string_view text) {
        return endpoint->send(Peer{peer}, std::as_bytes(std::span(text.data(), text.size())));
    }

    std::unique_ptr<Transport> endpoint;
    std::vector<Seen> seen;
    std::function<void(const Seen&)> on_event;

private:
    World& world_;
    ActorId actor_;
};

/// Both connect; runs the world until both are up.
inline void join(World& world, Listener& one, std::uint32_t one_self, Listener& two, std::uint32_t two_self,
                 std::uint32_t incarnation = 1) {
    (void)one.endpoint->connect(Peer{two_self}, two.endpoint->address(), incarnation);
    (void)two.endpoint->connect(Peer{one_self}, one.endpoint->address(), incarnation);
    while (one.count(Event::Kind::peer_up) == 0 || two.count(Event::Kind::peer_up) == 0) {
        if (!world.advance()) return;
    }
}

}  // namespace incast::sim::testing

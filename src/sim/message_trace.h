// The messages of a simulated world, line by line: what was posted, landed, noticed, delivered and completed, and when.
// docs/simulation.md describes the columns.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "sim/records.h"

namespace incast::sim {

class World;

class MessageTrace final : public Observer {
public:
    /// Takes so many whole lines, with their ends.
    using Writer = std::function<void(std::string_view text, std::uint64_t lines)>;
    MessageTrace(Writer writer, std::uint64_t most_lines);
    /// Of the world whose endpoints are named; before anything happens in it.
    void watch(World& world);
    /// Hands over what waits to be written.
    void flush();

    void message_posted(Time now, EndpointId from, EndpointId to, Bytes bytes) override;
    void message_delivered(Time now, EndpointId from, EndpointId to, Bytes bytes) override;
    void write_posted(Time now, EndpointId from, EndpointId to, const Transfer& write) override;
    void landed(Time now, EndpointId from, EndpointId to, const Transfer& write, std::uint8_t parts) override;
    void notice_delivered(Time now, EndpointId from, EndpointId to, const Transfer& write) override;
    void read_posted(Time now, EndpointId from, EndpointId to, const Transfer& read) override;
    void read_completed(Time now, EndpointId from, EndpointId to, const Transfer& read, Status status) override;
    void peer_up(Time now, EndpointId at, EndpointId peer) override;
    void peer_down(Time now, EndpointId at, EndpointId peer) override;

private:
    void line(Time now, std::string_view what, EndpointId from, EndpointId to, std::uint64_t number,
              std::uint64_t bytes);

    Writer writer_;
    std::string waiting_;
    std::uint64_t waiting_lines_ = 0;
    std::uint64_t lines_left_;
    World* world_ = nullptr;
};

}  // namespace incast::sim

// The span given to poll, being filled.
#pragma once

#include <cstddef>
#include <span>

#include <incast/transport.h>

namespace incast::transport::framed {

class EventWriter {
public:
    explicit EventWriter(std::span<Event> events) : events_(events) {}

    [[nodiscard]] std::size_t count() const { return count_; }
    [[nodiscard]] std::size_t room() const { return events_.size() - count_; }

    /// Precondition: room() > 0.
    void push(const Event& event) { events_[count_++] = event; }

    void completed(Peer peer, Token token, Status status) {
        push({.kind = Event::Kind::completed,
              .status = status,
              .size_or_value = 0,
              .peer = peer,
              .incarnation = 0,
              .token = token});
    }

private:
    std::span<Event> events_;
    std::size_t count_ = 0;
};

}  // namespace incast::transport::framed

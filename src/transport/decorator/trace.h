// Records what is posted to and polled from a transport, in order.
#pragma once

#include <cstdint>
#include <memory>

#include <incast/transport.h>

namespace incast::transport::decorator {

/// One post, or one event of a poll.
struct TraceRecord {
    enum class What : std::uint8_t { connect, disconnect, send, write, read, event };
    What what{};
    Peer self{};
    Peer peer{};
    Time now = 0;                   // of the last poll
    Post post{};                    // the answer, if it is a post
    Event::Kind kind{};             // if it is an event
    Status status{};                // of a completed event
    std::uint32_t incarnation = 0;  // connect, peer_up, peer_down
    std::uint32_t length = 0;       // bytes of the message, body or read
    std::uint64_t offset = 0;       // write: in the target's region
    Token token = 0;                // write, read, completed
    Notice notice = std::nullopt;
    Bytes bytes = {};  // message, or head of a write; valid during the call
};

/// Where records go. The records of one endpoint come in order from its owner thread, and so does every ordered pair's.
class TraceSink {
public:
    TraceSink() = default;
    TraceSink(const TraceSink&) = delete;
    TraceSink& operator=(const TraceSink&) = delete;
    virtual ~TraceSink() = default;
    virtual void record(const TraceRecord& record) = 0;
};

/// `self` is the index of the endpoint's node; `sink` must outlive the transport.
std::unique_ptr<Transport> make_trace(std::unique_ptr<Transport> inner, Peer self, TraceSink& sink);

}  // namespace incast::transport::decorator

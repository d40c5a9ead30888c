// One connection: the frames of a session in the packets of a reliable one. Sans-IO: the endpoint moves datagrams and
// tells the time.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include <incast/transport.h>

#include "reliable/connection.h"
#include "transport/framed/session.h"

namespace incast::transport::udp {

class Link {
public:
    enum class Progress : std::uint8_t {
        done,      // all that was received is handed on
        stuck,     // the rest waits for the next poll: until then nothing else may be received
        violated,  // the peer broke the rules (session().violation())
    };

    Link(const reliable::Settings& datagrams, std::uint16_t index, const framed::SessionOptions& frames,
         const Regions& regions);

    [[nodiscard]] framed::Session& session() { return session_; }
    [[nodiscard]] const framed::Session& session() const { return session_; }
    [[nodiscard]] reliable::Connection& connection() { return connection_; }
    [[nodiscard]] const reliable::Connection& connection() const { return connection_; }

    /// Moves what was posted into packets, as far as there is room. True: there was more, and it waits for nobody else.
    bool pack(framed::EventWriter& events);
    /// The next piece of a body that travels by itself; nothing: there is none, or it may not be sent yet. The head
    /// stays as it is until something is received, the rest is the poster's.
    struct Piece {
        Bytes head;
        Bytes rest;
    };
    std::optional<Piece> next_piece(std::int64_t now_ns, framed::EventWriter& events);
    [[nodiscard]] bool is_body_next() const { return session_.is_body_next(); }
    /// Hands on what the connection has received.
    Progress unpack(framed::EventWriter& events, std::uint64_t poll_number);
    /// All that was posted has arrived there.
    [[nodiscard]] bool drained() const {
        return !session_.has_output(0) && !session_.is_body_next() && used_ == 0 && connection_.is_settled();
    }
    /// Copied here, into packets and out of them, and once more in the session.
    [[nodiscard]] std::uint64_t copied_bytes() const { return copied_bytes_ + session_.copied_bytes(); }
    [[nodiscard]] Datagrams datagrams() const;

private:
    std::size_t body_bytes_;  // of a packet
    reliable::Connection connection_;
    framed::Session session_;
    std::size_t used_ = 0;  // of the packet that is being filled
    Bytes rest_;            // of the packet that is being handed on
    std::uint64_t copied_bytes_ = 0;
};

}  // namespace incast::transport::udp

// A connection with one peer: moves the bytes of its session's stream by messages of RDS, which arrive whole and in
// order while both sides live. A large body begins a message: its receiver, who has seen its frame, has it put straight
// into its place.
//
// RDS says nothing when a peer ends, and a message to one that is gone vanishes. So both sides send a word when they
// have sent nothing for a while, each message says how many were taken in, and who is silent for too long is lost.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "os/descriptor.h"
#include "transport/framed/session.h"
#include "transport/rds/wire.h"

struct iovec;

namespace incast::transport::rds {

struct LinkOptions {
    std::uint64_t token = 0;          // of what comes
    std::uint64_t peer_token = 0;     // of what goes
    std::uint32_t message_bytes = 0;  // taken here, at most
    std::uint32_t peer_bytes = 0;     // taken there, at most
    Time deadline = 0;                // without a sign of life
};

class Link {
public:
    /// `socket`: does not block, and sends to the peer.
    Link(os::Descriptor socket, const LinkOptions& options, const framed::SessionOptions& session,
         const Regions& regions);

    [[nodiscard]] framed::Session& session() { return session_; }
    [[nodiscard]] const os::Descriptor& socket() const { return socket_; }

    /// What epoll said: each change once (EPOLLET) of EPOLLIN and EPOLLOUT.
    void note(std::uint32_t epoll_events);

    /// Moves what can be moved. False: the connection is lost, or was ended by the peer; why_lost() may have a line.
    bool work(Time now, framed::EventWriter& events, std::uint64_t poll_number);
    /// More could be moved at once: call work again soon.
    [[nodiscard]] bool busy() const { return busy_; }
    /// When to call work even if nothing happens.
    [[nodiscard]] Time next_deadline() const;
    [[nodiscard]] const std::string& why_lost() const { return why_lost_; }
    /// The other side has taken in all that was posted.
    [[nodiscard]] bool drained() const { return !session_.has_output(0) && peer_taken_ == sent_; }
    /// By the kernel, from and to memory, all that went through the socket; once more here and by the session.
    [[nodiscard]] std::uint64_t copied_bytes() const { return moved_bytes_ + session_.copied_bytes(); }

    /// Says the end and closes: nothing lands any more.
    void close();

private:
    enum class Said : std::uint8_t { yes, later, lost };
    Said say(MessageHead::Kind kind, std::span<iovec> vectors);
    bool flush(framed::EventWriter& events);
    bool receive(Time now, framed::EventWriter& events, std::uint64_t poll_number);
    /// What came behind the bytes that went straight to their place. False: a violation.
    bool hand_on(framed::EventWriter& events, std::uint64_t poll_number);
    bool take_head(const MessageHead& head, std::size_t bytes, Time now);
    bool lost(std::string why) {
        why_lost_ = std::move(why);
        return false;
    }

    os::Descriptor socket_;
    LinkOptions options_;
    framed::Session session_;
    std::unique_ptr<std::byte[]> behind_;  // a message's bytes that have no place yet
    Bytes rest_;                           // of these
    std::uint32_t sent_ = 0;               // messages of data, modulo 2^32
    std::uint32_t peer_taken_ = 0;
    std::uint32_t taken_ = 0;
    Time heard_ = time_never;  // never: not begun
    Time said_ = 0;
    Time answer_due_ = time_never;  // that messages were taken in
    std::uint64_t moved_bytes_ = 0;
    std::string why_lost_;
    bool readable_ = true;  // until a call says otherwise: readiness is edge-triggered
    bool writable_ = true;
    bool busy_ = true;
};

}  // namespace incast::transport::rds

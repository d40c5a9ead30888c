// The open streams to one peer: moves bytes between stream sockets of any kind, which do not block, and their session.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "os/descriptor.h"
#include "transport/framed/session.h"

namespace incast::transport::framed {

class Link {
public:
    Link(std::vector<os::Descriptor> sockets, const SessionOptions& options, const Regions& regions);

    [[nodiscard]] Session& session() { return session_; }
    [[nodiscard]] const os::Descriptor& socket(std::size_t stream) const { return streams_[stream].socket; }

    /// What epoll said of one stream: each change once (EPOLLET) of EPOLLIN, EPOLLOUT and EPOLLRDHUP.
    void note(std::size_t stream, std::uint32_t epoll_events);

    /// Moves what can be moved. False: the connection is lost, and why_lost() may have a line for the log.
    bool work(EventWriter& events, std::uint64_t poll_number);
    /// More could be moved at once: call work again soon.
    [[nodiscard]] bool busy() const { return busy_; }
    [[nodiscard]] const std::string& why_lost() const { return why_lost_; }
    /// By the kernel, from and to memory, all that went through the sockets; and by the session.
    [[nodiscard]] std::uint64_t copied_bytes() const { return moved_bytes_ + session_.copied_bytes(); }

    /// All that was posted is with the other side's kernel.
    [[nodiscard]] bool drained() const;

    /// Closes every stream: nothing lands any more.
    void close();

private:
    struct Stream {
        os::Descriptor socket;
        bool readable = true;  // until a read says otherwise: readiness is edge-triggered
        bool writable = true;
        bool hung_up = false;  // read until the end of the stream
    };
    bool flush(std::size_t index, EventWriter& events);
    bool receive(std::size_t index, EventWriter& events, std::uint64_t poll_number);
    bool violated();

    std::vector<Stream> streams_;
    Session session_;
    std::string why_lost_;
    std::uint64_t moved_bytes_ = 0;
    bool busy_ = true;
};

}  // namespace incast::transport::framed

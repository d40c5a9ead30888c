#include "transport/framed/link.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <system_error>

#include <linux/sockios.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/uio.h>

namespace incast::transport::framed {

namespace {

constexpr std::size_t pieces_per_call = 64;
// One peer's share of one poll: enough to keep a large socket buffer moving, little enough that others get their turn.
constexpr std::size_t read_bytes_per_poll = std::size_t{2} << 20;

bool only_this_connection_ended(int error) {
    // How a connection ends when the peer's process does: peer_down says it all.
    return error == ECONNRESET || error == EPIPE;
}

}  // namespace

Link::Link(std::vector<os::Descriptor> sockets, const SessionOptions& options, const Regions& regions)
    : session_(options, regions) {
    streams_.reserve(sockets.size());
    for (os::Descriptor& socket : sockets)
        streams_.push_back({.socket = std::move(socket)});
}

void Link::note(std::size_t stream, std::uint32_t epoll_events) {
    Stream& it = streams_[stream];
    if ((epoll_events & EPOLLIN) != 0) it.readable = true;
    if ((epoll_events & EPOLLOUT) != 0) it.writable = true;
    if ((epoll_events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR)) != 0) it.readable = it.hung_up = true;
}

bool Link::work(EventWriter& events, std::uint64_t poll_number) {
    bool left = session_.settle(events);
    for (std::size_t i = 0; i < streams_.size(); ++i) {
        // Sending first: what waits here is what others wait for.
        if (!flush(i, events) || !receive(i, events, poll_number)) return false;
    }
    for (std::size_t i = 0; i < streams_.size(); ++i) {
        const Stream& stream = streams_[i];
        left = left || (stream.writable && session_.has_output(i)) || (stream.readable && !session_.blocked(i));
    }
    // Held-back events wait for room in `events`, which the next poll brings, or for bytes, which epoll will announce.
    left = left || (events.room() == 0 && session_.blocked());
    busy_ = session_.settle(events) || left;
    return true;
}

bool Link::flush(std::size_t index, EventWriter& events) {
    Stream& stream = streams_[index];
    while (stream.writable && session_.has_output(index)) {
        std::array<Bytes, pieces_per_call> pieces;
        std::array<iovec, pieces_per_call> vectors;
        const std::size_t count = session_.gather(index, pieces, events);
        if (count == 0) return true;  // no room for the completions
        std::size_t total = 0;
        for (std::size_t i = 0; i < count; ++i) {
            // sendmsg does not write to what it sends.
            vectors[i] = {const_cast<std::byte*>(pieces[i].data()), pieces[i].size()};
            total += pieces[i].size();
        }
        msghdr message{};
        message.msg_iov = vectors.data();
        message.msg_iovlen = count;
        const ssize_t sent = ::sendmsg(stream.socket.fd(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (sent < 0) {
            if (errno == EINTR) continue;
            stream.writable = false;
            // What the peer sent before it went away can still be read, and reading finds the end.
            if (errno != EAGAIN) stream.readable = stream.hung_up = true;
            return true;
        }
        moved_bytes_ += static_cast<std::size_t>(sent);
        session_.sent(index, static_cast<std::size_t>(sent), events);
        if (static_cast<std::size_t>(sent) < total) stream.writable = false;
    }
    return true;
}

bool Link::receive(std::size_t index, EventWriter& events, std::uint64_t poll_number) {
    Stream& stream = streams_[index];
    if (session_.blocked(index) && session_.parse(index, events, poll_number) == Parse::violation) return violated();
    for (std::size_t budget = read_bytes_per_poll; stream.readable && budget > 0 && events.room() > 0;) {
        const Receiver::Space space = session_.space(index, poll_number);
        if (space.bytes() == 0) return true;
        std::array<iovec, 2> vectors;
        std::size_t count = 0;
        for (const std::span<std::byte> part : {space.payload, space.staging}) {
            if (!part.empty()) vectors[count++] = {part.data(), part.size()};
        }
        const ssize_t received = ::readv(stream.socket.fd(), vectors.data(), static_cast<int>(count));
        if (received <= 0) {
            if (received < 0 && errno == EINTR) continue;
            if (received < 0 && errno == EAGAIN) {
                stream.readable = false;
                return true;
            }
            if (received < 0 && !only_this_connection_ended(errno)) why_lost_ = std::generic_category().message(errno);
            return false;
        }
        const auto bytes = static_cast<std::size_t>(received);
        budget -= std::min(budget, bytes);
        moved_bytes_ += bytes;
        session_.filled(index, bytes);
        if (session_.parse(index, events, poll_number) == Parse::violation) return violated();
        // A short read drained the socket: epoll announces the next bytes. After a hang-up nothing more is announced.
        if (bytes < space.bytes() && !stream.hung_up) stream.readable = false;
    }
    return true;
}

bool Link::violated() {
    why_lost_ = session_.violation();
    return false;
}

bool Link::drained() const {
    for (std::size_t index = 0; index < streams_.size(); ++index) {
        int unsent = 0;
        const bool told = ::ioctl(streams_[index].socket.fd(), SIOCOUTQ, &unsent) == 0;
        if (session_.has_output(index) || (told && unsent > 0)) return false;
    }
    return true;
}

void Link::close() {
    for (Stream& stream : streams_)
        stream.socket.close();
}

}  // namespace incast::transport::framed

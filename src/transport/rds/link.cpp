#include "transport/rds/link.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <system_error>
#include <utility>

#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include "base/units.h"
#include "transport/framed/feed.h"

namespace incast::transport::rds {

namespace {

constexpr std::size_t pieces_per_message = 64;
/// A body of so many bytes begins a message: that costs a system call, and saves the receiver a copy.
constexpr std::size_t direct_bytes = 16384;
/// Of a peer, in one poll: enough to keep it busy, little enough that others get their turn.
constexpr std::size_t read_bytes_per_poll = std::size_t{2} << 20;
/// Signs of life within the deadline.
constexpr int words_per_deadline = 4;
/// What is taken in is told by then: somebody may wait for it to go.
constexpr Time answer_after = 2 * ps_per_ms;

}  // namespace

Link::Link(os::Descriptor socket, const LinkOptions& options, const framed::SessionOptions& session,
           const Regions& regions)
    : socket_(std::move(socket)),
      options_(options),
      session_(session, regions),
      // Default-initialised: pages are touched only as far as they are used.
      behind_(new std::byte[options.message_bytes]) {}

void Link::note(std::uint32_t epoll_events) {
    if ((epoll_events & (EPOLLIN | EPOLLERR | EPOLLHUP)) != 0) readable_ = true;
    if ((epoll_events & (EPOLLOUT | EPOLLERR | EPOLLHUP)) != 0) writable_ = true;
}

Time Link::next_deadline() const {
    if (heard_ == time_never) return 0;
    return std::min({heard_ + options_.deadline, said_ + options_.deadline / words_per_deadline, answer_due_});
}

bool Link::work(Time now, framed::EventWriter& events, std::uint64_t poll_number) {
    if (heard_ == time_never) heard_ = said_ = now;
    const bool word_is_due = now >= said_ + options_.deadline / words_per_deadline;
    if (word_is_due) writable_ = true;  // to be tried again, whatever was said of it
    bool left = session_.settle(events);
    // Sending first: what waits here is what others wait for.
    const std::uint32_t sent_before = sent_;
    if (!flush(events) || !receive(now, events, poll_number)) return false;
    if (sent_ != sent_before) said_ = now;
    // Only once all is read that has come: this side may have been stopped itself.
    if (!readable_ && now >= heard_ + options_.deadline)
        return lost("no sign of life for " + base::format_duration(options_.deadline));
    if (word_is_due || now >= answer_due_) {
        if (say(MessageHead::Kind::word, {}) == Said::lost) return false;
        said_ = now;
        answer_due_ = time_never;
    }
    left = left || !rest_.empty() || (writable_ && session_.has_output(0)) || (readable_ && !session_.blocked(0)) ||
           (events.room() == 0 && session_.blocked(0));
    busy_ = session_.settle(events) || left;
    return true;
}

bool Link::flush(framed::EventWriter& events) {
    while (writable_ && session_.has_output(0)) {
        std::array<Bytes, pieces_per_message> pieces;
        std::array<iovec, pieces_per_message + 1> vectors;  // the first one is the head's
        std::size_t used = 1;
        std::size_t bytes = 0;
        const std::size_t room = options_.peer_bytes - sizeof(MessageHead);
        for (const Bytes piece : std::span(pieces).first(session_.gather(0, pieces, events))) {
            if (bytes == room || (bytes > 0 && piece.size() >= direct_bytes && !session_.is_copied(0, piece))) break;
            const std::size_t part = std::min(piece.size(), room - bytes);
            // sendmsg does not write to what it sends.
            vectors[used++] = {const_cast<std::byte*>(piece.data()), part};
            bytes += part;
        }
        if (bytes == 0) return true;  // no room for the completions
        const Said said = say(MessageHead::Kind::data, std::span(vectors).first(used));
        if (said != Said::yes) return said == Said::later;
        ++sent_;
        moved_bytes_ += bytes;
        session_.sent(0, bytes, events);
    }
    return true;
}

Link::Said Link::say(MessageHead::Kind kind, std::span<iovec> vectors) {
    MessageHead head{.token = options_.peer_token, .kind = kind, .number = sent_, .taken = taken_};
    std::array<iovec, 1> alone;
    if (vectors.empty()) vectors = alone;
    vectors[0] = {&head, sizeof head};
    msghdr message{};
    message.msg_iov = vectors.data();
    message.msg_iovlen = vectors.size();
    // RDS takes no other flag.
    while (::sendmsg(socket_.fd(), &message, MSG_DONTWAIT) < 0) {
        if (errno == EINTR) continue;
        writable_ = false;
        // The send buffer is full (EAGAIN), or the receiver's (ENOBUFS: it is congested). Room is announced either way.
        if (errno == EAGAIN || errno == ENOBUFS) return Said::later;
        why_lost_ = std::generic_category().message(errno);
        return Said::lost;
    }
    answer_due_ = time_never;
    return Said::yes;
}

bool Link::receive(Time now, framed::EventWriter& events, std::uint64_t poll_number) {
    if (session_.blocked(0) && session_.parse(0, events, poll_number) == framed::Parse::violation)
        return lost(session_.violation());
    if (!hand_on(events, poll_number)) return false;
    // What cannot be taken in stays in the socket: once that is full RDS tells the sender so.
    for (std::size_t budget = read_bytes_per_poll; readable_ && budget > 0 && rest_.empty() && events.room() > 0;) {
        const framed::Receiver::Space space = session_.space(0, poll_number);
        if (session_.blocked(0)) return true;
        MessageHead head;
        std::array<iovec, 3> vectors{{{&head, sizeof head},
                                      {space.payload.data(), space.payload.size()},
                                      {behind_.get(), options_.message_bytes}}};
        msghdr message{};
        message.msg_iov = vectors.data();
        message.msg_iovlen = vectors.size();
        const ssize_t received = ::recvmsg(socket_.fd(), &message, MSG_DONTWAIT);
        if (received < 0) {
            if (errno == EINTR) continue;
            readable_ = false;
            if (errno == EAGAIN) return true;
            return lost(std::generic_category().message(errno));
        }
        // Nothing but the news that a receiver is congested no more.
        if (received == 0) writable_ = true;
        const auto bytes = static_cast<std::size_t>(received);
        // Somebody else's, whatever it has in common with ours. No byte counts as received: what it left where others
        // are awaited is written over by these.
        if (bytes < sizeof head || head.token != options_.token) {
            budget -= std::min(budget, sizeof head + bytes);
            continue;
        }
        budget -= std::min(budget, bytes);
        if ((message.msg_flags & MSG_TRUNC) != 0) return lost("a message that is longer than agreed");
        if (head.kind == MessageHead::Kind::end) return false;
        const bool is_new = head.kind == MessageHead::Kind::data && head.number == taken_;
        if (!take_head(head, bytes - sizeof head, now)) return false;
        if (!is_new) continue;
        const std::size_t direct = std::min(bytes - sizeof head, space.payload.size());
        moved_bytes_ += bytes - sizeof head;
        rest_ = {behind_.get(), bytes - sizeof head - direct};
        if (direct > 0) session_.filled(0, direct);
        if (direct > 0 && session_.parse(0, events, poll_number) == framed::Parse::violation)
            return lost(session_.violation());
        if (!hand_on(events, poll_number)) return false;
    }
    return true;
}

bool Link::take_head(const MessageHead& head, std::size_t bytes, Time now) {
    const bool is_data = head.kind == MessageHead::Kind::data;
    if ((!is_data && head.kind != MessageHead::Kind::word) || head.zero != 0 || is_data != (bytes > 0))
        return lost("a message that makes no sense");
    heard_ = now;
    // RDS may bring a message twice where it had to connect anew: an older one says nothing.
    constexpr std::uint32_t half = 1U << 31;
    if (const std::uint32_t more = head.taken - peer_taken_; more < half) {
        if (more > sent_ - peer_taken_) return lost("it took in more than was sent");
        peer_taken_ = head.taken;
    }
    if (head.number != taken_) return taken_ - head.number < half || lost("messages are missing");
    if (!is_data) return true;
    ++taken_;
    if (answer_due_ == time_never) answer_due_ = now + answer_after;
    return true;
}

bool Link::hand_on(framed::EventWriter& events, std::uint64_t poll_number) {
    const framed::Fed fed = framed::feed(session_, 0, rest_, moved_bytes_, events, poll_number);
    return fed != framed::Fed::violated || lost(session_.violation());
}

void Link::close() {
    if (!socket_.is_open()) return;
    (void)say(MessageHead::Kind::end, {});
    socket_.close();
}

}  // namespace incast::transport::rds

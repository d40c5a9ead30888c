#include "transport/udp/link.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "transport/framed/feed.h"

namespace incast::transport::udp {

namespace {

constexpr std::uint8_t lane = 1;  // one stream of bytes, in order
constexpr std::size_t pieces_per_call = 16;

}  // namespace

Link::Link(const reliable::Settings& datagrams, std::uint16_t index, const framed::SessionOptions& frames,
           const Regions& regions)
    : body_bytes_(datagrams.datagram_bytes - reliable::header_bytes),
      connection_(datagrams, index, {}),
      session_(frames, regions) {}

bool Link::pack(framed::EventWriter& events) {
    while (connection_.room() > 0 && (session_.has_output(0) || used_ > 0)) {
        const std::span<std::byte> body = connection_.body();
        bool is_held = false;
        while (used_ < body.size() && session_.has_output(0)) {
            std::array<Bytes, pieces_per_call> pieces;
            const std::size_t count = session_.gather(0, pieces, events);
            is_held = count == 0;  // no room for the completions
            if (is_held) break;
            std::size_t taken = 0;
            const std::size_t most = std::min(body.size() - used_, session_.before_body());
            for (const Bytes piece : std::span(pieces).first(count)) {
                const std::size_t now = std::min(piece.size(), most - taken);
                std::memcpy(body.data() + used_ + taken, piece.data(), now);
                taken += now;
            }
            session_.sent(0, taken, events);
            used_ += taken;
            copied_bytes_ += taken;
        }
        // What would have to wait in any case waits for more: full packets cost less. The next body needs the place.
        if (used_ == 0) return is_held;
        if (used_ < body.size() && connection_.has_unsent() && !session_.is_body_next()) return is_held;
        connection_.add(lane, used_);
        used_ = 0;
        if (is_held) return true;
    }
    return false;
}

std::optional<Link::Piece> Link::next_piece(std::int64_t now_ns, framed::EventWriter& events) {
    if (!session_.is_body_next() || used_ > 0) return std::nullopt;
    if (!connection_.may_pass(now_ns)) {
        connection_.wait_for_pace(now_ns);
        return std::nullopt;
    }
    const framed::Session::Piece piece = session_.next_piece(body_bytes_);
    const std::span<std::byte> head = connection_.body().first(sizeof piece.header);
    std::memcpy(head.data(), &piece.header, sizeof piece.header);
    if (!session_.piece_sent(piece.bytes.size(), events)) return std::nullopt;
    return Piece{connection_.pass(now_ns, head.size(), piece.bytes.size()), piece.bytes};
}

Link::Progress Link::unpack(framed::EventWriter& events, std::uint64_t poll_number) {
    if (session_.blocked(0) && session_.parse(0, events, poll_number) == framed::Parse::violation)
        return Progress::violated;
    for (;;) {
        switch (framed::feed(session_, 0, rest_, copied_bytes_, events, poll_number)) {
            case framed::Fed::all:
                break;
            case framed::Fed::stuck:
                return Progress::stuck;
            case framed::Fed::violated:
                return Progress::violated;
        }
        const auto delivery = connection_.next_delivery();
        if (!delivery) return session_.blocked(0) ? Progress::stuck : Progress::done;
        if (delivery->lane == lane) [[likely]] {
            rest_ = delivery->body;
        } else if (!session_.take_piece(delivery->body)) {
            return Progress::violated;
        }
    }
}

Datagrams Link::datagrams() const {
    const reliable::SendCounters& counters = connection_.send_counters();
    return {.sent = counters.sent, .lost = counters.lost, .repeated = counters.repeated};
}

}  // namespace incast::transport::udp

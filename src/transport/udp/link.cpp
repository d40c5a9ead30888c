#include "transport/udp/link.h"

#include <algorithm>
#include <array>
#include <cstring>

namespace incast::transport::udp {

namespace {

constexpr std::uint8_t lane = 1;  // one stream of bytes, in order
constexpr std::size_t pieces_per_call = 16;
/// Payload that lies behind a header goes to its place itself, if the header is looked at first.
constexpr std::size_t staged_at_once = 512;

}  // namespace

Link::Link(const reliable::Settings& datagrams, std::uint16_t index, const framed::SessionOptions& frames,
           const Regions& regions)
    : connection_(datagrams, index, {}), session_(frames, regions) {}

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
            for (const Bytes piece : std::span(pieces).first(count)) {
                const std::size_t now = std::min(piece.size(), body.size() - used_ - taken);
                std::memcpy(body.data() + used_ + taken, piece.data(), now);
                taken += now;
            }
            session_.sent(0, taken, events);
            used_ += taken;
            copied_bytes_ += taken;
        }
        // What would have to wait in any case waits for more: full packets cost less.
        if (used_ < body.size() && (used_ == 0 || connection_.has_unsent())) return is_held;
        connection_.add(lane, used_);
        used_ = 0;
        if (is_held) return true;
    }
    return false;
}

Link::Progress Link::unpack(framed::EventWriter& events, std::uint64_t poll_number) {
    if (session_.blocked(0) && session_.parse(0, events, poll_number) == framed::Parse::violation)
        return Progress::violated;
    for (;;) {
        while (!rest_.empty()) {
            const framed::Receiver::Space space = session_.space(0, poll_number);
            if (space.bytes() == 0) return Progress::stuck;
            std::size_t taken = 0;
            for (const std::span<std::byte> part :
                 {space.payload, space.staging.first(std::min(space.staging.size(), staged_at_once))}) {
                const std::size_t now = std::min(part.size(), rest_.size());
                if (now > 0) std::memcpy(part.data(), rest_.data(), now);
                rest_ = rest_.subspan(now);
                taken += now;
            }
            copied_bytes_ += taken;
            session_.filled(0, taken);
            if (session_.parse(0, events, poll_number) == framed::Parse::violation) return Progress::violated;
        }
        const auto delivery = connection_.next_delivery();
        if (!delivery) return session_.blocked(0) ? Progress::stuck : Progress::done;
        rest_ = delivery->body;
    }
}

Datagrams Link::datagrams() const {
    const reliable::SendCounters& counters = connection_.send_counters();
    return {.sent = counters.sent, .lost = counters.lost, .repeated = counters.repeated};
}

}  // namespace incast::transport::udp

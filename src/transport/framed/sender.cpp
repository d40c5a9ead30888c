#include "transport/framed/sender.h"

#include <algorithm>
#include <bit>
#include <cstring>

namespace incast::transport::framed {

Sender::Sender(const Limits& limits)
    : ring_bytes_(std::bit_ceil(limits.copied_bytes)),
      reserved_bytes_(limits.reserved_bytes),
      reserved_bodies_(limits.reserved_bodies),
      // Default-initialised: pages are touched only as far as the ring is ever filled.
      ring_(new std::byte[ring_bytes_]),
      segments_(std::bit_ceil(2 * limits.bodies + 2)) {}

void Sender::copy(Bytes bytes) {
    if (bytes.empty()) return;
    posted_bytes_ += bytes.size();
    const std::size_t start = (ring_head_ + used_bytes_) & (ring_bytes_ - 1);
    const std::size_t before_wrap = std::min(bytes.size(), ring_bytes_ - start);
    std::memcpy(ring_.get() + start, bytes.data(), before_wrap);
    if (before_wrap < bytes.size()) std::memcpy(ring_.get(), bytes.data() + before_wrap, bytes.size() - before_wrap);
    used_bytes_ += bytes.size();
    if (used_segments_ > 0) {
        Segment& last = segment(first_segment_ + used_segments_ - 1);
        if (last.body == nullptr) {
            last.bytes += bytes.size();
            return;
        }
    }
    segment(first_segment_ + used_segments_++) = {nullptr, bytes.size(), 0};
}

void Sender::refer(Bytes body, Token token) {
    posted_bytes_ += body.size();
    segment(first_segment_ + used_segments_++) = {body.data(), body.size(), token};
}

std::size_t Sender::gather(std::span<Bytes> pieces, std::size_t completions) const {
    std::size_t count = 0;
    std::size_t ring_at = ring_head_;
    std::size_t skip = sent_of_first_;
    for (std::size_t i = 0; i < used_segments_ && count < pieces.size(); ++i) {
        const Segment& part = segment(first_segment_ + i);
        std::size_t left = part.bytes - skip;
        skip = 0;
        if (part.body != nullptr) {
            if (part.token != 0 && completions-- == 0) break;
            pieces[count++] = {part.body + (part.bytes - left), left};
            continue;
        }
        while (left > 0 && count < pieces.size()) {
            const std::size_t start = ring_at & (ring_bytes_ - 1);
            const std::size_t run = std::min(left, ring_bytes_ - start);
            pieces[count++] = {ring_.get() + start, run};
            ring_at += run;
            left -= run;
        }
    }
    return count;
}

void Sender::sent(std::size_t bytes, Peer peer, EventWriter& events) {
    sent_bytes_ += bytes;
    while (bytes > 0) {
        const Segment& part = segment(first_segment_);
        const std::size_t now = std::min(bytes, part.bytes - sent_of_first_);
        sent_of_first_ += now;
        bytes -= now;
        if (part.body == nullptr) {
            ring_head_ += now;
            used_bytes_ -= now;
        }
        if (sent_of_first_ < part.bytes) return;
        if (part.token != 0) events.completed(peer, part.token, Status::ok);
        pop();
    }
    // A drained ring starts over at its front and so keeps to a few warm pages.
    if (used_bytes_ == 0) ring_head_ = 0;
}

bool Sender::abandon(Status status, Peer peer, EventWriter& events) {
    while (used_segments_ > 0) {
        const Segment& part = segment(first_segment_);
        if (part.token != 0) {
            if (events.room() == 0) return false;
            events.completed(peer, part.token, status);
        }
        pop();
    }
    ring_head_ = used_bytes_ = 0;
    return true;
}

void Sender::pop() {
    ++first_segment_;
    --used_segments_;
    sent_of_first_ = 0;
}

}  // namespace incast::transport::framed

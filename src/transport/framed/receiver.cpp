#include "transport/framed/receiver.h"

#include <algorithm>
#include <cstring>

#include "transport/framed/session.h"

namespace incast::transport::framed {

namespace {

// Payload that is read ahead into the staging buffer is copied twice, so with large frames only headers are read ahead;
// with small ones the system calls saved are worth more than the copies.
constexpr std::size_t large_frame_bytes = 16384;
constexpr std::size_t read_ahead_of_large = 512;
constexpr std::size_t largest_staged = frame_header_bytes + max_message_bytes;

}  // namespace

Receiver::Receiver(std::size_t staging_bytes)
    : staging_bytes_(std::max(staging_bytes, 2 * largest_staged)), staging_(new std::byte[staging_bytes_]) {}

Receiver::Space Receiver::space(std::uint64_t poll_number) {
    if (blocked_) return {};
    if (pinned_poll_ != poll_number) {
        // Nothing of the staging buffer is in the caller's hands: make room behind what is left of it.
        if (begin_ == end_) {
            begin_ = end_ = 0;
        } else if (staging_bytes_ - begin_ < largest_staged) {
            std::memmove(staging_.get(), staging_.get() + begin_, staged());
            end_ -= begin_;
            begin_ = 0;
        }
    }
    Space space;
    space.staging = {staging_.get() + end_, staging_bytes_ - end_};
    if (state_ == State::payload && place_ != nullptr) space.payload = {place_, left_};
    if (large_frames_) {
        const std::size_t wanted = state_ == State::message ? frame_.length - staged() : 0;
        const std::size_t most = std::max(wanted, read_ahead_of_large);
        if (space.staging.size() > most) space.staging = space.staging.first(most);
    }
    return space;
}

void Receiver::filled(std::size_t bytes) {
    if (state_ == State::payload && place_ != nullptr) {
        const std::size_t direct = std::min(bytes, left_);
        place_ += direct;
        left_ -= direct;
        bytes -= direct;
    }
    end_ += bytes;
}

Parse Receiver::parse(Session& session, EventWriter& events, std::uint64_t poll_number) {
    blocked_ = false;
    for (;;) {
        switch (state_) {
            case State::header:
                if (staged() < frame_header_bytes) return Parse::hungry;
                std::memcpy(&frame_, staging_.get() + begin_, frame_header_bytes);
                begin_ += frame_header_bytes;
                if (!session.check(frame_)) return Parse::violation;
                state_ = State::start;
                break;

            case State::start: {
                const Order::Place place = session.order().place(frame_.sequence);
                if (place == Order::Place::past) return session.violate("a frame number came twice");
                if (place == Order::Place::beyond) return block();
                if (frame_.kind == FrameKind::message) {
                    state_ = State::message;
                    break;
                }
                const std::span<std::byte> destination = session.destination(frame_);
                place_ = destination.data();
                left_ = destination.size();
                if (frame_.kind == FrameKind::write || frame_.kind == FrameKind::write_notice) {
                    left_ = frame_.length;
                    large_frames_ = frame_.length >= large_frame_bytes && place_ != nullptr;
                }
                state_ = State::payload;
                break;
            }

            case State::message:
                if (staged() < frame_.length) return Parse::hungry;
                if (session.order().place(frame_.sequence) != Order::Place::next || events.room() == 0) return block();
                session.hand_out(frame_, staging_.get() + begin_, events);
                pinned_poll_ = poll_number;
                begin_ += frame_.length;
                state_ = State::header;
                break;

            case State::payload: {
                const std::size_t now = std::min(left_, staged());
                if (now > 0) {
                    if (place_ != nullptr) {
                        std::memcpy(place_, staging_.get() + begin_, now);
                        session.count_copied(now);
                        place_ += now;
                    }
                    begin_ += now;
                    left_ -= now;
                }
                if (left_ > 0) return Parse::hungry;
                state_ = State::placed;
                break;
            }

            case State::placed:
                switch (session.take_effect(frame_, events)) {
                    case Session::Effect::done:
                        state_ = State::header;
                        break;
                    case Session::Effect::held:
                        return block();
                    case Session::Effect::violation:
                        return Parse::violation;
                }
                break;
        }
    }
}

}  // namespace incast::transport::framed

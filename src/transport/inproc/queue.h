// Events made inside one process, in order; the bytes of a message are stored right behind its event.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>

#include <incast/transport.h>

namespace incast::transport::inproc {

/// A ring of records. Memory is taken once; a record is contiguous. Handed-out records stay until release().
///
/// Of a thousand endpoints in one thread each is cold when its turn comes, so little is written: a notice is 8 bytes.
class EventQueue {
public:
    /// What takes the place of the fields of an event that a message or a notice does not have.
    static constexpr std::size_t notice_bytes = 8;
    static constexpr std::size_t message_bytes(std::size_t size) { return notice_bytes + (size + 7) / 8 * 8; }
    static constexpr std::size_t other_bytes = notice_bytes + 16;
    static constexpr std::size_t max_capacity_bytes = std::size_t{1} << 31;

    /// Precondition: capacity_bytes <= max_capacity_bytes.
    explicit EventQueue(std::size_t capacity_bytes)
        // Default-initialised: a page is touched only once the queue first grows that far.
        : bytes_(new std::byte[capacity_bytes]), capacity_(static_cast<std::uint32_t>(capacity_bytes / 8 * 8)) {}

    /// Room for a record of `record` bytes that is not for control events?
    [[nodiscard]] bool fits(std::size_t record) const {
        if (tail_ >= head_) return record <= capacity_ - tail_ || record < head_;
        return record < head_ - tail_;
    }

    /// Precondition for these three: the record fits.
    void push_message(Peer from, Bytes message) {
        std::byte* const place = push(Event::Kind::message, Status::ok, static_cast<std::uint16_t>(message.size()),
                                      from, message_bytes(message.size()));
        std::memcpy(place, message.data(), message.size());
    }
    void push_notice(Peer from, std::uint16_t notice) {
        push(Event::Kind::notice, Status::ok, notice, from, notice_bytes);
    }
    /// Any other.
    void push_event(const Event& event) {
        const Rest rest{event.token, event.incarnation, 0};
        std::byte* const place = push(event.kind, event.status, event.size_or_value, event.peer, other_bytes);
        std::memcpy(place, &rest, sizeof rest);
    }

    [[nodiscard]] bool empty() const { return read_ == tail_; }

    /// The oldest event not yet taken. Precondition: !empty(). Its record stays until the next release().
    Event take() {
        if (read_ == end_) {
            read_ = 0;
            end_ = none;
        }
        const std::byte* const record = bytes_.get() + read_;
        std::uint64_t start = 0;
        std::memcpy(&start, record, sizeof start);
        Event event;
        event.kind = static_cast<Event::Kind>(start & 0xFFU);
        event.status = static_cast<Status>((start >> 8) & 0xFFU);
        event.size_or_value = static_cast<std::uint16_t>(start >> 16);
        event.peer = Peer{static_cast<std::uint32_t>(start >> 32)};
        if (event.kind == Event::Kind::notice) {
            event.incarnation = 0;
            event.token = 0;
            read_ += notice_bytes;
        } else if (event.kind == Event::Kind::message) {
            event.incarnation = 0;
            event.data = record + sizeof start;
            read_ += static_cast<std::uint32_t>(message_bytes(event.size_or_value));
        } else {
            Rest rest;
            std::memcpy(&rest, record + sizeof start, sizeof rest);
            event.incarnation = rest.incarnation;
            event.token = rest.token;
            read_ += other_bytes;
        }
        return event;
    }

    /// Frees the records taken so far.
    void release() {
        head_ = read_;
        if (head_ == tail_) {
            // Start over at the front: a queue that is drained regularly keeps to a few warm cache lines.
            head_ = tail_ = read_ = 0;
            end_ = none;
        }
    }

private:
    struct Rest {
        Token token;
        std::uint32_t incarnation;
        std::uint32_t unused;
    };
    static_assert(notice_bytes + sizeof(Rest) == other_bytes);

    /// Where what follows the start of the record goes.
    std::byte* push(Event::Kind kind, Status status, std::uint16_t size_or_value, Peer peer, std::size_t record) {
        if (tail_ >= head_ && record > capacity_ - tail_) {
            end_ = tail_;  // what is left at the end is skipped
            tail_ = 0;
        }
        std::byte* const place = bytes_.get() + tail_;
        // One word, as it is read: what was stored in pieces would have to reach the cache first.
        const std::uint64_t start = static_cast<std::uint64_t>(kind) | static_cast<std::uint64_t>(status) << 8 |
                                    std::uint64_t{size_or_value} << 16 | static_cast<std::uint64_t>(peer) << 32;
        std::memcpy(place, &start, sizeof start);
        tail_ += static_cast<std::uint32_t>(record);
        return place + sizeof start;
    }

    static constexpr std::uint32_t none = ~std::uint32_t{0};
    std::unique_ptr<std::byte[]> bytes_;
    std::uint32_t capacity_;
    std::uint32_t head_ = 0;    // oldest record not released
    std::uint32_t read_ = 0;    // next record to take
    std::uint32_t tail_ = 0;    // where the next record goes
    std::uint32_t end_ = none;  // where the records before the wrap end
};

}  // namespace incast::transport::inproc

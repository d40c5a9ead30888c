// Events made inside one process, in order; the bytes of a message are stored right behind its event.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <new>

#include <incast/transport.h>

namespace incast::transport::inproc {

/// A ring of records. Memory is taken once; a record is contiguous. Handed-out records stay until release().
class EventQueue {
public:
    static constexpr std::size_t event_bytes = sizeof(Event);
    static_assert(event_bytes == 24 && alignof(Event) == 8);

    explicit EventQueue(std::size_t capacity_bytes)
        // Default-initialised: a page is touched only once the queue first grows that far.
        : capacity_(capacity_bytes / 8 * 8), bytes_(new std::byte[capacity_]) {}

    [[nodiscard]] static constexpr std::size_t record_bytes(std::size_t message_bytes) {
        return event_bytes + (message_bytes + 7) / 8 * 8;
    }

    /// Room for a record of `record` bytes that is not for control events?
    [[nodiscard]] bool fits(std::size_t record) const {
        if (tail_ >= head_) return record <= capacity_ - tail_ || record < head_;
        return record < head_ - tail_;
    }

    /// Precondition: fits(record_bytes(message.size())).
    void push(Event event, Bytes message = {}) {
        const std::size_t record = record_bytes(message.size());
        if (tail_ >= head_ && record > capacity_ - tail_) {
            end_ = tail_;  // what is left at the end is skipped
            tail_ = 0;
        }
        std::byte* place = bytes_.get() + tail_;
        if (event.kind == Event::Kind::message) {
            std::memcpy(place + event_bytes, message.data(), message.size());
            event.data = place + event_bytes;
        }
        // Field by field: an event was put together just now, and copied whole it would wait for that (copy_head.h).
        auto& record_event = *new (place) Event;
        record_event.kind = event.kind;
        record_event.status = event.status;
        record_event.size_or_value = event.size_or_value;
        record_event.peer = event.peer;
        record_event.incarnation = event.incarnation;
        record_event.token = event.token;
        tail_ += record;
    }

    [[nodiscard]] bool empty() const { return read_ == tail_; }

    /// The oldest event not yet taken. Precondition: !empty(). Its record stays until the next release().
    Event take() {
        if (read_ == end_) {
            read_ = 0;
            end_ = none;
        }
        Event event;
        std::memcpy(&event, bytes_.get() + read_, event_bytes);
        read_ += record_bytes(event.kind == Event::Kind::message ? event.size_or_value : 0);
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
    static constexpr std::size_t none = ~std::size_t{0};
    std::size_t capacity_;
    std::unique_ptr<std::byte[]> bytes_;
    std::size_t head_ = 0;    // oldest record not released
    std::size_t read_ = 0;    // next record to take
    std::size_t tail_ = 0;    // where the next record goes
    std::size_t end_ = none;  // where the records before the wrap end
};

}  // namespace incast::transport::inproc

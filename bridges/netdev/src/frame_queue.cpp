#include "frame_queue.h"

#include <cstring>

namespace incast::netdev {

FrameQueue::FrameQueue(std::size_t limit_bytes)
    : size_(limit_bytes / sizeof(Record) * sizeof(Record)),
      // Not set to zero: pages that no frame was in cost nothing.
      memory_(new std::byte[size_]) {}

std::size_t FrameQueue::space_for(std::size_t message_bytes) {
    return sizeof(Record) + (message_bytes + sizeof(Record) - 1) / sizeof(Record) * sizeof(Record);
}

FrameQueue::Record FrameQueue::record_at(std::size_t at) const {
    Record record;
    std::memcpy(&record, memory_.get() + at, sizeof record);
    return record;
}

void FrameQueue::put(std::size_t at, Record record) {
    std::memcpy(memory_.get() + at, &record, sizeof record);
}

bool FrameQueue::push(Bytes message, std::int64_t now_ns) {
    const std::size_t space = space_for(message.size());
    if (count_ == 0) head_ = tail_ = 0;
    std::size_t at = tail_;
    if (count_ == 0 || tail_ > head_) {
        if (size_ - tail_ < space) {
            if (count_ == 0 || head_ < space) return false;
            if (tail_ < size_) put(tail_, {.bytes = end_of_memory});
            at = 0;
        }
    } else if (head_ - tail_ < space) {  // as long as frames wait, head == tail means that it is full
        return false;
    }
    put(at, {.since_ns = now_ns, .bytes = message.size()});
    std::memcpy(memory_.get() + at + sizeof(Record), message.data(), message.size());
    tail_ = at + space;
    ++count_;
    bytes_ += message.size();
    return true;
}

void FrameQueue::skip_to_record() {
    if (head_ == size_ || record_at(head_).bytes == end_of_memory) head_ = 0;
}

FrameQueue::Head FrameQueue::front(std::int64_t now_ns) {
    Head found;
    while (count_ > 0) {
        skip_to_record();
        const Record record = record_at(head_);
        found.message = {memory_.get() + head_ + sizeof(Record), record.bytes};
        if (was_asked_) return found;
        was_asked_ = true;
        if (!codel_.should_signal(now_ns, now_ns - record.since_ns, bytes_ - record.bytes, record.bytes)) return found;
        if (try_mark(found.message.subspan(offload_bytes))) {
            found.marked = 1;
            return found;
        }
        ++found.dropped;
        pop();
        found.message = {};
    }
    return found;
}

void FrameQueue::pop() {
    skip_to_record();
    const std::uint64_t bytes = record_at(head_).bytes;
    head_ += space_for(bytes);
    bytes_ -= bytes;
    --count_;
    was_asked_ = false;
}

void FrameQueue::clear() {
    while (count_ > 0)
        pop();
}

}  // namespace incast::netdev

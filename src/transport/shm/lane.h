// One direction of one pair of endpoints: a ring in shared memory with one writer and one reader.
//
// Records are an 8-byte header and, for messages, the bytes behind it, padded to 8. A record never wraps: what is left
// at the end is skipped by a record of its own. Positions only grow; the place is position mod capacity. Each side
// publishes its position once per batch, on a cache line of its own.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include <incast/transport.h>

namespace incast::transport::shm {

struct Record {
    enum class Kind : std::uint16_t { message = 1, notice, skip };
    Kind kind{};
    std::uint16_t value = 0;  // notice: its value
    std::uint32_t size = 0;   // message: bytes; skip: bytes up to the end
};
static_assert(sizeof(Record) == 8);

/// In the reader's inbox. Neither side believes the other: see LaneReader.
struct LaneHeader {
    alignas(64) std::atomic<std::uint64_t> written = 0;
    alignas(64) std::atomic<std::uint64_t> read = 0;
    std::atomic<std::uint32_t> wants_room = 0;  // the writer found it full
};
static_assert(sizeof(LaneHeader) == 128 && std::atomic<std::uint64_t>::is_always_lock_free);

constexpr std::size_t record_bytes(std::size_t payload) {
    return sizeof(Record) + (payload + 7) / 8 * 8;
}

class LaneWriter {
public:
    LaneWriter() = default;
    /// `capacity`: bytes of the ring, a power of two.
    LaneWriter(LaneHeader* header, std::byte* ring, std::size_t capacity)
        : header_(header), ring_(ring), capacity_(capacity) {}

    /// Room for a record with that payload, wherever it goes? If not, the reader will say when there is.
    bool has_room(std::size_t payload) {
        const std::size_t bytes = record_bytes(payload);
        const std::size_t needed = to_end() < bytes ? to_end() + bytes : bytes;
        if (written_ + needed - read_ <= capacity_) return true;
        read_ = header_->read.load(std::memory_order_acquire);
        if (written_ + needed - read_ <= capacity_) return true;
        // Flag first, then look again: the reader looks at the flag after it has published (Dekker).
        header_->wants_room.store(1, std::memory_order_seq_cst);
        read_ = header_->read.load(std::memory_order_seq_cst);
        return written_ + needed - read_ <= capacity_;
    }

    /// Precondition: has_room(message.size()).
    void push(Record record, Bytes message = {}) {
        const std::size_t bytes = record_bytes(message.size());
        if (to_end() < bytes) {
            const Record skip{Record::Kind::skip, 0, static_cast<std::uint32_t>(to_end())};
            std::memcpy(place(), &skip, sizeof skip);
            written_ += to_end();
        }
        std::memcpy(place(), &record, sizeof record);
        if (!message.empty()) std::memcpy(place() + sizeof record, message.data(), message.size());
        written_ += bytes;
    }

    [[nodiscard]] bool unpublished() const { return published_ != written_; }
    /// What was pushed, and every store before it, becomes visible to the reader.
    void publish() {
        published_ = written_;
        header_->written.store(written_, std::memory_order_release);
    }

private:
    [[nodiscard]] std::size_t to_end() const { return capacity_ - (written_ & (capacity_ - 1)); }
    [[nodiscard]] std::byte* place() const { return ring_ + (written_ & (capacity_ - 1)); }

    LaneHeader* header_ = nullptr;
    std::byte* ring_ = nullptr;
    std::size_t capacity_ = 0;
    std::uint64_t written_ = 0;
    std::uint64_t published_ = 0;
    std::uint64_t read_ = 0;  // as far as known
};

/// The owner's side. What the writer left there is checked before use: a writer that lies, or died in the middle, makes
/// next() say so, and nothing outside the ring is touched.
class LaneReader {
public:
    LaneReader() = default;
    LaneReader(LaneHeader* header, const std::byte* ring, std::size_t capacity)
        : header_(header), ring_(ring), capacity_(capacity) {}

    enum class Got : std::uint8_t { nothing, record, nonsense };
    /// The next record; `message` is its bytes in the ring, which stay until release().
    Got next(Record& record, Bytes& message) {
        while (true) {
            if (read_ == written_) {
                written_ = header_->written.load(std::memory_order_acquire);
                if (read_ == written_) return Got::nothing;
                if (written_ - read_ > capacity_ || written_ % sizeof(Record) != 0) return Got::nonsense;
            }
            const std::size_t offset = read_ & (capacity_ - 1);
            const std::size_t available = std::min<std::uint64_t>(written_ - read_, capacity_ - offset);
            std::memcpy(&record, ring_ + offset, sizeof record);
            switch (record.kind) {
                case Record::Kind::notice:
                    read_ += sizeof record;
                    return Got::record;
                case Record::Kind::message:
                    if (record.size == 0 || record.size > max_message_bytes || record_bytes(record.size) > available)
                        return Got::nonsense;
                    message = {ring_ + offset + sizeof record, record.size};
                    read_ += record_bytes(record.size);
                    return Got::record;
                case Record::Kind::skip:
                    if (record.size != capacity_ - offset || record.size > available) return Got::nonsense;
                    read_ += record.size;
                    break;
                default:
                    return Got::nonsense;
            }
        }
    }

    /// Anything left, as far as can be seen?
    [[nodiscard]] bool empty() const { return header_->written.load(std::memory_order_acquire) == read_; }

    /// What was read may be overwritten. True: the writer waits for this and has to be told. Published a quarter of the
    /// ring at a time: the writer's room is then never less than it waits for, and the line moves rarely.
    bool release() {
        if (read_ - published_ < capacity_ / 4) return false;
        published_ = read_;
        header_->read.store(read_, std::memory_order_seq_cst);
        if (header_->wants_room.load(std::memory_order_seq_cst) == 0) return false;
        header_->wants_room.store(0, std::memory_order_relaxed);
        return true;
    }

private:
    LaneHeader* header_ = nullptr;
    const std::byte* ring_ = nullptr;
    std::size_t capacity_ = 0;
    std::uint64_t read_ = 0;
    std::uint64_t written_ = 0;    // as far as known
    std::uint64_t published_ = 0;  // of read_
};

}  // namespace incast::transport::shm

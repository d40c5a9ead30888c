// One direction of one pair of endpoints: messages and notices in posting order, as records in a ring that the reader
// owns and the writer keeps a copy of.
//
// A record is a header of 8 bytes and, for messages, the bytes behind it, padded to 8. It never wraps: what is left at
// the end is skipped by a record of its own. Positions only grow; the place is position mod capacity.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include <incast/transport.h>

namespace incast::transport::rio {

struct Record {
    enum class Kind : std::uint16_t { message = 1, notice, skip };
    Kind kind{};
    std::uint16_t value = 0;  // notice: its value
    std::uint32_t size = 0;   // message: bytes; skip: bytes up to the end
};
static_assert(sizeof(Record) == 8);

constexpr std::uint64_t record_bytes(std::uint64_t payload) {
    return sizeof(Record) + (payload + 7) / 8 * 8;
}

/// The writer's side. What was pushed goes to the reader in pieces: bytes(), then sent().
class LaneWriter {
public:
    /// A power of two.
    explicit LaneWriter(std::size_t capacity) : capacity_(capacity), ring_(new std::byte[capacity]()) {}

    /// Room for a record with that payload, wherever it goes, if the reader has read up to `read`?
    [[nodiscard]] bool has_room(std::size_t payload, std::uint64_t read) const;
    /// Precondition: has_room(message.size()).
    void push(Record record, Bytes message = {});

    [[nodiscard]] std::uint64_t written() const { return written_; }
    [[nodiscard]] std::uint64_t sent() const { return sent_; }
    /// The next bytes to send: up to position `end`, up to the end of the ring.
    [[nodiscard]] Bytes bytes(std::uint64_t end) const;
    /// The same, whole records of at most `most` bytes without skips, `start` the position of the first.
    [[nodiscard]] Bytes records(std::uint64_t end, std::size_t most, std::uint64_t& start) const;
    void sent(std::uint64_t position) { sent_ = position; }
    /// Forgets what was not sent.
    void drop_unsent() { written_ = sent_; }

private:
    [[nodiscard]] std::size_t offset(std::uint64_t position) const { return position & (capacity_ - 1); }
    [[nodiscard]] std::size_t to_end() const { return capacity_ - offset(written_); }

    std::size_t capacity_;
    std::unique_ptr<std::byte[]> ring_;
    std::uint64_t written_ = 0;
    std::uint64_t sent_ = 0;
};

/// The reader's side. What the writer says is checked before use: one that lies makes next() say so, and nothing
/// outside the bytes it has is touched.
class LaneReader {
public:
    enum class Got : std::uint8_t { nothing, record, nonsense };

    /// From that position on.
    void start(std::uint64_t position);
    /// The next record of a ring of `capacity` bytes that is written up to `written`; `message` lies in the ring.
    Got next(const std::byte* ring, std::size_t capacity, std::uint64_t written, Record& record, Bytes& message);
    /// Records that came by themselves (CM), the first at `position`; they lie there until all have been taken.
    /// False: that makes no sense.
    bool take(std::uint64_t position, Bytes records, std::size_t capacity);
    [[nodiscard]] bool has_taken() const { return !taken_.empty(); }
    Got next_taken(Record& record, Bytes& message);

    [[nodiscard]] std::uint64_t read() const { return read_; }

private:
    Got parse(Bytes available, Record& record, Bytes& message);

    std::uint64_t read_ = 0;
    Bytes taken_;
};

}  // namespace incast::transport::rio

// The sending side of one direction of a channel, sans IO: bytes in, writes out, credits back. It decides what is
// written where; who drives it posts the writes, and says what became of them.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include <incast/transport.h>

#include "channel/ring.h"

namespace incast::channel {

struct SenderSettings {
    Shape shape;                      // of the peer's ring
    Way announce = Way::doorbell;     // how the peer hears of a write
    Way acknowledge = Way::doorbell;  // how credits come back
};

class Sender {
public:
    /// `staging`: shape.bytes() of memory in which buffers are put together. `cells`: shape.cells() places in which the
    /// peer's credits appear. Both outlive the sender.
    Sender(const SenderSettings& settings, std::span<std::byte> staging, Bytes cells);

    // --- the application

    /// Copies as many bytes as there is room for, and returns how many. They may wait for more until flush(). None are
    /// taken after finish().
    std::size_t write(Bytes bytes);
    /// The same without a copy: the bytes stay as they are until released() has come to the position behind them.
    std::size_t write_in_place(Bytes bytes);
    /// What was written in place and has not been posted yet is copied after all: the caller has its memory back.
    void keep();
    /// Bytes that close the buffer which is filled.
    [[nodiscard]] std::size_t to_fill() const { return capacity(shape_) - fill_; }
    /// What was written leaves, though its buffer is not full. Until it can, more may join it.
    void flush() { leaves_ = fill_ > 0; }
    /// Nothing more is written: the last buffer says so.
    void finish() { is_finishing_ = true; }
    [[nodiscard]] bool has_room() const { return !is_finishing_ && can_fill(); }
    [[nodiscard]] std::uint64_t written() const { return written_; }
    /// Bytes of the stream whose memory is the caller's again.
    [[nodiscard]] std::uint64_t released() const { return released_; }
    /// The last buffer was posted.
    [[nodiscard]] bool is_finished() const { return is_closed_ && posted_ + 1 == open_; }

    // --- the transport

    /// A write into the peer's ring.
    struct Outgoing {
        Bytes head;
        Bytes body;            // in `staging`, unless in_place
        std::uint64_t offset;  // in the ring
        std::uint32_t slot;    // names it in completed()
        std::uint64_t number;  // of the buffer
        bool in_place;
    };
    /// The next one, the same until posted().
    std::optional<Outgoing> next();
    /// It was taken. `is_pending`: completed() follows.
    void posted(bool is_pending);
    void completed(std::uint32_t slot);
    /// Way::memory and Way::doorbell: takes the credits that have appeared; true if there were any. Called as often as
    /// one likes.
    bool look();
    /// Way::doorbell: there is no room, and the peer is to be asked to ring when it has a credit that is newer than
    /// this one. Nothing: there is room, or it was asked.
    [[nodiscard]] std::optional<std::uint64_t> wish() const;
    void wish_posted();
    /// Way::doorbell: the notice that was asked for was polled; what it is about is placed.
    void rung();
    /// Way::message: the peer has emptied every buffer up to this number.
    void told(std::uint64_t number);
    /// The cell in which the next credit will appear, in `cells`: for who mirrors it.
    [[nodiscard]] std::uint64_t next_cell() const { return std::uint64_t{cell_} * sizeof(CreditCell); }
    /// The peer broke the rules: nothing more is sent.
    [[nodiscard]] bool is_broken() const { return broken_ != nullptr; }
    /// Which rule; null: none. Static.
    [[nodiscard]] const char* broken() const { return broken_; }
    [[nodiscard]] bool has_pending() const { return pending_ > 0; }

private:
    void credited(std::uint64_t number);
    struct Slot {
        const std::byte* in_place = nullptr;
        std::uint64_t end = 0;     // position in the stream behind its bytes
        std::uint32_t length = 0;  // with last_flag
        std::uint32_t crc = 0;     // of its bytes
        bool is_pending = false;
    };

    [[nodiscard]] bool has_credit() const { return open_ - credited_ <= shape_.buffers; }
    [[nodiscard]] bool can_fill() const {
        return has_credit() && !slots_[open_slot_].is_pending && !is_closed_ && !is_broken();
    }
    [[nodiscard]] std::span<std::byte> staged(std::uint32_t slot) const {
        return staging_.subspan(std::size_t{slot} * shape_.buffer_bytes, shape_.buffer_bytes);
    }
    [[nodiscard]] std::uint32_t after(std::uint32_t slot) const { return slot + 1 == shape_.buffers ? 0 : slot + 1; }
    void close(std::uint32_t length, const std::byte* in_place);
    void release();

    Shape shape_;
    bool check_;
    Way acknowledge_;
    std::span<std::byte> staging_;
    Bytes cells_;
    std::vector<Slot> slots_;
    std::uint64_t written_ = 0;
    std::uint64_t released_ = 0;
    std::uint64_t open_ = 1;  // the number of the buffer that is filled
    std::uint32_t open_slot_ = 0;
    std::uint32_t fill_ = 0;       // bytes in it
    std::uint64_t posted_ = 0;     // the number of the last one
    std::uint32_t post_slot_ = 0;  // of the one behind it
    std::uint64_t credited_ = 0;
    std::uint64_t asked_at_ = 0;   // the newest credit that was known then
    std::uint64_t free_ = 0;       // the number of the last one whose memory is free, of those posted
    std::uint32_t free_slot_ = 0;  // of the one behind it
    std::uint32_t cell_ = 0;       // of the next credit
    std::uint32_t pending_ = 0;
    bool leaves_ = false;
    bool is_asking_ = false;  // to be rung
    bool is_finishing_ = false;
    bool is_closed_ = false;  // the last buffer was closed
    const char* broken_ = nullptr;
    std::array<std::byte, max_head_bytes> head_{};
};

}  // namespace incast::channel

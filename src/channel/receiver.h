// The receiving side of one direction of a channel, sans IO: buffers of the ring in, bytes out, credits back. Whatever
// a peer wrote into the ring is checked before it is used; what cannot be ends the channel as broken.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include <incast/transport.h>

#include "channel/ring.h"

namespace incast::channel {

struct ReceiverSettings {
    Shape shape;                      // of the own ring
    Way announce = Way::doorbell;     // how the peer says that it wrote
    Way acknowledge = Way::doorbell;  // how it hears of credits
};

class Receiver {
public:
    /// `ring`: shape.bytes() in which the peer's writes appear, at any time and in any order that its way of announcing
    /// allows; it outlives the receiver.
    Receiver(const ReceiverSettings& settings, Bytes ring);

    // --- the transport

    /// Way::doorbell: the notice of one more write was polled, which is placed.
    void rung();
    /// Way::message: the peer says that it wrote every buffer up to this number; they may be placed later.
    void told(std::uint64_t number);
    /// Way::doorbell: the peer has no room, knows credits up to this number, and waits to be rung.
    void wanted(std::uint64_t number);
    struct Credit {
        std::uint64_t number;  // every buffer up to this one is empty
        std::uint64_t offset;  // of its cell, in those of the peer
        bool is_new;           // it is to be written; if not, it was
        bool rings;            // the peer waits: with a notice
    };
    /// What the peer is to hear now, the same until credit_posted().
    [[nodiscard]] std::optional<Credit> credit() const;
    void credit_posted(const Credit& credit);
    /// Where the next buffer will be looked at, in the ring: for who mirrors it.
    [[nodiscard]] std::uint64_t next_offset() const { return std::uint64_t{slot_} * shape_.buffer_bytes; }
    /// Something may be there that looking would find: who waits goes on looking.
    [[nodiscard]] bool must_look() const;

    // --- the application

    /// The bytes that can be read at once, up to the end of a buffer; empty: none now. They stay as they are until
    /// consume(), if the peer is true.
    Bytes readable();
    /// Precondition: not more than readable().
    void consume(std::size_t bytes);
    /// Copies what there is, across buffers, and returns how much.
    std::size_t read(std::span<std::byte> into);
    /// The peer has finished, and all was read.
    [[nodiscard]] bool has_ended() const { return has_ended_; }
    /// The peer broke the rules: nothing more is read.
    [[nodiscard]] bool is_broken() const { return broken_ != nullptr; }
    /// Which rule; null: none. Static.
    [[nodiscard]] const char* broken() const { return broken_; }

private:
    void announced(std::uint64_t number);
    /// Opens the next buffer if it is there.
    void look();
    [[nodiscard]] bool is_true(const BufferHeader& header) const;
    void empty_buffer();

    Shape shape_;
    Way announce_;
    Way acknowledge_;
    Bytes ring_;
    std::uint64_t announced_ = 0;  // the number of the newest buffer that is said to be there
    std::uint64_t emptied_ = 0;    // of the newest one that was emptied: the next is looked at, or open
    std::uint64_t credited_ = 0;
    std::uint64_t wanted_at_ = 0;  // the newest credit that the peer knew of when it asked to be rung
    std::uint32_t cell_ = 0;       // of the next credit
    std::uint32_t slot_ = 0;
    std::uint32_t begin_ = 0;  // unread bytes of the open buffer
    std::uint32_t end_ = 0;
    bool is_wanted_ = false;  // the peer asked, and was not rung since
    bool is_open_ = false;
    bool is_last_ = false;  // the open one
    bool has_ended_ = false;
    const char* broken_ = nullptr;
};

}  // namespace incast::channel

// One connection of the framed engine: posts become frames, received bytes become events. Sans-IO: a link moves the
// bytes of its streams (one or more ordered byte streams in each direction) between two sessions. Used by tcp; made for
// any ordered link.
//
// The link per stream: space() -> fill it -> filled() ; parse() ; and gather() -> send it -> sent(). Connecting, and
// telling the session who the peer is, is the link's business too.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <incast/transport.h>

#include "transport/framed/bodies.h"
#include "transport/framed/event_writer.h"
#include "transport/framed/frame.h"
#include "transport/framed/order.h"
#include "transport/framed/receiver.h"
#include "transport/framed/sender.h"
#include "transport/regions.h"

namespace incast::transport::framed {

struct SessionOptions {
    Peer self{};
    Peer peer{};
    std::uint32_t self_incarnation = 0;
    std::uint32_t peer_incarnation = 0;
    std::uint32_t streams = 1;
    std::uint32_t max_posted = 1024;      // large writes and reads that may be pending
    std::uint32_t max_peer_reads = 1024;  // reads the peer may have pending here: its max_posted
    std::size_t staging_bytes = 32768;    // receive buffer per stream
    std::size_t copied_bytes = 262144;    // send buffer per stream, for headers, messages and small bodies
    std::size_t copy_below_bytes = 2048;  // bodies smaller than this are copied: `done` at once
    std::uint32_t first_sequence = 0;     // of the frames of both sides; tests begin near the end of 32 bits
    /// Not 0: bodies of writes travel beside the (one) stream and may get lost; a power of two, of which so many are on
    /// their way at most.
    std::uint32_t bodies_beside = 0;
};

class Session {
public:
    enum class Effect : std::uint8_t { done, held, violation };

    Session(const SessionOptions& options, const Regions& regions);
    Session(const Session&) = delete;
    Session& operator=(const Session&) = delete;

    // --- the caller's side: the caller has checked sizes, the own region, and that the key is this peer's
    // -----------------------
    Post send(Bytes message);
    Post write(Bytes head, Bytes body, const Key& key, std::uint64_t offset, Notice notice, Token token);
    Post read(const Key& key, std::uint64_t offset, std::span<std::byte> into, Token token);
    /// What posts owe the caller without any bytes moving: faults, room. True if something is left for want of room in
    /// `events`.
    bool settle(EventWriter& events);
    /// Gives up: completes what is pending with `status`, as far as `events` has room. True when nothing is left.
    bool abandon(Status status, EventWriter& events);
    /// Bytes on their way come from that memory, or go to it.
    [[nodiscard]] bool uses(Bytes memory) const;

    // --- the link's side
    // --------------------------------------------------------------------------------------------------
    [[nodiscard]] bool has_output(std::size_t stream) const {
        return !streams_[stream].sender.empty() && before_body() > 0;
    }
    /// Bytes of the stream that go before the next body, if there is one.
    [[nodiscard]] std::size_t before_body() const {
        return bodies_.empty() ? ~std::size_t{0} : bodies_.front().position - streams_[0].sender.sent_bytes();
    }
    /// Only then may a body be sent.
    [[nodiscard]] bool is_body_next() const { return !bodies_.empty() && before_body() == 0; }
    struct Piece {
        FrameHeader header;
        Bytes bytes;
    };
    /// What of the next body fits in so many bytes. Precondition: is_body_next().
    [[nodiscard]] Piece next_piece(std::size_t room) const;
    /// That was sent. False, and nothing happened: `events` has no room for the completion.
    bool piece_sent(std::size_t bytes, EventWriter& events);
    /// A piece, whole, or an empty one in place of one that got lost. False: it breaks the rules.
    bool take_piece(Bytes piece);
    [[nodiscard]] std::size_t gather(std::size_t stream, std::span<Bytes> pieces, const EventWriter& events) const {
        return streams_[stream].sender.gather(pieces, events.room());
    }
    /// Posted to the stream, and not sent().
    [[nodiscard]] std::uint64_t unsent_bytes(std::size_t stream) const {
        return streams_[stream].sender.posted_bytes() - streams_[stream].sender.sent_bytes();
    }
    /// A piece that gather() gave is a copy in the session's own memory.
    [[nodiscard]] bool is_copied(std::size_t stream, Bytes piece) const {
        return streams_[stream].sender.has_copied(piece);
    }
    void sent(std::size_t stream, std::size_t bytes, EventWriter& events) {
        streams_[stream].sender.sent(bytes, options_.peer, events);
    }
    [[nodiscard]] Receiver::Space space(std::size_t stream, std::uint64_t poll_number) {
        return streams_[stream].receiver.space(poll_number);
    }
    void filled(std::size_t stream, std::size_t bytes) { streams_[stream].receiver.filled(bytes); }
    /// Acts on what `stream` received, and on what other streams held back for it.
    Parse parse(std::size_t stream, EventWriter& events, std::uint64_t poll_number);
    /// That stream, or any, holds back an event: parse again once there is room for events.
    [[nodiscard]] bool blocked(std::size_t stream) const { return streams_[stream].receiver.blocked(); }
    [[nodiscard]] bool blocked() const;
    /// Bodies that went through the send buffer, or were read ahead: copied once more than the link itself does.
    [[nodiscard]] std::uint64_t copied_bytes() const { return copied_bytes_; }
    /// What the peer did wrong, for a log line.
    [[nodiscard]] const char* violation() const { return violation_; }

    // --- the receivers' side
    // ----------------------------------------------------------------------------------------------
    [[nodiscard]] const Order& order() const { return order_; }
    Parse violate(const char* what) {
        violation_ = what;
        return Parse::violation;
    }
    /// Everything in a header that does not depend on other frames (EB-T8).
    bool check(const FrameHeader& frame);
    /// Where its payload goes; checked before. Nowhere, though it has one: its region was released meanwhile.
    std::span<std::byte> destination(const FrameHeader& frame);
    void count_copied(std::size_t bytes) { copied_bytes_ += bytes; }
    void hand_out(const FrameHeader& frame, const std::byte* message, EventWriter& events);
    /// All bytes of a frame (not a message) are placed.
    Effect take_effect(const FrameHeader& frame, EventWriter& events);

private:
    struct Stream {
        Sender sender;
        Receiver receiver;
    };
    struct Read {
        std::span<std::byte> into;
        Token token = 0;
        bool pending = false;
        bool arriving = false;  // a reply is being received
    };

    /// False: outside the region, or the key of an earlier incarnation.
    [[nodiscard]] bool reaches(const Key& key, std::uint64_t offset, std::uint64_t bytes) const {
        return key.generation == options_.peer_incarnation && Regions::inside(key.bytes, offset, bytes);
    }
    Post write_beside(Bytes head, Bytes body, const Key& key, std::uint64_t offset, Notice notice, Token token);
    /// What a write of so many bytes says of where it goes.
    bool check_write(const FrameHeader& frame, std::uint64_t bytes);
    /// The frame of a write is here.
    void end_body(const FrameHeader& frame) {
        if (frame.tag != 0 && !bodies_.end(frame.tag)) is_damaged_ = true;
    }
    Post fault(Token token);
    Post come_back() {
        room_wanted_ = true;
        return Post::again;
    }
    [[nodiscard]] Sender& choose(std::size_t bytes);
    void put_header(Sender& sender, FrameHeader frame);
    bool answer(const FrameHeader& request);
    bool fail_check(const char* what) {
        violation_ = what;
        return false;
    }
    void finish_read(std::uint32_t tag, Status status, EventWriter& events);
    [[nodiscard]] bool has_room() const;

    SessionOptions options_;
    const Regions& regions_;
    std::vector<Stream> streams_;
    std::size_t current_stream_ = 0;
    std::uint32_t next_sequence_;
    Order order_;
    Bodies bodies_;
    bool is_damaged_ = false;  // a body since the last notice
    std::vector<Read> reads_;  // by tag
    std::vector<std::uint32_t> free_tags_;
    std::vector<Token> faults_;  // to be reported
    std::uint64_t copied_bytes_ = 0;
    const char* violation_ = "";
    bool room_wanted_ = false;
};

}  // namespace incast::transport::framed

// The one place where units post: adds identity to messages, counts, and short-cuts what a node sends to itself.
//
// Self traffic (EB-M3, `copy`): messages go through a ring, bodies are copied into the slot; order is that of the
// contract.
#pragma once

#include <cstdint>
#include <cstring>
#include <memory>
#include <span>

#include "base/fifo.h"
#include "protocol/node.h"
#include "wire/control.h"

namespace incast::protocol {

/// What every step looks at is one cache line.
class alignas(64) Port {
public:
    Port(const Config& config, Peer self, std::uint32_t incarnation, Transport& transport)
        : self_(self), incarnation_(incarnation), config_(config), transport_(transport) {}

    [[nodiscard]] const Config& config() const { return config_; }
    Transport& transport() { return transport_; }
    [[nodiscard]] const Transport& transport() const { return transport_; }
    [[nodiscard]] Peer self() const { return self_; }
    [[nodiscard]] std::size_t self_index() const { return static_cast<std::size_t>(self_); }
    [[nodiscard]] std::uint32_t incarnation() const { return incarnation_; }
    Counters& counters() { return counters_; }

    /// The newest view this node knows; travels in every message and head.
    std::uint32_t view = 0;

    template <wire::ControlKind kind>
    wire::ControlMessage<kind> message() const {
        return wire::ControlMessage<kind>(config_.run, view, incarnation_, config_.control_version);
    }

    /// True: on its way. False: `again` (a room event will wake the node) or the peer is gone (its down event will
    /// clean up).
    template <wire::ControlKind kind>
    bool send(Peer peer, wire::ControlMessage<kind>& message) {
        const Bytes bytes = message.bytes();
        const bool sent =
            peer == self_ ? push_self(Kind::message, 0, bytes) : transport_.send(peer, bytes) == Post::done;
        ++(sent ? counters_.messages_sent : counters_.back_pressure);
        return sent;
    }

    /// As many messages as the entries need; what was sent is popped. False: some are left.
    template <wire::ControlKind kind>
    bool send_all(Peer peer, base::Fifo<typename wire::Traits<kind>::Entry>& entries) {
        while (!entries.empty()) {
            auto next = message<kind>();
            std::size_t taken = 0;
            while (taken < entries.size() && next.add(entries[taken])) {
                ++taken;
            }
            if (!send(peer, next)) {
                return false;
            }
            entries.pop(taken);
        }
        return true;
    }

    /// The same, of a queue that shares its memory with others.
    template <wire::ControlKind kind>
    bool send_all(Peer peer, base::Queues<typename wire::Traits<kind>::Entry>& queues,
                  typename base::Queues<typename wire::Traits<kind>::Entry>::Queue& entries) {
        while (!entries.empty()) {
            auto next = message<kind>();
            queues.each(entries, [&](const auto& entry) { return next.add(entry); });
            if (!send(peer, next)) {
                return false;
            }
            for (std::uint32_t sent = next.count(); sent > 0; --sent) {
                queues.pop(entries);
            }
        }
        return true;
    }

    /// Only for peers other than self.
    Post write(Peer peer, const wire::HeadWords& head, Slice body, Target target, Notice notice, Token token) {
        const Post post = transport_.write(peer, std::as_bytes(std::span(head)), body, target, notice, token);
        counters_.back_pressure += post == Post::again ? 1 : 0;
        return post;
    }

    /// More of the body of the write before.
    Post write_more(Peer peer, Slice body, Target target, Notice notice, Token token) {
        const Post post = transport_.write(peer, {}, body, target, notice, token);
        counters_.back_pressure += post == Post::again ? 1 : 0;
        return post;
    }

    /// A notice from this node to itself; the caller has placed head and body.
    bool notify_self(std::uint16_t slot) { return push_self(Kind::notice, slot, {}); }
    [[nodiscard]] bool self_room() const { return used_ + record_bytes(max_message_bytes) <= ring_bytes; }

    [[nodiscard]] bool self_pending() const { return used_ > 0; }
    /// Hands over what was queued before the call: message(Bytes) or notice(slot). Handlers do not send (units send in
    /// flush).
    template <class OnMessage, class OnNotice>
    bool drain_self(OnMessage&& on_message, OnNotice&& on_notice) {
        std::size_t left = used_;
        const bool any = left > 0;
        while (left > 0) {
            Record record;
            std::memcpy(&record, ring_.get() + head_, sizeof record);
            const std::size_t size = record_bytes(record.size);
            if (record.kind == Kind::message) {
                on_message(Bytes{ring_.get() + head_ + sizeof record, record.size});
            } else if (record.kind == Kind::notice) {
                on_notice(record.value);
            }
            head_ = (head_ + size) % ring_bytes;
            used_ -= size;
            left -= size;
        }
        if (used_ == 0) {
            head_ = 0;  // what was touched before is used again: of most nodes' rings that is a page
        }
        return any;
    }

private:
    enum class Kind : std::uint16_t { message, notice, skip };
    struct Record {
        Kind kind = Kind::message;
        std::uint16_t value = 0;
        std::uint32_t size = 0;
    };
    static constexpr std::size_t ring_bytes = std::size_t{1} << 18;

    static std::size_t record_bytes(std::size_t payload) { return (sizeof(Record) + payload + 7) / 8 * 8; }

    bool push_self(Kind kind, std::uint16_t value, Bytes payload) {
        const std::size_t size = record_bytes(payload.size());
        std::size_t tail = (head_ + used_) % ring_bytes;
        const std::size_t to_end = ring_bytes - tail;
        if (to_end < size) {  // records do not wrap: skip the rest
            if (used_ + to_end + size > ring_bytes) {
                return false;
            }
            const Record skip{Kind::skip, 0, static_cast<std::uint32_t>(to_end - sizeof(Record))};
            std::memcpy(ring_.get() + tail, &skip, sizeof skip);
            used_ += to_end;
            tail = 0;
        }
        if (used_ + size > ring_bytes) {
            return false;
        }
        const Record record{kind, value, static_cast<std::uint32_t>(payload.size())};
        std::memcpy(ring_.get() + tail, &record, sizeof record);
        if (!payload.empty()) {
            std::memcpy(ring_.get() + tail + sizeof record, payload.data(), payload.size());
        }
        used_ += size;
        return true;
    }

    Peer self_;
    std::uint32_t incarnation_;
    const Config& config_;
    Transport& transport_;
    std::size_t used_ = 0;  // of ring_
    std::size_t head_ = 0;
    std::unique_ptr<std::byte[]> ring_ = std::make_unique_for_overwrite<std::byte[]>(ring_bytes);
    Counters counters_;
};

}  // namespace incast::protocol

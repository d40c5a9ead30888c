// What a hub posts: control messages, buffers, credits.
#include <algorithm>
#include <atomic>
#include <cstring>

#include "channel/hub/hub.h"

namespace incast::channel {

namespace {

/// In a notice, behind the number of the channel: 0 for a buffer.
constexpr std::uint16_t credit_bit = 1;

std::uint16_t notice_of(std::uint16_t number, std::uint16_t bit) {
    return static_cast<std::uint16_t>(number << 1U | bit);
}

/// Of a write of the buffer in that slot.
Token token_of(const Channel& channel, std::uint32_t slot) {
    return (Token{channel.number} + 1) << 32U | slot;
}

}  // namespace

bool Hub::is_blocked(Peer peer) const {
    const auto found = up_.find(static_cast<std::uint32_t>(peer));
    return found != up_.end() && found->second;
}

void Hub::work(Channel& channel) {
    busy_.reset(channel.number);
    if (channel.fault == Fault::none) {
        if (channel.sender->is_broken()) drop(channel.peer, channel.sender->broken());
        if (channel.receiver->is_broken()) drop(channel.peer, channel.receiver->broken());
    }
    bool is_done = true;
    if (channel.fault == Fault::none) {
        is_done = post_control(channel);
        if (is_done && channel.is_opened && !channel.is_closed) {
            if (channel.is_given_back) drain(channel);
            is_done = post_buffers(channel) && post_wrote(channel) && post_wish(channel) && post_credit(channel);
        }
    }
    if (!channel.is_given_back)
        update(channel);
    else if (is_done)
        end(channel);
}

/// Who gave a channel back reads no more.
void Hub::drain(Channel& channel) {
    for (Bytes rest = readable(channel); !rest.empty(); rest = readable(channel))
        channel.receiver->consume(rest.size());
    channel.was_readable = false;
}

void Hub::refuse() {
    while (!refusals_.empty() && !is_blocked(refusals_.back().peer)) {
        const auto [peer, control] = refusals_.back();
        if (send(peer, control) == Post::again)
            up_[static_cast<std::uint32_t>(peer)] = true;
        else
            refusals_.pop_back();
    }
}

/// The application gave it back: it ends when both sides have said so, or the peer is no more.
void Hub::end(Channel& channel) {
    if (channel.fault == Fault::none || channel.fault == Fault::reset) {
        const bool is_done = channel.sender->is_finished() || channel.is_aborted || channel.is_closed_there;
        if (channel.is_opened && !channel.is_closed && is_done && channel.wrote == 0 &&
            !channel.sender->has_pending()) {
            if (!say_closed(channel)) return;
            channel.is_closed = true;
        }
    }
    const bool was_never_known = !channel.is_opened && channel.says_open;
    const bool is_over = (channel.is_closed && channel.is_closed_there) || channel.is_gone || was_never_known;
    if (is_over && !channel.sender->has_pending()) free(channel);
}

bool Hub::say_closed(Channel& channel) {
    const bool is_finished = channel.sender->is_finished();
    if (channel.peer == self_) {
        has_taken_ = true;
        if (channel.twin != nullptr)
            take_closed(*channel.twin, is_finished);
        else
            channel.is_closed_there = true;
        return true;
    }
    return settle(channel, send(channel.peer, {.what = Control::What::closed,
                                               .is_finished = static_cast<std::uint8_t>(is_finished),
                                               .to = channel.there}));
}

bool Hub::post_control(Channel& channel) {
    if (channel.says_open) {
        if (channel.is_given_back) return true;
        const Control control{.what = Control::What::open,
                              .kind = channel.kind,
                              .announce = channel.announce,
                              .acknowledge = channel.acknowledge,
                              .from = channel.number,
                              .port = channel.port,
                              .buffers = channel.shape.buffers,
                              .buffer_bytes = channel.shape.buffer_bytes,
                              .batch = channel.shape.batch};
        if (!settle(channel, send(channel.peer, control, channel.key))) return false;
        channel.says_open = false;
    }
    if (channel.says_opened) {
        const Control control{.what = Control::What::opened, .to = channel.there, .from = channel.number};
        if (!settle(channel, send(channel.peer, control, channel.key))) return false;
        channel.says_opened = false;
    }
    return true;
}

Post Hub::send(Peer peer, const Control& control, Bytes key) {
    return endpoint_.send(peer, Written(control, key).bytes());
}

bool Hub::settle(Channel& channel, Post post) {
    if (post == Post::done || post == Post::pending) {
        has_happened_ = true;
        return true;
    }
    if (post == Post::again) {
        touch(channel);
        const auto found = up_.find(static_cast<std::uint32_t>(channel.peer));
        if (found != up_.end()) found->second = true;
    } else {
        fail(channel, Fault::lost);  // its peer_down is on its way
    }
    return false;
}

/// A buffer at a time: the peer takes the first one while the next is copied.
std::size_t Hub::write_through(Channel& channel, Bytes bytes) {
    Sender& sender = *channel.sender;
    if (bytes.size() < sender.to_fill() || is_blocked(channel.peer)) return 0;
    if (channel.peer != self_ && !posts_copy_) return 0;
    std::size_t done = 0;
    bool is_posted = post_control(channel);
    while (is_posted && bytes.size() - done >= sender.to_fill() && sender.has_room()) {
        const Bytes part = bytes.subspan(done, sender.to_fill());
        done += part.size() == capacity(channel.shape) ? sender.write_in_place(part) : sender.write(part);
        is_posted = post_buffers(channel);
    }
    sender.keep();
    return done;
}

bool Hub::post_buffers(Channel& channel) {
    Sender& sender = *channel.sender;
    sender.flush();
    if (channel.is_closed_there || channel.is_aborted) return true;
    for (auto out = sender.next(); out; out = sender.next()) {
        if (channel.peer == self_) {
            if (channel.twin == nullptr) return true;
            hand_over(channel, *out);
            continue;
        }
        const Target target{channel.remote, channel.cells_bytes() + out->offset};
        const Notice notice =
            channel.announce == Way::doorbell ? Notice(notice_of(channel.there, 0)) : Notice(std::nullopt);
        const Token token = token_of(channel, out->slot);
        Post post{};
        if (out->in_place) {
            post = endpoint_.write_from(channel.peer, out->head, out->body, target, notice, token);
        } else {
            Slice body{.region = channel.region, .length = static_cast<std::uint32_t>(out->body.size())};
            if (body.length > 0) body.offset = static_cast<std::uint64_t>(out->body.data() - channel.memory.data());
            post = endpoint_.write(channel.peer, out->head, body, target, notice, token);
        }
        if (!settle(channel, post)) return false;
        sender.posted(post == Post::pending);
        if (channel.announce == Way::message) channel.wrote = out->number;
    }
    return true;
}

bool Hub::post_wrote(Channel& channel) {
    if (channel.wrote == 0) return true;
    const Control control{.what = Control::What::wrote, .to = channel.there, .number = channel.wrote};
    if (!settle(channel, send(channel.peer, control))) return false;
    channel.wrote = 0;
    return true;
}

/// Within the hub: a write is a copy, and its notice a call.
void Hub::hand_over(Channel& channel, const Sender::Outgoing& out) {
    Channel& twin = *channel.twin;
    std::byte* place = twin.memory.data() + twin.cells_bytes() + out.offset;
    std::memcpy(place, out.head.data(), out.head.size());
    if (!out.body.empty()) std::memcpy(place + out.head.size(), out.body.data(), out.body.size());
    channel.sender->posted(false);
    twin.receiver->rung();
    touch(twin);
    has_happened_ = has_taken_ = true;
}

/// Without room, and without a credit that has come meanwhile.
bool Hub::post_wish(Channel& channel) {
    if (!channel.sender->wish() || channel.peer == self_ || channel.is_closed_there || channel.is_aborted) return true;
    if (take_credits(channel)) {
        touch(channel);  // what waits for room may leave
        has_happened_ = has_taken_ = true;
    }
    const auto known = channel.sender->wish();
    if (!known) return true;
    const Control control{.what = Control::What::wants, .to = channel.there, .number = *known};
    if (!settle(channel, send(channel.peer, control))) return false;
    channel.sender->wish_posted();
    return true;
}

bool Hub::post_credit(Channel& channel) {
    const auto credit = channel.receiver->credit();
    if (!credit || channel.is_closed_there) return true;
    const CreditCell cell = make_credit(credit->number);
    std::atomic_thread_fence(std::memory_order_release);  // what was read, was read before
    const Bytes head = std::as_bytes(std::span(&cell, 1));
    if (channel.peer == self_) {
        if (channel.twin == nullptr) return true;
        std::ranges::copy(head, channel.twin->memory.begin() + static_cast<std::ptrdiff_t>(credit->offset));
        (void)channel.twin->sender->look();
        touch(*channel.twin);
        has_happened_ = has_taken_ = true;
    } else if (channel.acknowledge == Way::message) {
        const Control control{.what = Control::What::emptied, .to = channel.there, .number = credit->number};
        if (!settle(channel, send(channel.peer, control))) return false;
    } else {
        const Notice notice = credit->rings ? Notice(notice_of(channel.there, credit_bit)) : Notice(std::nullopt);
        const Bytes written = credit->is_new ? head : Bytes{};
        if (!settle(channel, endpoint_.write(channel.peer, written, {}, {channel.remote, credit->offset}, notice, 0)))
            return false;
    }
    channel.receiver->credit_posted(*credit);
    return true;
}

}  // namespace incast::channel

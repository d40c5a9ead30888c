// What a hub takes from its endpoint: everything in it was said by peers, and is checked.
#include <algorithm>

#include "channel/hub/hub.h"

namespace incast::channel {

void Hub::take(const Event& event) {
    const auto peer = static_cast<std::uint32_t>(event.peer);
    switch (event.kind) {
        case Event::Kind::completed:
            return take_completion(event.token, event.status);
        case Event::Kind::message:
            return take_message(event.peer, {event.data, event.size_or_value});
        case Event::Kind::notice:
            return take_notice(event.peer, event.size_or_value);
        case Event::Kind::room: {
            const auto found = up_.find(peer);
            if (found != up_.end()) found->second = false;
            return;
        }
        case Event::Kind::peer_up:
            up_[peer] = false;
            break;
        case Event::Kind::peer_down:
            up_.erase(peer);
            std::erase_if(refusals_, [&](const Refusal& each) { return each.peer == event.peer; });
            lose_all(event.peer);
            break;
        case Event::Kind::knock:
            break;
    }
    PeerEvent kept{event, {}};
    if (event.kind == Event::Kind::knock) kept.greeting.assign(event.data, event.data + event.size_or_value);
    kept.event.data = nullptr;
    peer_events_.push_back(std::move(kept));
}

/// It broke the rules.
void Hub::drop(Peer peer, const char* why) {
    for (std::size_t at = used_.next(0); at != base::Bitmap::none; at = used_.next(at + 1))
        if (channels_[at]->peer == peer && channels_[at]->fault == Fault::none) channels_[at]->broken = why;
    leave(peer, Fault::broken);
}

/// It is a peer no longer.
void Hub::leave(Peer peer, Fault fault) {
    for (std::size_t at = used_.next(0); at != base::Bitmap::none; at = used_.next(at + 1))
        if (channels_[at]->peer == peer) fail(*channels_[at], fault);
    endpoint_.disconnect(peer);
}

void Hub::lose_all(Peer peer) {
    for (std::size_t at = used_.next(0); at != base::Bitmap::none; at = used_.next(at + 1)) {
        if (channels_[at]->peer != peer) continue;
        channels_[at]->is_gone = true;
        channels_[at]->has_remote = false;
        fail(*channels_[at], Fault::lost);
    }
}

Channel* Hub::from(Peer peer, std::uint16_t number) const {
    if (number >= channels_.size() || !channels_[number] || channels_[number]->peer != peer) return nullptr;
    return channels_[number].get();
}

void Hub::take_notice(Peer peer, std::uint16_t notice) {
    Channel* channel = from(peer, notice >> 1U);
    if (channel == nullptr || !channel->is_opened || channel->is_closed_there)
        return drop(peer, "it rang for a channel that is not open");
    if ((notice & 1U) == 0) {
        channel->receiver->rung();
    } else {
        mirror_cells(*channel);
        channel->sender->rung();
    }
    touch(*channel);
}

void Hub::take_completion(Token token, Status status) {
    const std::size_t number = (token >> 32U) - 1;
    if (number >= channels_.size() || !channels_[number]) return;
    Channel& channel = *channels_[number];
    channel.sender->completed(static_cast<std::uint32_t>(token));
    if (status == Status::remote_fault && !channel.is_closed_there)
        leave(channel.peer, Fault::lost);  // it is ending: its memory went before the rest of it
    touch(channel);
}

void Hub::take_message(Peer peer, Bytes message) {
    const auto received = parse(message);
    if (!received) return drop(peer, "it sent a message that is none of channels");
    const Control& control = received->control;
    if (control.what == Control::What::open) return take_open(peer, *received);
    Channel* channel = from(peer, control.to);
    const bool is_answer = control.what == Control::What::opened || control.what == Control::What::refused;
    if (channel == nullptr || channel->is_opened == is_answer || channel->says_open || channel->is_closed_there)
        return drop(peer, "it sent a message to a channel that is not open");
    touch(*channel);
    switch (control.what) {
        case Control::What::opened:
            return take_opened(*channel, *received);
        case Control::What::refused:
            channel->is_closed = channel->is_closed_there = true;
            return fail(*channel, control.fault == Fault::none ? Fault::refused : control.fault);
        case Control::What::closed:
            return take_closed(*channel, control.is_finished != 0);
        case Control::What::wrote:
            return channel->receiver->told(control.number);
        case Control::What::emptied:
            return channel->sender->told(control.number);
        case Control::What::wants:
            return channel->receiver->wanted(control.number);
        case Control::What::open:
            return;
    }
}

void Hub::take_open(Peer peer, const Received& received) {
    const Control& control = received.control;
    const Options options{.shape = {control.buffers, control.buffer_bytes, control.batch},
                          .kind = control.kind,
                          .announce = control.announce,
                          .acknowledge = control.acknowledge};
    const auto refuse = [&](Fault fault) {
        // Who asks faster than it can be told no is stopped here.
        if (refusals_.size() >= 4 * std::size_t{settings_.max_channels})
            return drop(peer, "it opens channels faster than it can be told no");
        refusals_.push_back({peer, {.what = Control::What::refused, .fault = fault, .to = control.from}});
    };
    const auto port = ports_.find(control.port);
    if (port == ports_.end()) return refuse(Fault::nobody);
    if (port->second.kind != options.kind || !is_valid(options.shape) ||
        options.shape.bytes() > settings_.longest_ring_bytes)
        return refuse(Fault::refused);
    if (port->second.waiting.size() >= port->second.backlog) return refuse(Fault::full);
    auto made = make(peer, options);
    if (!made) return refuse(Fault::full);
    Channel& channel = **made;
    auto remote = endpoint_.import_key(peer, Blob{{received.key.begin(), received.key.end()}});
    if (!remote) {
        free(channel);
        return drop(peer, "its key of memory is none");
    }
    channel.remote = *remote;
    channel.has_remote = true;
    channel.there = control.from;
    channel.is_opened = channel.says_opened = true;
    port->second.waiting.push_back(channel.number);
    touch(channel);
}

void Hub::take_opened(Channel& channel, const Received& received) {
    auto remote = endpoint_.import_key(channel.peer, Blob{{received.key.begin(), received.key.end()}});
    if (!remote) return drop(channel.peer, "its key of memory is none");
    channel.remote = *remote;
    channel.has_remote = true;
    channel.there = received.control.from;
    channel.is_opened = true;
}

void Hub::take_closed(Channel& channel, bool is_finished) {
    channel.is_closed_there = true;
    if (!is_finished) fail(channel, Fault::reset);
    touch(channel);
}

void Hub::mirror_buffer(Channel& channel) {
    if (!channel.is_mirrored) return;
    const std::uint64_t at = channel.cells_bytes() + channel.receiver->next_offset();
    const Bytes head = endpoint_.local({channel.region, static_cast<std::uint32_t>(max_head_bytes), at});
    std::copy_n(head.begin(), std::min(head.size(), max_head_bytes),
                channel.memory.begin() + static_cast<std::ptrdiff_t>(at));
}

void Hub::mirror_cells(Channel& channel) {
    if (!channel.is_mirrored) return;
    for (std::uint64_t at = 0; at < channel.shape.cells() * sizeof(CreditCell); at += sizeof(CreditCell)) {
        const Bytes head = endpoint_.local({channel.region, sizeof(CreditCell), at});
        std::copy_n(head.begin(), std::min(head.size(), sizeof(CreditCell)),
                    channel.memory.begin() + static_cast<std::ptrdiff_t>(at));
    }
}

/// Those that nobody was told of.
bool Hub::take_credits(Channel& channel) {
    mirror_cells(channel);
    return channel.sender->look();
}

void Hub::look(Channel& channel) {
    if (!channel.is_opened || channel.fault != Fault::none) return;
    const bool has_credit = take_credits(channel);
    const bool is_readable = !readable(channel).empty() || channel.receiver->has_ended();
    if (!has_credit && is_readable == channel.was_readable) return;
    channel.was_readable = is_readable;
    has_happened_ = true;
    touch(channel);
}

}  // namespace incast::channel

// A readout unit sends a contribution: writes it, or offers it to be read (EB-S1, EB-C2, EB-T1).
#include <algorithm>
#include <cstring>

#include "base/bitmap.h"
#include "protocol/builder_unit.h"
#include "protocol/readout_unit.h"

namespace incast::protocol {

using wire::ControlKind;

bool ReadoutUnit::write_self(const wire::HeadWords& head, std::uint32_t source, Slice body, std::uint16_t slot,
                             bool last) {
    if (last && !port_.self_room()) {
        return false;
    }
    own_builder_->place_self(head, source, body, slot);
    return !last || port_.notify_self(slot);
}

/// What the heads of all sources of a contribution share.
inline wire::Head ReadoutUnit::head_of(const Assignment& work) const {
    wire::Head head;
    head.attempt = work.attempt;
    head.version = port_.config().control_version;
    head.run = port_.config().run;
    // Planted: now and then the MEP before, as a confused peer might; only the BU's check of the head stands between it
    // and the sink.
    const bool confused =
        port_.config().plant == Plant::no_generation_check && work.mep % 16 == 5 && work.mep > released_below_;
    head.mep = confused ? work.mep - 1 : work.mep;
    head.incarnation = port_.incarnation();
    head.credit = work.credit;
    return head;
}

namespace {

void describe(wire::Head& head, std::uint32_t source, const Piece& piece) {
    head.source = static_cast<std::uint16_t>(source);
    head.flag = piece.flag;
    head.body_bytes = piece.body.length;
    head.first_event = piece.first_event;
    head.n_events = piece.n_events;
    head.goodput_bytes = piece.goodput_bytes;
    head.trigger = piece.trigger;
    head.checksum = piece.checksum;
}

}  // namespace

/// Pull-read: says where the contribution at the head of the queue lies. Result as of send_contribution.
bool ReadoutUnit::send_offer(std::uint32_t queue_index) {
    const std::uint32_t index = queue(queue_index).first;
    Assignment& work = pool_[index];
    if (!work.begun && work.mep < released_below_) {
        remove(queue_index, no_index, index);
        return true;
    }
    wire::Head head = head_of(work);
    const Peer peer = shape_.bus[work.bu];
    Counters& counters = port_.counters();
    while (work.next_source < sources_) {
        auto message = port_.message<ControlKind::offer>();
        wire::AttemptEntry attempt;
        attempt.mep = work.mep;
        attempt.credit = work.credit;
        attempt.bu = static_cast<std::uint16_t>(peer);
        attempt.slot = work.slot;
        attempt.attempt = work.attempt;
        message.set_body(attempt);
        std::uint32_t next = work.next_source;
        std::uint64_t goodput_bytes = 0;
        for (; next < sources_ && !message.full(); ++next) {
            const Piece& piece = source_.piece(head.mep, next);
            describe(head, first_source_ + next, piece);
            wire::OfferEntry entry;
            entry.head = head;
            entry.offset = piece.body.offset;
            entry.region = static_cast<std::uint16_t>(piece.body.region);
            message.add(entry);
            goodput_bytes += piece.goodput_bytes;
        }
        if (!port_.send(peer, message)) {
            links_[work.bu].blocked = true;
            update_runnable(queue_index);
            return false;
        }
        if (!work.begun) {
            work.begun = true;
            hold(work.mep, 1);  // its MEP stays until all is offered
        }
        counters.mfps_sent += next - work.next_source;
        counters.sent_goodput_bytes += goodput_bytes;
        work.next_source = static_cast<std::uint16_t>(next);
    }
    ++counters.contributions_sent;
    if (work.acknowledge) {
        acknowledge_abort(work.bu, work.credit, work.slot);
    }
    remove(queue_index, no_index, index);
    return true;
}

void ReadoutUnit::tell_regions() {
    for (std::size_t bu = regions_due_.next(0); bu != base::Bitmap::none; bu = regions_due_.next(bu + 1)) {
        bool told = true;
        for (std::size_t index = 0; told && index < region_keys_.size(); ++index) {
            auto message = port_.message<ControlKind::source_region>();
            wire::SourceRegionBody body;
            body.region = static_cast<std::uint16_t>(source_.regions()[index]);
            wire::set_key(message, body, region_keys_[index].view());
            told = port_.send(shape_.bus[bu], message);  // a repeat changes nothing
        }
        if (told) {
            regions_due_.reset(bu);
        }
    }
}

/// What follows from what a write of a contribution answered.
inline bool ReadoutUnit::is_posted(std::uint32_t bu, Post post, bool acknowledged) {
    if (post == Post::again || post == Post::refused) [[unlikely]] {
        links_[bu].blocked = true;
        return false;
    }
    pending_now_ += post == Post::pending ? 1 : 0;
    if (acknowledged) {
        ++progress_[bu].sent;
        ++unplaced_;
    }
    return true;
}

/// Writes what is left of one MFP, from work.next_byte on, in as many writes as message_size asks for. False: a limit
/// was reached, the transport is full, or the connection is going down.
bool ReadoutUnit::write_parts(Assignment& work, const wire::HeadWords& head, const Piece& piece, Target place,
                              bool last_source) {
    const Peer peer = shape_.bus[work.bu];
    do {
        if (acks_writes_ && (is_full(work.bu) || (parallel_sends_ > 0 && unplaced_ >= parallel_sends_))) {
            return false;
        }
        const std::uint32_t length = std::min(message_size_, piece.body.length - work.next_byte);
        const bool last = last_source && work.next_byte + length == piece.body.length;
        Notice notice;
        if (last || acks_writes_) {
            notice = static_cast<std::uint16_t>(work.slot | (last ? 0U : more_follows));
        }
        const Slice body{piece.body.region, length, piece.body.offset + work.next_byte};
        const Token token = work.mep + 1;
        const Post post =
            work.next_byte == 0
                ? port_.write(peer, head, body, place, notice, token)
                : port_.write_more(peer, body, {place.region, place.offset + sizeof(wire::Head) + work.next_byte},
                                   notice, token);
        if (!is_posted(work.bu, post, acks_writes_ || (acks_contributions_ && last))) {
            return false;
        }
        work.next_byte += length;
    } while (work.next_byte < piece.body.length);
    return true;
}

/// As write_parts: where no MFP is split, and writes are not acknowledged, it is one write.
inline bool ReadoutUnit::write_piece(Assignment& work, BuilderLink& link, const wire::HeadWords& head,
                                     const Piece& piece, std::uint32_t source) {
    const bool last = work.next_source + 1U == sources_;
    const Target place = target_of(link, work, source);
    if (in_parts_) [[unlikely]] {
        return write_parts(work, head, piece, place, last);
    }
    const Notice notice = last ? Notice(work.slot) : Notice();
    return is_posted(work.bu, port_.write(shape_.bus[work.bu], head, piece.body, place, notice, work.mep + 1),
                     acks_contributions_ && last);
}

/// True if the contribution at the head of the queue is out; false: blocked in the middle, goes on after `room`.
inline bool ReadoutUnit::send_contribution(std::uint32_t queue_index) {
    const std::uint32_t index = queue(queue_index).first;
    Assignment& work = pool_[index];
    if (!work.begun && work.mep < released_below_) {
        remove(queue_index, no_index, index);  // another attempt was committed meanwhile; this one is void
        return true;
    }
    BuilderLink& link = links_[work.bu];
    const bool self = shape_.bus[work.bu] == port_.self();
    Counters& counters = port_.counters();
    wire::Head head = head_of(work);
    pending_now_ = 0;
    const std::uint32_t first = work.next_source;
    const std::uint32_t first_byte = work.next_byte;
    std::uint64_t goodput_bytes = 0;
    for (; work.next_source < sources_; ++work.next_source, work.next_byte = 0) {
        const Piece& piece = source_.piece(head.mep, work.next_source);
        const std::uint32_t source = first_source_ + work.next_source;
        describe(head, source, piece);
        const wire::HeadWords words = wire::to_words(head);
        if (self) {
            if (!write_self(words, source, piece.body, work.slot, work.next_source + 1U == sources_)) {
                break;  // the node's own ring is full: it is drained before the next flush
            }
            counters.sent_self_bytes += piece.goodput_bytes;
        } else if (!write_piece(work, link, words, piece, source)) {
            break;
        }
        goodput_bytes += piece.goodput_bytes;
    }
    counters.mfps_sent += work.next_source - first;
    counters.sent_goodput_bytes += goodput_bytes;
    if (pending_now_ > 0) {
        hold(work.mep, pending_now_);
    }
    if (work.next_source < sources_) {
        const bool moved = work.next_source != first || work.next_byte != first_byte;
        if (moved && !work.begun) {
            work.begun = true;
            hold(work.mep, 1);  // its MEP stays until the last write is posted
        }
        update_runnable(queue_index);
        return false;
    }
    ++counters.contributions_sent;
    if (work.acknowledge) {
        acknowledge_abort(work.bu, work.credit, work.slot);
    }
    if (work.begun) {
        remove(queue_index, no_index, index);
    } else {
        pop(queue_index);
    }
    return true;
}

void ReadoutUnit::serve(Time now) {
    const bool reads = port_.config().scheme == Scheme::pull_read;
    while (parallel_sends_ == 0 || unplaced_ < parallel_sends_) {
        const std::size_t picked = schedule_.next(now, runnable_);
        if (picked == base::Bitmap::none) {
            break;
        }
        if (schedule_.likely() < links_.size()) {
            __builtin_prefetch(&links_[schedule_.likely()]);
        }
        const auto chosen = static_cast<std::uint32_t>(picked);
        const std::uint32_t head = queue(chosen).first;
        const std::uint32_t bu = pool_[head].bu;
        const bool self = shape_.bus[bu] == port_.self();
        if (reads && !self ? send_offer(chosen) : send_contribution(chosen)) {
            schedule_.sent(now, chosen, is_placed(bu));
            continue;
        }
        if (pool_[head].begun) {
            schedule_.begun(now, chosen);
        }
        if (self) {
            break;
        }
    }
    turn_at_ = schedule_.next_deadline(now, runnable_);
    if (schedule_.has_slots()) {
        Counters& counters = port_.counters();
        counters.slot_overruns = schedule_.overruns();
        counters.unguarded_slots = schedule_.unguarded();
    }
}

}  // namespace incast::protocol

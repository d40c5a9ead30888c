#include "channel/sender.h"

#include <algorithm>
#include <cstring>

namespace incast::channel {

Sender::Sender(const SenderSettings& settings, std::span<std::byte> staging, Bytes cells)
    : shape_(settings.shape),
      check_(settings.announce != Way::doorbell),
      acknowledge_(settings.acknowledge),
      staging_(staging),
      cells_(cells),
      slots_(settings.shape.buffers) {}

std::size_t Sender::write(Bytes bytes) {
    std::size_t taken = 0;
    while (taken < bytes.size() && has_room()) {
        const std::size_t part = std::min<std::size_t>(capacity(shape_) - fill_, bytes.size() - taken);
        std::memcpy(staged(open_slot_).data() + header_bytes + fill_, bytes.data() + taken, part);
        fill_ += static_cast<std::uint32_t>(part);
        taken += part;
        written_ += part;
        if (fill_ == capacity(shape_)) close(fill_, nullptr);
    }
    return taken;
}

std::size_t Sender::write_in_place(Bytes bytes) {
    if (bytes.empty() || !has_room()) return 0;
    if (fill_ > 0) close(fill_, nullptr);
    std::size_t taken = 0;
    while (taken < bytes.size() && has_room()) {
        const std::size_t part = std::min<std::size_t>(capacity(shape_), bytes.size() - taken);
        written_ += part;
        close(static_cast<std::uint32_t>(part), bytes.data() + taken);
        taken += part;
    }
    return taken;
}

void Sender::keep() {
    std::uint32_t at = post_slot_;
    for (std::uint64_t number = posted_ + 1; number != open_; ++number, at = after(at)) {
        Slot& slot = slots_[at];
        if (slot.in_place == nullptr) continue;
        std::memcpy(staged(at).data() + header_bytes, slot.in_place, slot.length & ~BufferHeader::last_flag);
        slot.in_place = nullptr;
    }
}

void Sender::close(std::uint32_t length, const std::byte* in_place) {
    Slot& slot = slots_[open_slot_];
    slot.in_place = in_place;
    slot.end = written_;
    slot.length = length;
    if (check_) {
        const std::byte* bytes = in_place != nullptr ? in_place : staged(open_slot_).data() + header_bytes;
        slot.crc = base::crc32c({bytes, length & ~BufferHeader::last_flag});
    }
    ++open_;
    open_slot_ = after(open_slot_);
    fill_ = 0;
    leaves_ = false;
}

std::optional<Sender::Outgoing> Sender::next() {
    if (is_broken()) return std::nullopt;
    if (posted_ + 1 == open_) {
        if (is_finishing_ && can_fill()) {
            close(fill_ | BufferHeader::last_flag, nullptr);
            is_closed_ = true;
        } else if (leaves_) {
            close(fill_, nullptr);
        } else {
            return std::nullopt;
        }
    }
    const Slot& slot = slots_[post_slot_];
    BufferHeader header{.number = posted_ + 1, .length = slot.length, .check = 0};
    if (check_) header.check = check_of(header, slot.crc);
    const std::uint32_t length = header.bytes();
    const std::byte* bytes = slot.in_place != nullptr ? slot.in_place : staged(post_slot_).data() + header_bytes;
    std::memcpy(head_.data(), &header, sizeof header);
    Outgoing out{.head = Bytes(head_).first(header_bytes),
                 .body = {bytes, length},
                 .offset = std::uint64_t{post_slot_} * shape_.buffer_bytes,
                 .slot = post_slot_,
                 .number = header.number,
                 .in_place = slot.in_place != nullptr};
    if (length <= inline_bytes) {
        if (length > 0) std::memcpy(head_.data() + header_bytes, bytes, length);
        out.head = Bytes(head_).first(header_bytes + length);
        out.body = {};
        out.in_place = false;
    }
    return out;
}

void Sender::posted(bool is_pending) {
    slots_[post_slot_].is_pending = is_pending;
    pending_ += is_pending ? 1U : 0U;
    ++posted_;
    post_slot_ = after(post_slot_);
    release();
}

void Sender::completed(std::uint32_t slot) {
    if (slot >= slots_.size() || !slots_[slot].is_pending) return;
    slots_[slot].is_pending = false;
    --pending_;
    release();
}

void Sender::release() {
    while (free_ != posted_ && !slots_[free_slot_].is_pending) {
        released_ = slots_[free_slot_].end;
        ++free_;
        free_slot_ = after(free_slot_);
    }
}

bool Sender::look() {
    bool has_found = false;
    while (acknowledge_ != Way::message && !is_broken()) {
        const auto number = load_credit(cells_.subspan(next_cell(), sizeof(CreditCell)));
        if (!number || *number <= credited_) break;  // of the lap before
        credited(*number);
        cell_ = cell_ + 1 == shape_.cells() ? 0 : cell_ + 1;
        has_found = true;
    }
    return has_found;
}

std::optional<std::uint64_t> Sender::wish() const {
    const bool can_ask = acknowledge_ == Way::doorbell && !is_asking_ && !is_closed_ && !is_broken();
    return can_ask && !has_credit() ? std::optional(credited_) : std::nullopt;
}

void Sender::wish_posted() {
    is_asking_ = true;
    asked_at_ = credited_;
}

void Sender::rung() {
    (void)look();
    if (!is_asking_)
        broken_ = "it rang for a credit that nobody asked for";
    else if (credited_ <= asked_at_)
        broken_ = "it rang for a credit that is not there";
    is_asking_ = false;
}

void Sender::told(std::uint64_t number) {
    if (acknowledge_ == Way::message)
        credited(number);
    else
        broken_ = "it told of a credit, which was not agreed";
}

void Sender::credited(std::uint64_t number) {
    if (number < credited_ + shape_.batch)
        broken_ = "it gave a credit for less than a batch";
    else if (number > posted_)
        broken_ = "it gave a credit for buffers that were not sent";
    else
        credited_ = number;
}

}  // namespace incast::channel

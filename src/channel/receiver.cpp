#include "channel/receiver.h"

#include <algorithm>
#include <cstring>

namespace incast::channel {

namespace {

constexpr const char* bad_length = "it wrote a buffer of an impossible length";

}

Receiver::Receiver(const ReceiverSettings& settings, Bytes ring)
    : shape_(settings.shape), announce_(settings.announce), acknowledge_(settings.acknowledge), ring_(ring) {}

void Receiver::rung() {
    if (announce_ == Way::doorbell)
        announced(announced_ + 1);
    else
        broken_ = "it rang for a buffer, which was not agreed";
}

void Receiver::told(std::uint64_t number) {
    if (announce_ == Way::message)
        announced(number);
    else
        broken_ = "it told of a buffer, which was not agreed";
}

void Receiver::announced(std::uint64_t number) {
    if (number <= announced_)
        broken_ = "it told of a buffer twice";
    else if (number > credited_ + shape_.buffers)
        broken_ = "it wrote more buffers than there were credits for";
    else
        announced_ = number;
}

void Receiver::wanted(std::uint64_t number) {
    // One wish at a time, by who was not told of more than there is.
    if (acknowledge_ != Way::doorbell || is_wanted_ || number < wanted_at_ || number > credited_) {
        broken_ = "it asked for a credit at a wrong time";
        return;
    }
    is_wanted_ = true;
    wanted_at_ = number;
}

std::optional<Receiver::Credit> Receiver::credit() const {
    if (is_broken() || has_ended_) return std::nullopt;
    const std::uint64_t offset = std::uint64_t{cell_} * sizeof(CreditCell);
    // Who waits is worth waking once it can fill half of the ring. It had filled all of it, so that comes.
    const std::uint64_t ring_at = wanted_at_ + std::max(shape_.batch, shape_.buffers / 2);
    if (emptied_ >= credited_ + shape_.batch) return Credit{emptied_, offset, true, is_wanted_ && emptied_ >= ring_at};
    if (is_wanted_ && credited_ >= ring_at) return Credit{credited_, offset, false, true};
    return std::nullopt;
}

void Receiver::credit_posted(const Credit& credit) {
    if (credit.rings) is_wanted_ = false;
    if (!credit.is_new) return;
    credited_ = credit.number;
    cell_ = cell_ + 1 == shape_.cells() ? 0 : cell_ + 1;
}

bool Receiver::must_look() const {
    if (is_broken() || has_ended_) return false;
    return announce_ == Way::memory || (announce_ == Way::message && announced_ != emptied_ && !is_open_);
}

bool Receiver::is_true(const BufferHeader& header) const {
    return header.bytes() <= capacity(shape_) && (header.bytes() > 0 || header.is_last());
}

void Receiver::look() {
    if (is_open_ || is_broken() || has_ended_) return;
    if (announce_ != Way::memory && announced_ == emptied_) return;
    const Bytes buffer = ring_.subspan(next_offset(), shape_.buffer_bytes);
    const BufferHeader header = load_header(buffer);
    if (announce_ == Way::doorbell) {
        if (header.number != emptied_ + 1) broken_ = "it rang for a buffer that is not there";
        if (!is_true(header)) broken_ = bad_length;
    } else {
        if (header.number != emptied_ + 1 || header.bytes() > capacity(shape_)) return;
        const std::uint32_t crc = base::crc32c(buffer.subspan(header_bytes, header.bytes()));
        if (header.check != check_of(header, crc)) return;  // not all of it is there
        if (!is_true(header)) broken_ = bad_length;
    }
    if (is_broken()) return;
    begin_ = 0;
    end_ = header.bytes();
    is_last_ = header.is_last();
    is_open_ = true;
    if (end_ == 0) empty_buffer();
}

void Receiver::empty_buffer() {
    is_open_ = false;
    has_ended_ = is_last_;
    ++emptied_;
    slot_ = slot_ + 1 == shape_.buffers ? 0 : slot_ + 1;
}

Bytes Receiver::readable() {
    look();
    if (!is_open_ || is_broken()) return {};
    return ring_.subspan(next_offset() + header_bytes + begin_, end_ - begin_);
}

void Receiver::consume(std::size_t bytes) {
    begin_ += static_cast<std::uint32_t>(bytes);
    if (is_open_ && begin_ == end_) empty_buffer();
}

std::size_t Receiver::read(std::span<std::byte> into) {
    std::size_t done = 0;
    while (done < into.size()) {
        const Bytes from = readable();
        if (from.empty()) break;
        const std::size_t part = std::min(from.size(), into.size() - done);
        std::memcpy(into.data() + done, from.data(), part);
        consume(part);
        done += part;
    }
    return done;
}

}  // namespace incast::channel

#include "wire/mfp.h"

#include <algorithm>
#include <limits>
#include <string>

namespace incast::wire {

namespace {

// Field offsets, LHCb layout and wide variant.
constexpr std::size_t at_magic = 0;
constexpr std::size_t at_n_fragments = 2;
constexpr std::size_t at_packet_bytes = 4;
constexpr std::size_t at_first_event = 8;
constexpr std::size_t at_source = 16;
constexpr std::size_t at_align = 18;
constexpr std::size_t at_fragment_version = 19;

constexpr std::size_t wide_at_version = 4;
constexpr std::size_t wide_at_align = 5;
constexpr std::size_t wide_at_fragment_version = 6;
constexpr std::size_t wide_at_zero8 = 7;
constexpr std::size_t wide_at_packet_bytes = 16;
constexpr std::size_t wide_at_source = 24;
constexpr std::size_t wide_at_zero16 = 26;
constexpr std::size_t wide_at_zero32 = 28;

std::string hex(unsigned value) {
    constexpr char digits[] = "0123456789abcdef";
    std::string text = "0x";
    for (int shift = 12; shift >= 0; shift -= 4) {
        text += digits[(value >> shift) & 15U];
    }
    return text;
}

Error mfp_error(std::string message) {
    return Error{"MFP: " + std::move(message)};
}

std::optional<Error> check_fields(const MfpHeader& header) {
    if (header.n_fragments == 0 || header.n_fragments > mfp_max_fragments) {
        return mfp_error("n_fragments " + std::to_string(header.n_fragments) + ", expected 1 .. 65535");
    }
    if (header.align_log2 > mfp_max_align_log2) {
        return mfp_error("align 2^" + std::to_string(header.align_log2) + ", expected at most 2^12");
    }
    if (header.first_event > std::numeric_limits<std::uint64_t>::max() - header.n_fragments) {
        return mfp_error("first event id " + std::to_string(header.first_event) + " wraps within the packet");
    }
    return std::nullopt;
}

std::size_t header_bytes(bool wide) {
    return wide ? mfp_wide_header_bytes : mfp_header_bytes;
}

std::size_t sizes_offset(const MfpHeader& header) {
    return header_bytes(header.wide) + round_up(header.n_fragments, 4);
}

std::uint32_t load_size(Bytes bytes, const MfpHeader& header, std::uint32_t index) {
    const std::size_t table = sizes_offset(header);
    return header.wide ? load<std::uint32_t>(bytes, table + std::size_t{4} * index)
                       : load<std::uint16_t>(bytes, table + std::size_t{2} * index);
}

void store_size(MutableBytes bytes, const MfpHeader& header, std::uint32_t index, std::uint32_t size) {
    const std::size_t table = sizes_offset(header);
    if (header.wide) {
        store(bytes, table + std::size_t{4} * index, size);
    } else {
        store(bytes, table + std::size_t{2} * index, static_cast<std::uint16_t>(size));
    }
}

// One tight loop per size type, which compilers turn into vector code: parsing is on the path of every received packet.
template <class Size>
std::uint64_t sum_padded(Bytes table, std::uint32_t n, std::uint64_t alignment) {
    std::uint64_t sum = 0;
    for (std::uint32_t index = 0; index < n; ++index) {
        sum += round_up(load<Size>(table, sizeof(Size) * index), alignment);
    }
    return sum;
}

std::uint64_t sum_sizes(Bytes bytes, const MfpHeader& header, std::uint64_t alignment) {
    const Bytes table = bytes.subspan(sizes_offset(header));
    return header.wide ? sum_padded<std::uint32_t>(table, header.n_fragments, alignment)
                       : sum_padded<std::uint16_t>(table, header.n_fragments, alignment);
}

std::uint64_t alignment_of(const MfpHeader& header) {
    return std::uint64_t{1} << header.align_log2;
}

// The caller has checked that the header fits.
void store_header(MutableBytes out, const MfpHeader& header) {
    store(out, at_n_fragments, static_cast<std::uint16_t>(header.n_fragments));
    store(out, at_first_event, header.first_event);
    if (header.wide) {
        store(out, at_magic, mfp_wide_magic);
        store(out, wide_at_version, mfp_wide_version);
        store(out, wide_at_align, header.align_log2);
        store(out, wide_at_fragment_version, header.fragment_version);
        store(out, wide_at_zero8, std::uint8_t{0});
        store(out, wide_at_packet_bytes, header.packet_bytes);
        store(out, wide_at_source, header.source);
        store(out, wide_at_zero16, std::uint16_t{0});
        store(out, wide_at_zero32, std::uint32_t{0});
    } else {
        store(out, at_magic, mfp_magic);
        store(out, at_packet_bytes, static_cast<std::uint32_t>(header.packet_bytes));
        store(out, at_source, header.source);
        store(out, at_align, header.align_log2);
        store(out, at_fragment_version, header.fragment_version);
    }
}

// Zeroes what pads the two tables.
void pad_tables(MutableBytes out, const MfpHeader& header) {
    const std::size_t types_end = header_bytes(header.wide) + header.n_fragments;
    std::ranges::fill(out.subspan(types_end, sizes_offset(header) - types_end), std::byte{0});
    const std::size_t sizes_end =
        sizes_offset(header) + (header.wide ? std::size_t{4} : std::size_t{2}) * header.n_fragments;
    std::ranges::fill(out.subspan(sizes_end, mfp_prefix_bytes(header.n_fragments, header.wide) - sizes_end),
                      std::byte{0});
}

bool fits_lhcb_layout(std::uint32_t largest_fragment, std::uint64_t packet_bytes) {
    return largest_fragment <= mfp_max_fragment_bytes && packet_bytes <= std::numeric_limits<std::uint32_t>::max();
}

MfpSize size_of(std::uint32_t n, std::uint32_t largest, std::uint64_t padded, std::uint64_t payload) {
    const bool wide = !fits_lhcb_layout(largest, mfp_prefix_bytes(n, false) + padded);
    return {mfp_prefix_bytes(n, wide) + padded, payload, wide};
}

}  // namespace

MfpSize mfp_bytes(std::span<const std::uint32_t> sizes, std::uint8_t align_log2) {
    const std::uint64_t alignment = std::uint64_t{1} << align_log2;
    std::uint64_t padded = 0;
    std::uint64_t payload = 0;
    std::uint32_t largest = 0;
    for (const std::uint32_t size : sizes) {
        padded += round_up(size, alignment);
        payload += size;
        largest = std::max(largest, size);
    }
    return size_of(static_cast<std::uint32_t>(sizes.size()), largest, padded, payload);
}

MfpSize mfp_bytes(std::uint32_t n_fragments, std::uint32_t fragment_bytes, std::uint8_t align_log2) {
    const std::uint64_t padded = n_fragments * round_up(fragment_bytes, std::uint64_t{1} << align_log2);
    return size_of(n_fragments, fragment_bytes, padded, std::uint64_t{n_fragments} * fragment_bytes);
}

Result<MfpHeader> peek_mfp(Bytes bytes) {
    if (bytes.size() < mfp_header_bytes) {
        return mfp_error(std::to_string(bytes.size()) + " bytes, expected at least a header of 20");
    }
    MfpHeader header;
    const auto magic = load<std::uint16_t>(bytes, at_magic);
    header.n_fragments = load<std::uint16_t>(bytes, at_n_fragments);
    header.first_event = load<std::uint64_t>(bytes, at_first_event);
    if (magic == mfp_magic) {
        header.packet_bytes = load<std::uint32_t>(bytes, at_packet_bytes);
        header.source = load<std::uint16_t>(bytes, at_source);
        header.align_log2 = load<std::uint8_t>(bytes, at_align);
        header.fragment_version = load<std::uint8_t>(bytes, at_fragment_version);
    } else if (magic == mfp_wide_magic) {
        if (bytes.size() < mfp_wide_header_bytes) {
            return mfp_error(std::to_string(bytes.size()) + " bytes, expected at least a wide header of 32");
        }
        header.wide = true;
        const auto version = load<std::uint8_t>(bytes, wide_at_version);
        if (version != mfp_wide_version) {
            return mfp_error("wide version " + std::to_string(version) + ", expected 1");
        }
        if (load<std::uint8_t>(bytes, wide_at_zero8) != 0 || load<std::uint16_t>(bytes, wide_at_zero16) != 0 ||
            load<std::uint32_t>(bytes, wide_at_zero32) != 0) {
            return mfp_error("a reserved field of the wide header is not zero");
        }
        header.packet_bytes = load<std::uint64_t>(bytes, wide_at_packet_bytes);
        header.source = load<std::uint16_t>(bytes, wide_at_source);
        header.align_log2 = load<std::uint8_t>(bytes, wide_at_align);
        header.fragment_version = load<std::uint8_t>(bytes, wide_at_fragment_version);
    } else {
        return mfp_error("magic " + hex(magic) + ", expected 0x40ce or 0x57ce (wide)");
    }
    if (auto error = check_fields(header)) {
        return *std::move(error);
    }
    const std::uint64_t prefix = mfp_prefix_bytes(header.n_fragments, header.wide);
    if (header.packet_bytes < prefix) {
        return mfp_error("packet bytes " + std::to_string(header.packet_bytes) + ", expected at least " +
                         std::to_string(prefix) + " for " + std::to_string(header.n_fragments) + " fragments");
    }
    return header;
}

Result<MfpView> MfpView::parse(Bytes bytes) {
    const Result<MfpHeader> peeked = peek_mfp(bytes);
    if (!peeked) {
        return peeked.error();
    }
    const MfpHeader& header = *peeked;
    if (header.packet_bytes > bytes.size()) {
        return mfp_error("packet bytes " + std::to_string(header.packet_bytes) + ", but only " +
                         std::to_string(bytes.size()) + " are there");
    }
    const std::uint64_t alignment = alignment_of(header);
    const std::uint64_t end = mfp_prefix_bytes(header.n_fragments, header.wide) + sum_sizes(bytes, header, alignment);
    const std::uint64_t last = load_size(bytes, header, header.n_fragments - 1);
    const std::uint64_t unpadded_end = end - (round_up(last, alignment) - last);
    if (header.packet_bytes < unpadded_end || header.packet_bytes > end) {
        return mfp_error("packet bytes " + std::to_string(header.packet_bytes) + ", but the fragment sizes add up to " +
                         std::to_string(end));
    }
    return MfpView(bytes.first(header.packet_bytes), header);
}

std::uint8_t MfpView::type(std::uint32_t index) const {
    return load<std::uint8_t>(bytes_, header_bytes(header_.wide) + index);
}

std::uint32_t MfpView::fragment_bytes(std::uint32_t index) const {
    return load_size(bytes_, header_, index);
}

std::uint64_t MfpView::payload_bytes() const {
    return sum_sizes(bytes_, header_, 1);
}

SourceFlag MfpView::flag() const {
    bool any_payload = false;
    for (std::uint32_t index = 0; index < size(); ++index) {
        if (fragment_bytes(index) != 0) {
            any_payload = true;
        } else if (const auto missing = flag_of_type(type(index))) {
            return *missing;
        }
    }
    return any_payload ? SourceFlag::ok : SourceFlag::empty;
}

bool MfpView::phantom() const {
    for (std::uint32_t index = 0; index < size(); ++index) {
        if (fragment_bytes(index) != 0 || !flag_of_type(type(index))) {
            return false;
        }
    }
    return true;
}

Fragment MfpView::Iterator::operator*() const {
    return {view_->header_.first_event + index_, view_->bytes_.subspan(offset_, view_->fragment_bytes(index_)),
            view_->type(index_)};
}

MfpView::Iterator& MfpView::Iterator::operator++() {
    offset_ += round_up(view_->fragment_bytes(index_), alignment_of(view_->header_));
    ++index_;
    return *this;
}

MfpWriter::MfpWriter(MutableBytes out, const MfpHeader& header)
    : out_(out), header_(header), offset_(mfp_prefix_bytes(header.n_fragments, header.wide)) {}

Result<MfpWriter> MfpWriter::begin(MutableBytes out, const MfpHeader& header) {
    if (auto error = check_fields(header)) {
        return *std::move(error);
    }
    const std::uint64_t prefix = mfp_prefix_bytes(header.n_fragments, header.wide);
    if (out.size() < prefix) {
        return mfp_error("room of " + std::to_string(out.size()) + " bytes, expected at least " +
                         std::to_string(prefix) + " for " + std::to_string(header.n_fragments) + " fragments");
    }
    pad_tables(out, header);
    return MfpWriter(out, header);
}

std::optional<MutableBytes> MfpWriter::reserve(std::uint8_t type, std::uint32_t bytes) {
    const std::uint64_t padded = round_up(bytes, alignment_of(header_));
    if (added_ == header_.n_fragments || padded > out_.size() - offset_ || (bytes > 0 && flag_of_type(type)) ||
        (!header_.wide && !fits_lhcb_layout(bytes, offset_ + padded))) {
        return std::nullopt;
    }
    store(out_, header_bytes(header_.wide) + added_, type);
    store_size(out_, header_, added_, bytes);
    const MutableBytes room = out_.subspan(offset_, bytes);
    std::ranges::fill(out_.subspan(offset_ + bytes, padded - bytes), std::byte{0});
    offset_ += padded;
    ++added_;
    return room;
}

bool MfpWriter::add(std::uint8_t type, Bytes data) {
    if (data.size() > std::numeric_limits<std::uint32_t>::max()) {
        return false;
    }
    const auto room = reserve(type, static_cast<std::uint32_t>(data.size()));
    if (room) {
        std::ranges::copy(data, room->begin());
    }
    return room.has_value();
}

Result<std::uint64_t> MfpWriter::finish() {
    if (added_ != header_.n_fragments) {
        return mfp_error(std::to_string(added_) + " fragments added, expected " + std::to_string(header_.n_fragments));
    }
    header_.packet_bytes = offset_;
    store_header(out_, header_);
    return offset_;
}

Result<MfpSize> lay_out_mfp(MutableBytes out, const MfpHeader& header, std::uint8_t type,
                            std::span<const std::uint32_t> sizes) {
    if (sizes.size() > mfp_max_fragments) {
        return mfp_error("n_fragments " + std::to_string(sizes.size()) + ", expected 1 .. 65535");
    }
    MfpHeader filled = header;
    filled.n_fragments = static_cast<std::uint32_t>(sizes.size());
    if (auto error = check_fields(filled)) {
        return *std::move(error);
    }
    const MfpSize size = mfp_bytes(sizes, filled.align_log2);
    if (size.packet_bytes > out.size()) {
        return mfp_error("room of " + std::to_string(out.size()) + " bytes, expected " +
                         std::to_string(size.packet_bytes));
    }
    if (flag_of_type(type) && size.payload_bytes > 0) {
        return mfp_error("type " + std::to_string(type) + " is reserved for missing fragments");
    }
    filled.packet_bytes = size.packet_bytes;
    filled.wide = size.wide;
    store_header(out, filled);
    pad_tables(out, filled);
    std::ranges::fill(out.subspan(header_bytes(filled.wide), sizes.size()), std::byte{type});
    const std::uint64_t alignment = alignment_of(filled);
    std::uint64_t offset = mfp_prefix_bytes(filled.n_fragments, filled.wide);
    for (std::uint32_t index = 0; index < filled.n_fragments; ++index) {
        store_size(out, filled, index, sizes[index]);
        const std::uint64_t padded = round_up(sizes[index], alignment);
        std::ranges::fill(out.subspan(offset + sizes[index], padded - sizes[index]), std::byte{0});
        offset += padded;
    }
    return size;
}

Result<std::uint64_t> write_phantom(MutableBytes out, std::uint64_t first_event, std::uint32_t n_fragments,
                                    std::uint16_t source, SourceFlag flag) {
    if (!flag_of_type(flag_type(flag))) {
        return mfp_error("a phantom cannot carry the flag " + std::string(to_string(flag)));
    }
    const MfpHeader header{.first_event = first_event, .packet_bytes = 0, .n_fragments = n_fragments, .source = source};
    Result<MfpWriter> writer = MfpWriter::begin(out, header);
    if (!writer) {
        return writer.error();
    }
    while (writer->reserve(flag_type(flag), 0)) {
    }
    return writer->finish();
}

Result<std::uint64_t> truncate_mfp(MutableBytes received) {
    const Result<MfpHeader> peeked = peek_mfp(received);
    if (!peeked) {
        return peeked.error();
    }
    MfpHeader header = *peeked;
    std::uint64_t offset = mfp_prefix_bytes(header.n_fragments, header.wide);
    if (received.size() < offset) {
        return mfp_error(std::to_string(received.size()) +
                         " bytes of a truncated packet, expected at least its tables of " + std::to_string(offset));
    }
    const std::uint64_t alignment = alignment_of(header);
    const std::uint64_t limit = std::min<std::uint64_t>(received.size(), header.packet_bytes);
    std::uint32_t index = 0;
    for (; index < header.n_fragments; ++index) {
        const std::uint64_t size = load_size(received, header, index);
        const std::uint64_t padded = round_up(size, alignment);
        // Only the last fragment may come without its padding.
        const bool last = index + 1 == header.n_fragments;
        if ((last ? size : padded) > limit - offset) {
            break;
        }
        offset = std::min(offset + padded, limit);
    }
    for (; index < header.n_fragments; ++index) {
        store(received, header_bytes(header.wide) + index, flag_type(SourceFlag::truncated));
        store_size(received, header, index, 0);
    }
    header.packet_bytes = offset;
    store_header(received, header);
    return offset;
}

std::optional<std::uint64_t> announced_end_of_run(Bytes bytes) {
    if (bytes.size() < mfp_header_bytes || load<std::uint16_t>(bytes, at_magic) != mfp_magic ||
        load<std::uint64_t>(bytes, at_first_event) != std::numeric_limits<std::uint64_t>::max()) {
        return std::nullopt;
    }
    const auto packet = load<std::uint32_t>(bytes, at_packet_bytes);
    return packet < mfp_header_bytes ? std::nullopt : std::optional<std::uint64_t>(packet);
}

std::optional<std::uint64_t> end_of_run_bytes(Bytes bytes) {
    const std::optional<std::uint64_t> announced = announced_end_of_run(bytes);
    return announced && *announced <= bytes.size() ? announced : std::nullopt;
}

void relabel_missing(MutableBytes mfp, SourceFlag flag) {
    const MfpHeader header = peek_mfp(mfp).value();
    for (std::uint32_t index = 0; index < header.n_fragments; ++index) {
        std::byte& type = mfp[header_bytes(header.wide) + index];
        const std::optional<SourceFlag> missing = flag_of_type(std::to_integer<std::uint8_t>(type));
        if (missing && is_missing(*missing) && load_size(mfp, header, index) == 0) {
            type = static_cast<std::byte>(flag_type(flag));
        }
    }
}

void missing_to_error_banks(MutableBytes mfp) {
    const MfpHeader header = peek_mfp(mfp).value();
    for (std::uint32_t index = 0; index < header.n_fragments; ++index) {
        std::byte& type = mfp[header_bytes(header.wide) + index];
        const std::optional<SourceFlag> missing = flag_of_type(std::to_integer<std::uint8_t>(type));
        if (missing && load_size(mfp, header, index) == 0) {
            type = std::byte{error_bank_type(*missing)};
        }
    }
}

}  // namespace incast::wire

#include "wire/mef.h"

#include <algorithm>
#include <string>

namespace incast::wire {

namespace {

constexpr std::size_t at_n_events = 4;
constexpr std::size_t at_total = 6;
constexpr std::size_t at_partition = 8;

constexpr std::size_t bank_at_length = 2;
constexpr std::size_t bank_at_type = 4;
constexpr std::size_t bank_at_version = 5;
constexpr std::size_t bank_at_source = 6;

Error mef_error(std::string message) {
    return Error{"multi-event fragment: " + std::move(message)};
}

Error fail_bank(std::string message) {
    return Error{"raw bank: " + std::move(message)};
}

}  // namespace

Result<RawBankAndRest> take_raw_bank(Bytes banks) {
    if (banks.size() < raw_bank_header_bytes) {
        return fail_bank(std::to_string(banks.size()) + " bytes, expected at least a header of 8");
    }
    const auto magic = load<std::uint16_t>(banks, 0);
    if (magic != raw_bank_magic) {
        return fail_bank("magic " + std::to_string(magic) + ", expected 52171 (0xcbcb)");
    }
    const std::size_t length = load<std::uint16_t>(banks, bank_at_length);
    if (length < raw_bank_header_bytes || length > banks.size()) {
        return fail_bank("length " + std::to_string(length) + ", expected 8 .. " + std::to_string(banks.size()));
    }
    RawBank bank;
    bank.type = load<std::uint8_t>(banks, bank_at_type);
    bank.version = load<std::uint8_t>(banks, bank_at_version);
    bank.source = load<std::int16_t>(banks, bank_at_source);
    bank.body = banks.subspan(raw_bank_header_bytes, length - raw_bank_header_bytes);
    return RawBankAndRest{bank, banks.subspan(std::min<std::size_t>(round_up(length, 4), banks.size()))};
}

Result<std::size_t> write_raw_bank(MutableBytes out, const RawBank& bank) {
    const std::size_t length = raw_bank_header_bytes + bank.body.size();
    if (length > mef_max_bytes) {
        return fail_bank("body of " + std::to_string(bank.body.size()) + " bytes, expected at most 65527");
    }
    const std::size_t padded = raw_bank_bytes(bank.body.size());
    if (padded > out.size()) {
        return fail_bank("room of " + std::to_string(out.size()) + " bytes, expected " + std::to_string(padded));
    }
    store(out, 0, raw_bank_magic);
    store(out, bank_at_length, static_cast<std::uint16_t>(length));
    store(out, bank_at_type, bank.type);
    store(out, bank_at_version, bank.version);
    store(out, bank_at_source, bank.source);
    std::ranges::copy(bank.body, out.begin() + raw_bank_header_bytes);
    std::ranges::fill(out.subspan(length, padded - length), std::byte{0});
    return padded;
}

Result<MefView> MefView::parse(Bytes bytes) {
    if (bytes.size() < mef_header_bytes) {
        return mef_error(std::to_string(bytes.size()) + " bytes, expected at least a header of 12");
    }
    const std::size_t total = load<std::uint16_t>(bytes, at_total);
    if (total < mef_header_bytes || total > bytes.size()) {
        return mef_error("total length " + std::to_string(total) + ", expected 12 .. " + std::to_string(bytes.size()));
    }
    const MefView view(bytes.first(total));
    std::size_t cursor = mef_header_bytes;
    for (std::uint32_t index = 0; index < view.n_events(); ++index) {
        if (total - cursor < mef_event_header_bytes) {
            return mef_error("ends before the header of event " + std::to_string(index) + " of " +
                             std::to_string(view.n_events()));
        }
        const std::size_t length = load<std::uint16_t>(bytes, cursor + 2);
        cursor += mef_event_header_bytes;
        if (length > total - cursor) {
            return mef_error("event " + std::to_string(index) + " has " + std::to_string(length) + " bytes, but only " +
                             std::to_string(total - cursor) + " are there");
        }
        cursor += length;
    }
    if (cursor != total) {
        return mef_error("total length " + std::to_string(total) + ", but the events end at " + std::to_string(cursor));
    }
    return view;
}

std::optional<MefView::Event> MefView::next(std::size_t& cursor) const {
    const std::size_t at = std::max(cursor, mef_header_bytes);
    if (at >= bytes_.size()) {
        return std::nullopt;
    }
    const std::size_t length = load<std::uint16_t>(bytes_, at + 2);
    cursor = at + mef_event_header_bytes + length;
    return Event{load<std::uint16_t>(bytes_, at), bytes_.subspan(at + mef_event_header_bytes, length)};
}

MefWriter::MefWriter(MutableBytes out, std::uint32_t first_event, std::uint32_t partition)
    : out_(out.first(std::min(out.size(), mef_max_bytes))), first_event_(first_event), partition_(partition) {}

Result<MefWriter> MefWriter::begin(MutableBytes out, std::uint32_t first_event, std::uint32_t partition) {
    if (out.size() < mef_header_bytes) {
        return mef_error("room of " + std::to_string(out.size()) + " bytes, expected at least a header of 12");
    }
    return MefWriter(out, first_event, partition);
}

bool MefWriter::add(std::uint16_t low_event, Bytes banks) {
    if (mef_event_header_bytes + banks.size() > out_.size() - offset_) {
        return false;
    }
    store(out_, offset_, low_event);
    store(out_, offset_ + 2, static_cast<std::uint16_t>(banks.size()));
    std::ranges::copy(banks, out_.subspan(offset_ + mef_event_header_bytes).begin());
    offset_ += mef_event_header_bytes + banks.size();
    ++n_events_;
    return true;
}

std::size_t MefWriter::finish() {
    store(out_, 0, first_event_);
    store(out_, at_n_events, n_events_);
    store(out_, at_total, static_cast<std::uint16_t>(offset_));
    store(out_, at_partition, partition_);
    return offset_;
}

Result<std::uint64_t> mef_to_mfp(const MefView& mef, const MefToMfp& parameters, MutableBytes out) {
    const std::uint64_t first_event = (std::uint64_t{parameters.event_id_high} << 32) | mef.first_event();
    const MfpHeader header{.first_event = first_event,
                           .packet_bytes = 0,
                           .n_fragments = mef.n_events(),
                           .source = parameters.source,
                           .align_log2 = parameters.align_log2};
    Result<MfpWriter> writer = MfpWriter::begin(out, header);
    if (!writer) {
        return writer.error();
    }
    std::size_t cursor = 0;
    std::uint64_t event_id = first_event;
    while (const auto event = mef.next(cursor)) {
        if (event->low_event != static_cast<std::uint16_t>(event_id)) {
            return mef_error("low event id " + std::to_string(event->low_event) + ", expected " +
                             std::to_string(static_cast<std::uint16_t>(event_id)) + " (consecutive)");
        }
        std::uint8_t type = 0;
        for (Bytes rest = event->banks; !rest.empty();) {
            const Result<RawBankAndRest> taken = take_raw_bank(rest);
            if (!taken) {
                return mef_error("event " + std::to_string(event_id) + ": " + taken.error().message);
            }
            if (rest.size() == event->banks.size()) {
                type = taken->bank.type;
            }
            rest = taken->rest;
        }
        if (flag_of_type(type)) {
            return mef_error("event " + std::to_string(event_id) + ": bank type " + std::to_string(type) +
                             " is reserved in an MFP");
        }
        if (!writer->add(type, event->banks)) {
            return mef_error("event " + std::to_string(event_id) + " does not fit into an MFP of " +
                             std::to_string(out.size()) + " bytes");
        }
        ++event_id;
    }
    return writer->finish();
}

}  // namespace incast::wire

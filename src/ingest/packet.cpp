#include "ingest/packet.h"

#include <optional>

#include <fmt/format.h>

namespace incast::ingest {

namespace {

/// As LHCb's: of the banks in a fragment, whose lengths are multiples of 4.
constexpr std::uint8_t mef_align_log2 = 2;

}  // namespace

std::uint64_t extend_id(std::uint32_t low, std::uint64_t near) {
    constexpr std::uint64_t turn = std::uint64_t{1} << 32U;
    const std::uint64_t same = (near & ~(turn - 1)) | low;
    if (same > near && same - near > turn / 2 && same >= turn) return same - turn;
    if (same < near && near - same > turn / 2) return same + turn;
    return same;
}

/// A MEF of the largest size as an MFP: the most tables that fit, and each event's header less.
PacketReader::PacketReader(Format format)
    : format_(format), scratch_(format == Format::mef ? 2 * wire::mef_max_bytes + 1024 : 0) {}

Result<wire::MfpView> PacketReader::whole(Bytes bytes) {
    Result<wire::MfpView> view = wire::MfpView::parse(bytes);
    if (view && view->bytes().size() != bytes.size()) {
        return Error{fmt::format(
            "{} bytes behind the MFP; if it is from a capture: captured with gro or tx-udp-segmentation on?",
            bytes.size() - view->bytes().size())};
    }
    return view;
}

Result<wire::MefView> PacketReader::whole_mef(Bytes bytes) {
    Result<wire::MefView> view = wire::MefView::parse(bytes);
    if (view && view->bytes().size() != bytes.size()) {
        return Error{fmt::format("{} bytes behind the multi-event fragment", bytes.size() - view->bytes().size())};
    }
    return view;
}

Result<std::uint16_t> PacketReader::source_of(const wire::MefView& mef) {
    std::size_t cursor = 0;
    while (const std::optional<wire::MefView::Event> event = mef.next(cursor)) {
        if (event->banks.empty()) continue;
        const Result<wire::RawBankAndRest> first = wire::take_raw_bank(event->banks);
        if (!first) return first.error();
        return static_cast<std::uint16_t>(first->bank.source);
    }
    return Error{"no bank in it says whose it is"};
}

Result<wire::MfpView> PacketReader::convert(const wire::MefView& mef, std::uint16_t source, std::uint64_t near) {
    const std::uint64_t first = extend_id(mef.first_event(), near);
    const wire::MefToMfp parameters{static_cast<std::uint32_t>(first >> 32U), source, mef_align_log2};
    const Result<std::uint64_t> bytes = wire::mef_to_mfp(mef, parameters, scratch_);
    if (!bytes) return bytes.error();
    return wire::MfpView::parse(Bytes(scratch_).first(*bytes));
}

}  // namespace incast::ingest

#include "wire/mep.h"

#include <algorithm>
#include <array>
#include <limits>
#include <string>

namespace incast::wire {

namespace {

constexpr std::size_t at_n_mfps = 2;
constexpr std::size_t at_words = 4;
constexpr std::size_t at_sources = 8;
constexpr std::uint64_t word_bytes = 4;
constexpr std::array<std::byte, mep_alignment> zeroes{};

Error mep_error(std::string message) {
    return Error{"MEP: " + std::move(message)};
}

Error fail_mfp(std::uint16_t source, const std::string& message) {
    return mep_error("source " + std::to_string(source) + ": " + message);
}

std::size_t offsets_at(std::uint32_t n_mfps) {
    return at_sources + 2 * round_up(n_mfps, 2);
}

// End of ids and offsets, without the padding a compact MEP has behind them.
std::uint64_t tables_end(std::uint32_t n_mfps) {
    return offsets_at(n_mfps) + word_bytes * n_mfps;
}

}  // namespace

Result<MepHeader> peek_mep(Bytes bytes) {
    if (bytes.size() < mep_fixed_bytes) {
        return mep_error(std::to_string(bytes.size()) + " bytes, expected at least a header of 8");
    }
    const auto magic = load<std::uint16_t>(bytes, 0);
    if (magic != mep_magic) {
        return mep_error("magic " + std::to_string(magic) + ", expected 52986 (0xcefa)");
    }
    MepHeader header;
    header.n_mfps = load<std::uint16_t>(bytes, at_n_mfps);
    header.packet_bytes = word_bytes * load<std::uint32_t>(bytes, at_words);
    if (header.n_mfps == 0) {
        return mep_error("n_mfps 0, expected 1 .. 65535");
    }
    if (header.packet_bytes < tables_end(header.n_mfps)) {
        return mep_error("packet of " + std::to_string(header.packet_bytes) + " bytes, expected at least " +
                         std::to_string(tables_end(header.n_mfps)) + " for " + std::to_string(header.n_mfps) + " MFPs");
    }
    return header;
}

Result<MepView> MepView::parse(Bytes bytes) {
    const Result<MepHeader> peeked = peek_mep(bytes);
    if (!peeked) {
        return peeked.error();
    }
    if (peeked->packet_bytes > bytes.size()) {
        return mep_error("packet of " + std::to_string(peeked->packet_bytes) + " bytes, but only " +
                         std::to_string(bytes.size()) + " are there");
    }
    MepView view(bytes.first(peeked->packet_bytes), peeked->n_mfps);
    std::uint64_t end = tables_end(view.n_mfps_);
    for (std::uint32_t index = 0; index < view.n_mfps_; ++index) {
        const std::uint16_t source = view.source(index);
        const std::uint64_t offset = view.offset(index);
        if (offset < end || offset > view.bytes_.size()) {
            return fail_mfp(source, "offset " + std::to_string(offset) + ", expected " + std::to_string(end) + " .. " +
                                        std::to_string(view.bytes_.size()));
        }
        const Result<MfpView> mfp = MfpView::parse(view.bytes_.subspan(offset));
        if (!mfp) {
            return fail_mfp(source, mfp.error().message);
        }
        const MfpHeader& header = mfp->header();
        if (header.source != source) {
            return fail_mfp(source, "holds the MFP of source " + std::to_string(header.source));
        }
        if (index == 0) {
            view.first_event_ = header.first_event;
            view.n_events_ = header.n_fragments;
        } else if (header.first_event != view.first_event_ || header.n_fragments != view.n_events_) {
            return fail_mfp(source, "events " + std::to_string(header.first_event) + " + " +
                                        std::to_string(header.n_fragments) + ", expected " +
                                        std::to_string(view.first_event_) + " + " + std::to_string(view.n_events_));
        }
        end = offset + header.packet_bytes;
    }
    return view;
}

std::uint16_t MepView::source(std::uint32_t index) const {
    return load<std::uint16_t>(bytes_, at_sources + std::size_t{2} * index);
}

std::uint64_t MepView::offset(std::uint32_t index) const {
    return word_bytes * load<std::uint32_t>(bytes_, offsets_at(n_mfps_) + word_bytes * index);
}

MfpView MepView::mfp(std::uint32_t index) const {
    const Bytes rest = bytes_.subspan(offset(index));
    // parse() has checked this packet, so its header alone need be read.
    const MfpHeader header = *peek_mfp(rest);
    return {rest.first(header.packet_bytes), header};
}

Result<GatheredMep> gather_mep(std::span<const Bytes> mfps, MutableBytes header, std::span<Bytes> segments) {
    if (mfps.empty() || mfps.size() > mep_max_mfps) {
        return mep_error("n_mfps " + std::to_string(mfps.size()) + ", expected 1 .. 65535");
    }
    const auto n_mfps = static_cast<std::uint32_t>(mfps.size());
    const std::uint64_t header_size = mep_header_bytes(n_mfps);
    if (header.size() < header_size || segments.size() < mep_max_segments(n_mfps)) {
        return mep_error("room for a header of " + std::to_string(header.size()) + " bytes and " +
                         std::to_string(segments.size()) + " segments, expected " + std::to_string(header_size) +
                         " and " + std::to_string(mep_max_segments(n_mfps)));
    }
    std::ranges::fill(header.first(header_size), std::byte{0});
    GatheredMep gathered;
    segments[gathered.n_segments++] = header.first(header_size);
    std::uint64_t offset = header_size;
    std::uint16_t previous = 0;
    for (std::uint32_t index = 0; index < n_mfps; ++index) {
        const Result<MfpHeader> mfp = peek_mfp(mfps[index]);
        if (!mfp) {
            return mep_error("piece " + std::to_string(index) + ": " + mfp.error().message);
        }
        if (mfp->packet_bytes > mfps[index].size()) {
            return fail_mfp(mfp->source, "packet bytes " + std::to_string(mfp->packet_bytes) + ", but only " +
                                             std::to_string(mfps[index].size()) + " are there");
        }
        if (index == 0) {
            gathered.first_event = mfp->first_event;
            gathered.n_events = mfp->n_fragments;
        } else if (mfp->source <= previous) {
            return fail_mfp(mfp->source, "follows source " + std::to_string(previous) + ", expected ascending ids");
        } else if (mfp->first_event != gathered.first_event || mfp->n_fragments != gathered.n_events) {
            return fail_mfp(mfp->source, "events " + std::to_string(mfp->first_event) + " + " +
                                             std::to_string(mfp->n_fragments) + ", expected " +
                                             std::to_string(gathered.first_event) + " + " +
                                             std::to_string(gathered.n_events));
        }
        previous = mfp->source;
        const std::uint64_t padded = round_up(mfp->packet_bytes, mep_alignment);
        if ((offset + padded) / word_bytes > std::numeric_limits<std::uint32_t>::max()) {
            return fail_mfp(mfp->source, "ends beyond the 16 GiB that a MEP can express");
        }
        store(header, at_sources + std::size_t{2} * index, mfp->source);
        store(header, offsets_at(n_mfps) + word_bytes * index, static_cast<std::uint32_t>(offset / word_bytes));
        segments[gathered.n_segments++] = mfps[index].first(mfp->packet_bytes);
        if (padded != mfp->packet_bytes) {
            segments[gathered.n_segments++] = Bytes(zeroes).first(padded - mfp->packet_bytes);
        }
        offset += padded;
    }
    store(header, 0, mep_magic);
    store(header, at_n_mfps, static_cast<std::uint16_t>(n_mfps));
    store(header, at_words, static_cast<std::uint32_t>(offset / word_bytes));
    gathered.packet_bytes = offset;
    return gathered;
}

}  // namespace incast::wire

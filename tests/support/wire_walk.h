// For unit tests and fuzzers: parse arbitrary bytes, then touch everything a parsed view hands out and check what must
// hold for it. A broken promise aborts, which both a fuzzer and a test report; a read outside is left to the address
// sanitizer.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <optional>
#include <vector>

#include "base/prng.h"
#include "wire/mef.h"
#include "wire/mep.h"
#include "wire/mfp.h"

namespace incast::wire::testing {

inline void require(bool condition, const char* promise) {
    if (!condition) {
        std::fprintf(stderr, "broken promise: %s\n", promise);
        std::abort();
    }
}

/// A mixing sum over all bytes, so that each of them is read.
inline std::uint64_t touch(Bytes bytes, std::uint64_t sum) {
    for (const std::byte byte : bytes) {
        sum = (sum ^ std::to_integer<std::uint64_t>(byte)) * 0x100000001b3ULL;
    }
    return sum;
}

inline std::uint64_t touch_mfp(const MfpView& mfp) {
    std::uint64_t sum = 0;
    std::uint64_t payload = 0;
    std::uint64_t event = mfp.header().first_event;
    bool any_missing = false;
    std::uint32_t index = 0;
    for (const Fragment fragment : mfp) {
        require(fragment.event == event++, "events are consecutive");
        require(fragment.type == mfp.type(index) && fragment.data.size() == mfp.fragment_bytes(index),
                "iteration agrees with access");
        require(fragment.data.empty() ||
                    (fragment.data.data() >= mfp.bytes().data() &&
                     fragment.data.data() + fragment.data.size() <= mfp.bytes().data() + mfp.bytes().size()),
                "fragments lie inside the packet");
        payload += fragment.data.size();
        any_missing = any_missing || fragment.missing().has_value();
        sum = touch(fragment.data, sum + fragment.type);
        ++index;
    }
    require(index == mfp.size() && index > 0, "iteration yields n fragments");
    require(payload == mfp.payload_bytes(), "payload is the sum of the fragments");
    require(any_missing == (mfp.flag() >= SourceFlag::missing_dead), "the flag tells of missing fragments");
    require((payload == 0 && !any_missing) == (mfp.flag() == SourceFlag::empty), "the flag tells of emptiness");
    return sum;
}

/// True if the bytes start with a valid MFP; then also: writing its fragments again gives a packet that reads the same.
inline bool walk_mfp(Bytes bytes) {
    if (const std::optional<std::uint64_t> end = end_of_run_bytes(bytes)) {
        require(*end >= mfp_header_bytes && *end <= bytes.size(), "the packet that ends a run is there");
    }
    const Result<MfpView> view = MfpView::parse(bytes);
    if (!view) {
        require(!view.error().message.empty(), "an error says something");
        return false;
    }
    require(view->bytes().size() == view->header().packet_bytes && view->bytes().size() <= bytes.size(),
            "the view is the packet");
    const std::uint64_t sum = touch_mfp(*view);

    std::vector<std::byte> copy(view->bytes().size() + (std::size_t{1} << view->header().align_log2));
    Result<MfpWriter> writer = MfpWriter::begin(copy, view->header());
    require(writer.ok(), "a valid header can be written");
    bool all_added = true;
    for (const Fragment fragment : *view) {
        all_added = all_added && writer->add(fragment.type, fragment.data);
    }
    if (all_added) {  // not so if a reserved type comes with data: read with tolerance, never written
        const Result<std::uint64_t> written = writer->finish();
        require(written.ok(), "all fragments are there");
        const Result<MfpView> again = MfpView::parse(Bytes(copy).first(*written));
        require(again.ok(), "what was written reads");
        require(touch_mfp(*again) == sum, "what was written reads the same");
    }

    // With error banks nothing is missing that only Incast knows, and all data are the same.
    std::vector<std::byte> banks(view->bytes().begin(), view->bytes().end());
    missing_to_error_banks(banks);
    const Result<MfpView> shown = MfpView::parse(banks);
    require(shown.ok() && shown->payload_bytes() == view->payload_bytes(), "error banks change no size");
    require(!is_defect(shown->flag()), "error banks are no types of Incast's own");

    // A cut packet is either refused or mended into a valid one.
    std::vector<std::byte> cut(view->bytes().begin(),
                               view->bytes().begin() + static_cast<std::ptrdiff_t>(view->bytes().size() / 2));
    if (const Result<std::uint64_t> mended = truncate_mfp(cut)) {
        const Result<MfpView> rest = MfpView::parse(Bytes(cut).first(*mended));
        require(rest.ok(), "a mended packet reads");
        touch_mfp(*rest);
    }
    return true;
}

/// True if the bytes start with a valid MEP; then also: gathering its MFPs gives a MEP that reads the same.
inline bool walk_mep(Bytes bytes) {
    const Result<MepView> view = MepView::parse(bytes);
    if (!view) {
        require(!view.error().message.empty(), "an error says something");
        return false;
    }
    std::vector<Bytes> pieces;
    std::vector<std::uint64_t> sums;
    for (std::uint32_t index = 0; index < view->size(); ++index) {
        const MfpView mfp = view->mfp(index);
        require(mfp.header().source == view->source(index), "the directory tells the source");
        require(mfp.header().first_event == view->first_event() && mfp.size() == view->n_events(),
                "all MFPs hold the same events");
        pieces.push_back(mfp.bytes());
        sums.push_back(touch_mfp(mfp));
    }
    bool ascending = true;
    for (std::uint32_t index = 1; index < view->size(); ++index) {
        ascending = ascending && view->source(index - 1) < view->source(index);
    }
    std::vector<std::byte> header(mep_header_bytes(view->size()));
    std::vector<Bytes> segments(mep_max_segments(view->size()));
    const Result<GatheredMep> gathered = gather_mep(pieces, header, segments);
    require(gathered.ok() == ascending, "the MFPs of a MEP make a MEP, if their ids ascend");
    if (!ascending) {
        return true;
    }
    std::vector<std::byte> compact;
    for (const Bytes segment : std::span(segments).first(gathered->n_segments)) {
        compact.insert(compact.end(), segment.begin(), segment.end());
    }
    require(compact.size() == gathered->packet_bytes, "segments add up");
    const Result<MepView> again = MepView::parse(compact);
    require(again.ok() && again->size() == view->size() && again->bytes().size() == compact.size(),
            "a gathered MEP reads");
    for (std::uint32_t index = 0; index < view->size(); ++index) {
        require(again->offset(index) % mep_alignment == 0, "MFPs are 8-byte aligned");
        require(touch_mfp(again->mfp(index)) == sums[index], "a gathered MEP reads the same");
    }
    return true;
}

/// True if the bytes start with a valid multi-event fragment; then also: it can be written again to the same bytes, and
/// if it converts to an MFP, the MFP holds the same bytes per event.
inline bool walk_mef(Bytes bytes) {
    const Result<MefView> view = MefView::parse(bytes);
    if (!view) {
        require(!view.error().message.empty(), "an error says something");
        return false;
    }
    std::vector<std::byte> copy(view->bytes().size());
    Result<MefWriter> writer = MefWriter::begin(copy, view->first_event(), view->partition());
    require(writer.ok(), "a header fits");
    std::vector<Bytes> events;
    for (std::size_t cursor = 0; const auto event = view->next(cursor);) {
        require(writer->add(event->low_event, event->banks), "an event that was read can be written");
        events.push_back(event->banks);
        for (Bytes rest = event->banks; !rest.empty();) {
            const Result<RawBankAndRest> taken = take_raw_bank(rest);
            if (!taken) {
                break;
            }
            require(taken->rest.size() < rest.size(), "a bank takes bytes");
            std::vector<std::byte> bank(raw_bank_bytes(taken->bank.body.size()));
            // A bank whose padded length passes 65535 can still be written: only its own length is u16.
            const Result<std::size_t> written = write_raw_bank(bank, taken->bank);
            require(written.ok() && *written == bank.size(), "a bank that was read can be written");
            rest = taken->rest;
        }
    }
    require(events.size() == view->n_events(), "all events are yielded");
    require(writer->finish() == copy.size() && std::ranges::equal(copy, view->bytes()), "writing gives the same bytes");

    std::vector<std::byte> mfp(mfp_prefix_bytes(view->n_events(), false) + view->bytes().size() + 8 * events.size());
    if (const Result<std::uint64_t> converted =
            mef_to_mfp(*view, {.event_id_high = 1, .source = 7, .align_log2 = 2}, mfp)) {
        const Result<MfpView> again = MfpView::parse(Bytes(mfp).first(*converted));
        require(again.ok() && again->size() == events.size(), "a converted packet reads");
        std::size_t index = 0;
        for (const Fragment fragment : *again) {
            require(std::ranges::equal(fragment.data, events[index++]), "a converted packet holds the same bytes");
        }
    }
    return true;
}

/// `walk` must survive every truncation (and refuse it) and `rounds` random corruptions of a valid packet. Each trial
/// has a heap block of exactly its size, so that the address sanitizer sees one byte too far.
template <class Walk>
void torture(Bytes valid, std::uint64_t seed, int rounds, Walk walk) {
    for (std::size_t length = 0; length < valid.size(); ++length) {
        const auto block = std::make_unique<std::byte[]>(length);
        std::ranges::copy(valid.first(length), block.get());
        require(!walk(Bytes(block.get(), length)), "a truncated packet is refused");
    }
    base::Prng prng(seed);
    const auto block = std::make_unique<std::byte[]>(valid.size());
    for (int round = 0; round < rounds; ++round) {
        std::ranges::copy(valid, block.get());
        for (std::uint64_t changes = 1 + prng.below(3); changes > 0; --changes) {
            block[prng.below(valid.size())] = static_cast<std::byte>(prng.below(256));
        }
        walk(Bytes(block.get(), valid.size()));
    }
}

}  // namespace incast::wire::testing

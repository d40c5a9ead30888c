// Which MFPs the generator makes: its own instructions, and what a verifying sink expects. A pure function of config
// and options.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include <incast/result.h>

#include "protocol/config.h"
#include "runtime/sources/content.h"
#include "runtime/sources/sizes.h"
#include "runtime/sources/source.h"
#include "wire/mfp.h"

namespace incast::sources {

inline constexpr std::uint8_t generated_align_log2 = 3;  // fragments start on 8 bytes, as LHCb's do
inline constexpr std::uint8_t generated_fragment_version = 1;
inline constexpr std::uint8_t generated_fragment_type = 0;

/// One MFP: what it holds and how it is flagged.
struct PlannedMfp {
    std::uint64_t first_event = 0;    // in its header
    std::uint64_t content_event = 0;  // of its first fragment, for sizes and content: the ring's if prefilled
    std::uint32_t n_events = 0;
    std::uint32_t kept =
        0;  // fragments that fit into the source's place; those behind are empty and typed `truncated` (EB-S4)
    wire::MfpSize size;
    wire::SourceFlag flag = wire::SourceFlag::ok;
};

class MfpPlan {
public:
    /// Errors: bad sizes, packing or rate; a source whose place cannot even hold the tables of an MFP.
    static Result<MfpPlan> make(const protocol::Config& config, const GeneratorOptions& options);

    [[nodiscard]] std::uint64_t total_meps() const { return total_meps_; }
    [[nodiscard]] std::uint32_t packing() const { return options_.packing; }
    /// Events of a MEP, where none is closed early; 0 from total_meps on.
    [[nodiscard]] std::uint32_t n_events(protocol::MepId mep) const { return events_from(first_event(mep)); }
    /// Of a MEP that begins with that event, unless it is closed early.
    [[nodiscard]] std::uint32_t events_from(std::uint64_t first_event) const;
    [[nodiscard]] std::uint64_t total_events() const { return options_.total_events; }

    /// `source` indexes Config::sources. Fills the first n_events of `sizes` (at least packing long).
    PlannedMfp mfp(std::uint32_t source, protocol::MepId mep, std::span<std::uint32_t> sizes) const {
        return mfp(source, mep, first_event(mep), n_events(mep), sizes);
    }
    /// Of a MEP with these events, n_events of them.
    PlannedMfp mfp(std::uint32_t source, protocol::MepId mep, std::uint64_t first_event, std::uint32_t n_events,
                   std::span<std::uint32_t> sizes) const;
    /// The MFPs of a source with as many events differ in their event ids and content alone.
    [[nodiscard]] bool same_sizes() const { return sizes_.fixed(); }
    [[nodiscard]] std::uint64_t first_event(protocol::MepId mep) const { return mep * options_.packing; }
    [[nodiscard]] ContentKey content(std::uint32_t source, const PlannedMfp& mfp, std::uint32_t fragment) const {
        return {streams_[source], mfp.content_event + fragment};
    }
    [[nodiscard]] std::uint16_t source_id(std::uint32_t source) const { return source_ids_[source]; }

    /// After so many MEPs an RU uses the same memory again. At least retention_meps.
    /// Prefilled, the content repeats with it, so it is a prime that divides none of the numbers that slots are reused
    /// by (EB-M4).
    [[nodiscard]] std::uint64_t ring_meps() const { return ring_meps_; }

private:
    MfpPlan(const protocol::Config& config, const GeneratorOptions& options, const FragmentSizes& sizes);
    GeneratorOptions options_;
    FragmentSizes sizes_;
    std::uint64_t total_meps_;
    std::vector<std::uint16_t> source_ids_;
    std::vector<std::uint64_t> streams_;  // of content
    std::vector<std::uint32_t> caps_;
    std::uint64_t ring_meps_ = 0;
};

}  // namespace incast::sources

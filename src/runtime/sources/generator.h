// A source that makes its own fragments: seeded, verifiable byte for byte, as fast as memory (EB-M1, EB-M4, EB-M5,
// EB-M7).
#pragma once

#include <memory>
#include <vector>

#include "runtime/sources/mfp_plan.h"
#include "runtime/sources/ring_source.h"

namespace incast::sources {

class Generator final : public RingSource {
public:
    explicit Generator(const GeneratorOptions& options) : RingSource(options.triggers), options_(options) {}

    /// Fills the ring if `prefilled`: that takes as long as writing prefill_bytes takes.
    Result<Ok> attach(Transport& transport, const protocol::Config& config, std::uint32_t first_source,
                      std::uint32_t count) override;
    [[nodiscard]] std::uint64_t total_meps() const override { return plan_ ? plan_->total_meps() : 0; }

private:
    [[nodiscard]] std::uint32_t n_events(protocol::MepId, std::uint64_t first_event) const override {
        return plan_->events_from(first_event);
    }
    [[nodiscard]] std::uint32_t most_events() const override { return plan_->packing(); }
    void make(protocol::MepId mep, std::uint32_t index, protocol::Piece& piece, std::span<std::byte> out) override;
    void write(const PlannedMfp& mfp, std::uint32_t index, protocol::Piece& piece, std::span<std::byte> out);

    GeneratorOptions options_;
    std::unique_ptr<MfpPlan> plan_;     // from attach() on
    std::vector<std::uint32_t> sizes_;  // scratch
};

}  // namespace incast::sources

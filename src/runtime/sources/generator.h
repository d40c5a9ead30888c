// A source that makes its own fragments: seeded, verifiable byte for byte, as fast as memory (PROTOCOL M1, M4, M5, M7).
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
    [[nodiscard]] std::uint32_t n_events(protocol::MepId mep) const override { return plan_->n_events(mep); }
    [[nodiscard]] std::uint32_t most_events() const override { return plan_->packing(); }
    [[nodiscard]] std::uint64_t first_event(protocol::MepId mep) const override { return mep * plan_->packing(); }
    void make(protocol::MepId mep, std::uint32_t index, protocol::Piece& piece, std::span<std::byte> out) override;
    void write(protocol::MepId mep, std::uint32_t index, protocol::Piece& piece, std::span<std::byte> out);

    GeneratorOptions options_;
    std::unique_ptr<MfpPlan> plan_;     // from attach() on
    std::vector<std::uint32_t> sizes_;  // scratch
};

}  // namespace incast::sources

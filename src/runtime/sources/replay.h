// A source that sends what was recorded: MFP files of a folder, once or over and over.
#pragma once

#include <memory>
#include <vector>

#include "runtime/sources/replay_files.h"
#include "runtime/sources/ring_source.h"

namespace incast::sources {

/// Which MFPs a replay sends: the source's own instructions, and what a verifying sink expects.
class ReplayPlan {
public:
    /// Of `count` sources of the config from `first_source` on, all by default. Errors: of Recording::open; a source
    /// without a file, or without room for the tables of its MFPs.
    static Result<ReplayPlan> make(const protocol::Config& config, const ReplayOptions& options,
                                   std::uint32_t first_source = 0, std::uint32_t count = ~std::uint32_t{0});

    [[nodiscard]] std::uint64_t total_meps() const { return recording_.total_meps * repeat_; }  // 0 = no end
    [[nodiscard]] std::uint32_t n_events(protocol::MepId mep) const;                            // 0 behind the end
    [[nodiscard]] std::uint32_t packing() const { return recording_.packing; }
    /// Event ids of a repeat go on where the one before it ended.
    [[nodiscard]] std::uint64_t first_event(protocol::MepId mep) const {
        return recording_.first_event + mep / recording_.total_meps * recording_.total_events +
               mep % recording_.total_meps * recording_.packing;
    }

    struct Replayed {
        Bytes packet;  // complete but for the id of its first event; in the file or, until the next call, in the plan's
                       // own memory
        std::uint32_t goodput_bytes = 0;
        wire::SourceFlag flag = wire::SourceFlag::ok;
    };
    /// `source` counts from the first one that this is a plan of. Where the recording has no MFP there is a phantom
    /// flagged desync; what is too large for its place is truncated (EB-S4, EB-S5).
    Replayed mfp(std::uint32_t source, protocol::MepId mep);

private:
    ReplayPlan(Recording recording, std::uint64_t repeat) : recording_(std::move(recording)), repeat_(repeat) {}
    Replayed phantom(std::uint16_t source, std::uint32_t n_events);

    struct Place {
        std::size_t recorded;  // index in recording_.sources
        std::uint32_t cap_bytes;
    };
    Recording recording_;
    std::uint64_t repeat_;
    std::vector<Place> places_;  // by source
    std::vector<std::byte> scratch_;
};

class Replay final : public RingSource {
public:
    explicit Replay(const ReplayOptions& options) : RingSource(options.triggers), options_(options) {}

    Result<Ok> attach(Transport& transport, const protocol::Config& config, std::uint32_t first_source,
                      std::uint32_t count) override;
    [[nodiscard]] std::uint64_t total_meps() const override { return plan_ ? plan_->total_meps() : 0; }

private:
    [[nodiscard]] std::uint32_t n_events(protocol::MepId mep, std::uint64_t) const override {
        return plan_->n_events(mep);
    }
    [[nodiscard]] std::uint32_t most_events() const override { return plan_->packing(); }
    [[nodiscard]] std::uint64_t origin_event() const override { return plan_->first_event(0); }
    [[nodiscard]] std::uint64_t first_event(protocol::MepId mep, std::uint64_t) const override {
        return plan_->first_event(mep);
    }
    /// Recorded MFPs are what they are.
    [[nodiscard]] bool may_close() const override { return false; }
    void make(protocol::MepId mep, std::uint32_t index, protocol::Piece& piece, std::span<std::byte> out) override;

    ReplayOptions options_;
    std::unique_ptr<ReplayPlan> plan_;  // from attach() on
};

}  // namespace incast::sources

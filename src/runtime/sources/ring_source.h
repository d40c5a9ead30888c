// What generator and replay have in common: a ring of MEPs in one region of the transport, retention, triggers and
// their counts.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "runtime/sources/source.h"
#include "runtime/sources/triggers.h"

namespace incast::sources {

/// Of the id of the first event, in both variants of the MFP header (docs/formats.md).
inline constexpr std::size_t mfp_first_event_offset = 8;

/// Where an MFP of at most that size starts: whole cache lines, so that no two share one.
constexpr std::uint64_t ring_stride(std::uint32_t cap_bytes) {
    return (std::uint64_t{cap_bytes} + 63) / 64 * 64;
}

class RingSource : public RuntimeSource {
public:
    explicit RingSource(const TriggerOptions& triggers) : triggers_(triggers) {}

    void start(Time now, protocol::MepId first, std::uint64_t first_event) final;
    void start_triggers(Time origin) final { triggers_.origin = origin; }
    bool produce(Time now, protocol::MepId mep) final;
    const protocol::Piece& piece(protocol::MepId mep, std::uint32_t index) final {
        return was_dropped(mep) ? stand_ins_[stand_in(mep, index)] : pieces_[place(mep, index)];
    }
    void release(protocol::MepId below) final;
    [[nodiscard]] std::span<const Local> regions() const final { return {&region_, 1}; }
    [[nodiscard]] Time next_ready() const final { return next_ready_; }
    [[nodiscard]] Time impatient_at() const final { return impatient_at_; }
    [[nodiscard]] std::uint32_t open_events(Time now) final;
    void close(Time now, protocol::MepId mep, std::uint32_t events) final;
    [[nodiscard]] SourceStats stats(Time now) final;
    void clear_peak() final { stats_.peak_held_meps = held_meps_; }

protected:
    /// Allocates the ring and touches every page of it: page faults belong here and not into the measured window
    /// (EB-M6). `keeps_content`: each of its MEPs has a place of its own, which is written once.
    Result<Ok> allocate(Transport& transport, const protocol::Config& config, std::uint32_t first_source,
                        std::uint32_t count, std::uint64_t ring_meps, bool keeps_content);

    /// Events of a MEP that begins with that one, unless it is closed early; 0 if there are no more.
    [[nodiscard]] virtual std::uint32_t n_events(protocol::MepId mep, std::uint64_t first_event) const = 0;
    /// At most so many in any MEP.
    [[nodiscard]] virtual std::uint32_t most_events() const = 0;
    /// The id of the run's first event.
    [[nodiscard]] virtual std::uint64_t origin_event() const { return 0; }
    /// That of a MEP's, which the EM counted as `told`.
    [[nodiscard]] virtual std::uint64_t first_event(protocol::MepId, std::uint64_t told) const { return told; }
    /// A MEP may have fewer events than n_events (EB-C8).
    [[nodiscard]] virtual bool may_close() const { return true; }
    /// Puts one MFP into its place and describes it in `piece` (body.length, n_events, goodput_bytes, flag), which
    /// holds what it held a ring ago. `out` is the place, as long as the source's cap; empty where bodies are phantom.
    virtual void make(protocol::MepId mep, std::uint32_t index, protocol::Piece& piece, std::span<std::byte> out) = 0;

    /// Of the MEP that is made.
    [[nodiscard]] std::uint64_t next_first_event() const { return next_first_; }
    [[nodiscard]] std::uint32_t next_events() const {
        return closed_events_ > 0 ? closed_events_ : n_events(next_, next_first_);
    }
    [[nodiscard]] std::uint32_t first_source() const { return first_source_; }
    [[nodiscard]] std::uint32_t sources() const { return static_cast<std::uint32_t>(offsets_.size()); }
    [[nodiscard]] protocol::Piece& piece_at(protocol::MepId mep, std::uint32_t index) {
        return pieces_[place(mep, index)];
    }
    [[nodiscard]] std::span<std::byte> place_of(const protocol::Piece& piece, std::uint32_t index) const {
        return memory_.empty() ? memory_ : memory_.subspan(piece.body.offset, caps_[index]);
    }

private:
    [[nodiscard]] std::size_t place(protocol::MepId mep, std::uint32_t index) const {
        return mep % ring_meps_ * offsets_.size() + index;
    }
    [[nodiscard]] std::size_t stand_in(protocol::MepId mep, std::uint32_t index) const {
        return mep % retention_meps_ * offsets_.size() + index;
    }
    [[nodiscard]] bool may_drop() const { return triggers_.policy == Policy::drop && open_loop(); }
    [[nodiscard]] bool was_dropped(protocol::MepId mep) const {
        return !dropped_.empty() && dropped_[mep % retention_meps_] != 0;
    }
    [[nodiscard]] bool open_loop() const { return triggers_.rate_hz > 0; }
    [[nodiscard]] bool has_room(protocol::MepId mep) const { return mep < released_ + retention_meps_; }
    void look(Time now);
    void plan_next(Time now);
    [[nodiscard]] std::uint32_t checksum_of(const protocol::Piece& piece, std::uint32_t index);
    void make_all(Time trigger);
    void drop_all(Time trigger);

    TriggerOptions triggers_;
    std::optional<TriggerGate> gate_;  // open loop, once the triggers have started
    Local region_{};
    std::span<std::byte> memory_;  // empty where bodies are phantom
    std::uint32_t first_source_ = 0;
    std::uint32_t retention_meps_ = 0;
    std::uint64_t ring_meps_ = 1;
    std::uint64_t mep_bytes_ = 0;
    protocol::Checksum checksum_ = protocol::Checksum::off;
    std::uint64_t memory_meps_ = 0;  // MEPs with data there is room for; at most retention_meps_
    bool keeps_content_ = false;
    std::vector<std::uint64_t> offsets_;  // by source, within a MEP of the ring
    std::vector<std::uint32_t> caps_;
    std::vector<std::uint16_t> ids_;
    std::vector<protocol::Piece> pieces_;
    /// Of content that is kept: what need not be looked at again.
    struct Rest {
        std::uint32_t n_events = 0;  // of the MFP that it was made of
        std::uint32_t checksum = 0;
    };
    std::vector<Rest> rests_;                 // as pieces_
    std::vector<std::uint8_t> dropped_;       // drop: by MEP of the retention
    std::vector<protocol::Piece> stand_ins_;  // drop: the empty MFPs
    std::vector<Time> room_since_;            // open loop: by MEP of the retention

    protocol::MepId next_ = 0;
    std::uint64_t next_first_ = 0;     // its first event
    std::uint32_t closed_events_ = 0;  // what the EM said that it has; 0: nothing
    Time max_wait_ = 0;                // EB-C8; 0: none
    Time impatient_at_ = time_never;
    protocol::MepId released_ = 0;
    protocol::MepId room_below_ = 0;  // room_since_ knows the MEPs below
    std::uint64_t made_meps_ = 0;     // with data
    std::uint64_t freed_meps_ = 0;    // of these, released
    std::uint64_t held_meps_ = 0;     // of these, not released when it was last looked
    Time held_since_ = 0;             // when they were last added up
    Time next_ready_ = 0;
    SourceStats stats_;
};

}  // namespace incast::sources

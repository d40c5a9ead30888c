// A source whose fragments come from elsewhere, by one window per source (EB-C9): they may be lost, come twice or in
// another order. What came is copied to its place in the ring; a MEP is made when all sources of this readout unit have
// all of it, or when what is missing is given up. Where they come from is for who derives from it.
//
//   places of a source:  | kept for the builder units (retention) | open: being filled |
//                          released                                next
//
// Given up is what others of this readout unit were ahead of for `patience`. Before that all is taken that has come.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "ingest/window.h"
#include "runtime/sources/source.h"

namespace incast::sources {

class WindowedSource : public RuntimeSource {
public:
    explicit WindowedSource(const ArrivalOptions& options) : arrival_(options) {}

    [[nodiscard]] std::span<const Local> regions() const override { return {&region_, 1}; }
    void start(Time now, protocol::MepId first, std::uint64_t first_event) override;
    void start_triggers(Time) override {}
    bool produce(Time now, protocol::MepId mep) override;
    const protocol::Piece& piece(protocol::MepId mep, std::uint32_t index) override {
        return pieces_[mep % places_ * windows_.size() + index];
    }
    void release(protocol::MepId) override {}
    [[nodiscard]] Time next_ready() const override { return next_ready_; }
    [[nodiscard]] Time impatient_at() const override;
    [[nodiscard]] bool asks_others() const override { return next_ >= known_below_; }
    void give_up(Time now, protocol::MepId mep) override;
    [[nodiscard]] std::uint64_t total_meps() const override {
        return (arrival_.total_events + arrival_.packing - 1) / arrival_.packing;
    }
    [[nodiscard]] SourceStats stats(Time now) override;
    void clear_peak() override {}
    [[nodiscard]] std::vector<ingest::Counts> counts_of_boards() const override;

protected:
    /// Allocates the places, and makes a window for each source. Errors: no memory, or the network is simulated.
    Result<Ok> make_windows(Transport& transport, const protocol::Config& config, std::uint32_t first_source,
                            std::uint32_t count);
    /// Takes what has come, at least until the next MEP is complete.
    virtual void drain(Time now) = 0;
    /// The next MEP is made without something that was waited for.
    virtual void gave_up() {}

    [[nodiscard]] std::vector<ingest::Window>& windows() { return windows_; }
    [[nodiscard]] const std::vector<ingest::Window>& windows() const { return windows_; }
    [[nodiscard]] protocol::MepId next() const { return next_; }
    [[nodiscard]] std::uint64_t open_meps() const { return open_; }
    [[nodiscard]] std::uint32_t packing() const { return arrival_.packing; }
    [[nodiscard]] std::uint64_t total_events() const { return arrival_.total_events; }
    [[nodiscard]] bool is_complete() const;
    /// MEPs below are made without what has not come.
    void give_up_below(std::uint64_t mep);
    /// Whether MEPs wait for what that source has not sent.
    void expect(std::uint32_t index, bool whether) { expected_[index] = whether; }
    [[nodiscard]] bool expects(std::uint32_t index) const { return expected_[index]; }
    /// Something fitting came of that source.
    void note_taken(Time now, const ingest::Window& window);
    /// Of the MEPs below that, something came, or of one behind them: they are waited for from now on.
    void note_known(Time now, std::uint64_t below);
    void note_refused(std::string why);

    /// What a person should know of the sources, at most once a second.
    void tell_of_sources(Time now, std::vector<std::string>& news);
    /// Why the first packet was refused, once; else empty.
    [[nodiscard]] std::string take_refusal();

private:
    /// What was told of a source.
    struct Told {
        std::uint64_t restarts = 0;
        std::uint64_t jumps = 0;
        std::uint64_t size_changes = 0;
        std::uint64_t packets = 0;
        bool in_step = true;
        std::uint32_t quiet_looks = 0;  // in a row, while others sent
        bool is_silent = false;
    };

    [[nodiscard]] bool may_give_up(Time now) const;
    void make(Time now);
    void tell_of(std::uint32_t index, bool others_sent, std::vector<std::string>& news);

    ArrivalOptions arrival_;
    std::vector<ingest::Window> windows_;  // by source of this readout unit
    std::vector<bool> expected_;           // the same
    std::vector<Told> told_;
    std::vector<std::uint64_t> offsets_;
    Local region_{};
    std::span<std::byte> memory_;
    std::vector<protocol::Piece> pieces_;  // by place, then source
    std::vector<Time> known_since_;        // by open MEP: something of it, or of a later one, came
    protocol::Checksum checksum_ = protocol::Checksum::off;
    std::uint64_t places_ = 1;
    std::uint64_t open_ = 1;
    protocol::MepId next_ = 0;
    std::uint64_t known_below_ = 0;
    std::uint64_t give_up_below_ = 0;
    Time next_ready_ = 0;
    Time quiet_since_ = 0;  // nothing of the next MEP, or of a later one, has come since
    bool is_silent_ = false;
    Time last_packet_ = 0;
    Time told_at_ = 0;
    bool told_refusal_ = false;
    std::string refusal_;
    std::uint64_t refused_ = 0;
    SourceStats stats_;
};

}  // namespace incast::sources

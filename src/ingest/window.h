// The fragments of one board, put in order (EB-C9): a board sends packets of consecutive events, they come once, twice,
// late, in another order or not at all, and MEPs are made of what came. Sans IO, no clock.
//
// A window is open for the MEPs [next, next + open). What is behind it was made, what is ahead of it waits until it
// moves on. A packet that holds one whole MEP is copied as it is; others are put together fragment by fragment.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "wire/mfp.h"

namespace incast::ingest {

/// Of one source. Every event of every packet is counted once: taken, duplicate, late or stray.
struct Counts {
    std::uint64_t packets = 0;
    std::uint64_t taken_events = 0;
    std::uint64_t duplicate_events = 0;  // were there before
    std::uint64_t late_events = 0;       // their MEP had been made without them
    std::uint64_t stray_events = 0;      // of ids that do not fit the numbering of the run
    std::uint64_t lost_events = 0;       // of made MEPs: without a fragment of this source
    std::uint64_t truncated_events = 0;  // of those taken: no room for the fragment (EB-S4)
    std::uint64_t restarts = 0;          // it counted from 0 again
    std::uint64_t jumps = 0;             // it left out more events than the window holds
    std::uint64_t size_changes = 0;      // other numbers of events in a packet
};

void add(Counts& to, const Counts& more);

struct WindowOptions {
    std::uint16_t source = 0;
    std::uint32_t packing = 1;       // events in a MEP
    std::uint64_t total_events = 0;  // 0 = no end
    std::uint32_t open_meps = 2;     // at least 2
    std::uint32_t places = 3;        // more than open_meps: the others keep what was made
    std::uint32_t cap_bytes = 0;     // of an MFP; at least those of a phantom of `packing` events
    std::uint64_t stride_bytes = 0;  // between places
};

/// What a MEP holds of this source.
struct Made {
    std::uint32_t bytes = 0;
    std::uint32_t goodput_bytes = 0;
    wire::SourceFlag flag = wire::SourceFlag::ok;
};

class Window {
public:
    /// Packets in order that make a new numbering believed.
    static constexpr std::uint32_t believed_after = 4;
    /// What is further ahead is no gap.
    static constexpr std::uint64_t most_jump_meps = std::uint64_t{1} << 20U;

    /// `memory`: places of `stride_bytes` each; MEP m has place m % places. It must outlive the window.
    Window(const WindowOptions& options, std::span<std::byte> memory);

    /// The first MEP that is made. Forgets everything but the counts.
    void start(std::uint64_t first_mep);

    enum class Answer : std::uint8_t {
        used,   // copied, or of no use
        ahead,  // not counted: to be offered again when the window has moved on, up to wants_next()
    };
    Answer take(const wire::MfpView& packet);
    /// The same of an MFP in memory that somebody else may write meanwhile: it is copied before it is believed. Errors:
    /// it is none, or of another source; nothing of it is taken or counted.
    Result<Answer> take_shared(Bytes packet);

    /// After `ahead`: the packet fits once MEPs below are made.
    [[nodiscard]] std::uint64_t wants_next() const { return wants_next_; }
    /// MEPs below that were named by packets that fit.
    [[nodiscard]] std::uint64_t known_below() const { return known_below_; }
    [[nodiscard]] bool is_complete(std::uint64_t mep) const;
    /// The next MEP, whatever there is of it: a valid MFP lies in its place then. `missing` says why fragments are not
    /// there, unless the board is out of step.
    Made make(wire::SourceFlag missing);

    /// Its ids are those of the run.
    [[nodiscard]] bool is_in_step() const { return in_step_; }
    [[nodiscard]] std::uint16_t source() const { return options_.source; }
    /// Where it is in its own numbering: behind the highest event that came.
    [[nodiscard]] std::uint64_t highest() const { return highest_; }
    [[nodiscard]] std::uint32_t events_per_packet() const { return packet_events_; }
    [[nodiscard]] const Counts& counts() const { return counts_; }

private:
    struct Entry {  // of an event in an open MEP
        std::uint32_t offset = 0;
        std::uint32_t bytes = 0;
        std::uint8_t type = 0;
        bool is_there = false;
    };
    struct Open {
        std::uint32_t events = 0;  // that are there
        bool is_whole = false;     // one packet, as it came
        bool is_in_order = true;
        std::uint32_t last = 0;  // index of the event that came last
        std::uint32_t used = 0;  // bytes
        Made made;               // of one that is whole
    };
    enum class Fit : std::uint8_t { fits, ahead, stray };

    [[nodiscard]] std::uint32_t events_of(std::uint64_t mep) const;
    [[nodiscard]] std::span<std::byte> place_of(std::uint64_t mep) const {
        return memory_.subspan(mep % options_.places * options_.stride_bytes, options_.cap_bytes);
    }
    [[nodiscard]] Open& open_of(std::uint64_t mep) { return open_[mep % options_.open_meps]; }
    [[nodiscard]] const Open& open_of(std::uint64_t mep) const { return open_[mep % options_.open_meps]; }
    [[nodiscard]] Entry* entries_of(std::uint64_t mep) {
        return &entries_[mep % options_.open_meps * options_.packing];
    }
    Fit fit(std::uint64_t first, std::uint32_t events);
    Fit fit_ahead(std::uint64_t first, std::uint32_t events);
    Fit fit_out_of_step(std::uint64_t first, std::uint32_t events);
    [[nodiscard]] bool is_ahead(std::uint64_t behind) const;
    bool follows(std::uint64_t first, std::uint32_t events);
    bool restarts(std::uint64_t first, std::uint32_t events);
    void note_size(std::uint32_t events);
    [[nodiscard]] bool is_whole_mep(std::uint64_t first, std::uint32_t events) const;
    bool take_whole(const wire::MfpView& packet, std::uint64_t mep);
    bool take_fragment(const wire::Fragment& fragment);
    [[nodiscard]] bool had(std::uint64_t mep, std::uint32_t index) const;
    Made put_together(std::uint64_t mep, wire::SourceFlag missing);

    WindowOptions options_;
    std::span<std::byte> memory_;
    std::vector<Open> open_;
    std::vector<Entry> entries_;
    std::vector<std::byte> scratch_;
    std::vector<std::byte> copy_;  // of a packet in shared memory
    std::uint64_t next_ = 0;
    std::uint64_t known_below_ = 0;
    std::uint64_t wants_next_ = 0;
    std::uint64_t highest_ = 0;
    std::uint64_t believed_ = 0;  // a jump to that event
    bool in_step_ = true;
    bool was_heard_ = false;
    // Packets in order that do not fit what came before.
    std::uint64_t run_first_ = 0;
    std::uint64_t run_next_ = 0;
    std::uint32_t run_length_ = 0;
    std::uint32_t packet_events_ = 0;
    std::uint32_t other_events_ = 0;  // of the last packet, if it is another number
    Counts counts_;
};

}  // namespace incast::ingest

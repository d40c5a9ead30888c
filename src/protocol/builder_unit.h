// A builder unit: grants credits, each bound to a slot, collects the contributions of a MEP in it, asks for the commit,
// and hands the MEP to the sink (EB-C1, EB-F2, EB-F3, EB-F5).
//
// A slot: free -> granted -> assigned -> complete -> taking -> free, in two-stage schemes with deciding and assigned
// again before complete; or, when its attempt is void or an RU is gone, -> quarantined until every RU that may still
// write into it has acknowledged the abort or is fenced. A slot that the sink holds stays quarantined until the sink
// returns it. The generation of a slot is its credit number. With assignment = source-credits the MEP may be known
// first: it waits for the credit of its number, and credits are granted to the RUs that push; where the BU asks, its
// requests are the credits.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/bitmap.h"
#include "base/fifo.h"
#include "base/prng.h"
#include "base/slab.h"
#include "protocol/interfaces.h"
#include "protocol/port.h"
#include "protocol/reader.h"
#include "protocol/shape.h"

namespace incast::protocol {

class BuilderUnit {
public:
    /// `filter`: of the two-stage schemes; nullptr: accepts everything.
    BuilderUnit(Port& port, const Shape& shape, Sink& sink, Filter* filter);

    Result<Ok> start(Time now);

    void on_connection_up(Peer peer, std::uint32_t incarnation);
    void on_connection_lost(Time now, Peer peer);
    void on_view(Time now, const wire::ViewEntry& entry);
    /// That notice is about to be handled: its head is likely cold.
    void prefetch(Peer from, std::uint16_t slot) const {
        const std::uint32_t ru = ru_of(from);
        if (ru != no_index && slot < shape_.slots && has_memory_) {
            __builtin_prefetch(memory_at(shape_.layout.at(slot, shape_.rus[ru].first_source)));
        }
    }
    /// Node::step() is near; see there.
    void prefetch(unsigned level) const;
    /// `damaged`: of what it announces bytes are missing, and will not come.
    void on_notice(Time now, Peer from, std::uint16_t slot, bool damaged);
    void on_assign(Time now, const wire::ControlView& message);
    void on_verdict(Time now, const wire::ControlView& message);
    void on_abort_ack(Peer from, const wire::ControlView& message);
    /// Pull-read.
    void on_source_region(Peer from, const wire::ControlView& message);
    void on_offer(Time now, Peer from, const wire::ControlView& message);
    void on_completed(Time now, Token token, Status status);

    /// A contribution of the RU of this node: copies the body into the slot, or remembers where it is (EB-M3).
    void place_self(const wire::HeadWords& head, std::uint32_t source, Slice body, std::uint16_t slot);

    void flush(Time now);
    /// This node was paused for so long: what did not come meanwhile is not late.
    void forgive(Time pause);
    [[nodiscard]] Time next_deadline() const;
    /// Nothing left to hand to the sink, or to hear from it.
    [[nodiscard]] bool drained() const { return taking_.empty() && undurable_.empty() && committed_.empty(); }
    [[nodiscard]] Time waiting() const { return waiting_time_; }

private:
    enum class SlotState : std::uint8_t { free, granted, assigned, deciding, complete, taking, quarantined };

    struct alignas(64) Slot {  // what a contribution needs comes first, on one cache line
        SlotState state = SlotState::free;
        bool redelivered = false;
        std::uint16_t attempt = 0;
        std::uint32_t credit = 0;
        MepId mep = 0;
        base::Bitmap awaited;  // RUs whose contribution is expected and not placed yet
        base::Bitmap owed;     // RUs that may still write
        // Of the contributions that are placed, while their heads are warm.
        std::uint64_t goodput_bytes = 0;
        std::uint64_t self_bytes = 0;
        std::uint64_t first_event = 0;
        Time trigger = 0;
        Time last_trigger = 0;
        std::uint32_t n_events = 0;
        std::uint32_t missing_sources = 0;
        std::uint32_t defective_sources = 0;  // of the contributions that are placed, flagged
        base::Bitmap expected;                // RUs whose contribution is part of it: placed, or awaited
        base::Bitmap early;                   // RUs whose notice came before the assignment
        base::Bitmap torn;                    // RUs of whose contribution, not placed yet, bytes are missing
        std::uint32_t requested = 0;          // pull: RUs asked, in order of the schedule
        std::uint32_t late_before = 0;        // attempts at its MEP
        bool held = false;                    // the sink still reads it
        bool queued = false;                  // pull: in assigned_order_
        bool in_deciding = false;             // two stages: in deciding_
        bool first_stage = false;             // two stages: RUs of the second were not asked for it yet
        bool rejected = false;                // by the filter
        Time assigned = 0;
        Time completed = 0;
        Time late_at = time_never;
        Time held_since = 0;
        std::vector<std::uint16_t> order;  // pull: in which order RUs are asked
    };
    using Attempts = base::Queues<wire::AttemptEntry>;
    struct alignas(64) RuLink {  // one cache line: there are as many as pairs of nodes
        bool up = false;
        bool in_view = false;
        bool knows_regions = false;  // all keys that it needs
        wire::SourceFlag missing_as = wire::SourceFlag::missing_dead;
        std::uint16_t regions_told = 0;
        std::uint32_t view_incarnation = 0;
        MepId from_mep = 0;
        std::uint64_t placed = 0;
        Attempts::Queue requests;
        Attempts::Queue aborts;
    };
    static_assert(sizeof(RuLink) == 64);

    [[nodiscard]] std::uint32_t ru_of(Peer peer) const { return shape_.ru_of_node[static_cast<std::size_t>(peer)]; }
    [[nodiscard]] const wire::Head* head_of(std::uint32_t slot, std::uint32_t ru, std::uint32_t source) const;
    /// As of a Slot.
    struct Content {
        std::uint64_t goodput_bytes;
        std::uint64_t first_event;
        Time trigger;
        Time last_trigger;
        std::uint32_t n_events;
        std::uint32_t defective_sources;
    };
    [[nodiscard]] bool contribution_is(std::uint32_t slot, std::uint32_t ru, Content& content) const;
    [[nodiscard]] std::byte* memory_at(SlotLayout::Place place) const {
        return regions_[place.region].memory + place.offset;
    }
    void place(Time now, std::uint32_t slot, std::uint32_t ru);
    void check_bodies(std::uint32_t slot, std::uint32_t ru);
    void flag_torn(std::uint32_t slot, std::uint32_t ru);
    void finish_reading(Time now, const Reader::Finished& finished);
    void flush_reads(Time now);
    [[nodiscard]] BuiltMep describe(std::uint32_t slot);
    void count_flags(std::uint32_t slot);
    /// Slots that come back from the sink before a further one is used.
    [[nodiscard]] std::uint32_t awaited_slots(Time now) const {
        return holds_briefly_ && now < reuse_until_ ? held_ : 0;
    }
    void decide(Time now);
    void begin_second_stage(Time now, std::uint32_t slot);
    Result<Blob> grant(const Shape::Ru& unit, std::uint32_t index);
    Result<Ok> grant_all();
    void begin(Time now, std::uint32_t slot, const wire::AttemptEntry& entry);
    void expect(std::uint32_t slot);
    void learn_usual();
    void plan_requests(std::uint32_t slot);
    void lose(Time now, std::uint32_t ru);
    void complete(Time now, std::uint32_t slot);
    void retire(Time now, std::uint32_t slot);
    void owe(std::uint32_t slot, std::uint32_t ru) {
        slots_[slot].owed.set(ru);
        if (reads_) {
            reader_->expect(slot, ru);
        }
    }
    void forgive(std::uint32_t slot, std::size_t ru);
    void settle(std::uint32_t slot);
    void abort_requests(std::uint32_t slot);
    bool take(Time now, std::uint32_t slot);
    bool show(std::uint32_t slot);
    [[nodiscard]] wire::AttemptEntry entry_of(std::uint32_t slot) const {
        const Slot& each = slots_[slot];
        wire::AttemptEntry entry;
        entry.mep = each.mep;
        entry.credit = each.credit;
        entry.bu = static_cast<std::uint16_t>(port_.self());
        entry.slot = static_cast<std::uint16_t>(slot);
        entry.attempt = each.attempt;
        entry.flags = each.rejected ? std::uint16_t{wire::attempt_rejected} : std::uint16_t{0};
        entry.value = wire::flagged_value(each.missing_sources, each.defective_sources);
        return entry;
    }
    void account_waiting(Time now);
    void serve_sink(Time now);
    void take_back(Time now);
    void find_late(Time now);

    void grant(Time now);
    void grant_credit(wire::CreditEntry entry);
    void repeat_credits(std::uint32_t ru);
    /// RUs may still have to write for that credit.
    [[nodiscard]] bool is_in_service(const wire::CreditEntry& entry) const {
        const Slot& slot = slots_[entry.slot];
        return slot.credit == entry.credit && (slot.state == SlotState::granted || slot.state == SlotState::assigned);
    }
    void bind(Time now);
    void make_requests();
    void request_from_all();
    void flush_to_rus();
    bool tell_regions(std::uint32_t ru, RuLink& link);
    void flush_late();

    Port& port_;
    const Shape& shape_;
    Sink& sink_;
    Filter* filter_;
    std::uint32_t bu_;
    std::uint32_t own_ru_;        // the RU of this node, or no_index
    bool pull_;                   // some RUs are pulled
    bool reads_;                  // scheme pull-read
    bool acks_;                   // RUs are told what is placed
    bool ahead_;                  // MEPs are assigned ahead of credits
    bool shows_;                  // the sink wants to see the sources
    bool lossy_;                  // bytes of bodies may get lost
    bool checks_ = false;         // checksums of what is placed
    bool has_memory_ = false;     // bodies are not phantom
    bool self_streamed_ = false;  // since the last fence
    struct Region {
        std::byte* memory = nullptr;
        Local local{};
    };
    std::vector<Region> regions_;  // as SlotLayout counts them

    std::vector<Slot> slots_;
    std::vector<RuLink> rus_;
    std::vector<std::uint32_t> ru_incarnations_;       // of connections; apart, as every head is compared with it
    Attempts attempts_;                                // what is in the queues of rus_
    std::vector<base::Fifo<wire::CreditEntry>> told_;  // source-credits: by RU, credits that it is to be told
    /// What a new attempt starts with, unless its MEP is older than an RU that came in meanwhile.
    struct Usual {
        base::Bitmap expected;
        base::Bitmap owed;
        std::uint32_t missing_sources = 0;
        MepId from_mep = 0;  // all RUs take part from here on
        bool stale = true;   // a connection or the view changed since
    } usual_;
    std::uint32_t granted_ = 0;  // credits ever granted
    std::uint32_t serving_ = 0;  // slots granted, assigned, complete or taking
    std::uint32_t in_flight_ = 0;
    std::vector<std::uint16_t> free_;  // a stack: the slot used last is the one still in the cache
    base::Fifo<wire::CreditEntry> grants_;
    // Source-credits: credit n belongs to the nth MEP that this incarnation was given.
    base::Fifo<wire::AttemptEntry> booked_;  // MEPs that wait for their credit
    base::Fifo<std::uint16_t> open_;         // granted slots that wait for their MEP
    std::uint32_t assigned_ = 0;             // credits that have one
    base::Fifo<wire::AttemptEntry> commit_requests_;
    base::Fifo<wire::AttemptEntry> committed_;
    base::Fifo<std::uint16_t> taking_;
    base::Fifo<std::uint16_t> assigned_order_;  // pull: slots by age
    base::Fifo<std::uint16_t> late_;
    base::Fifo<std::uint16_t> deciding_;  // two stages: slots that wait for the filter; some may be void
    Time next_decision_ = time_never;
    std::vector<wire::AttemptEntry> undurable_;
    std::vector<MepId> durable_;
    std::vector<std::uint16_t> returned_;
    std::uint32_t held_ = 0;              // slots
    Time reuse_until_ = 0;                // what the sink holds is waited for: it is still in the cache
    bool holds_briefly_ = true;           // the sink gave the last one back within reuse_wait: waiting is worth it
    std::vector<wire::Head> self_heads_;  // [slot][own source]: a self write lands here
    std::vector<Bytes> self_bodies_;      // the same, self_traffic = pointer
    std::uint32_t outstanding_requests_ = 0;
    base::Bitmap ru_work_;            // RUs with requests, aborts, a region to tell, or placed to tell
    std::unique_ptr<Reader> reader_;  // pull-read; else nullptr
    base::Prng prng_;
    std::vector<BuiltSource> built_;
    Time next_late_ = time_never;
    Time sink_deadline_ = time_never;
    Time waiting_since_ = 0;
    Time waiting_time_ = 0;
};

}  // namespace incast::protocol

// A readout unit: keeps the MEPs of its sources until the EM releases them, and writes them into the BUs' slots
// (EB-F1, EB-C2, EB-C6).
//
// One contribution is everything this RU has for one attempt of one MEP: one write per source, the last one with the
// notice. Assignments wait in one queue per BU (sequential order: in one queue); schedule.h says which queue is served
// next.
#pragma once

#include <cstdint>
#include <vector>

#include "base/bitmap.h"
#include "base/slab.h"
#include "protocol/credit_book.h"
#include "protocol/interfaces.h"
#include "protocol/port.h"
#include "protocol/schedule.h"
#include "protocol/shape.h"

namespace incast::protocol {

class BuilderUnit;

class alignas(64) ReadoutUnit {
public:
    /// `own_builder`: the BU of the same node, or nullptr; its slots are written directly.
    ReadoutUnit(Port& port, const Shape& shape, Source& source, BuilderUnit* own_builder);

    Result<Ok> start();

    void on_connection_up(Peer peer, std::uint32_t incarnation);
    void on_connection_lost(Time now, Peer peer);
    void on_view(Time now, const wire::ViewEntry& entry);
    void on_announce(const wire::ControlView& message);
    void on_abort(Peer from, const wire::ControlView& message);
    void on_region(Peer from, const wire::ControlView& message);
    void on_request(Peer from, const wire::ControlView& message);
    /// Source-credits.
    void on_grant(Peer from, const wire::ControlView& message);
    void on_placed(Time now, Peer from, const wire::ControlView& message);
    void on_phase(const wire::ControlView& message);
    void on_clock_answer(Time now, const wire::ControlView& message);
    void on_close(Time now, const wire::ControlView& message);
    void on_room(Peer peer);
    /// A write whose token was `token` needs its bytes no longer.
    void on_completed(Token token);

    /// What every step looks at lies in the first of its bytes.
    static constexpr std::size_t often_used_bytes = 256;
    /// Node::step() is near; see there.
    void prefetch(unsigned level) const;
    void flush(Time now, bool idle);
    [[nodiscard]] Time next_deadline() const;
    [[nodiscard]] bool keeps_credits() const { return keeps_credits_; }
    [[nodiscard]] std::uint64_t total_meps() const { return source_.total_meps(); }

private:
    /// Half a cache line: at worst there are as many as BUs times slots.
    struct Assignment {
        MepId mep = 0;
        std::uint32_t credit = 0;
        std::uint32_t next = no_index;  // in its queue
        std::uint32_t next_byte = 0;    // of its body
        std::uint16_t next_source = 0;
        std::uint16_t bu = 0;  // index in shape.bus
        std::uint16_t slot = 0;
        std::uint16_t attempt = 0;
        bool begun = false;        // it is finished, whatever happens to the attempt
        bool acknowledge = false;  // aborted after it was begun: acknowledge when finished
    };
    static_assert(sizeof(Assignment) == 32);
    using Acks = base::Queues<wire::CreditEntry>;
    struct Queue {
        std::uint32_t first = no_index;
        std::uint32_t last = no_index;
    };
    struct alignas(32) BuilderLink {  // half a cache line: with many peers it is cold when it is needed
        Queue queue;                  // of this BU; of all in the first one if there is one queue
        bool up = false;
        bool ready = false;                  // its regions are known
        bool blocked = false;                // a post answered `again`; a room event follows
        std::uint32_t incarnation = 0;       // of the connection
        std::uint32_t view_incarnation = 0;  // the one the EM talks about; 0: not in the view
        Remote region{};                     // the first
        std::uint16_t regions = 0;           // known of them
        std::uint16_t requests = 0;          // pull: of that BU, not answered yet
    };
    static_assert(sizeof(BuilderLink) == 32);
    /// Of what is acknowledged, over one connection.
    struct Progress {
        std::uint64_t sent = 0;
        std::uint64_t placed = 0;  // as far as known
    };

    bool enqueue(MepId mep, std::uint32_t bu, std::uint32_t credit, std::uint16_t slot, std::uint16_t attempt);
    /// Its place in the pool is free again.
    void give_back(std::uint32_t index) {
        if (pulled_) {
            --links_[pool_[index].bu].requests;
        }
        pool_.give_back(index);
    }
    void remove(std::uint32_t queue, std::uint32_t previous, std::uint32_t index);
    void unlink(std::uint32_t queue, std::uint32_t previous, std::uint32_t index);
    /// Unlinks the first one.
    void pop(std::uint32_t queue_index) {
        Queue& from = queue(queue_index);
        const std::uint32_t index = from.first;
        from.first = pool_[index].next;
        give_back(index);
        if (from.first == no_index) {
            from.last = no_index;
            --queues_filled_;
        }
        runnable_.assign(queue_index, from.first != no_index && can_begin(pool_[from.first]));
    }
    /// That assignment, the first of its queue, can be served now.
    [[nodiscard]] bool can_begin(Assignment& first) {
        if (first.mep >= produced_below_) {
            await_production_ = true;
            return false;
        }
        const BuilderLink& link = links_[first.bu];
        return link.ready && !link.blocked && !is_full(first.bu) && (!keeps_credits_ || find_credit(first));
    }
    [[nodiscard]] std::uint32_t queue_of(std::uint32_t bu) const { return schedule_.one_queue() ? 0 : bu; }
    [[nodiscard]] Queue& queue(std::uint32_t index) { return links_[index].queue; }
    /// So many more writes need the bytes of that MEP: it is forgotten once let_go() was called for each.
    void hold(MepId mep, std::uint32_t writes) {
        holds_of_[mep & (holds_of_.size() - 1)] += writes;
        holds_ += writes;
    }
    void let_go(MepId mep) {
        std::uint32_t& holds = holds_of_[mep & (holds_of_.size() - 1)];
        if (holds > 0) {
            --holds;
            --holds_;
        }
    }
    [[nodiscard]] bool is_held(MepId mep) const { return holds_of_[mep & (holds_of_.size() - 1)] > 0; }
    /// Where a source lies in a BU's slot.
    [[nodiscard]] Target target_of(const BuilderLink& link, const Assignment& work, std::uint32_t source) const {
        const SlotLayout::Place place = shape_.layout.at(work.slot, source);
        return {regions_per_bu_ == 1 ? link.region : further_region(work.bu, work.slot, source), place.offset};
    }
    [[nodiscard]] Remote further_region(std::uint32_t bu, std::uint32_t slot, std::uint32_t source) const;
    void void_attempt(std::uint32_t bu, const wire::AttemptEntry& entry);
    void drop_assignments(std::uint32_t bu);
    void acknowledge_abort(std::uint32_t bu, std::uint32_t credit, std::uint16_t slot);
    void update_runnable(std::uint32_t queue);
    bool find_credit(Assignment& work);
    void serve(Time now);
    void tell_phase_done();
    void ask_clock(Time now);
    bool send_contribution(std::uint32_t queue);
    bool write_self(const wire::HeadWords& head, std::uint32_t source, Slice body, std::uint16_t slot, bool last);
    void produce(Time now);
    [[nodiscard]] MepId most_produced() const;
    void ask_to_close(Time now);
    void ask_others();
    void release();
    void flush_available(Time now, bool idle);
    void flush_acks();
    /// As much is on its way to that BU as may be (EB-C2).
    [[nodiscard]] bool is_full(std::uint32_t bu) const {
        return outstanding_writes_ > 0 && progress_[bu].sent - progress_[bu].placed >= outstanding_writes_;
    }
    /// All that was sent to that BU is placed, as far as it is acknowledged.
    [[nodiscard]] bool is_placed(std::uint32_t bu) const {
        return (!acks_contributions_ && !acks_writes_) || progress_[bu].sent == progress_[bu].placed;
    }
    bool is_posted(std::uint32_t bu, Post post, bool acknowledged);
    bool write_piece(Assignment& work, BuilderLink& link, const wire::HeadWords& head, const Piece& piece,
                     std::uint32_t source);
    bool write_parts(Assignment& work, const wire::HeadWords& head, const Piece& piece, Target place, bool last_source);
    void tell_regions();
    bool send_offer(std::uint32_t queue);
    [[nodiscard]] wire::Head head_of(const Assignment& work) const;

    // With many nodes in one thread everything is cold each time. What every step looks at are four cache lines ...
    Port& port_;
    const Shape& shape_;
    Source& source_;
    BuilderUnit* own_builder_;
    bool in_view_ = false;
    bool produce_more_ = false;
    bool await_production_ = false;  // an assignment came before its MEP
    bool keeps_credits_;             // source-credits: an assignment waits for its credit here
    bool acks_contributions_;        // BUs acknowledge contributions ...
    bool acks_writes_;               // ... or every write
    bool in_parts_;                  // a MFP may be several writes, or each is acknowledged
    bool lazy_ = false;              // something waits for company
    bool has_turns_;                 // the schedule has phases or time slots
    bool pulled_;                    // BUs ask for what this RU writes
    bool chores_ = false;            // acks_due_ or regions_due_ is not empty
    bool impatient_ = false;         // the EM is to be asked to close the next MEP
    bool awaits_close_ = false;      // it was asked: that MEP waits for its answer
    bool fill_up_ = false;           // and said that it is to be filled
    std::uint32_t parallel_sends_;   // of the config; 0: no limit
    std::uint32_t ru_;               // index in shape.rus
    std::uint32_t first_source_;
    std::uint32_t sources_;

    MepId produced_below_ = 0;
    MepId reported_below_ = 0;
    MepId released_below_ = 0;   // what the EM allows
    MepId forgotten_below_ = 0;  // what the source was told: no write of it is pending any more
    Time next_ready_ = time_never;
    Time impatient_at_ = time_never;
    Time turn_at_ = time_never;  // when the schedule must be asked again
    Time report_at_ = 0;         // what waits for company is told no earlier
    std::uint32_t holds_ = 0;    // sum of holds_of_
    std::uint32_t queues_filled_ = 0;

    base::Slab<Assignment> pool_;
    std::vector<BuilderLink> links_;
    std::uint32_t regions_per_bu_ = 1;
    std::uint32_t outstanding_writes_;  // of the config; 0: no limit
    std::uint32_t message_size_;        // of the config; the most there is if it is not limited
    std::uint32_t pending_now_ = 0;     // writes of the contribution being sent that answered `pending`

    base::Bitmap runnable_;  // queues whose first assignment can be sent now
    SendSchedule schedule_;

    // ... and the rest is needed now and then.
    std::uint64_t unplaced_ = 0;
    std::vector<std::uint32_t> holds_of_;  // per MEP of the ring
    base::Bitmap acks_due_;
    base::Bitmap regions_due_;       // pull-read: BUs that were not told
    std::uint64_t produce_at_once_;  // MEPs
    MepId first_mep_ = 0;
    std::uint32_t open_events_ = 0;   // told to the EM
    MepId asked_others_ = ~MepId{0};  // of which MEP; none
    CreditBook credits_;
    Acks acks_;
    std::vector<Progress> progress_;       // by BU
    std::vector<Acks::Queue> acks_of_;     // per BU, apart: they are rarely needed
    std::vector<Remote> further_regions_;  // of all BUs, where each has several
    std::vector<Blob> region_keys_;        // pull-read: of source_.regions()

    // Time slots: what the EM's clock shows.
    struct {
        Time next_ask = 0;
        Time asked = -1;  // the question that is not answered yet; -1: none
        Time heard = -1;  // the answer came in the step that began then
        Time theirs = 0;
        std::uint32_t samples = 0;
    } em_time_;
};

}  // namespace incast::protocol

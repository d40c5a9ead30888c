// Whose turn it is at a readout unit: which of its queues is served next, and when (EB-C6).
//
// Queues are those of the BUs, by index in the config (sequential order: one queue for all). A BU that is not in the
// view keeps its index, and its turns are phantoms: nothing is sent. So nodes that hear of a change of the view at
// different times still agree whose turn it is.
//
// A contribution that was begun and had to wait for room is finished whatever the schedule says meanwhile: the slot it
// goes to waits for it.
#pragma once

#include <cstdint>

#include "base/bitmap.h"
#include "base/prng.h"
#include "protocol/clock.h"
#include "protocol/config.h"

namespace incast::protocol {

class SendSchedule {
public:
    static constexpr std::size_t none = base::Bitmap::none;

    SendSchedule(const Config& config, std::uint32_t ru, std::size_t rus, std::size_t bus, bool on_em);

    [[nodiscard]] bool one_queue() const { return kind_ == Schedule::sequential; }
    [[nodiscard]] std::size_t queues() const { return one_queue() ? 1 : bus_; }

    /// The queue to serve now; none: nobody's turn, or whose turn it is cannot be served.
    std::size_t next(Time now, const base::Bitmap& runnable) {
        return paced_ ? next_paced(now, runnable) : in_free_order(runnable);
    }
    /// What next() returned last was begun, and has to wait for room.
    void begun(Time now, std::size_t queue) {
        if (paced_) {
            note_begun(now, queue);
        }
    }
    /// It is out. `placed`: so is all that was sent to that BU.
    void sent(Time now, std::size_t queue, bool placed) {
        if (paced_) {
            note_sent(now, queue, placed);
        }
    }
    /// All that was sent to that BU is placed, or never will be.
    void placed(Time now, std::size_t queue);
    /// Its first assignment is no longer what was begun; `empty`: there is none.
    void dropped(std::size_t queue, bool empty);
    /// Where next() likely looks first.
    [[nodiscard]] std::size_t likely() const { return next_; }

    /// The EM says that a phase begins. Served in it is what can be served now: all RUs know the same assignments.
    void begin_phase(std::uint64_t phase, const base::Bitmap& runnable);
    /// The phase whose end is to be told to the EM; 0: none.
    [[nodiscard]] std::uint64_t phase_done() const { return phase_ > told_ && is_over() ? phase_ : 0; }
    void told_done() {
        told_ = phase_;
        told_sends_ = sends_;
    }
    /// Contributions begun since the end of a phase was told.
    [[nodiscard]] std::uint32_t sent_since_told() const { return static_cast<std::uint32_t>(sends_ - told_sends_); }
    [[nodiscard]] std::uint64_t phase() const { return phase_; }

    /// The EM's clock showed `theirs` at some time between the two of this node.
    void learn_time(Time asked, Time theirs, Time answered);

    /// When next() must be asked again though nothing else happened.
    [[nodiscard]] Time next_deadline(Time now, const base::Bitmap& runnable) const {
        return paced_ && runnable.any() ? next_opening(now, runnable) : time_never;
    }

    [[nodiscard]] bool has_slots() const { return kind_ == Schedule::barrel_time_slot; }
    [[nodiscard]] std::uint64_t overruns() const { return overruns_; }
    [[nodiscard]] std::uint64_t unguarded() const { return unguarded_; }

private:
    std::size_t in_free_order(const base::Bitmap& runnable) {
        if (kind_ == Schedule::random) {
            return draw(runnable);
        }
        const std::size_t picked = runnable.next_cyclic(next_);
        if (kind_ == Schedule::linear_shift && picked != none) {
            next_ = picked + 1;
        } else if (kind_ == Schedule::none && picked != none) {
            next_ = picked;
        }
        return picked;
    }
    std::size_t draw(const base::Bitmap& runnable);
    std::size_t next_paced(Time now, const base::Bitmap& runnable);
    std::size_t in_slot(Time now, const base::Bitmap& runnable);
    [[nodiscard]] bool is_over() const;
    void note_begun(Time now, std::size_t queue);
    void note_sent(Time now, std::size_t queue, bool placed);
    void begin(Time now);
    [[nodiscard]] std::int64_t slot_of(Time now) const;
    [[nodiscard]] bool waits() const;
    [[nodiscard]] Time guard(Time now) const;
    [[nodiscard]] Time next_opening(Time now, const base::Bitmap& runnable) const;
    [[nodiscard]] std::size_t turn(std::int64_t phase) const;

    // What every step looks at comes first.
    Schedule kind_;
    Plant plant_;
    bool paced_;  // not served as soon as possible
    std::uint32_t ru_;
    std::size_t bus_;
    std::size_t next_;
    std::uint64_t phase_ = 0;  // barriers
    std::uint64_t told_ = 0;

    std::size_t period_;  // phases, until an RU has served every BU
    base::Prng prng_;

    Time gap_;
    Time gap_until_ = 0;
    std::uint64_t sends_ = 0;
    base::Bitmap begun_;    // queues whose first contribution waits for room
    base::Bitmap awaited_;  // BUs to which something was sent that is not placed yet

    // Barriers
    std::uint64_t told_sends_ = 0;
    base::Bitmap due_;    // still to be served in this phase
    base::Bitmap stale_;  // begun in an earlier phase

    // Time slots
    EmClock clock_;
    Time slot_time_;
    Overrun overrun_;
    std::int64_t used_ = -1;  // the last slot that was used, or must not be
    std::int64_t candidate_ = -1;
    Time begun_at_ = 0;     // the last contribution, by the clock of this node
    Time latest_ = 0;       // and by the EM's, at the latest
    std::int64_t lag_ = 0;  // slots that this RU's order is behind the clock
    std::uint64_t overruns_ = 0;
    std::uint64_t unguarded_ = 0;
};

}  // namespace incast::protocol

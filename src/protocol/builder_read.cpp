// A builder unit that reads (scheme pull-read): offers, and the reads that they lead to.
#include "protocol/builder_unit.h"

namespace incast::protocol {

using wire::AttemptEntry;
using wire::ControlKind;
using wire::ControlView;

void BuilderUnit::on_source_region(Peer from, const ControlView& message) {
    const std::uint32_t ru = ru_of(from);
    if (!reads_ || !reader_->on_region(from, ru, message)) {
        ++port_.counters().bad_messages;
    }
}

void BuilderUnit::on_offer(Time now, Peer from, const ControlView& message) {
    const AttemptEntry attempt = message.body<ControlKind::offer>();
    const std::uint32_t ru = ru_of(from);
    if (!reads_ || attempt.slot >= shape_.slots) {
        ++port_.counters().bad_messages;
        return;
    }
    Slot& each = slots_[attempt.slot];
    if (each.credit != attempt.credit || !each.owed.test(ru) || reader_->reading(attempt.slot, ru)) {
        ++port_.counters().stale_contributions;
        return;
    }
    for (std::uint32_t index = 0; index < message.header().count; ++index) {
        if (!reader_->take_offer(attempt.slot, ru, message.entry<ControlKind::offer>(index))) {
            ++port_.counters().bad_messages;
            return;
        }
    }
    if (!reader_->offered(attempt.slot, ru)) {
        return;  // more of it is to come
    }
    if (each.state != SlotState::assigned) {
        forgive(attempt.slot, ru);
    } else if (port_.config().views) {
        finish_reading(now, {attempt.slot, ru, Reader::Done::placed});
    } else {
        reader_->begin(attempt.slot, ru);
    }
}

void BuilderUnit::on_completed(Time now, Token token, Status status) {
    if (const Reader::Finished finished = reader_->on_completed(token, status); finished.done != Reader::Done::no) {
        finish_reading(now, finished);
    }
}

void BuilderUnit::finish_reading(Time now, const Reader::Finished& finished) {
    if (finished.done == Reader::Done::placed && slots_[finished.slot].state == SlotState::assigned) {
        place(now, finished.slot, finished.ru);
    } else if (slots_[finished.slot].owed.test(finished.ru)) {
        forgive(finished.slot, finished.ru);  // void by now, or not to be had: then the MEP becomes late
    }
}

void BuilderUnit::flush_reads(Time now) {
    if (reads_) {
        reader_->flush([this](std::uint32_t slot) { return slots_[slot].state != SlotState::assigned; },
                       [this, now](const Reader::Finished& finished) { finish_reading(now, finished); });
    }
}

}  // namespace incast::protocol

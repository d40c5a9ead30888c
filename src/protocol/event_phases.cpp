// The event manager's part in schedules: phases that all RUs end together, and what the time is (EB-C6).
#include <algorithm>

#include "base/bitmap.h"
#include "protocol/event_manager.h"

namespace incast::protocol {

using wire::ControlKind;
using wire::ControlView;

namespace {

/// RUs that only wait for room are asked again after this part of the barrier's deadline.
constexpr Time idle_pauses = 256;

}  // namespace

void EventManager::on_phase_done(Peer from, const ControlView& message) {
    const wire::PhaseDoneBody body = message.body<ControlKind::phase_done>();
    const std::uint32_t ru = shape_.ru_of_node[static_cast<std::size_t>(from)];
    if (ru == no_index || body.phase > barrier_.phase()) {
        ++port_.counters().bad_messages;
        return;
    }
    barrier_.done(ru, body.phase, body.queued > 0, body.sent > 0);  // one that comes after the deadline changes nothing
}

void EventManager::turn_phase(Time now) {
    if (!has_barriers(port_.config().schedule) || !formed_) {
        return;
    }
    Barrier::State state = barrier_.state(now);
    if (port_.config().plant == Plant::open_barrier && state == Barrier::State::running && barrier_.phase() % 8 == 5) {
        state = Barrier::State::complete;
    }
    if (state == Barrier::State::running) {
        return;
    }
    if (state != Barrier::State::idle) {
        const bool expired = state == Barrier::State::expired;
        port_.counters().barrier_expired += expired ? 1 : 0;
        barrier_.end(now, expired, port_.config().barrier_deadline / idle_pauses);
    }
    if (!barrier_.wanted(now, log_head_)) {
        return;
    }
    barrier_.begin(now + port_.config().barrier_deadline, log_head_);
    ++port_.counters().phases;
    for (std::uint32_t ru = 0; ru < shape_.rus.size(); ++ru) {
        if (member(shape_.rus[ru].node).standing == Standing::in_view) {
            barrier_.await(ru);
        }
    }
}

/// An answer says what the clock showed after the question came, so it waits for a step that began later.
void EventManager::answer_clocks(Time now) {
    clock_next_ = time_never;
    for (std::size_t node = clock_asks_.next(0); node != base::Bitmap::none; node = clock_asks_.next(node + 1)) {
        const Member& to = members_[node];
        if (to.standing == Standing::absent) {
            clock_asks_.reset(node);
            continue;
        }
        if (now <= to.clock_heard) {
            clock_next_ = now + 1;
            continue;
        }
        auto message = port_.message<ControlKind::clock_answer>();
        message.set_body({to.clock_asked, now});
        if (port_.send(Peer{static_cast<std::uint32_t>(node)}, message)) {
            clock_asks_.reset(node);
        }
    }
}

Time EventManager::next_deadline() const {
    const Time release_at = lazy_ ? release_at_ : time_never;
    const Time announce_at = log_head_ != log_looked_ ? announce_at_ : time_never;
    return std::min({next_check_, barrier_.next_deadline(), clock_next_, release_at, announce_at});
}

/// Behind what was assigned before the phase began, and before the rest: all RUs serve the same in it.
bool EventManager::flush_phase(Peer peer, Member& to, MepId released) {
    if (!flush_log(peer, to, barrier_.log(), released)) {
        return false;
    }
    auto message = port_.message<ControlKind::phase>();
    message.set_body({barrier_.phase(), barrier_.expired_before()});
    if (!port_.send(peer, message)) {
        return false;
    }
    to.told_phase = barrier_.phase();
    return true;
}

}  // namespace incast::protocol

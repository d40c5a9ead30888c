// A readout unit and its schedule: phases, and the EM's time (EB-C6).
#include "protocol/readout_unit.h"

namespace incast::protocol {

using wire::ControlKind;
using wire::ControlView;

void ReadoutUnit::tell_phase_done() {
    const std::uint64_t phase = schedule_.phase_done();
    if (phase == 0) {
        return;
    }
    auto message = port_.message<ControlKind::phase_done>();
    message.set_body({phase, queues_filled_, schedule_.sent_since_told()});
    if (port_.send(port_.config().em, message)) {
        schedule_.told_done();
    }
}

/// Several questions at first, because the shortest round trip is the best one; then one per heartbeat.
void ReadoutUnit::ask_clock(Time now) {
    if (port_.config().schedule != Schedule::barrel_time_slot || port_.self() == port_.config().em) {
        return;
    }
    constexpr std::uint32_t first_samples = 8;
    if (em_time_.heard >= 0 && now > em_time_.heard) {
        schedule_.learn_time(em_time_.asked, em_time_.theirs, now);
        em_time_.next_ask = ++em_time_.samples < first_samples ? now : now + port_.config().heartbeat;
        em_time_.asked = em_time_.heard = -1;
    }
    if (em_time_.asked < 0 && now >= em_time_.next_ask) {
        auto message = port_.message<ControlKind::clock_ask>();
        message.set_body({now, 0});
        if (port_.send(port_.config().em, message)) {
            em_time_.asked = now;
        } else {
            em_time_.next_ask = now + port_.config().connect_retry;
        }
    }
}

void ReadoutUnit::on_phase(const ControlView& message) {
    const std::uint64_t phase = message.body<ControlKind::phase>().phase;
    if (!has_barriers(port_.config().schedule) || phase <= schedule_.phase()) {
        ++port_.counters().bad_messages;
        return;
    }
    schedule_.begin_phase(phase, runnable_);
}

/// The step's time was taken before the answer came, and maybe before it was sent. It is used in the next one.
void ReadoutUnit::on_clock_answer(Time now, const ControlView& message) {
    const wire::ClockBody body = message.body<ControlKind::clock_answer>();
    if (em_time_.asked < 0 || em_time_.heard >= 0 || body.asked != em_time_.asked) {
        ++port_.counters().bad_messages;
        return;
    }
    em_time_.heard = now;
    em_time_.theirs = body.now;
}

}  // namespace incast::protocol

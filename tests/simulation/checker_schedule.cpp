// In which order RUs send: EB-C6.
//
// An RU on the EM's node hears of phases without the wire, so its order is not judged; nor is that of an RU that slips.
#include <algorithm>
#include <cstring>

#include "checker.h"

namespace incast::adversary {

using protocol::Schedule;
using wire::ControlKind;
using wire::ControlView;

/// With the first write of a contribution it is that BU's turn.
void Checker::check_turn(Time now, sim::EndpointId from, sim::EndpointId to, const sim::Transfer& write) {
    const std::uint32_t node = node_of(from);
    const protocol::Config& config = plan_.config;
    Sender& sender = senders_[from];
    wire::Head head;
    std::memcpy(&head, write.head.data(), sizeof head);
    if (write.noticed && (write.notice & protocol::more_follows) == 0) {
        sender.unfinished.erase(to);
    } else {
        sender.unfinished[to] = true;
    }
    if (write.head_bytes == 0 || head.source != ru_first_source_[node]) return;
    if (config.inter_send_gap > 0) {
        if (sender.begun && now - *sender.begun < config.inter_send_gap) {
            violation("EB-C6", "RU {} begins to send {} ps after it did before, the gap is {} ps", node,
                      now - *sender.begun, config.inter_send_gap);
        }
        judge_.mark("send gap");
    }
    sender.begun = now;
    const std::uint32_t ru = ru_of_node_[node];
    const std::uint32_t bu = bu_of_node_[node_of(to)];
    if (config.schedule == Schedule::barrel_time_slot) {
        check_slot(now, from, bu);
        return;
    }
    if (!protocol::has_barriers(config.schedule) || is_em(node)) return;
    sender.served.push_back(to);
    if (config.schedule == Schedule::barrel_barrier) {
        if (sender.phase == 0 || bu != (ru + sender.phase) % period_ || sender.last) {
            violation("EB-C6", "RU {} serves BU {} in phase {}{}", ru, bu, sender.phase,
                      sender.last ? ", after another one" : "");
        }
        sender.last = bu;
        return;
    }
    const std::uint32_t place = (bu + bus_ - (ru + 1) % bus_) % bus_;
    if (sender.phase == 0 || (sender.last && place <= *sender.last)) {
        violation("EB-C6", "RU {} serves BU {} in round {}, out of order", ru, bu, sender.phase);
    }
    sender.last = place;
}

/// All clocks of the simulation show the same, so where the RU knows the EM's well enough it must be in the right slot.
void Checker::check_slot(Time now, sim::EndpointId from, std::uint32_t bu) {
    const protocol::Config& config = plan_.config;
    Sender& sender = senders_[from];
    const std::uint32_t ru = ru_of_node_[node_of(from)];
    const Time error = is_em(node_of(from)) ? 0 : sender.clock_error_at(now);
    if (config.overrun == protocol::Overrun::slip || error > config.slot_time / 8) return;
    const std::int64_t slot = now / config.slot_time;
    if (bu != (ru + static_cast<std::uint64_t>(slot)) % period_ || slot == sender.slot) {
        violation("EB-C6", "RU {} serves BU {} in time slot {}{}", ru, bu, slot, slot == sender.slot ? " again" : "");
    }
    sender.slot = slot;
    judge_.mark("slot in time");
}

void Checker::check_clock(Time now, sim::EndpointId at, const ControlView& message) {
    // Used one instant later (see ReadoutUnit::on_clock_answer).
    const Time round_trip = now + 1 - message.body<ControlKind::clock_answer>().asked;
    Sender& asker = senders_[at];
    asker.clock_error = std::min(asker.clock_error_at(now), (round_trip + 1) / 2);
    asker.clock_taken = now;
}

void Checker::check_phase_posted(sim::EndpointId to, const ControlView& message) {
    const wire::PhaseBody body = message.body<ControlKind::phase>();
    senders_[to].phase_posted = body.phase;
    if (body.phase <= phase_) return;
    if (body.expired == expired_) {
        for (sim::EndpointId each = 0; each < senders_.size(); ++each) {
            const Sender& sender = senders_[each];
            if (each == to || sender.phase_posted == 0 || sender.phase_posted != phase_) continue;
            const Membership* member = in_view(node_of(each));
            if (member == nullptr || member->incarnation != incarnation_of(each)) continue;
            if (sender.done != phase_) {
                violation("EB-C6", "the EM begins phase {}, but RU {} is not done with phase {}", body.phase,
                          ru_of_node_[node_of(each)], phase_);
            }
        }
    }
    judge_.mark("phase");
    phase_ = body.phase;
    expired_ = body.expired;
}

void Checker::check_phase_done(sim::EndpointId from, const ControlView& message) {
    const Sender& sender = senders_[from];
    if (message.body<ControlKind::phase_done>().phase != sender.phase) return;
    for (const sim::EndpointId to : sender.served) {
        const Membership* member = in_view(node_of(to));
        if (member == nullptr || member->incarnation != incarnation_of(to)) continue;  // nobody waits for a lost one
        const auto found = outstanding_[from].unplaced.find(to);
        const bool unplaced = found != outstanding_[from].unplaced.end() && found->second > 0;
        if (unplaced || sender.unfinished.contains(to)) {
            violation("EB-C6", "RU {} is done with phase {}, but what it sent to node {} is not placed",
                      ru_of_node_[node_of(from)], sender.phase, node_of(to));
        }
    }
}

}  // namespace incast::adversary

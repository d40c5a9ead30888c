// Credits: who may be given a MEP, and who may write where (EB-C1, EB-C3, EB-C5).
#include <algorithm>
#include <cstring>

#include "checker.h"

namespace incast::adversary {

using protocol::MepId;
using wire::ControlKind;
using wire::ControlView;

/// Where the EM is ahead of credits, a credit is known from its number before it is granted.
void Checker::know_credit(Builder& unit, std::uint32_t credit) const {
    if (credit > unit.credits.size() + slots_ + 2 * plan_.source.total_meps) return;  // a number out of nowhere
    unit.credits.resize(std::max<std::size_t>(unit.credits.size(), credit));
}

void Checker::check_grants(sim::EndpointId from, sim::EndpointId to, const ControlView& message) {
    Builder* granting = builder_at(from);
    if (granting == nullptr) {
        violation("EB-C1", "node {} grants credits but builds nothing", node_of(from));
        return;
    }
    const bool ahead = protocol::assigns_ahead(plan_.config);
    for (std::uint32_t index = 0; index < message.header().count; ++index) {
        const wire::CreditEntry entry = message.entry<ControlKind::grant>(index);
        if (ahead) know_credit(*granting, entry.credit);
        const bool told_before = ahead && entry.credit <= granting->granted;
        const bool next = ahead ? entry.credit <= granting->credits.size() : entry.credit == granting->granted + 1;
        if (entry.credit == 0 || !next || entry.slot >= slots_) {
            violation("EB-C1", "node {}#{} grants credit {} for slot {} after credit {}", granting->node,
                      granting->incarnation, entry.credit, entry.slot, granting->granted);
            continue;
        }
        granting->credits.resize(std::max<std::size_t>(granting->credits.size(), entry.credit));
        Credit& credit = granting->credits[entry.credit - 1];
        if (credit.slot != wire::unknown_slot && credit.slot != entry.slot) {
            violation("EB-C1", "node {}#{} grants credit {} for slot {}, and to node {} for slot {}", granting->node,
                      granting->incarnation, entry.credit, credit.slot, node_of(to), entry.slot);
        }
        credit.slot = entry.slot;
        if (told_before) continue;
        granting->granted = entry.credit;
        if (is_em(granting->node)) continue;  // the ends of its credits are not on the wire
        if (granting->open[entry.slot] != 0) {
            violation("EB-C1", "node {}#{} grants slot {} for credit {} while it is in use for credit {}",
                      granting->node, granting->incarnation, entry.slot, entry.credit, granting->open[entry.slot]);
        }
        granting->open[entry.slot] = entry.credit;
    }
    const auto in_service = static_cast<std::uint32_t>(
        std::ranges::count_if(granting->open, [](std::uint32_t credit) { return credit != 0; }));
    if (in_service > plan_.config.credits) {
        violation("EB-C1", "node {}#{} has {} credits in service, {} are configured", granting->node,
                  granting->incarnation, in_service, plan_.config.credits);
    }
}

void Checker::grants_delivered(sim::EndpointId from, sim::EndpointId to, const ControlView& message) {
    Builder* granting = builder_at(from);
    if (granting == nullptr) return;
    for (std::uint32_t index = 0; index < message.header().count; ++index) {
        const wire::CreditEntry entry = message.entry<ControlKind::grant>(index);
        if (plan_.lie == Lie::grant && entry.credit >= far_credit) continue;
        if (entry.credit == 0 || entry.credit > granting->credits.size()) continue;
        if (protocol::assigns_ahead(plan_.config)) {
            senders_[to].credits[granting->node][entry.credit] = entry.slot;
            continue;
        }
        granting->credits[entry.credit - 1].at_em = true;
        granting->credits[entry.credit - 1].views = bus_in_.size();
    }
}

void Checker::announce_delivered(sim::EndpointId to, const ControlView& message) {
    for (std::uint32_t index = 0; index < message.header().count; ++index) {
        const wire::AnnounceEntry entry = message.entry<ControlKind::announce>(index);
        senders_[to].announced[message.body<ControlKind::announce>().base + index] = {entry.bu, entry.credit};
        if (!senders_[to].credits[entry.bu].contains(entry.credit)) judge_.mark("announced ahead of its credit");
    }
}

/// With source-credits an RU writes for a credit that the BU granted to it, into the slot which that is for.
void Checker::check_credit(sim::EndpointId from, sim::EndpointId to, const sim::Transfer& write) {
    const std::uint32_t node = node_of(from);
    if (!protocol::assigns_ahead(plan_.config) || !pushes(node) || write.head_bytes != sizeof(wire::Head)) return;
    wire::Head head;
    std::memcpy(&head, write.head.data(), sizeof head);
    Sender& sender = senders_[from];
    const std::map<std::uint32_t, std::uint16_t>& granted = sender.credits[node_of(to)];
    const auto found = granted.find(head.credit);
    if (found == granted.end() || found->second != place_of(write, head.source).slot) {
        violation("EB-C5", "RU {} writes MEP {} to node {} for credit {}, which was not granted to it for that slot",
                  node, head.mep, node_of(to), head.credit);
    }
    sender.announced.erase(head.mep);
    const bool passes_over = std::ranges::any_of(sender.announced, [&](const auto& each) {
        return each.first < head.mep && !sender.credits[each.second.bu].contains(each.second.credit);
    });
    if (passes_over) judge_.mark("passed over without credit");
}

void Checker::check_assigns(sim::EndpointId to, const ControlView& message) {
    Builder* target = builder_at(to);
    for (std::uint32_t index = 0; index < message.header().count; ++index) {
        const wire::AttemptEntry entry = message.entry<ControlKind::assign>(index);
        const bool ahead = protocol::assigns_ahead(plan_.config);
        if (target != nullptr && ahead) know_credit(*target, entry.credit);
        if (target == nullptr || entry.bu != target->node || entry.credit == 0 ||
            entry.credit > target->credits.size() || (!ahead && !target->credits[entry.credit - 1].at_em)) {
            violation("EB-C1", "the EM assigns MEP {} to node {} for credit {}, which it was not granted", entry.mep,
                      entry.bu, entry.credit);
            continue;
        }
        if (ahead && entry.credit != target->assigned + 1) {
            violation("EB-C5", "the EM assigns MEP {} to node {} for credit {} after credit {}", entry.mep, entry.bu,
                      entry.credit, target->assigned);
        }
        target->assigned = entry.credit;
        Credit& credit = target->credits[entry.credit - 1];
        if (credit.assigned) {
            violation("EB-C1", "the EM assigns credit {} of node {}#{} twice, now for MEP {}", entry.credit,
                      target->node, target->incarnation, entry.mep);
        }
        credit.assigned = true;
        if (entry.attempt == 1) check_static(*target, credit, entry.mep);
        bind(*target, entry.credit, entry.slot, entry.mep, entry.attempt);
    }
}

/// An attempt of a MEP belongs to one credit, whoever is told of it.
void Checker::bind(Builder& target, std::uint32_t number, std::uint16_t slot, MepId mep, std::uint16_t attempt) {
    Credit& credit = target.credits[number - 1];
    if (credit.slot != slot && slot != wire::unknown_slot) {
        violation("EB-C1", "credit {} of node {}#{} is for slot {}, the EM says {}", number, target.node,
                  target.incarnation, credit.slot, slot);
    }
    if (credit.bound && (credit.mep != mep || credit.attempt != attempt)) {
        violation("EB-C1", "credit {} of node {}#{} is for MEP {} attempt {} and for MEP {} attempt {}", number,
                  target.node, target.incarnation, credit.mep, credit.attempt, mep, attempt);
    }
    if (credit.bound) return;
    credit.bound = true;
    credit.mep = mep;
    credit.attempt = attempt;
    admit(mep, attempt);
}

void Checker::admit(MepId mep, std::uint16_t attempt) {
    if (mep >= meps_.size()) {
        violation("EB-C3", "MEP {} is assigned, there are {}", mep, meps_.size());
        return;
    }
    Mep& record = meps_[mep];
    if (attempt > 1) {
        judge_.story("EM assigns MEP {} again: attempt {}", mep, attempt);
        judge_.mark("assigned again");
    }
    record.latest_attempt = std::max(record.latest_attempt, attempt);
    if (record.admitted) return;
    record.admitted = true;
    for (std::uint32_t node = 0; node < views_.size(); ++node) {
        const Membership* ru = in_view(node);
        if (ru == nullptr || (plan_.config.nodes[node].roles & protocol::role_ru) == 0) continue;
        const MepId held = is_em(node) ? produced_[node] : available_[node];
        if (mep >= std::max(held, ru->from.value_or(0))) {
            violation("EB-C3", "MEP {} is admitted, but RU {} announced only those below {}", mep, node, held);
        }
    }
}

/// What the EM assigned, it assigned in one of the views since it got the credit; ahead of credits, since the BU came
/// in.
void Checker::check_static(const Builder& target, const Credit& credit, protocol::MepId mep) {
    if (plan_.config.assignment == protocol::Assignment::em) return;
    const bool ahead = protocol::assigns_ahead(plan_.config);
    judge_.mark(ahead ? "assigned ahead" : "assigned statically");
    for (std::size_t view = ahead ? target.entered : credit.views - 1; view < bus_in_.size(); ++view) {
        const std::vector<std::uint32_t>& bus = bus_in_[view];
        if (!bus.empty() && bus[mep % bus.size()] == target.node) return;
    }
    violation("EB-C5", "the EM assigns MEP {} to node {}, which is another one's", mep, target.node);
}

}  // namespace incast::adversary

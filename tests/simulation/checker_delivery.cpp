// What reaches sinks and the ledger: EB-F2, EB-F4, EB-F5, EB-F6.
#include <algorithm>
#include <cstring>

#include "base/prng.h"
#include "checker.h"
#include "sim/endpoint.h"

namespace incast::adversary {

using protocol::MepId;
using wire::SourceFlag;

Contribution contribution_of(const Plan& plan, MepId mep, std::uint32_t source) {
    const std::uint64_t bits = base::mix64(base::mix64(plan.seed ^ mep) + source);
    Contribution made;
    made.n_events = 1 + (mep % 7 == 6 ? 2 : 0);
    made.first_event = mep * 3;
    made.bytes = static_cast<std::uint32_t>(bits % plan.config.sources[source].cap_bytes) + 1;
    switch (bits >> 60) {
        case 0:
            made.flag = SourceFlag::empty;
            made.bytes = 0;
            break;
        case 1:
            made.flag = SourceFlag::truncated;
            break;
        case 2:
            made.flag = SourceFlag::desync;
            break;
        default:
            break;
    }
    return made;
}

Checker::Checker(const Plan& plan, sim::World& world, Judge& judge)
    : plan_(plan),
      world_(world),
      judge_(judge),
      layout_(protocol::slot_layout(plan.config)),
      slots_(plan.config.credits + plan.config.quarantine_slots + plan.config.held_slots),
      views_(plan.config.nodes.size()),
      available_(plan.config.nodes.size()),
      produced_(plan.config.nodes.size()),
      meps_(plan.source.total_meps) {
    world.observe(this);
    std::uint32_t rus = 0;
    std::uint32_t bus = 0;
    for (const protocol::NodeSpec& node : plan.config.nodes) {
        ru_of_node_.push_back((node.roles & protocol::role_ru) != 0 ? rus++ : 0);
        bu_of_node_.push_back((node.roles & protocol::role_bu) != 0 ? bus++ : 0);
    }
    bus_ = bus;
    period_ = std::max(rus, bus);
    ru_first_source_.resize(plan.config.nodes.size());
    for (std::size_t source = plan.config.sources.size(); source-- > 0;)
        ru_first_source_[static_cast<std::size_t>(plan.config.sources[source].ru)] = static_cast<std::uint32_t>(source);
    bus_in_.emplace_back();
    constexpr const char* layouts[] = {"layout: contiguous", "layout: per-mep", "layout: segmented",
                                       "layout: per-source"};
    judge_.mark(layouts[static_cast<std::size_t>(plan.config.layout)]);
    constexpr const char* names[] = {"schedule: sequential", "schedule: random",         "schedule: linear-shift",
                                     "schedule: none",       "schedule: barrel-barrier", "schedule: barrel-time-slot",
                                     "schedule: lockstep"};
    judge.mark(names[static_cast<std::size_t>(plan.config.schedule)]);
    constexpr const char* schemes[] = {"scheme: push", "scheme: pull", "scheme: push-pull", "scheme: pull-pull",
                                       "scheme: pull-read"};
    judge.mark(schemes[static_cast<std::size_t>(plan.config.scheme)]);
    constexpr const char* assignments[] = {"assignment: em", "assignment: static", "assignment: source-credits"};
    judge.mark(assignments[static_cast<std::size_t>(plan.config.assignment)]);
}

void Checker::node_started(std::uint32_t node, std::uint32_t incarnation, sim::EndpointId endpoint) {
    builder_at_.resize(std::max<std::size_t>(builder_at_.size(), endpoint + 1), 0);
    outstanding_.resize(builder_at_.size());
    senders_.resize(builder_at_.size());
    produced_[node] = 0;
    if ((plan_.config.nodes[node].roles & protocol::role_bu) == 0) return;
    Builder& unit = builders_.emplace_back();
    unit.node = node;
    unit.incarnation = incarnation;
    unit.open.assign(slots_, 0);
    builder_at_[endpoint] = static_cast<std::uint32_t>(builders_.size());
}

Checker::Builder* Checker::builder_at(sim::EndpointId endpoint) {
    return endpoint < builder_at_.size() && builder_at_[endpoint] > 0 ? &builders_[builder_at_[endpoint] - 1] : nullptr;
}

Checker::Builder* Checker::builder(std::uint32_t node, std::uint32_t incarnation) {
    for (Builder& each : builders_) {
        if (each.node == node && each.incarnation == incarnation) return &each;
    }
    return nullptr;
}

const Checker::Membership* Checker::in_view(std::uint32_t node) const {
    return views_[node].empty() || views_[node].back().lost ? nullptr : &views_[node].back();
}

Checker::Membership* Checker::membership(std::uint32_t node, std::uint32_t incarnation) {
    for (Membership& each : views_[node]) {
        if (each.incarnation == incarnation) return &each;
    }
    return nullptr;
}

const Checker::Membership* Checker::holder(std::uint32_t node, MepId mep) const {
    const Membership* found = nullptr;
    for (const Membership& each : views_[node]) {
        if (each.from && *each.from <= mep) found = &each;
    }
    return found;
}

// --- sinks
// -------------------------------------------------------------------------------------------------------------------

void Checker::taken(std::uint32_t node, std::uint32_t incarnation, const protocol::BuiltMep& mep) {
    judge_.story("node {}#{} delivers MEP {} attempt {}{}{}", node, incarnation, mep.mep, mep.attempt,
                 mep.redelivered ? " (redelivered)" : "",
                 mep.missing_sources > 0 ? fmt::format(", {} sources missing", mep.missing_sources) : "");
    if (mep.mep >= meps_.size()) {
        violation("EB-F4", "node {} delivers MEP {} of {}", node, mep.mep, meps_.size());
        return;
    }
    Builder* own = builder(node, incarnation);
    if (!is_em(node)) {
        const auto attempt = static_cast<std::uint16_t>(mep.attempt);
        const auto verdict = std::ranges::find_if(
            own->verdicts, [&](const Verdict& each) { return each.mep == mep.mep && each.attempt == attempt; });
        if (verdict == own->verdicts.end()) {
            violation("EB-F2", "node {}#{} delivers MEP {} attempt {} without the EM's verdict", node, incarnation,
                      mep.mep, mep.attempt);
        } else if (verdict->redelivered != mep.redelivered) {
            violation("EB-F2", "node {}#{} delivers MEP {} as {}, the verdict says otherwise", node, incarnation,
                      mep.mep, mep.redelivered ? "a repeat" : "new");
        }
        own->open[mep.slot] = 0;
    }
    if (two_stages(plan_.config.scheme)) {
        if (!own->decisions.contains({mep.mep, mep.attempt})) {
            violation("EB-C7", "node {} delivers MEP {} attempt {}, of which its filter never heard", node, mep.mep,
                      mep.attempt);
        } else if (rejected(*own, mep.mep, mep.attempt)) {
            violation("EB-C7", "node {} delivers MEP {} attempt {}, which its filter rejected", node, mep.mep,
                      mep.attempt);
        }
    }
    Mep& record = meps_[mep.mep];
    for (const Delivery& earlier : record.deliveries) {
        // A BU that was declared dead may deliver what it was granted after its successor did: order is by attempt, not
        // by time.
        const bool repeat_marked = earlier.attempt < mep.attempt ? mep.redelivered : earlier.redelivered;
        if (earlier.attempt == mep.attempt) {
            violation("EB-F2", "MEP {} attempt {} is delivered twice, by nodes {} and {}", mep.mep, mep.attempt,
                      earlier.node, node);
        } else if (!repeat_marked) {
            violation("EB-F2", "MEP {} is delivered by nodes {} and {}, the repeat is not marked", mep.mep,
                      earlier.node, node);
        }
    }
    if (!record.deliveries.empty()) judge_.mark("delivered again");
    record.deliveries.push_back(
        {node, incarnation, static_cast<std::uint16_t>(mep.attempt), mep.redelivered, false, mep.flagged_sources});
    std::uint32_t missing = 0;
    std::uint32_t flagged = 0;
    for (std::uint32_t source = 0; source < mep.sources.size(); ++source) {
        missing += wire::is_missing(mep.sources[source].flag) ? 1 : 0;
        flagged += wire::is_defect(mep.sources[source].flag) ? 1 : 0;
        check_source(own, node, mep, source);
    }
    note_events(node, mep);
    if (mep.sources.size() != plan_.config.sources.size() || missing != mep.missing_sources ||
        flagged != mep.flagged_sources) {
        violation("EB-F5", "node {}: MEP {} has {} sources of {}, {} missing and {} flagged, but {} and {} said", node,
                  mep.mep, mep.sources.size(), plan_.config.sources.size(), missing, flagged, mep.missing_sources,
                  mep.flagged_sources);
    }
    if (missing > 0) judge_.mark(missing == mep.sources.size() ? "delivered with nothing" : "delivered flagged");
}

void Checker::check_source(Builder* own, std::uint32_t node, const protocol::BuiltMep& mep, std::uint32_t source) {
    const protocol::BuiltSource& built = mep.sources[source];
    const auto ru = static_cast<std::uint32_t>(plan_.config.sources[source].ru);
    if (wire::is_missing(built.flag)) {
        const Membership* owner = holder(ru, mep.mep);
        if (owner != nullptr && !owner->lost) {
            violation("EB-F5", "node {}: source {} of MEP {} is flagged missing, but RU {}#{} is in the view", node,
                      source, mep.mep, ru, owner->incarnation);
        }
        return;
    }
    if (built.head == nullptr) {
        violation("EB-F5", "node {}: source {} of MEP {} is neither there nor flagged missing", node, source, mep.mep);
        return;
    }
    wire::Head head;
    std::memcpy(&head, built.head, sizeof head);
    Contribution expected = contribution_of(plan_, mep.mep, source);
    if (plan_.source.packing > 0) {
        expected.first_event = mep.first_event;
        expected.n_events = mep.n_events;
        if (head.mep == mep.mep && (head.first_event != mep.first_event || head.n_events != mep.n_events)) {
            violation("EB-C8", "node {}: MEP {} has events {} + {}, source {} of RU {} has {} + {}", node, mep.mep,
                      mep.first_event, mep.n_events, source, ru, head.first_event, head.n_events);
            return;
        }
    }
    const bool is_torn = plan_.network.lost_body_chance > 0 && built.flag == SourceFlag::bad_checksum;
    const bool right = head.magic == wire::head_magic && head.run == plan_.config.run && head.mep == mep.mep &&
                       head.source == source && head.attempt == mep.attempt && head.body_bytes == expected.bytes &&
                       head.n_events == expected.n_events && head.first_event == expected.first_event &&
                       (is_torn || head.flag == expected.flag) && built.flag == head.flag;
    if (!right) {
        violation("EB-F6", "node {}: MEP {} attempt {} source {}: the head is of MEP {} attempt {} source {}, {} bytes",
                  node, mep.mep, mep.attempt, source, head.mep, head.attempt, head.source, head.body_bytes);
        return;
    }
    const Membership* writer = membership(ru, head.incarnation);
    if (writer == nullptr || (writer->from && *writer->from > mep.mep)) {
        violation("EB-F6", "node {}: MEP {} source {} comes from RU {}#{}, which never took part in it", node, mep.mep,
                  source, ru, head.incarnation);
    }
    if (ru == node || own == nullptr) return;
    if (plan_.config.scheme == protocol::Scheme::pull_read) {
        check_read(*own, node, mep, source);
        return;
    }
    const std::string wrong = not_whole(*own, mep, source);
    if (is_torn) {
        const protocol::SourceSpec& spec = plan_.config.sources[source];
        bool any = false;
        for (std::uint32_t each = 0; each < plan_.config.sources.size(); ++each)
            any = any || (plan_.config.sources[each].ru == spec.ru && !not_whole(*own, mep, each).empty());
        if (!any) {
            violation("EB-F5", "node {}: source {} of MEP {} is flagged, and all of its RU is whole", node, source,
                      mep.mep);
        }
        judge_.mark("delivered torn");
    } else if (!wrong.empty() && !(plan_.network.lost_body_chance > 0 && wire::is_defect(expected.flag))) {
        violation("EB-T1", "node {}: MEP {} source {}: {}", node, mep.mep, source, wrong);
    }
}

/// What is wrong with the body in the slot; nothing: it is that of its head.
std::string Checker::not_whole(const Builder& own, const protocol::BuiltMep& mep, std::uint32_t source) {
    const auto [region, offset] = layout_.at(mep.slot, source);
    const auto local = static_cast<std::uint16_t>(region);
    for (std::uint32_t id = 0; id < builder_at_.size(); ++id) {
        if (builder_at(id) != &own || world_.find(id) == nullptr) continue;
        const sim::Area* area = world_.find(id)->area(local, offset);
        if (area == nullptr || area->body_write[0] != area->head_write || area->body_write[1] != area->head_write)
            return "the body in the slot is not whole, or not that of the head";
        wire::Head head;
        std::memcpy(&head, area->head.data(), sizeof head);
        const std::uint32_t step = plan_.config.message_size;
        for (std::uint64_t at = step; step > 0 && at < head.body_bytes; at += step) {
            const sim::Area* part = world_.find(id)->area(local, offset + sizeof head + at);
            const bool whole =
                part != nullptr && part->body_write[0] == part->body_write[1] && heads_.contains(part->body_write[0]);
            const wire::Head* of = whole ? &heads_.at(part->body_write[0]) : nullptr;
            if (of == nullptr || of->mep != head.mep || of->credit != head.credit || of->source != source)
                return fmt::format("byte {} of the body is not of that head", at);
        }
    }
    return {};
}

/// Whoever builds a MEP, it has the same events, and as many as the EM ordered if it did.
void Checker::note_events(std::uint32_t node, const protocol::BuiltMep& mep) {
    if (plan_.source.packing == 0 || mep.n_events == 0) return;
    Mep& record = meps_[mep.mep];
    const bool known = record.n_events > 0;
    if ((known && (record.n_events != mep.n_events || record.first_event != mep.first_event)) ||
        (record.closed > 0 && record.closed != mep.n_events) || mep.n_events > plan_.source.packing) {
        violation("EB-C8", "node {} delivers MEP {} with events {} + {}, another {} + {}; the EM ordered {}", node,
                  mep.mep, mep.first_event, mep.n_events, record.first_event, record.n_events, record.closed);
    }
    record.first_event = mep.first_event;
    record.n_events = mep.n_events;
}

/// One end for all.
void Checker::check_closes(const wire::ControlView& message) {
    const auto body = message.body<wire::ControlKind::close>();
    if (body.events == 0) judge_.mark("told to fill");
    if (body.events == 0 || body.mep >= meps_.size()) return;
    Mep& record = meps_[body.mep];
    if (record.closed != 0 && record.closed != body.events) {
        violation("EB-C8", "the EM closes MEP {} with {} events, and with {}", body.mep, record.closed, body.events);
    }
    if (record.admitted && record.closed == 0) {
        violation("EB-C8", "the EM closes MEP {}, which is admitted", body.mep);
    }
    record.closed = body.events;
}

bool Checker::rejected(const Builder& unit, MepId mep, std::uint32_t attempt) const {
    const auto found = unit.decisions.find({mep, attempt});
    return found != unit.decisions.end() && found->second == protocol::Filter::Verdict::reject;
}

void Checker::decided(std::uint32_t node, std::uint32_t incarnation, const protocol::BuiltMep& first,
                      protocol::Filter::Verdict verdict) {
    constexpr const char* names[] = {"filter: undecided", "filter: accept", "filter: reject"};
    judge_.mark(names[static_cast<std::size_t>(verdict)]);
    judge_.story("node {}#{} MEP {} attempt {}: {}", node, incarnation, first.mep, first.attempt,
                 names[static_cast<std::size_t>(verdict)]);
    Builder* own = builder(node, incarnation);
    own->decisions[{first.mep, first.attempt}] = verdict;
    std::uint32_t ru = 0;
    for (std::uint32_t source = 0; source < first.sources.size(); ++source) {
        ru += source > 0 && plan_.config.sources[source].ru != plan_.config.sources[source - 1].ru ? 1 : 0;
        if (ru < plan_.config.first_stage_rus) {
            check_source(own, node, first, source);
            continue;
        }
        const protocol::BuiltSource& built = first.sources[source];
        const bool to_come = built.flag == SourceFlag::late || wire::is_missing(built.flag);
        if (!to_come || built.head != nullptr || !built.body.empty()) {
            violation("EB-C7", "node {}: the filter sees source {} of MEP {}, which is of the second stage", node,
                      source, first.mep);
        }
    }
}

void Checker::durable(std::uint32_t node, std::uint32_t incarnation, MepId mep) {
    for (Delivery& each : meps_[mep].deliveries) {
        if (each.node == node && each.incarnation == incarnation) each.durable = true;
    }
}

// --- ledger
// ------------------------------------------------------------------------------------------------------------------

void Checker::committed(const protocol::LedgerEntry& entry) {
    judge_.story("EM commits MEP {} attempt {} by node {}", entry.mep, entry.attempt, entry.bu);
    if (entry.mep >= meps_.size()) {
        violation("EB-F4", "MEP {} of {} is committed", entry.mep, meps_.size());
        return;
    }
    Mep& record = meps_[entry.mep];
    if (record.committed) violation("EB-F2", "MEP {} is committed twice, now by node {}", entry.mep, entry.bu);
    const Membership* current = in_view(entry.bu);
    if (entry.rejected) {
        judge_.mark("committed as rejected");
        const Builder* by = current == nullptr ? nullptr : builder(entry.bu, current->incarnation);
        if (by == nullptr || !rejected(*by, entry.mep, entry.attempt)) {
            violation("EB-C7", "MEP {} is committed as rejected by node {}, whose filter did not reject it", entry.mep,
                      entry.bu);
        }
    }
    const auto delivery = std::ranges::find_if(record.deliveries, [&](const Delivery& each) {
        return each.node == entry.bu && each.attempt == entry.attempt && current != nullptr &&
               each.incarnation == current->incarnation;
    });
    if (entry.rejected) {
        if (delivery != record.deliveries.end()) {
            violation("EB-C7", "node {} delivered MEP {} attempt {}, and rejects it", entry.bu, entry.mep,
                      entry.attempt);
        }
    } else if (delivery == record.deliveries.end()) {
        violation("EB-F2", "MEP {} attempt {} is committed for node {}, which did not deliver it or is not in the view",
                  entry.mep, entry.attempt, entry.bu);
    } else if (!delivery->durable) {
        violation("EB-F2", "MEP {} is committed before the sink of node {} has it", entry.mep, entry.bu);
    } else if (delivery->flagged_sources != entry.flagged_sources ||
               delivery->redelivered != (entry.redelivered != 0)) {
        violation("EB-F2", "MEP {}: the ledger says {} flagged, repeat {}; node {} delivered {} flagged, repeat {}",
                  entry.mep, entry.flagged_sources, entry.redelivered, entry.bu, delivery->flagged_sources,
                  delivery->redelivered);
    }
    if (!record.committed) ++committed_count_;
    record.committed = true;
    while (committed_below_ < meps_.size() && meps_[committed_below_].committed)
        ++committed_below_;
}

void Checker::view_changed(Time /*now*/, std::uint32_t view, Peer peer, std::uint32_t incarnation, wire::Change change,
                           protocol::Cause /*cause*/) {
    const auto node = static_cast<std::uint32_t>(peer);
    constexpr const char* names[] = {"?", "up", "dead", "unreachable", "distrusted"};
    const char* name =
        names[std::min<std::size_t>(static_cast<std::size_t>(change), std::size(names)) % std::size(names)];
    if (plan_.lie != Lie::none && change != wire::Change::up && node != plan_.liar) {
        violation("EB-T8", "node {}#{} is dropped as {}, though only node {} lies", node, incarnation, name,
                  plan_.liar);
    }
    judge_.story("view {}: node {}#{} {}", view, node, incarnation, name);
    judge_.mark(fmt::format("view: {}{}", name, change == wire::Change::up && incarnation > 1 ? " again" : ""));
    Membership* known = membership(node, incarnation);
    if (change == wire::Change::up) {
        if (!views_[node].empty() && (views_[node].back().incarnation >= incarnation || !views_[node].back().lost)) {
            violation("EB-F6", "node {}#{} enters the view after or beside #{}", node, incarnation,
                      views_[node].back().incarnation);
        }
        views_[node].push_back({incarnation, {}, false});
        available_[node] = 0;
    } else if (known == nullptr || known->lost) {
        violation("EB-F6", "node {}#{} leaves the view without being in it", node, incarnation);
    } else {
        known->lost = true;
    }
    std::vector<std::uint32_t>& bus = bus_in_.emplace_back();
    for (std::uint32_t each = 0; each < views_.size(); ++each) {
        if ((plan_.config.nodes[each].roles & protocol::role_bu) != 0 && in_view(each) != nullptr) bus.push_back(each);
    }
    if (Builder* unit = builder(node, incarnation); unit != nullptr && change == wire::Change::up)
        unit->entered = bus_in_.size() - 1;
}

void Checker::finish(std::uint64_t admitted) {
    if (plan_.source.packing > 0) {
        // Ids go on without a gap, however short MEPs are. Of those that nobody delivered nothing is known.
        std::optional<std::uint64_t> next = 0;
        for (MepId mep = 0; mep < admitted; ++mep) {
            const Mep& record = meps_[mep];
            if (record.n_events > 0 && next && *next != record.first_event) {
                violation("EB-C8", "MEP {} begins with event {}, the one before ended with {}", mep, record.first_event,
                          *next);
            }
            next = record.n_events > 0 ? std::optional(record.first_event + record.n_events) : std::nullopt;
        }
        if (plan_.stop_at == 0 && next && *next != plan_.config.total_events)
            violation("EB-C8", "the run ends with event {} of {}", *next, plan_.config.total_events);
    } else if (plan_.stop_at == 0 && admitted != meps_.size())
        violation("EB-F4", "the run ends with {} of {} MEPs", admitted, meps_.size());
    for (MepId mep = 0; mep < meps_.size(); ++mep) {
        if (mep < admitted && !meps_[mep].committed)
            violation("EB-F4", "MEP {} of {} is never committed", mep, admitted);
        if (mep >= admitted && (meps_[mep].committed || meps_[mep].admitted))
            violation("EB-C3", "MEP {} of {} is assigned", mep, admitted);
    }
}

}  // namespace incast::adversary

// What passes the wire and what lands: EB-C1, EB-C3, EB-F1, EB-F3.
#include <algorithm>
#include <cstring>

#include "checker.h"

namespace incast::adversary {

using protocol::MepId;
using wire::ControlKind;
using wire::ControlView;

void Checker::message_posted(Time /*now*/, sim::EndpointId from, sim::EndpointId to, Bytes bytes) {
    const std::optional<ControlView> message = ControlView::parse(bytes);
    if (!message) {
        violation("wire", "node {} sends {} bytes that are no control message", node_of(from), bytes.size());
        return;
    }
    const wire::ControlHeader& header = message->header();
    if (header.run != plan_.config.run || header.incarnation != incarnation_of(from)) {
        violation("EB-F6", "node {}#{} sends as #{} of run {}", node_of(from), incarnation_of(from), header.incarnation,
                  header.run);
    }
    tell(from, to, *message);
    if (lying_) return;
    switch (message->kind()) {
        case ControlKind::grant:
            check_grants(from, to, *message);
            break;
        case ControlKind::assign:
            check_assigns(to, *message);
            break;
        case ControlKind::announce:
            check_announce(node_of(to), *message);
            break;
        case ControlKind::commit_verdict:
            check_verdicts(to, *message);
            break;
        case ControlKind::view:
            learn_view(*message);
            break;
        case ControlKind::request:
            check_requests(from, to, *message);
            break;
        case ControlKind::abort:
            judge_.mark(is_em(node_of(from)) ? "abort by the EM" : "abort by a BU", header.count);
            break;
        case ControlKind::abort_ack:
            judge_.mark("abort acknowledged", header.count);
            break;
        case ControlKind::late:
            judge_.mark("late");
            if (plan_.lie == Lie::grant || plan_.lie == Lie::abort) {
                violation("EB-T8", "node {} waits in vain for MEP {}, though only node {} lies", node_of(from),
                          message->body<ControlKind::late>().attempt.mep, plan_.liar);
            }
            break;
        case ControlKind::peer_lost:
            judge_.mark("lost peer reported", header.count);
            break;
        case ControlKind::placed:
            judge_.mark("placed");
            break;
        case ControlKind::phase:
            check_phase_posted(to, *message);
            break;
        case ControlKind::phase_done:
            check_phase_done(from, *message);
            break;
        case ControlKind::close:
            check_closes(*message);
            break;
        default:
            break;
    }
}

void Checker::message_delivered(Time now, sim::EndpointId from, sim::EndpointId to, Bytes bytes) {
    const std::optional<ControlView> message = ControlView::parse(bytes);
    if (!message) return;
    const std::uint32_t count = message->header().count;
    switch (message->kind()) {
        case ControlKind::grant:
            grants_delivered(from, to, *message);
            break;
        case ControlKind::announce:
            if (protocol::assigns_ahead(plan_.config)) announce_delivered(to, *message);
            break;
        case ControlKind::available:
        case ControlKind::open: {
            static_assert(sizeof(wire::OpenBody) >= sizeof(wire::AvailableBody));  // either begins with that number
            const Membership* sender = in_view(node_of(from));
            if (sender != nullptr && sender->incarnation == incarnation_of(from)) {
                available_[node_of(from)] =
                    std::max(available_[node_of(from)], message->body<ControlKind::available>().below);
            }
            break;
        }
        case ControlKind::commit_verdict:
            if (Builder* told = builder_at(to); told != nullptr) {
                for (std::uint32_t index = 0; index < count; ++index) {
                    const wire::AttemptEntry entry = message->entry<ControlKind::commit_verdict>(index);
                    if ((entry.flags & wire::attempt_granted) != 0) {
                        told->verdicts.push_back(
                            {entry.mep, entry.attempt, (entry.flags & wire::attempt_redelivered) != 0});
                        const bool ends = rejected(*told, entry.mep, entry.attempt) && entry.slot < slots_;
                        if (ends && told->open[entry.slot] == entry.credit) told->open[entry.slot] = 0;
                    } else if (entry.slot < slots_ && told->open[entry.slot] == entry.credit) {
                        told->open[entry.slot] = 0;
                    }
                }
            }
            break;
        case ControlKind::abort_ack:
            for (std::uint32_t index = 0; index < count; ++index)
                answered(to, from, message->entry<ControlKind::abort_ack>(index).credit);
            break;
        case ControlKind::placed: {
            Outstanding& sender = outstanding_[to];
            sender.unplaced[from] = sender.sent[from] - message->body<ControlKind::placed>().contributions;
            break;
        }
        case ControlKind::phase: {
            Sender& told = senders_[to];
            told.phase = message->body<ControlKind::phase>().phase;
            told.last.reset();
            told.served.clear();
            break;
        }
        case ControlKind::offer:
            offer_delivered(from, to, *message);
            break;
        case ControlKind::clock_answer:
            check_clock(now, to, *message);
            break;
        case ControlKind::phase_done:
            senders_[from].done = message->body<ControlKind::phase_done>().phase;
            break;
        default:
            break;
    }
}

// --- limits
// ------------------------------------------------------------------------------------------------------------------

void Checker::write_posted(Time now, sim::EndpointId from, sim::EndpointId to, const sim::Transfer& write) {
    if (write.head_bytes == sizeof(wire::Head))
        std::memcpy(&last_head_[{from, to}], write.head.data(), sizeof(wire::Head));
    if (write.head_bytes == 0 && write.body.length > 0) judge_.mark("write: continued");
    if (write.is_write) heads_[write.number] = last_head_[{from, to}];
    check_turn(now, from, to, write);
    check_credit(from, to, write);
    const protocol::Config& config = plan_.config;
    if (!write.noticed || !protocol::tells_placed(config)) return;
    Outstanding& sender = outstanding_[from];
    if (config.outstanding_writes > 0) {
        const std::uint64_t there = sender.unplaced[to] + 1;
        if (there > config.outstanding_writes) {
            violation("EB-C2", "RU {} has {} writes to node {} that are not placed, {} are configured", node_of(from),
                      there, node_of(to), config.outstanding_writes);
        }
        if (there == config.outstanding_writes) judge_.mark("outstanding writes at the limit");
    }
    ++sender.sent[to];
    ++sender.unplaced[to];
    std::uint64_t all = 0;
    for (const auto& [peer, count] : sender.unplaced)
        all += count;
    if (config.parallel_sends == 0) return;
    if (all > plan_.config.parallel_sends) {
        violation("EB-C2", "RU {} has {} contributions that are not placed, {} are configured", node_of(from), all,
                  plan_.config.parallel_sends);
    }
    if (all == plan_.config.parallel_sends) judge_.mark("parallel sends at the limit");
}

void Checker::check_requests(sim::EndpointId from, sim::EndpointId to, const ControlView& message) {
    if (plan_.config.parallel_requests == 0) return;
    Outstanding& asker = outstanding_[from];
    for (std::uint32_t index = 0; index < message.header().count; ++index) {
        asker.requested[to].push_back(message.entry<ControlKind::request>(index).credit);
    }
    std::size_t all = 0;
    for (const auto& [peer, credits] : asker.requested)
        all += credits.size();
    if (all > plan_.config.parallel_requests) {
        violation("EB-C2", "BU {} has {} requests outstanding, {} are configured", node_of(from), all,
                  plan_.config.parallel_requests);
    }
    if (all == plan_.config.parallel_requests) judge_.mark("parallel requests at the limit");
}

void Checker::answered(sim::EndpointId at, sim::EndpointId by, std::uint32_t credit) {
    const auto asked = outstanding_[at].requested.find(by);
    if (asked != outstanding_[at].requested.end()) std::erase(asked->second, credit);
}

void Checker::notice_delivered(Time /*now*/, sim::EndpointId from, sim::EndpointId to, const sim::Transfer& write) {
    if ((write.notice & protocol::more_follows) == 0) answered(to, from, head_of(write)->credit);
}

// --- announcements
// --------------------------------------------------------------------------------------------------------------

void Checker::check_announce(std::uint32_t to, const ControlView& message) {
    const wire::AnnounceBody body = message.body<ControlKind::announce>();
    if (body.released_below > committed_below_) {
        violation("EB-F1", "the EM releases MEPs below {} to node {}, but {} is not committed", body.released_below, to,
                  committed_below_);
    }
    for (std::uint32_t index = 0; index < message.header().count; ++index) {
        const wire::AnnounceEntry entry = message.entry<ControlKind::announce>(index);
        if (is_em(entry.bu)) continue;  // its grants are not on the wire
        const Membership* current = entry.bu < views_.size() ? in_view(entry.bu) : nullptr;
        Builder* target = current != nullptr ? builder(entry.bu, current->incarnation) : nullptr;
        if (target != nullptr && protocol::assigns_ahead(plan_.config)) know_credit(*target, entry.credit);
        if (target == nullptr || entry.credit == 0 || entry.credit > target->credits.size()) {
            // Written before the BU was dropped, posted after: no RU takes it. Announced for a successor it would be a
            // mix-up.
            if (target != nullptr) {
                violation("EB-C1", "MEP {} is announced for credit {} of node {}#{}, which it did not grant",
                          body.base + index, entry.credit, entry.bu, target->incarnation);
            }
            continue;
        }
        bind(*target, entry.credit, entry.slot, body.base + index, static_cast<std::uint16_t>(body.attempt));
    }
}

// --- commits
// -----------------------------------------------------------------------------------------------------------------

void Checker::check_verdicts(sim::EndpointId to, const ControlView& message) {
    for (std::uint32_t index = 0; index < message.header().count; ++index) {
        const wire::AttemptEntry entry = message.entry<ControlKind::commit_verdict>(index);
        if ((entry.flags & wire::attempt_granted) == 0) {
            judge_.mark("verdict: no");
            continue;
        }
        if (entry.mep >= meps_.size()) {
            violation("EB-F2", "commit of MEP {} granted, there are {}", entry.mep, meps_.size());
            continue;
        }
        Mep& record = meps_[entry.mep];
        const bool redelivered = (entry.flags & wire::attempt_redelivered) != 0;
        judge_.mark(redelivered ? "verdict: yes, again" : "verdict: yes");
        if (entry.attempt != record.latest_attempt) {
            violation("EB-F2", "commit of MEP {} granted to attempt {} of node {}, but attempt {} was assigned last",
                      entry.mep, entry.attempt, node_of(to), record.latest_attempt);
        }
        if (record.granted_attempt != 0 && record.granted_attempt != entry.attempt) {
            const Membership* earlier = in_view(record.granted_node);
            if (earlier != nullptr && earlier->incarnation == record.granted_incarnation) {
                violation("EB-F2", "commit of MEP {} granted to node {}, though node {} holds it for attempt {}",
                          entry.mep, node_of(to), record.granted_node, record.granted_attempt);
            }
            if (!redelivered)
                violation("EB-F2", "commit of MEP {} granted for the second time, not marked as a repeat", entry.mep);
        }
        if (record.committed)
            violation("EB-F2", "commit of MEP {} granted to node {} after it was committed", entry.mep, node_of(to));
        record.granted_attempt = entry.attempt;
        record.granted_node = node_of(to);
        record.granted_incarnation = incarnation_of(to);
    }
}

void Checker::learn_view(const ControlView& message) {
    for (std::uint32_t index = 0; index < message.header().count; ++index) {
        const wire::ViewEntry entry = message.entry<ControlKind::view>(index);
        if (entry.change != wire::Change::up || entry.node >= views_.size()) continue;
        Membership* up = membership(entry.node, entry.incarnation);
        if (up == nullptr) {
            violation("EB-F6", "the EM publishes node {}#{} as up, its ledger does not", entry.node, entry.incarnation);
        } else if (up->from && *up->from != entry.from_mep) {
            violation("EB-F6", "the EM publishes node {}#{} as taking part from {} and from {}", entry.node,
                      entry.incarnation, *up->from, entry.from_mep);
        } else {
            up->from = entry.from_mep;
        }
    }
}

// --- memory
// ------------------------------------------------------------------------------------------------------------------

/// Where a write is that says it is of that source; a BU's regions are the first of its endpoint (EB-S3).
Checker::Place Checker::place_of(const sim::Transfer& write, std::uint32_t source) const {
    const std::uint64_t sources = layout_.source_offset.size();
    if (source >= sources) return {};
    switch (plan_.config.layout) {
        case protocol::Layout::contiguous:
            if (write.region != 0) return {};
            return {write.offset / layout_.slot_bytes,
                    write.offset % layout_.slot_bytes - layout_.source_offset[source]};
        case protocol::Layout::per_mep:
            return {write.region, write.offset - layout_.source_offset[source]};
        case protocol::Layout::segmented:
            if (write.region % sources != source) return {};
            return {write.region / sources, write.offset};
        case protocol::Layout::per_source:
            if (write.region != source) return {};
            return {write.offset / layout_.source_bytes(source), write.offset % layout_.source_bytes(source)};
    }
    return {};
}

void Checker::landed(Time /*now*/, sim::EndpointId from, sim::EndpointId to, const sim::Transfer& write,
                     std::uint8_t parts) {
    Builder* target = builder_at(to);
    const bool continues = write.head_bytes == 0 && plan_.config.message_size > 0;
    if (target == nullptr || (write.head_bytes != sizeof(wire::Head) && !continues)) {
        violation("EB-T8", "node {} writes {} bytes of head to node {}", node_of(from), write.head_bytes, node_of(to));
        return;
    }
    const wire::Head head = *head_of(write);
    const auto [slot, offset] = place_of(write, head.source);
    const std::uint64_t within = offset - (continues ? sizeof(wire::Head) : 0);
    const bool in_place = slot < slots_ && (continues ? within > 0 : within == 0) &&
                          within < head.body_bytes + std::uint64_t{1} &&
                          within + write.body.length <= plan_.config.sources[head.source].cap_bytes;
    if (!in_place || plan_.config.sources[head.source].ru != Peer{node_of(from)} ||
        head.incarnation != incarnation_of(from)) {
        violation("EB-S3", "node {} writes source {} at offset {} of node {}, not its place", node_of(from),
                  head.source, write.offset, node_of(to));
        return;
    }
    if (write.pending.linked && !write.bytes_free) {
        // The bytes are read as they land: they must still be those of this MEP (checked where the source overwrites
        // them).
        judge_.mark(parts == sim::part_all ? "landed whole" : "landed in part");
    }
    if (is_em(target->node)) return;
    const std::uint32_t open = target->open[slot];
    if (open == 0) {
        judge_.mark("landed in an unused slot");
        return;
    }
    if (open != head.credit) {
        violation(
            "EB-F3", "RU {}#{} writes MEP {} for credit {} into slot {} of node {}#{}, which is in use for credit {}",
            node_of(from), incarnation_of(from), head.mep, head.credit, slot, target->node, target->incarnation, open);
        return;
    }
    // That plant makes RUs write what nobody asked for: whether a BU takes it is for the check of its deliveries to
    // see.
    if (plan_.config.plant == protocol::Plant::no_generation_check) return;
    const Credit& credit = target->credits[open - 1];
    if (credit.bound && (credit.mep != head.mep || credit.attempt != head.attempt)) {
        violation("EB-F6",
                  "RU {}#{} writes MEP {} attempt {} for credit {} of node {}#{}, which is for MEP {} attempt {}",
                  node_of(from), incarnation_of(from), head.mep, head.attempt, open, target->node, target->incarnation,
                  credit.mep, credit.attempt);
    }
}

const wire::Head* Checker::head_of(const sim::Transfer& write) const {
    return &heads_.at(write.number);
}

void Checker::peer_down(Time /*now*/, sim::EndpointId at, sim::EndpointId peer) {
    judge_.mark("connection down");
    if (at < outstanding_.size()) {
        outstanding_[at].unplaced.erase(peer);
        outstanding_[at].sent.erase(peer);
        outstanding_[at].requested.erase(peer);
        senders_[at].unfinished.erase(peer);
        senders_[at].credits.erase(node_of(peer));
        std::erase_if(senders_[at].announced, [&](const auto& each) { return each.second.bu == node_of(peer); });
    }
    judge_.story("node {}#{} loses the connection with node {}#{}", node_of(at), incarnation_of(at), node_of(peer),
                 incarnation_of(peer));
}

void Checker::tell(sim::EndpointId from, sim::EndpointId to, const ControlView& message) {
    if (!judge_.tells_story() || message.kind() == ControlKind::beat) return;
    static constexpr const char* names[] = {"?",
                                            "hello",
                                            "beat",
                                            "connected",
                                            "peer_lost",
                                            "view",
                                            "available",
                                            "announce",
                                            "abort",
                                            "abort_ack",
                                            "grant",
                                            "assign",
                                            "commit_request",
                                            "commit_verdict",
                                            "committed",
                                            "late",
                                            "region",
                                            "request",
                                            "placed",
                                            "end",
                                            "source_region",
                                            "offer",
                                            "phase",
                                            "phase_done",
                                            "clock_ask",
                                            "clock_answer",
                                            "open",
                                            "close"};
    std::string text =
        fmt::format("{}#{} -> {}#{} {} view {}", node_of(from), incarnation_of(from), node_of(to), incarnation_of(to),
                    names[static_cast<std::size_t>(message.kind())], message.header().view);
    const auto attempt = [&](const wire::AttemptEntry& entry) {
        text += fmt::format(" [MEP {} attempt {} bu {} slot {} credit {}{}{}]", entry.mep, entry.attempt, entry.bu,
                            entry.slot, entry.credit, (entry.flags & wire::attempt_granted) != 0 ? " granted" : "",
                            (entry.flags & wire::attempt_redelivered) != 0 ? " again" : "");
    };
    for (std::uint32_t index = 0; index < message.header().count; ++index) {
        switch (message.kind()) {
            case ControlKind::abort:
                attempt(message.entry<ControlKind::abort>(index));
                break;
            case ControlKind::assign:
                attempt(message.entry<ControlKind::assign>(index));
                break;
            case ControlKind::request:
                attempt(message.entry<ControlKind::request>(index));
                break;
            case ControlKind::commit_request:
                attempt(message.entry<ControlKind::commit_request>(index));
                break;
            case ControlKind::commit_verdict:
                attempt(message.entry<ControlKind::commit_verdict>(index));
                break;
            case ControlKind::committed:
                attempt(message.entry<ControlKind::committed>(index));
                break;
            case ControlKind::grant:
            case ControlKind::abort_ack: {
                const auto entry = message.entry<ControlKind::grant>(index);
                text += fmt::format(" [credit {} slot {}]", entry.credit, entry.slot);
                break;
            }
            case ControlKind::announce: {
                const auto entry = message.entry<ControlKind::announce>(index);
                text +=
                    fmt::format(" [MEP {} bu {} slot {} credit {}]", message.body<ControlKind::announce>().base + index,
                                entry.bu, entry.slot, entry.credit);
                break;
            }
            case ControlKind::view: {
                const auto entry = message.entry<ControlKind::view>(index);
                text += fmt::format(" [{}#{} change {} from {}]", entry.node, entry.incarnation,
                                    static_cast<std::uint32_t>(entry.change), entry.from_mep);
                break;
            }
            case ControlKind::connected:
            case ControlKind::peer_lost: {
                const auto entry = message.entry<ControlKind::connected>(index);
                text += fmt::format(" [{}#{}]", entry.peer, entry.incarnation);
                break;
            }
            default:
                break;
        }
    }
    if (message.kind() == ControlKind::announce)
        text += fmt::format(" released below {}", message.body<ControlKind::announce>().released_below);
    if (message.kind() == ControlKind::phase || message.kind() == ControlKind::phase_done)
        text += fmt::format(" {}", message.body<ControlKind::phase>().phase);
    if (message.kind() == ControlKind::available)
        text += fmt::format(" below {}", message.body<ControlKind::available>().below);
    if (message.kind() == ControlKind::open || message.kind() == ControlKind::close) {
        const auto body = message.body<ControlKind::close>();
        text += fmt::format(" MEP {} with {} events", body.mep, body.events);
    }
    if (message.kind() == ControlKind::late) attempt(message.body<ControlKind::late>().attempt);
    judge_.story("{}", text);
}

}  // namespace incast::adversary
